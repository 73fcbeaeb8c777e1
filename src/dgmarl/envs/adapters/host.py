"""Environments that are Python objects on the host: PettingZoo's and Gymnasium's.

`pettingzoo:mpe2.simple_spread_v3` and `pettingzoo:my_env.py` name a module or a file with a
function `parallel_env(**options)`. `gymnasium:Foraging-8x8-2p-1f-v3` and
`gymnasium:my_pkg:MyEnv-v0` name an id of Gymnasium's registry, optionally after the module that
registers it; spaces, observations and rewards are tuples over agents.

A host environment has the interface of all others, with `step` a callback out of the compiled
program, so that rollouts, learners and credit rules need no second implementation. One callback
receives all environments and seeds, however they are vmapped, and distributes them over worker
processes.

JAX holds a small record, `HostState`: the episode, its time and observation. Callbacks with side
effects are not allowed under `vmap` of a loop, so this one is declared pure, and data dependencies
keep the order: a step needs the time that the previous step returned. `step` invalidates the state
it is given; after `step_kept` the worker has a copy that can be stepped again."""

import os
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.device import count_cores, use_one_device
from dgmarl.envs.adapters import library, worker
from dgmarl.envs.adapters.worker import BEGIN, GOOD, KEEP, NOTHING, STEP, Layout, Recipe
from dgmarl.envs.base import Environment, EnvSpec, Observation, Outcome
from dgmarl.errors import UsageError, WorkerError
from dgmarl.trust import host_module

STARTING = 60.0
"""Minimum timeout in seconds for starting a worker and making its first environment."""
PACKAGES = {"gymnasium", "pettingzoo", "mpe2"}
"""Packages that the extra `adapters` installs for this module."""
KIND, EPISODE, TIME = range(3)
"""Columns of a command, followed by the seed and the actions."""


class HostState(NamedTuple):
    """An episode in a worker, as the compiled program sees it."""

    episode: Int[Array, ""]
    time: Int[Array, ""]
    """Steps so far; negative: a branch, or an expired state."""
    ended: Bool[Array, ""]
    observation: Observation
    local: Float[Array, "N L"]


class HostEnvironment(Environment[HostState]):
    """A PettingZoo `ParallelEnv`, or an object with its interface, in worker processes."""

    on_host = True
    loops_inside = True

    def __init__(self, recipe: Recipe, workers: int = 0, timeout: float = 60.0):
        """workers: number of processes; 0: one per core. timeout: seconds per step."""
        try:
            self.layout = worker.probe(recipe)
        except worker.UnfitError as error:
            raise UsageError(str(error)) from None
        layout, self.recipe = self.layout, recipe
        n, obs_size = layout.shapes["agents_view"]
        self.spec = EnvSpec(
            f"{recipe.adapter}:{recipe.name}",
            n_agents=n,
            n_actions=max(layout.n_actions),
            obs_size=obs_size,
            state_size=layout.state_size or n * obs_size,
            horizon=layout.horizon,
            state_is_obs=not layout.state_size,
        )
        self.workers = Workers(recipe, layout, workers or count_cores(), timeout)
        self._call = _batched(self.workers)
        use_one_device()

    def reset(self, key: PRNGKeyArray) -> tuple[HostState, Observation]:
        return self._begin(key, jnp.int32(BEGIN), jnp.int32(-1))

    def begin_where(
        self, key: PRNGKeyArray, done: Bool[Array, ""], state: HostState, observation: Observation
    ) -> tuple[HostState, Observation]:
        """A new episode in the same worker if `done`."""
        fresh = self._begin(key, jnp.where(done, BEGIN, NOTHING), state.episode)
        old = (state, observation)
        return jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, old)

    def step(
        self, key: PRNGKeyArray, state: HostState, action: Int[Array, "N"]
    ) -> tuple[HostState, Observation, Outcome]:
        """One step; no effect after the end of the episode. The key is not used: the environment
        draws random numbers from the seed of its episode."""
        return self._step(STEP, state, action)

    def step_kept(
        self, key: PRNGKeyArray, state: HostState, action: Int[Array, "N"]
    ) -> tuple[HostState, Observation, Outcome]:
        """`step`; the worker keeps a copy of the state before it."""
        return self._step(KEEP, state, action)

    def local_state(self, state: HostState) -> Float[Array, "N L"]:
        return state.local

    def offers(self, method: str) -> bool:
        offered = super().offers(method)
        return offered and (method != "local_state" or self.layout.local_size > 0)

    def close(self) -> None:
        """End the worker processes; the next episode starts new ones."""
        self.workers.close()

    def no_interventions(self) -> str:
        return self._why_no_copies

    @cached_property
    def _why_no_copies(self) -> str:
        return worker.why_no_copies(self.recipe)

    def _begin(
        self, key: PRNGKeyArray, kind: Int[Array, ""], episode: Int[Array, ""]
    ) -> tuple[HostState, Observation]:
        seed = (jax.random.bits(key) >> 1).astype(jnp.int32)
        no_action = jnp.zeros(self.spec.n_agents, jnp.int32)
        state, _ = self._request(kind, episode, jnp.int32(0), seed, no_action)
        return state, state.observation

    def _step(
        self, kind: int, state: HostState, action: Int[Array, "N"]
    ) -> tuple[HostState, Observation, Outcome]:
        request = jnp.where(state.ended, NOTHING, kind)
        action = jnp.asarray(action, jnp.int32)
        new, outcome = self._request(request, state.episode, state.time, jnp.int32(0), action)
        after = jax.tree.map(lambda new, old: jnp.where(state.ended, old, new), new, state)
        return after, after.observation, outcome

    def _request(
        self,
        kind: Int[Array, ""],
        episode: Int[Array, ""],
        time: Int[Array, ""],
        seed: Int[Array, ""],
        action: Int[Array, "N"],
    ) -> tuple[HostState, Outcome]:
        command = jnp.concatenate([jnp.stack([kind, episode, time, seed]), action])
        episode, numbers = self._call(command)
        part = self.layout.parts(numbers)
        views, state = part["agents_view"], part["global_state"]
        observation = Observation(
            views,
            state if self.layout.state_size else views.reshape(-1),
            part["action_mask"] > 0,
            part["alive"] > 0,
        )
        terminated, truncated = part["terminated"] > 0, part["truncated"] > 0
        outcome = Outcome(part["reward"], terminated, truncated, {})
        time = part["time"].astype(jnp.int32)
        ended = terminated | truncated
        return HostState(episode, time, ended, observation, part["local"]), outcome


