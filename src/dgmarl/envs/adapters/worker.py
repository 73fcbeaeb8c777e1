"""A worker process that runs PettingZoo and Gymnasium environments and returns flat vectors.

Run as a script by `dgmarl.envs.adapters.host`, which itself calls only `probe` and `why_no_copies`.
Workers do not import JAX, so that they start quickly.

A request is (kind, episode, time, seed, *actions). Each is answered by one message: `GOOD` and the
vector that `Layout` describes, or `BAD` and an error message, after which the worker exits. It also
exits when its parent closes the connection or has exited."""

import copy
import copyreg
import importlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import prod
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

NOTHING, BEGIN, STEP, KEEP = range(4)
"""Kinds of requests: none, a new episode, a step, a step that keeps the state before it."""
GOOD, BAD = b"+", b"-"
EXPIRED, BRANCH = -1, -2
"""Times of expired states, and of the first branch; further branches count down from it."""
LIMITS = ("max_cycles", "max_steps", "_max_episode_steps", "max_episode_steps", "episode_limit")
"""Attributes in which environments store the maximum episode length."""


class UnfitError(ValueError):
    """The adapter cannot use this environment."""


class MisbehaviourError(Exception):
    """An error of an environment; the message completes `The environment X ...`."""


@dataclass(frozen=True)
class Recipe:
    """How a worker makes its environments."""

    adapter: str
    """pettingzoo or gymnasium."""
    name: str
    """The text after the adapter's colon."""
    module: str
    """Module or file to import; empty: none."""
    options: dict[str, Any]
    """Arguments of the environment's constructor."""
    horizon: int = 0
    """Maximum episode length; 0: that of the environment."""
    local_state: str | tuple[int, ...] = ()
    """Name of a function in the environment's module, or indices into the observation."""


