"""Records the results of training: as arrays, in the run folder, and for callbacks."""

import signal
import threading
import time
import warnings
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np

from dgmarl.config.methods import find_method
from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import write_yaml
from dgmarl.errors import RunError, out_of_memory
from dgmarl.files import LARGEST, is_number
from dgmarl.graphs.advice import uninformative
from dgmarl.hosts import from_first
from dgmarl.rollout import LARGEST_INPUT, UNUSABLE
from dgmarl.runs.callbacks import (
    CallbackLike,
    Checkpoint,
    Progress,
    Start,
    TrainResult,
    as_callbacks,
)
from dgmarl.runs.checkpoints import indices, load_latest, path_of
from dgmarl.runs.folder import RunFolder, host_facts
from dgmarl.runs.reading import metrics_of, read_timing, stacked
from dgmarl.training import Advanced
from dgmarl.trust import HOST_ADAPTERS


class Recorder:
    """A context that holds the folder's lock and stops at the next evaluation after Ctrl-C."""

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder | None = None,
        callbacks: Iterable[CallbackLike] = (),
        checkpoint_seconds: float = 30.0,
        keep_every: int = 0,
        resume: bool = False,
    ):
        """resume: continue the run in the folder instead of starting a new one."""
        self.config, self.folder, self.callbacks = config, folder, as_callbacks(callbacks)
        self.resume = resume
        self.checkpoint_seconds, self.keep_every = checkpoint_seconds, keep_every
        self.steps: list[np.ndarray] = []
        self.returns: list[np.ndarray] = []
        self.metrics: list[dict[str, np.ndarray]] = []
        self.timing: dict[str, Any] = {"compile_s": 0.0, "train_s": 0.0}
        self.interrupted = False
        self._on_host = config.env.partition(":")[0] in HOST_ADAPTERS
        self._n_saved = 0
        self._warned = False
        self._context = ExitStack()

    def __enter__(self) -> "Recorder":
        if self.folder:
            self._context.enter_context(self.folder.lock())
        if threading.current_thread() is threading.main_thread():
            before = signal.signal(signal.SIGINT, self._interrupt)
            self._context.callback(signal.signal, signal.SIGINT, before)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        # A new run that does not fit into memory leaves nothing to resume.
        if self.folder and self.is_new() and not self.resume and out_of_memory(error):
            self.folder.discard()
        self._context.close()

    @property
    def has_begun(self) -> bool:
        """The folder holds a run to resume."""
        return self.folder is not None and (self.folder.path / "config.yaml").is_file()

    def start(self, state: Any) -> Any:
        """Begin a new run from `state`, or restore one with `state` as its template."""
        if self.folder and self.resume:
            state = self._restore(self.folder, state)
        elif self.folder:
            self.folder.create(self.config, state)
        start = Start(self.config, self.folder.path if self.folder else None, self.step)
        for callback in self.callbacks:
            callback.on_start(start)
        return state

    def share(self, state: Any) -> Any:
        """Broadcast state, steps and returns from process 0, which has the folder, to all processes
        of a run. Earlier metrics stay in process 0."""
        n = int(from_first(np.array(len(self.steps))))
        if n:
            shape = (n, self.config.seeds)
            steps = np.array(self.steps or np.zeros(shape, int))
            episodes = self.config.evaluation.episodes
            returns = np.array(self.returns or np.zeros((*shape, episodes)))
            self.steps, self.returns = map(list, from_first((steps, returns)))
            self.metrics = self.metrics or [{} for _ in range(n)]
        return from_first(state)

    @property
    def step(self) -> np.ndarray:
        """Environment steps of each seed at the last evaluation."""
        return self.steps[-1] if self.steps else np.zeros(self.config.seeds, int)

    def is_new(self) -> bool:
        """Nothing has been evaluated yet."""
        return not self.steps

    def _restore(self, folder: RunFolder, state: Any) -> Any:
        """Restore the newest intact checkpoint of the folder."""
        if folder.warn_of_changes(self.config):
            folder.accept_changes(self.config)
        fresh = state
        self._n_saved, state = load_latest(folder.checkpoints, state, folder.run_id)
        if self._on_host and state.rollout_state is not None:
            state = state._replace(rollout_state=fresh.rollout_state)
            warnings.warn(
                f"The environments of {self.config.env} begin new episodes, because a worker "
                "process cannot be saved: the result will differ from an uninterrupted run's.",
                stacklevel=2,
            )
        if self.config.steps > folder.config().steps:
            write_yaml(folder.path / "config.yaml", self.config)
        history = folder.restore(self._n_saved, self.config)
        self.steps = list(history.steps.T)
        self.returns = list(history.returns.swapaxes(0, 1))
        self.metrics = [metrics_of(found) for found in history.evaluations]
        seconds = read_timing(folder.path).get("train_s", 0.0)
        self.timing["train_s"] = max(seconds, 0.0) if is_number(seconds) else 0.0
        return state

    def compiled(self, seconds: float) -> None:
        """Record the compile time and start the training clock."""
        self.timing["compile_s"] = seconds
        self._lap = self._saved = time.perf_counter()

    def wants_more(self) -> bool:
        """Whether some seed has steps left, without Ctrl-C; True before the first evaluation."""
        has_more = bool(self.step.min() < self.config.steps)
        return self.is_new() or (has_more and not self.interrupted)

    def record(self, advanced: Advanced) -> None:
        """Record one evaluation of all seeds and call the callbacks."""
        state, evaluation = advanced.state, advanced.evaluation
        step = np.asarray(state.step)  # waits for the device
        self._refuse_unusable(advanced.metrics)
        metrics = {k: v for k, v in advanced.metrics.items() if k not in UNUSABLE}
        now = time.perf_counter()
        before = self.step
        running = before < self.config.steps
        returns = np.where(
            running[:, None], evaluation.returns, self.returns[-1] if self.returns else 0
        )
        seconds, self._lap = now - self._lap, now
        self.timing["train_s"] += seconds
        # Earlier evaluations by an older version may lack some metrics.
        earlier = {**metrics, **(self.metrics[-1] if self.metrics else {})}
        values = {name: np.where(running, value, earlier[name]) for name, value in metrics.items()}
        self._refuse_nan(values, running, before, step)
        with np.errstate(over="ignore", invalid="ignore"):
            evaluated = np.stack([returns.mean(axis=1), returns.std(axis=1)])
        if not (np.abs(evaluated) < LARGEST).all():
            raise self.failure("gave a NaN, infinite or too large return in an evaluation")
        self.steps.append(step)
        self.returns.append(returns)
        self.metrics.append(values)
        speed = float((step - before).sum() / seconds)
        progress = Progress(
            len(self.steps) - 1, step, returns, values, speed, self.timing["train_s"]
        )
        if self.folder:
            self.folder.append_metrics(
                self._rows(
                    progress, np.asarray(state.iteration), np.asarray(evaluation.lengths), running
                )
            )
            permanent = self.keep_every and len(self.steps) % self.keep_every == 0
            # Worker processes may fail at any time, and are slower than a checkpoint.
            if permanent or self._on_host or now - self._saved > self.checkpoint_seconds:
                self.save(state)
        self._warn_of_graph(values, step)
        for callback in self.callbacks:
            callback.on_evaluation(progress)

    def save(self, state: Any) -> None:
        """Write returns, timing and a checkpoint, unless they are up to date."""
        if not self.folder or self._n_saved == len(self.steps):
            return
        steps, returns = np.stack(self.steps, axis=1), np.stack(self.returns, axis=1)
        self.folder.write_returns(steps, returns)
        self.folder.write_timing(self._all_timing())
        self.folder.save(len(self.steps), state, self.keep_every)
        self._n_saved, self._saved = len(self.steps), time.perf_counter()
        for callback in self.callbacks:
            path = path_of(self.folder.checkpoints, self._n_saved)
            callback.on_checkpoint(Checkpoint(path, self._n_saved))

    def _all_timing(self) -> dict[str, Any]:
        """Timing with steps per second of all seeds, with evaluations and without compilation, and
        facts about host and code."""
        speed = float(self.step.sum() / max(self.timing["train_s"], 1e-9))
        return {**self.timing, "steps_per_s": speed, **host_facts()}

    def finish(self, state: Any) -> TrainResult:
        """Save, call `on_end`, and return everything as arrays."""
        self.save(state)
        unfinished = bool(self.step.min() < self.config.steps)
        curves = np.stack(self.steps, 1), np.stack(self.returns, 1), stacked(self.metrics)
        result = TrainResult(self.config, *curves, self._all_timing(), state, unfinished)
        for callback in self.callbacks:
            callback.on_end(result)
        return result

    def _rows(
        self, progress: Progress, iteration: np.ndarray, lengths: np.ndarray, running: np.ndarray
    ) -> list[dict[str, Any]]:
        return [
            {
                "seed": self.config.seed + int(k),
                "evaluation": progress.evaluation,
                "iteration": int(iteration[k]),
                "step": int(progress.steps[k]),
                "wall_s": round(progress.seconds, 3),
                "return_mean": float(progress.returns[k].mean()),
                "return_std": float(progress.returns[k].std()),
                "length_mean": float(lengths[k].mean()),
                **{name: float(value[k]) for name, value in progress.metrics.items()},
            }
            for k in np.flatnonzero(running)
        ]

    def _warn_of_graph(self, metrics: dict[str, np.ndarray], step: np.ndarray) -> None:
        """Warn, once per run, of a graph without information."""
        uses_graph = find_method(self.config.method).uses_graph
        if self._warned or not uses_graph or "graph_density" not in metrics:
            return
        density, progress = float(metrics["graph_density"].mean()), step.min() / self.config.steps
        reward_graph = getattr(self.config.credit, "reward_graph", "none")
        sees, graph = self.config.graph_model.sees, self.config.graph
        sentence = uninformative(density, graph, float(progress), reward_graph, sees)
        if sentence:
            self._warned = True
            warnings.warn(sentence, stacklevel=2)

    def failure(self, what: str) -> RunError:
        """The error for a faulty environment. what: verb phrase, what the environment did."""
        env, step = self.config.env, int(self.step.min())
        advice = "correct it"
        if ":" in env:  # checking also trusts the changed file
            advice += f", check it with `dgmarl check-env {env}`"
        if self.folder:
            accept = " --accept-changes" if ":" in env else ""
            advice += f" and continue with `dgmarl train --resume {self.folder.path}{accept}`"
        return RunError(
            f"The environment {env} {what} after step {step:,}; {self._last_checkpoint()}: "
            f"{advice}."
        )

    def _refuse_unusable(self, metrics: dict[str, Any]) -> None:
        """Check before writing: a replay buffer may already hold the invalid values."""
        for name in UNUSABLE:
            if np.any(np.asarray(metrics.get(name, 0)) > 0):
                what = f"gave a NaN, infinite or too large number (over {LARGEST_INPUT:g}) as"
                raise self.failure(f"{what} {name.partition(' ')[2]}")

    def _refuse_nan(
        self,
        metrics: dict[str, np.ndarray],
        running: np.ndarray,
        before: np.ndarray,
        step: np.ndarray,
    ) -> None:
        for name, value in metrics.items():
            bad = np.flatnonzero(running & ~(np.abs(value) < LARGEST))
            if len(bad):
                k = int(bad[0])
                if name.startswith(("final_", "sampled_final_")):
                    raise self.failure(f"gave {value[k]} as info {name.partition('final_')[2]}")
                raise RunError(
                    f"{name} of seed {self.config.seed + k} became {value[k]} between step "
                    f"{before[k]} and {step[k]}; {self._last_checkpoint()}. Try a smaller "
                    "learner.learning_rate, or check the rewards."
                )

    def _last_checkpoint(self) -> str:
        saved = indices(self.folder.checkpoints) if self.folder else []
        return f"the last checkpoint is number {saved[-1]}" if saved else "there is no checkpoint"

    def _interrupt(self, signal_number: int, frame: object) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
