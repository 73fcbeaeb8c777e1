"""Checkpoints: one pytree each, written atomically, verified before use, never executed.

Orbax writes the arrays; `about.json` says which run and evaluation they belong to. A copy of the
metrics so far and checksums are added before the folder gets its final name. So a crash leaves
either a complete checkpoint or a `.writing` folder, which is ignored, and a damaged or misplaced
checkpoint is detected and skipped for the one before."""

import errno
import logging
import os
import re
import shutil
import tempfile
import threading
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dgmarl.arrays import unwrap_keys, wrap_keys
from dgmarl.errors import RunError, UsageError, one_line
from dgmarl.files import from_json, read_bytes, sha256, to_json, unwritable, write_atomic

KEPT = 2
"""Number of latest checkpoints that are kept: one to continue from and one as a fallback."""
ABOUT, CHECKSUMS = "about.json", "checksums.json"
ATTEMPTS = 3
"""Attempts to write: Orbax times out if the system clock is set forward."""
_ORBAX = threading.Lock()
"""Held while Orbax writes or reads: in two threads at a time, as with several programs of a sweep,
its event loops fail or wait for minutes."""
_OVERHEAD = 2**16
"""Approximate size of a checkpoint without its arrays, in bytes."""


def save_checkpoint(
    folder: Path,
    index: int,
    state: Any,
    keep_every: int = 0,
    run: str = "",
    history: Mapping[str, bytes] | None = None,
) -> Path:
    """Write `state` as checkpoint number `index` and delete older ones, except the latest two and
    every `keep_every`-th. run: id of the run. history: files to keep with the state."""
    final = path_of(folder, index)
    writing = final.with_name(f"{final.name}.writing")
    # Orbax does not store empty arrays.
    leaves = {name: np.asarray(leaf) for name, leaf in _paths(unwrap_keys(state)) if leaf.size}
    about = {"run": run, "index": index, "step": _steps(leaves)}
    files = {**(history or {}), ABOUT: to_json(about)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _refuse_full_disk(folder, sum(array.nbytes for array in leaves.values()))
        for old in (final, *folder.glob("*.writing")):
            shutil.rmtree(old, ignore_errors=True)
        _write_arrays(writing / "state", leaves)
        for name, content in files.items():
            write_atomic(writing / name, content)
        write_atomic(writing / CHECKSUMS, to_json(_checksums(writing), indent=1))
        os.replace(writing, final)
    except (OSError, ValueError, RunError) as error:
        shutil.rmtree(writing, ignore_errors=True)
        if isinstance(error, UsageError | RunError):
            raise
        if not isinstance(error, OSError) or not error.strerror:
            # Orbax reports errors of its storage layer as ValueError.
            error = OSError(errno.EIO, one_line(error))
        raise unwritable(final, error) from None
    for number in indices(folder)[:-KEPT]:
        if not keep_every or number % keep_every:
            shutil.rmtree(path_of(folder, number), ignore_errors=True)
    return final


def path_of(folder: Path, index: int) -> Path:
    """The folder of one checkpoint."""
    return folder / f"{index:08d}"


def load_latest(folder: Path, template: Any, run: str = "") -> tuple[int, Any]:
    """Number and state of the newest intact checkpoint. template: structure, shapes and dtypes.
    run: id of the run, if known."""
    problem = "there is none"
    for index in reversed(indices(folder)):
        path = path_of(folder, index)
        try:
            return index, _restore(path, _checked_about(path, index, run), template)
        except _DamagedError as error:
            problem = f"{path.name} {error}"
            warnings.warn(
                f"The checkpoint {path} {error}; looking for the one before it.", stacklevel=2
            )
    raise UsageError(
        f"{folder} holds no intact checkpoint ({problem}): start the run again in a new folder."
    )


class _DamagedError(Exception):
    """A checkpoint that cannot be used, and why."""


def _checked_about(path: Path, index: int, run: str) -> dict[str, Any]:
    """Verify the checksums and return about.json; an empty mapping for older checkpoints."""
    try:
        if from_json(read_bytes(path / CHECKSUMS)) != _checksums(path):
            raise ValueError("checksums differ")
        about = from_json(read_bytes(path / ABOUT)) if (path / ABOUT).exists() else {}
    except (OSError, ValueError) as error:
        raise _DamagedError("is damaged") from error
    if not isinstance(about, dict):
        raise _DamagedError("is damaged")
    if about.get("run", run) != run and run:
        raise _DamagedError("belongs to another run")
    if about.get("index", index) != index:
        raise _DamagedError(f"is a copy of number {about['index']}")
    return about


def _write_arrays(path: Path, leaves: dict[str, np.ndarray]) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with _ORBAX, _checkpointer() as checkpointer:
                checkpointer.save(path.absolute(), leaves, force=True)
            return
        except TimeoutError:
            if attempt == ATTEMPTS:
                raise


def _checkpointer() -> Any:
    """Orbax for this process alone: in multi-process training only process 0 writes."""
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.CRITICAL)
    own = jax.process_index()
    options = ocp.options.MultiprocessingOptions(
        primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"process-{own}"
    )
    return ocp.StandardCheckpointer(multiprocessing_options=options)