@dataclass(frozen=True)
class Layout:
    """Names and sizes of an environment, and the layout of its result vector."""

    agents: tuple[str, ...]
    view_sizes: tuple[int, ...]
    """Length of each agent's observation; shorter ones are padded with 0."""
    n_actions: tuple[int, ...]
    """Number of actions of each agent."""
    first_actions: tuple[int, ...]
    state_size: int
    """0: the global state is all observations."""
    local_size: int
    """0: the environment has no local states."""
    horizon: int

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each part of the vector, in order."""
        n = len(self.agents)
        return {
            "agents_view": (n, max(self.view_sizes)),
            "global_state": (self.state_size,),
            "action_mask": (n, max(self.n_actions)),
            "alive": (n,),
            "local": (n, self.local_size),
            "reward": (n,),
            "terminated": (),
            "truncated": (),
            "time": (),
        }

    @cached_property
    def _ends(self) -> list[int]:
        return np.cumsum([prod(shape) for shape in self.shapes.values()]).tolist()

    @property
    def size(self) -> int:
        return self._ends[-1]

    def parts(self, numbers: Any) -> dict[str, Any]:
        """The parts of a NumPy (as views) or JAX vector."""
        return {
            name: numbers[end - prod(shape) : end].reshape(shape)
            for (name, shape), end in zip(self.shapes.items(), self._ends, strict=True)
        }


class Simulator:
    """One environment, with its observations and rewards as flat vectors."""

    def __init__(self, env: Any, recipe: Recipe, layout: Layout | None = None):
        self.env, self.recipe, self.time, self.running = env, recipe, 0, False
        self.own = _own_state(recipe)
        self.layout = layout or _layout(env, recipe, self.own)
        self.index = {name: k for k, name in enumerate(self.layout.agents)}

    def begin(self, seed: int) -> np.ndarray:
        self.time, self.running = 0, True
        views, infos = self.env.reset(seed=seed)
        return self._numbers(views, infos, {}, self.env.agents, (False, False))

    def step(self, actions: Iterable[int]) -> np.ndarray:
        first = self.layout.first_actions
        chosen = {
            name: first[k] + int(action)
            for (name, k), action in zip(self.index.items(), actions, strict=True)
            if name in self.env.agents
        }
        views, rewards, terminated, truncated, infos = self.env.step(chosen)
        self.time += 1
        remaining = list(self.env.agents)
        late = self.time >= self.layout.horizon and bool(remaining)
        ended = late or not remaining or all(terminated[a] or truncated[a] for a in chosen)
        cut_off = [a for a in chosen if truncated.get(a) and not terminated.get(a)]
        self.running = not ended
        is_cut = ended and (late or bool(cut_off))
        alive = [*remaining, *cut_off] if is_cut else remaining
        return self._numbers(views, infos, rewards, alive, (ended and not is_cut, is_cut))

    def _numbers(
        self, views: Any, infos: Any, rewards: Any, alive: Iterable[str], end: tuple[bool, bool]
    ) -> np.ndarray:
        """All parts of `Layout.parts` in one vector."""
        layout = self.layout
        for name in (*views, *rewards, *alive):
            if name not in self.index:
                known = ", ".join(self.index)
                raise MisbehaviourError(f"has an agent {name!r} now, but began with {known}")
        numbers = np.zeros(layout.size, np.float32)
        parts = layout.parts(numbers)
        parts["action_mask"][:, 0] = 1  # the only action of agents that have left
        for name in views:
            view, mask = _view(self.env.observation_space(name), views[name], infos.get(name))
            k = self.index[name]
            self._check_size(f"{name} an observation", view, layout.view_sizes[k])
            parts["agents_view"][k, : view.size] = view
            if name in alive:
                given = np.ones(layout.n_actions[k]) if mask is None else np.ravel(mask)
                self._check_size(f"{name} an action mask", given, layout.n_actions[k])
                parts["action_mask"][k, : given.size] = given
        for name in alive:
            if name not in views:
                raise MisbehaviourError(f"gave the living agent {name} no observation")
            parts["alive"][self.index[name]] = 1
        for name, reward in rewards.items():
            self._check_size(f"{name} a reward", np.asarray(reward), 1)
            parts["reward"][self.index[name]] = np.asarray(reward).item()
        if layout.state_size:
            state = np.ravel(self.env.state())
            self._check_size("a state", state, layout.state_size)
            parts["global_state"][:] = state
        parts["local"][:] = _local(self.own, self.env, layout.agents, parts["agents_view"])
        parts["terminated"][()], parts["truncated"][()] = end
        parts["time"][()] = self.time
        if not np.isfinite(numbers).all():
            bad = next(name for name, part in parts.items() if not np.isfinite(part).all())
            raise MisbehaviourError(f"gave a NaN or infinite number as {bad}")
        return numbers

    def _check_size(self, what: str, found: np.ndarray, size: int) -> None:
        if found.size != size:
            raise MisbehaviourError(
                f"gave {what} of {found.size} numbers (shape {found.shape}), but announced {size}"
            )

    def freeze(self) -> Any:
        """A copy of the state, for `thaw`."""
        state = self.env.get_state() if _can_be_set(self.env) else self.env
        return copy.deepcopy(state), self.time

    def thaw(self, frozen: Any) -> "Simulator":
        """A simulator in that state: this one if it has `set_state`, else a new one."""
        state, when = frozen
        if _can_be_set(self.env):
            other = self
            self.env.set_state(copy.deepcopy(state))
        else:
            other = Simulator(copy.deepcopy(state), self.recipe, self.layout)
        other.time = when
        return other


def make(recipe: Recipe) -> Any:
    """The environment, with PettingZoo's `ParallelEnv` interface."""
    if recipe.adapter == "gymnasium":
        return _AsParallel(_make_gymnasium(recipe))
    make_parallel = getattr(_module(recipe.module), "parallel_env", None)
    if not callable(make_parallel):
        raise UnfitError(
            f"{recipe.name} has no function parallel_env: name a module that has one, as those of "
            "PettingZoo do."
        )
    return make_parallel(**recipe.options)


def probe(recipe: Recipe) -> Layout:
    """Names and sizes of the recipe's environment."""
    return Simulator(make(recipe), recipe).layout


def why_no_copies(recipe: Recipe) -> str:
    """Why copies of the environment cannot be used for interventions; empty if they can. Two copies
    and the original take the same random actions and must agree."""
    allow_copies()
    try:
        original, spare = Simulator(make(recipe), recipe), Simulator(make(recipe), recipe)
        layout, draw = original.layout, np.random.default_rng(0)
        numbers = original.begin(0)
        for _ in range(min(5, layout.horizon)):
            mask = layout.parts(numbers)["action_mask"]
            actions = [draw.choice(np.flatnonzero(row)) for row in mask]
            frozen = original.freeze()
            numbers = original.step(actions)
            copies = [spare.thaw(frozen).step(actions) for _ in range(2)]
            if not all(np.array_equal(numbers, other) for other in copies):
                return "copies of it give different results for the same actions"
            if not original.running:
                break
    except Exception as error:
        return f"it cannot be copied, {_line(error)}"
    return ""