class Workers:
    """Processes that run episodes; started on first use, ended by `close`, by an error, or with
    this object or process."""

    def __init__(self, recipe: Recipe, layout: Layout, count: int, timeout: float):
        self.layout, self.count, self.timeout = layout, count, timeout
        self._setup = (sys.path, asdict(recipe), asdict(layout))
        self._running: dict[int, _Process] = {}
        self._next = list(range(count))
        self._fault = ""
        self._lock = threading.Lock()
        weakref.finalize(self, _end, self._running)

    def play(
        self, commands: Int[np.ndarray, "*B C"]
    ) -> tuple[Int[np.ndarray, "*B"], Float[np.ndarray, "*B K"]]:
        """Execute all commands; the episode and the result vector of each."""
        with self._lock:
            if self._fault:
                raise WorkerError(self._fault)
            try:
                return self._play(np.array(commands))
            except WorkerError as error:
                self._fault = str(error)
                _end(self._running)
                raise

    def close(self) -> None:
        with self._lock:
            _end(self._running)

    def _play(self, commands: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = commands.reshape(-1, commands.shape[-1])
        waiting = self._assign(rows)
        self._start([process for process in waiting if process not in self._running])
        for process, indices in waiting.items():
            with suppress(OSError):  # the process has died; `_receive` raises the error
                self._running[process].connection.send(rows[indices].tolist())
        numbers = np.zeros((len(rows), self.layout.size), np.float32)
        while waiting:
            connections = {self._running[process].connection: process for process in waiting}
            ready: list[Any] = wait(list(connections), self.timeout)
            for connection in ready or list(connections)[:1]:
                process = connections[connection]
                row = waiting[process].popleft()
                numbers[row] = np.frombuffer(self._receive(process, _where(rows[row])), np.float32)
                if not waiting[process]:
                    del waiting[process]
        shape = commands.shape[:-1]
        return rows[:, EPISODE].reshape(shape), numbers.reshape(*shape, -1)

    def _assign(self, rows: np.ndarray) -> dict[int, deque[int]]:
        """The rows of each worker. The number of an episode modulo `count` is its worker."""
        waiting: dict[int, deque[int]] = {}
        for row in np.flatnonzero(rows[:, KIND] != NOTHING).tolist():
            episode = int(rows[row, EPISODE])
            process = (episode if episode >= 0 else row) % self.count
            if rows[row, KIND] == BEGIN:
                rows[row, EPISODE] = self._next[process]
                self._next[process] += self.count
            waiting.setdefault(process, deque()).append(row)
        return waiting

    def _start(self, processes: Sequence[int]) -> None:
        """Start these workers and wait until each has made an environment."""
        for process in processes:
            self._running[process] = _launch()
            self._running[process].connection.send(self._setup)
        for process in processes:
            self._receive(process, "start", max(self.timeout, STARTING))

    def _receive(self, process: int, where: str, limit: float = 0.0) -> bytes:
        """A worker's next answer, an error if there is none within `limit` seconds."""
        connection, started = self._running[process]
        if not connection.poll(limit):
            problem = f"did not answer within {limit or self.timeout:g} s"
        else:
            try:
                answer = connection.recv_bytes()
                if answer[:1] == GOOD:
                    return answer[1:]
                problem = answer[1:].decode()
            except (EOFError, OSError):
                problem = f"ended its process (exit code {started.wait()})"
        raise WorkerError(f"{problem} (worker {process}, {where})")


def _where(command: np.ndarray) -> str:
    """A description of a command for error messages."""
    if command[KIND] == BEGIN:
        return "reset"
    step = int(command[TIME]) + 1
    return f"step {step} of an episode" if step > 0 else "a step of a copy"


class _Process(NamedTuple):
    connection: Connection
    started: subprocess.Popen


def _launch() -> _Process:
    ours, theirs = Pipe()
    with theirs:
        quiet = {"JAX_PLATFORMS": "cpu", "SDL_VIDEODRIVER": "dummy", "OMP_NUM_THREADS": "1"}
        started = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", worker.__file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **quiet},
            start_new_session=True,  # only the parent handles Ctrl-C
        )
        return _Process(ours, started)  # pyright: ignore[reportArgumentType]