def indices(folder: Path) -> list[int]:
    """Numbers of the finished checkpoints, oldest first."""
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdecimal())


def _restore(path: Path, about: dict[str, Any], template: Any) -> Any:
    stored = _read_arrays(path / "state")
    raw = jax.eval_shape(unwrap_keys, template)
    wanted = {name: (leaf.shape, leaf.dtype) for name, leaf in _paths(raw) if leaf.size}
    if stored.keys() != wanted.keys():
        stored = _from_format_1(stored, wanted.keys())
    found = {name: (array.shape, array.dtype) for name, array in stored.items()}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            raise UsageError(
                f"The checkpoint {path} belongs to another configuration ({name} does not fit): "
                "resume its own run."
            )
    if about.get("step", _steps(stored)) != _steps(stored):
        raise _DamagedError("holds the state of another checkpoint")
    arrays = [stored.get(name, np.zeros(leaf.shape, leaf.dtype)) for name, leaf in _paths(raw)]
    structure = jax.tree.structure(template)
    return wrap_keys(jax.tree.unflatten(structure, jax.device_put(arrays)), template)


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with _ORBAX, warnings.catch_warnings(), _checkpointer() as checkpointer:
            warnings.simplefilter("ignore")
            stored = checkpointer.restore(path.absolute())
        return {str(name): np.asarray(array) for name, array in stored.items()}
    except Exception as error:  # Orbax may raise anything for damaged files
        raise _DamagedError("cannot be read") from error


def _from_format_1(stored: dict[str, np.ndarray], wanted: Collection[str]) -> dict[str, np.ndarray]:
    """Leaves of a format-1 checkpoint under their current names, without removed ones."""
    renamed = {}
    for name, array in stored.items():
        for old, new in FORMAT_1:
            name = re.sub(old, new, name)
        if name not in wanted:  # reward statistics belong to the learner or to the credit rule
            name = name.replace("learner.statistics.", "credit_state.")
        renamed[name] = array
    dropped = ("removed.", "credit_state.")
    return {k: v for k, v in renamed.items() if k in wanted or not k.startswith(dropped)}


FORMAT_1 = (
    (r"^graph\.n_updates$", "removed.n_updates"),
    (r"^graph\.recent\..*", "removed.recent"),
    (r"^learner\.cross\..*", "removed.cross"),
    (r"^graph$", "graph_state"),
    (r"^graph\.", "graph_state."),
    (r"\.optimiser\.", ".opt_state."),
    (r"^play\.", "rollout_state."),
    (r"^rollout_state\.view\.obs$", "rollout_state.observation.agents_view"),
    (r"^rollout_state\.view\.state$", "rollout_state.observation.global_state"),
    (r"^rollout_state\.view\.avail$", "rollout_state.observation.action_mask"),
    (r"^rollout_state\.view\.", "rollout_state.observation."),
    (r"^rollout_state\.memory", "rollout_state.hidden_state"),
    (r"^rollout_state\.starts$", "rollout_state.is_first"),
    (r"^learner\.copied_at$", "learner.target_updated"),
    (r"^replay\.", "learner.replay."),
    (r"^learner\.replay\.episodes\.obs$", "learner.replay.episodes.agents_view"),
    (r"^learner\.replay\.episodes\.avail$", "learner.replay.episodes.action_mask"),
)
"""Current names of the leaves of format 1: pattern and replacement, applied in this order."""


def _refuse_full_disk(folder: Path, n_bytes: int) -> None:
    """Check for free space first: on a full disk, Orbax's threads print long tracebacks."""
    n_bytes += _OVERHEAD
    if shutil.disk_usage(folder).free < n_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(n_bytes)  # fails at a limit on file sizes; writes nothing


def _paths(tree: Any) -> list[tuple[str, Any]]:
    return [
        (jax.tree_util.keystr(path, simple=True, separator="."), leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]


def _steps(leaves: Mapping[str, np.ndarray]) -> list[int]:
    """Environment steps of each seed; empty for a state without them."""
    return np.ravel(leaves["step"]).tolist() if "step" in leaves else []


def _checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below the folder, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}