def allow_copies() -> None:
    """Make `copy.deepcopy` work on environments: `EzPickle` would make a new environment instead of
    a copy, and images and fonts, which no step reads, cannot be copied."""
    from gymnasium.utils import EzPickle

    def copy_attributes(self: Any, memo: dict[int, Any]) -> Any:
        new = object.__new__(type(self))
        memo[id(self)] = new
        new.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return new

    EzPickle.__deepcopy__ = copy_attributes  # pyright: ignore[reportAttributeAccessIssue]
    for module, name in (("surface", "Surface"), ("freetype", "Font"), ("font", "Font")):
        kind = getattr(sys.modules.get(f"pygame.{module}"), name, None)
        if kind is not None:
            copyreg.pickle(kind, lambda shared: "shared")  # a string: not copied


class _AsParallel:
    """A Gymnasium environment whose spaces, observations and rewards are tuples over agents."""

    def __init__(self, env: Any):
        self.env = env
        self.actions, self.views = _members(env.action_space), _members(env.observation_space)
        if len(self.actions) < 2 or len(self.actions) != len(self.views):
            raise UnfitError(
                f"{env.spec.id} has the spaces {env.observation_space} and {env.action_space}, but "
                "needs one of each for every agent, in a Tuple."
            )
        self.possible_agents = [f"agent_{k}" for k in range(len(self.actions))]
        self.agents: list[str] = []

    @property
    def unwrapped(self) -> Any:
        """The environment without wrappers, which may define the maximum episode length."""
        return self.env.unwrapped

    def observation_space(self, agent: str) -> Any:
        return self.views[self.possible_agents.index(agent)]

    def action_space(self, agent: str) -> Any:
        return self.actions[self.possible_agents.index(agent)]

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        views, _ = self.env.reset(seed=seed)
        self.agents = list(self.possible_agents)
        return self._by_agent(views), {}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        views, reward, terminated, truncated, _ = self.env.step(tuple(actions.values()))
        n = len(self.possible_agents)
        # A team reward is divided, so that the sum over agents is that reward.
        reward = [reward / n] * n if np.ndim(reward) == 0 else reward
        ends = [[end] * n if np.ndim(end) == 0 else end for end in (terminated, truncated)]
        if all(one or other for one, other in zip(*ends, strict=True)):
            self.agents = []
        return self._by_agent(views), self._by_agent(reward), *map(self._by_agent, ends), {}

    def _by_agent(self, values: Any) -> dict[str, Any]:
        if len(values) != len(self.possible_agents):
            raise MisbehaviourError(
                f"gave {len(values)} values for its {len(self.possible_agents)} agents"
            )
        return dict(zip(self.possible_agents, values, strict=True))


def _members(space: Any) -> tuple[Any, ...]:
    """The spaces of the agents; empty if there is not one per agent."""
    import gymnasium

    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return tuple(gymnasium.spaces.Discrete(int(n)) for n in np.ravel(space.nvec))
    return tuple(space) if isinstance(space, gymnasium.spaces.Tuple) else ()


def _make_gymnasium(recipe: Recipe) -> Any:
    """`module:id`, or an id that the recipe's module or Gymnasium itself registers."""
    import gymnasium

    name = recipe.name.rpartition(":")[2]
    _module(recipe.module)
    if name not in gymnasium.registry:
        raise UnfitError(
            f"Gymnasium has no environment {name!r}: name the module that registers it too, "
            "gymnasium:module:id."
        )
    return gymnasium.make(name, disable_env_checker=True, **recipe.options)


@cache
def _module(place: str) -> ModuleType | None:
    if not place.endswith(".py"):
        return importlib.import_module(place) if place else None
    if not Path(place).is_file():
        raise UnfitError(f"there is no Python file {place}: check the path.")
    return load_file(place)