def _end(running: dict[int, _Process]) -> None:
    """End all workers, including those that hang."""
    for connection, started in running.values():
        connection.close()
        started.kill()
    for _, started in running.values():
        started.wait()
    running.clear()


def _batched(workers: Workers) -> Any:
    """`Workers.play` for one command; any batch of commands is one callback."""

    @jax.custom_batching.custom_vmap
    def call(commands: Int[Array, "*B C"]) -> tuple[Int[Array, "*B"], Float[Array, "*B K"]]:
        shape = commands.shape[:-1]
        results = (
            jax.ShapeDtypeStruct(shape, jnp.int32),
            jax.ShapeDtypeStruct((*shape, workers.layout.size), jnp.float32),
        )
        return jax.pure_callback(workers.play, results, commands)

    @call.def_vmap
    def _(axis_size: int, in_batched: list[bool], commands: Array) -> tuple[Any, tuple[bool, bool]]:
        return call(commands), (True, True)

    return call


def make(
    adapter: str,
    name: str,
    *,
    horizon: int = 0,
    local_state: str | Sequence[int] = (),
    workers: int = 0,
    timeout: float = 60.0,
    **options: Any,
) -> HostEnvironment:
    """horizon: maximum episode length; 0: that of the environment. local_state, for graphs: indices
    into the observation, or the name of a function(env, agent) in the environment's module.
    workers: number of processes; 0: one per core. timeout: seconds per step. options: arguments of
    the environment's constructor."""
    if os.name == "nt":
        raise UsageError(f"{adapter}:{name} needs worker processes: use Linux or macOS.")
    for option, value in (("horizon", horizon), ("workers", workers)):
        if not isinstance(value, int) or value < 0:
            raise UsageError(f"{option} is {value!r}, but must be a whole number of at least 0.")
    if not isinstance(timeout, int | float) or timeout <= 0:
        raise UsageError(f"timeout is {timeout!r}, but must be a number of seconds above 0.")
    module = host_module(adapter, name)
    for package in {"gymnasium", adapter, module.partition(".")[0]} & PACKAGES:
        library(package)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as in `load_object`
    local = local_state if isinstance(local_state, str) else tuple(local_state)
    recipe = Recipe(adapter, name, module, options, horizon, local)
    return HostEnvironment(recipe, workers, timeout)
