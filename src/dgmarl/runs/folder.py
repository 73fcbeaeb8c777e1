"""The run folder: configuration, one line per seed and evaluation, per-episode returns, timing,
checkpoints.

config.yaml      the resolved configuration, with a format version
run.json         the run's id, which its checkpoints carry too, and hashes of its files of code
metrics.jsonl    one line per seed and evaluation
returns.npz      returns[seed, evaluation, episode] and steps[seed, evaluation]
timing.json      compile seconds, steps per second, memory, host and code
replay.npz       a few episodes of the final policy, see `replays.py`
checkpoints/     see `checkpoints.py`; each keeps a copy of metrics.jsonl and returns.npz, from
                 which resuming restores both
"""

import contextlib
import hashlib
import io
import os
import platform
import shutil
import stat
import uuid
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dgmarl import __version__
from dgmarl.config.convert import HORIZON, removed_options, upgrade
from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import build, read_yaml, write_yaml
from dgmarl.envs.registry import make_env
from dgmarl.errors import UsageError
from dgmarl.files import append_line, from_json, read_bytes, to_json, unwritable, write_atomic
from dgmarl.runs import reading
from dgmarl.runs.checkpoints import indices, path_of, save_checkpoint
from dgmarl.runs.reading import METRICS, RETURNS, TIMING, History
from dgmarl.trust import code_files, file_hashes, remember


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"

    def create(self, config: TrainConfig, state: Any) -> None:
        """Begin a new run; an existing one is never overwritten.

        The first checkpoint is written before the configuration, so that every folder with a
        configuration can be resumed."""
        if (self.path / "config.yaml").exists() or any(indices(self.checkpoints)):
            raise UsageError(
                f"{self.path} already holds a run: resume it (--resume {self.path}) or choose "
                "another folder."
            )
        self._write_facts(uuid.uuid4().hex, config)
        self.save(0, state)
        write_yaml(self.path / "config.yaml", config)
        remember(**config.names)

    def discard(self) -> None:
        """Remove a run that has no evaluation yet."""
        (self.path / "config.yaml").unlink(missing_ok=True)
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        (self.path / ".lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other files of the user may be there
            self.path.rmdir()

    def config(self) -> TrainConfig:
        """The configuration of the run."""
        reading.require_run_folder(self.path)
        values = self.values()
        if values.get("rollout_length") == HORIZON:
            env = make_env(str(values["env"]), trust=False, **values.get("env_options", {}))
            values["rollout_length"] = env.spec.horizon
        return build(TrainConfig, values)

    def values(self) -> dict[str, Any]:
        """The configuration as plain values of the current format."""
        try:
            return upgrade(read_yaml(self.path / "config.yaml"))
        except UsageError as error:
            raise UsageError(f"{self.path}: {error}") from None

    def refuse_removed_options(self) -> None:
        """Raise UsageError if the run was trained with an option that no longer exists."""
        used = removed_options(read_yaml(self.path / "config.yaml"))
        if used:
            raise UsageError(
                f"{self.path} was trained with {', '.join(used)}, which no longer exists: it can "
                "be evaluated and watched, but not resumed."
            )

    @property
    def run_id(self) -> str:
        """Id of the run, which its checkpoints carry too; empty if unknown."""
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return str(self._facts()["id"])
        return ""

    def changed_files(self, config: TrainConfig) -> list[Path]:
        """Files of environment, graph source and networks that differ from those that the run was
        trained with; older runs do not store these."""
        kept: Any = None
        with contextlib.suppress(ValueError, KeyError, TypeError):
            kept = self._facts()["files"]
        kept = kept if isinstance(kept, dict) else {}
        names, now = config.names, file_hashes(**config.names)
        changed = [names[field] for field in now if kept.get(field, now[field]) != now[field]]
        return list(dict.fromkeys(code_files(name)[-1] for name in changed))

    def warn_of_changes(self, config: TrainConfig) -> bool:
        """Warn if files of code have changed since training; returns whether they have."""
        changed = self.changed_files(config)
        if changed:
            warnings.warn(
                f"{self.path} was trained with another version of {_listed(changed)}: the numbers "
                "may differ from those of the training.",
                stacklevel=3,
            )
        return bool(changed)

    def refuse_changes(self, config: TrainConfig) -> None:
        """Raise UsageError if files of code have changed since training."""
        if changed := self.changed_files(config):
            raise UsageError(
                f"{self.path} was trained with another version of {_listed(changed)}: start a new "
                "run with another --out, or continue with the changed file by --accept-changes."
            )

    def accept_changes(self, config: TrainConfig) -> None:
        """Store the present files as those of the run."""
        self._write_facts(self.run_id, config)

    def _facts(self) -> Any:
        return from_json(read_bytes(self.path / "run.json", 2000))

    def _write_facts(self, run_id: str, config: TrainConfig) -> None:
        facts = {"id": run_id, "files": file_hashes(**config.names)}
        write_atomic(self.path / "run.json", to_json(facts) + "\n")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Exclude other writers while the block runs; the system frees a killed process's lock."""
        from filelock import FileLock, Timeout

        path = self.path / ".lock"
        lock = FileLock(path, timeout=0)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path):  # locking truncates the file
                found = path.lstat()
                if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                    raise UsageError(f"{path} is a link instead of a file: remove it.")
            lock.acquire()
        except Timeout:
            raise UsageError(
                f"{self.path} is being written by another process: wait for it, or choose another "
                "folder."
            ) from None
        except OSError as error:
            raise unwritable(self.path, error) from None
        try:
            for remnant in self.path.glob(".*.tmp"):  # of killed writers
                remnant.unlink(missing_ok=True)
            for remnant in self.checkpoints.glob("*.writing"):
                shutil.rmtree(remnant, ignore_errors=True)
            yield
        finally:
            lock.release()

    def append_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Append one line per row."""
        append_line(self.path / METRICS, _lines(rows))

    def write_returns(self, steps: np.ndarray, returns: np.ndarray) -> None:
        """Replace the file by steps[seed, evaluation] and returns[seed, evaluation, episode]."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, steps=steps, returns=returns.astype(np.float32))
        write_atomic(self.path / RETURNS, buffer.getvalue())

    def save(self, n_evaluations: int, state: Any, keep_every: int = 0) -> None:
        """Write a checkpoint with a copy of metrics and returns."""
        names = (METRICS, RETURNS) if n_evaluations else ()
        history = {name: read_bytes(self.path / name) for name in names}
        save_checkpoint(self.checkpoints, n_evaluations, state, keep_every, self.run_id, history)

    def restore(self, n_evaluations: int, config: TrainConfig) -> History:
        """Metrics and returns up to a checkpoint, from its copy. The files of the folder are
        replaced by them; later evaluations will be repeated with the same result."""
        for later in indices(self.checkpoints):
            if later > n_evaluations:  # was skipped: it may belong to another run
                path = path_of(self.checkpoints, later)
                shutil.rmtree(path.with_suffix(".unusable"), ignore_errors=True)
                path.rename(path.with_suffix(".unusable"))
        if not n_evaluations:
            (self.path / RETURNS).unlink(missing_ok=True)
            write_atomic(self.path / METRICS, "")
            steps = np.zeros((config.seeds, 0), int)
            return History([], steps, np.zeros((*steps.shape, 0)))
        read = partial(
            reading.read_history, seeds=config.all_seeds, steps=config.steps, n=n_evaluations
        )
        copy = path_of(self.checkpoints, n_evaluations)
        # Older checkpoints have no copy.
        history = read(copy if (copy / METRICS).exists() else self.path)
        try:
            intact = read(self.path).same_as(history)
        except UsageError:
            intact = False
        if not intact:
            warnings.warn(
                f"{METRICS} or {RETURNS} in {self.path} was damaged: both are restored from the "
                f"checkpoint {copy.name}.",
                stacklevel=2,
            )
        self.write_returns(history.steps, history.returns)
        write_atomic(self.path / METRICS, _lines(history.rows))
        return history

    def write_timing(self, timing: dict[str, Any]) -> None:
        """Replace timing.json."""
        write_atomic(self.path / TIMING, to_json(timing, indent=1) + "\n")


def _listed(paths: list[Path]) -> str:
    return " and ".join(str(path) for path in paths)


def _lines(rows: list[Any]) -> str:
    return "".join(to_json(row) + "\n" for row in rows)


def host_facts() -> dict[str, Any]:
    """Hardware, versions and peak memory of this process."""
    device = jax.local_devices()[0]
    on_device = (device.memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**20
    return {
        "peak_memory_mib": round(on_device or _peak_memory_mib(), 1),
        "device": device.device_kind,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "dgmarl": code_version(),
    }


def _peak_memory_mib() -> float:
    """Peak memory of this process; 0 on Windows."""
    try:
        import resource
    except ImportError:
        return 0.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def code_version() -> str:
    """The version and a hash of the source code."""
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parents[1]
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:12]}"