def load_file(path: str) -> ModuleType:
    """Execute a Python file as a module, from its source: a `__pycache__` beside it may hold code
    that is not trusted. The running script is not executed again."""
    main = sys.modules["__main__"]
    if Path(getattr(main, "__file__", None) or os.devnull).resolve() == Path(path).resolve():
        return main
    name = f"dgmarl_user_{Path(path).stem}"
    module = sys.modules[name] = ModuleType(name)  # dataclasses look their module up by name
    module.__file__ = path
    exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)
    return module


def _layout(env: Any, recipe: Recipe, own: Any) -> Layout:
    import gymnasium

    agents = tuple(env.possible_agents)
    spaces = [env.action_space(agent) for agent in agents]
    for agent, space in zip(agents, spaces, strict=True):
        if not hasattr(space, "n"):
            raise UnfitError(
                f"{recipe.name}: the actions of {agent} are {space}, but must be a Discrete space."
            )
    env.reset(seed=0)
    try:
        state_size = np.size(env.state())
    except (NotImplementedError, AttributeError):  # it has none
        state_size = 0
    views = [_without_mask(env.observation_space(agent)) for agent in agents]
    sizes = tuple(gymnasium.spaces.flatdim(view) for view in views)
    return Layout(
        agents,
        sizes,
        tuple(int(space.n) for space in spaces),
        tuple(int(space.start) for space in spaces),
        state_size,
        _local(own, env, agents, np.zeros((len(agents), max(sizes)))).shape[1],
        recipe.horizon or _max_steps(env, recipe),
    )


def _max_steps(env: Any, recipe: Recipe) -> int:
    spec = getattr(env.unwrapped, "spec", None)
    found = [getattr(env.unwrapped, name, None) for name in LIMITS]
    for limit in (*found, getattr(spec, "max_episode_steps", None)):
        if isinstance(limit, int | np.integer) and limit > 0:
            return int(limit)
    raise UnfitError(
        f"{recipe.name} does not say how long an episode can be: set the option horizon, for "
        "example env_options.horizon=100."
    )


def _without_mask(space: Any) -> Any:
    """The part of an observation space that policies see."""
    parts = getattr(space, "spaces", {})
    return space["observation"] if "observation" in parts and "action_mask" in parts else space


def _view(space: Any, value: Any, info: Any) -> tuple[np.ndarray, Any]:
    """An agent's observation as a vector, and its action mask, from either of the two places where
    PettingZoo's environments put it; None if there is none."""
    import gymnasium

    mask, inner = (info or {}).get("action_mask"), _without_mask(space)
    if inner is not space:
        value, mask = value["observation"], value["action_mask"]
    if not isinstance(inner, gymnasium.spaces.Box):
        value = gymnasium.spaces.flatten(inner, value)
    return np.asarray(value, np.float32).reshape(-1), mask


def _own_state(recipe: Recipe) -> list[int] | Callable[..., Any]:
    """The source of local states: a function, or indices into the observation."""
    if not isinstance(recipe.local_state, str):
        return list(recipe.local_state)
    function = getattr(_module(recipe.module), recipe.local_state, None)
    if not callable(function):
        raise UnfitError(
            f"local_state is {recipe.local_state!r}, but must be indices into the observation, "
            "such as [0, 1], or the name of a function(env, agent) in the environment's module."
        )
    return function


def _local(
    own: list[int] | Callable[..., Any], env: Any, agents: Iterable[str], views: np.ndarray
) -> np.ndarray:
    """[N, L] local states."""
    if callable(own):
        return np.stack([np.ravel(own(env, agent)).astype(np.float32) for agent in agents])
    if not all(0 <= index < views.shape[1] for index in own):
        raise UnfitError(f"local_state is {own}, but observations have {views.shape[1]} numbers.")
    return views[:, own]


def _can_be_set(env: Any) -> bool:
    return hasattr(env, "get_state") and hasattr(env, "set_state")


@dataclass
class _Episode:
    """One episode in a worker."""

    simulator: Simulator | None
    """None after its end."""
    past: dict[int, Any] = field(default_factory=dict)
    """Frozen states by time, as kept by `KEEP`."""
    past_used: bool = False
    """Whether `past` was stepped: the next kept step then belongs to another rollout."""


class Worker:
    """The episodes of one process."""

    def __init__(self, recipe: Recipe, layout: Layout):
        self.recipe, self.layout, self.spare = recipe, layout, None
        self.idle = [self._fresh()]
        self.episodes: dict[int, _Episode] = {}
        self.branches: dict[int, Any] = {}
        allow_copies()

    def answers(self, requests: list[tuple[int, ...]]) -> Iterator[np.ndarray]:
        """The result of each request of one callback. Branches are dropped unless the first request
        steps one."""
        if requests[0][2] > BRANCH:
            self.branches.clear()
        for request in requests:
            with _errors_of_env():
                numbers = self.answer(*request)
            yield numbers

    def answer(self, kind: int, number: int, when: int, seed: int, *actions: int) -> np.ndarray:
        if kind == BEGIN:
            return self._begin(number, seed)
        episode = self.episodes.get(number)
        if episode and episode.simulator and episode.simulator.time == when:
            return self._step(number, episode, actions, kind == KEEP)
        if episode and when in episode.past:
            episode.past_used = True
            return self._branch(BRANCH - len(self.branches), episode.past[when], actions)
        if when in self.branches:
            return self._branch(when, self.branches[when], actions)
        return self._expired()

    def _begin(self, number: int, seed: int) -> np.ndarray:
        for other, episode in list(self.episodes.items()):
            if episode.simulator is None and episode.past_used:
                del self.episodes[other]
        simulator = self.idle.pop() if self.idle else self._fresh()
        numbers = simulator.begin(seed)
        self.episodes[number] = _Episode(simulator)
        return numbers

    def _step(
        self, number: int, episode: _Episode, actions: tuple[int, ...], keep: bool
    ) -> np.ndarray:
        simulator = episode.simulator
        assert simulator is not None
        if keep:
            if episode.past_used:
                episode.past, episode.past_used = {}, False
            episode.past[simulator.time] = simulator.freeze()
        numbers = simulator.step(actions)
        if not simulator.running:
            self.idle.append(simulator)
            episode.simulator = None
            if not episode.past:
                del self.episodes[number]
        return numbers

    def _branch(self, number: int, kept: Any, actions: tuple[int, ...]) -> np.ndarray:
        """Step a kept state with other actions. The number of the branch replaces the time."""
        self.spare = self.spare or self._fresh()
        simulator = kept if isinstance(kept, Simulator) else self.spare.thaw(kept)
        numbers = simulator.step(actions)
        self.branches[number] = simulator.freeze() if simulator is self.spare else simulator
        self.layout.parts(numbers)["time"][()] = number
        return numbers

    def _expired(self) -> np.ndarray:
        """The result for an expired state. Only seeds past `config.steps` request it, and ignore
        it; for any other caller the NaN reward stops the run."""
        numbers = np.zeros(self.layout.size, np.float32)
        parts = self.layout.parts(numbers)
        parts["action_mask"][:], parts["reward"][:], parts["time"][()] = 1, np.nan, EXPIRED
        return numbers

    def _fresh(self) -> Simulator:
        return Simulator(make(self.recipe), self.recipe, self.layout)


def _line(error: BaseException) -> str:
    """An error, and where the environment raised it, in one line."""
    said = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(".:")
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename != __file__]
    place = f" ({own[-1].filename} line {own[-1].lineno})" if own else ""
    return f"raised {said}{place}"


@contextmanager
def _errors_of_env() -> Iterator[None]:
    """Turn exceptions into `MisbehaviourError`s."""
    try:
        yield
    except (MisbehaviourError, UnfitError):
        raise
    except Exception as error:
        raise MisbehaviourError(_line(error)) from error


def _exit_with_parent(parent: int) -> None:
    """Exit when the parent has exited, even if the environment hangs."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main(connection: Connection) -> None:
    """Answer requests until the parent closes the connection."""
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    try:
        sys.path[:], recipe, layout = connection.recv()
        with _errors_of_env():
            worker = Worker(Recipe(**recipe), Layout(**layout))
        connection.send_bytes(GOOD)
        while True:
            for numbers in worker.answers(connection.recv()):
                connection.send_bytes(GOOD + numbers.tobytes())
    except (MisbehaviourError, UnfitError) as error:
        connection.send_bytes(BAD + str(error).encode())
    except (EOFError, OSError):
        return  # the parent has exited


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
