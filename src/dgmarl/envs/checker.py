"""Validates an environment against the interface; every finding is one sentence.

Checks run from cheap to expensive: shapes by tracing, then one step repeated with the same key to
detect hidden state, then a batch of random episodes under jit and vmap."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dgmarl.envs.base import Environment, EnvSpec, Observation, Outcome, random_actions
from dgmarl.errors import one_line, place_of, quiet_callbacks, raised_by_callback

N_EPISODES = 16
ARRAYS = {
    "agents_view": (("n_agents", "obs_size"), jnp.floating, "floats"),
    "global_state": (("state_size",), jnp.floating, "floats"),
    "action_mask": (("n_agents", "n_actions"), jnp.bool_, "booleans"),
    "alive": (("n_agents",), jnp.bool_, "booleans"),
    "reward": (("n_agents",), jnp.floating, "floats, one reward per agent"),
    "terminated": ((), jnp.bool_, "one boolean"),
    "truncated": ((), jnp.bool_, "one boolean"),
}
"""Fields of `Observation` and `Outcome`: shape as fields of the spec, dtype, description."""
TRACING_ERRORS = (jax.errors.JAXTypeError, jax.errors.JAXIndexError)
TRACING_ADVICE = {
    jax.errors.TracerBoolConversionError: "use jnp.where instead of a Python branch on an array",
    jax.errors.TracerArrayConversionError: "use jax.numpy instead of numpy",
    jax.errors.TracerIntegerConversionError: (
        "index jax.numpy arrays instead of lists or NumPy arrays, and let no shape or range() "
        "depend on an array"
    ),
}


@dataclass(frozen=True)
class Finding:
    """A `violation` of the interface, or a `note` about something that may be intended."""

    kind: Literal["violation", "note"]
    sentence: str


_violation, _note = partial(Finding, "violation"), partial(Finding, "note")


def check_env(env: Environment, seed: int = 0) -> list[Finding]:
    """All findings about `env`. It can be used for training iff none is a violation."""
    key = jax.random.key(seed)
    findings: list[Finding] = []
    for stage in (_check_spec, _check_shapes, _check_purity, _check_optional, _check_episodes):
        try:
            with quiet_callbacks():
                findings += stage(env, key)
        except _BrokenError as error:
            findings.append(_violation(_place(env, error.__cause__) + str(error)))
        except Exception as error:
            raised = raised_by_callback(error)
            place = "" if raised else _place(env, error)
            raised = raised or f"raised {one_line(error)}"
            findings.append(_violation(f"{place}reset, step or an optional method {raised}."))
        # Later stages would fail on what this stage found broken.
        if any(finding.kind == "violation" for finding in findings):
            break
    if env.on_host:
        env.close()
    return findings


class _BrokenError(Exception):
    """A violation after which nothing else can be checked; its cause is what user code raised."""


def _place(env: Environment, error: BaseException | None) -> str:
    """Start of a sentence: where the user's code raised the error, or nothing."""
    module = sys.modules.get(type(env).__module__)
    place = place_of(error, getattr(module, "__file__", None))
    return f"{place}: " if place else ""


def _check_spec(env: Environment, key: jax.Array) -> Iterator[Finding]:
    spec = getattr(env, "spec", None)
    if not isinstance(spec, EnvSpec):
        raise _BrokenError(
            f"`spec` is {spec!r}, but must be an EnvSpec: set self.spec = EnvSpec(...) in __init__."
        )
    for name in ("n_agents", "n_actions", "obs_size", "state_size", "horizon"):
        value = getattr(spec, name)
        if type(value) is not int or value < 1:
            yield _violation(
                f"`spec.{name}` is {value!r}, but must be a whole number of at least 1."
            )
    if spec.state_is_obs and spec.state_size != spec.n_agents * spec.obs_size:
        yield _violation(
            f"`spec.state_is_obs` is set, but state_size is {spec.state_size}, not n_agents * "
            "obs_size: leave it out."
        )
    names = spec.action_names
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        yield _violation(f"`spec.action_names` is {names!r}, but must be a tuple of strings.")
    elif len(names) not in (0, spec.n_actions):
        yield _violation(
            f"`spec.action_names` has {len(names)} names, but n_actions is {spec.n_actions}: name "
            "all actions or none."
        )


def _check_shapes(env: Environment, key: jax.Array) -> Iterator[Finding]:
    """Shapes and dtypes, by abstract evaluation."""
    state, observation = _traced(env.reset, "reset(key)", "(state, observation)", key)
    yield from _check_record(env, observation, Observation, "reset: observation")
    action = jax.ShapeDtypeStruct((env.spec.n_agents,), jnp.int32)
    what, parts = "step(key, state, action)", "(state, observation, outcome)"
    after, observation, outcome = _traced(env.step, what, parts, key, state, action)
    yield from _check_record(env, observation, Observation, "step: observation")
    yield from _check_same_state(state, after)
    yield from _check_record(env, outcome, Outcome, "step: outcome")
    if not isinstance(outcome.info, dict):
        yield _violation(
            f"step: outcome.info is a {type(outcome.info).__name__}, but must be a dict of arrays "
            "(possibly empty)."
        )


def _check_record(env: Environment, record: Any, kind: Any, where: str) -> Iterator[Finding]:
    """The arrays of an `Observation` or `Outcome`."""
    if not isinstance(record, kind):
        raise _BrokenError(
            f"{where} is a {type(record).__name__}, but must be an "
            f"{kind.__name__}({', '.join(kind._fields)})."
        )
    for name, (sizes, dtype, words) in ARRAYS.items():
        if name not in kind._fields:
            continue
        words = f"[{', '.join(sizes)}] {words}" if sizes else words
        array, shape = getattr(record, name), tuple(getattr(env.spec, size) for size in sizes)
        if not hasattr(array, "dtype"):
            yield _violation(
                f"{where}.{name} is a Python {type(array).__name__}, but must be an array of "
                f"{words}."
            )
        elif array.shape != shape or not jnp.issubdtype(array.dtype, dtype):
            given = f"{list(array.shape)} {array.dtype}"
            yield _violation(
                f"{where}.{name} is {given}, but must be {list(shape)}: {words}, as the spec says."
            )


def _check_same_state(before: Any, after: Any) -> Iterator[Finding]:
    """The state is a scan carry, so structure, shapes and dtypes must not change."""
    if jax.tree.structure(before) != jax.tree.structure(after):
        yield _violation(
            "step returns a state of a different structure: keep the same fields in the same order."
        )
        return
    paths = jax.tree_util.tree_leaves_with_path(before)
    for (path, old), new in zip(paths, jax.tree.leaves(after), strict=True):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            name = jax.tree_util.keystr(path)
            yield _violation(
                f"step changes state{name} from {list(old.shape)} {old.dtype} to {list(new.shape)} "
                f"{new.dtype}, but shapes and dtypes must stay: cast the new value."
            )


def _check_purity(env: Environment, key: jax.Array) -> Iterator[Finding]:
    """Repeat reset and step with the same key outside jit: attributes changed by `step` and NumPy's
    random numbers show as differences."""
    if env.on_host:
        yield from _check_seeds(env, key)
        return
    attributes = _fingerprint(env)
    first, second = env.reset(key), env.reset(key)
    if not _equal(first, second):
        yield _violation(
            "reset gives two different states for the same key: draw all randomness from the key, "
            "with jax.random."
        )
    state, observation = first
    if env.spec.state_is_obs and not np.array_equal(
        observation.global_state, np.ravel(observation.agents_view)
    ):
        yield _violation(
            "`spec.state_is_obs` is set, but global_state is not agents_view.reshape(-1): leave "
            "it out, or return that."
        )
    action = random_actions(key, observation)
    once, again = env.step(key, state, action), env.step(key, state, action)
    if not _equal(once, again):
        yield _violation(
            "step gives two different results for the same key, state and action: draw all "
            "randomness from the key."
        )
    elif not _equal(once, _where_finite(once, jax.jit(env.step)(key, state, action)), 1e-4):
        yield _violation(
            "step gives a different result under jit: a value is fixed during tracing; keep it in "
            "the state."
        )
    changed = {name for name, value in _fingerprint(env).items() if attributes.get(name) != value}
    for name in sorted(changed):
        yield _violation(
            f"reset or step changes self.{name}, which happens during tracing only: keep it in the "
            "state."
        )


def _check_seeds(env: Environment, key: jax.Array) -> Iterator[Finding]:
    """Compare two episodes with the same key and actions, all but their state."""

    def first_steps() -> Any:
        state, observation = env.reset(key)
        _, after, outcome = env.step(key, state, random_actions(key, observation))
        return observation, after, outcome

    if not _equal(first_steps(), first_steps()):
        yield _note("two episodes with the same seed differ: a run cannot be repeated exactly.")


def _check_optional(env: Environment, key: jax.Array) -> Iterator[Finding]:
    n = env.spec.n_agents
    state, _ = env.reset(key)
    for method in filter(env.offers, ("oracle_graph", "oracle_reward_graph", "local_state")):
        _traced(getattr(env, method), f"{method}(state)", "", state)
    for method in filter(env.offers, ("oracle_graph", "oracle_reward_graph")):
        graph = np.asarray(jax.jit(getattr(env, method))(state))
        if graph.shape != (n, n) or graph.dtype != bool:
            yield _violation(
                f"{method} is {list(graph.shape)} {graph.dtype}, but must be [{n}, {n}] "
                "booleans, row = source."
            )
        elif method == "oracle_graph" and not graph.diagonal().all():
            yield _violation(
                "oracle_graph lacks self-loops, but every agent influences itself: set the "
                "diagonal to true."
            )
    reason, interventional = env.no_interventions(), "`--graph interventional`"
    if not env.offers("oracle_graph"):
        other = f"nor {interventional} ({reason})" if reason else f"{interventional} can"
        yield _note(f"oracle_graph is not offered: `--graph oracle` cannot be used, {other}.")
    if env.offers("local_state"):
        local = np.asarray(jax.jit(env.local_state)(state))
        if local.ndim != 2 or local.shape[0] != n:
            yield _violation(
                f"local_state is {list(local.shape)}, but must be [{n}, L]: one row per agent."
            )
    else:
        yield _note(
            "local_state is not offered: interventional graphs will compare observations instead, "
            "which usually show others too and give too many edges."
        )
    if env.offers("draw"):
        try:
            drawn = env.draw(state, jnp.eye(n, dtype=bool))
        except Exception as error:
            raise _BrokenError(f"draw(state, graph) raised {one_line(error)}.") from error
        if not isinstance(drawn, str) or not drawn.lstrip().startswith("<svg"):
            yield _violation("draw must return SVG text that starts with <svg.")


class Played(NamedTuple):
    """Recorded steps of random episodes."""

    observation: Observation
    after: Observation
    """Successor observation, before any reset."""
    outcome: Outcome
    running: Any
    """Whether the episode had not ended before this step."""
    self_loops: Any
    """Whether the oracle graph had all self-loops."""


def _check_episodes(env: Environment, key: jax.Array) -> Iterator[Finding]:
    """A batch of random episodes to the horizon, under jit and vmap."""
    played = jax.tree.map(np.asarray, play_randomly(env, key))
    observations, after, outcomes = played.observation, played.after, played.outcome
    running = played.running
    # The observation after the last step counts too: the learner bootstraps from it.
    for name, array in {
        "agents_view": observations.agents_view,
        "global_state": observations.global_state,
        "reward": outcomes.reward,
        "agents_view after the step": after.agents_view,
        "global_state after the step": after.global_state,
    }.items():
        bad = running & ~np.isfinite(array).reshape(*array.shape[:2], -1).all(axis=-1)
        if bad.any():
            step = np.argwhere(bad)[0, 0]
            yield _violation(f"{name} is NaN or infinite at step {step} of a random episode.")
    stuck = running[..., None] & observations.alive & ~observations.action_mask.any(axis=-1)
    if stuck.any():
        t, _, agent = np.argwhere(stuck)[0]
        yield _violation(
            f"agent {agent} is alive at step {t}, but has no available action: leave it at least "
            "one in action_mask."
        )
    both = running & outcomes.terminated & outcomes.truncated
    if both.any():
        yield _violation(
            f"step {np.argwhere(both)[0, 0]} is both terminated and truncated: if the task ends at "
            "the time limit, clear truncated."
        )
    ended = (outcomes.terminated | outcomes.truncated) & running
    if not ended.any(axis=0).all():
        yield _violation(
            f"an episode still runs after spec.horizon = {env.spec.horizon} steps: set truncated "
            "at the horizon."
        )
    if not played.self_loops[running].all():
        yield _violation(
            "oracle_graph lacks self-loops in some states of a random episode: set the diagonal "
            "to true."
        )
    if (running[..., None] & ~observations.alive & (outcomes.reward != 0)).any():
        yield _note(
            "dead agents receive rewards: fine if the team's reward is shared, else check `alive`."
        )
    rewards = outcomes.reward[running]
    if rewards.shape[-1] > 1 and rewards.any() and (rewards == rewards[:, :1]).all():
        yield _note(
            "all agents always received the same reward: a team reward has no parts to leave out, "
            "so graph credit equals team credit up to scale."
        )


def play_randomly(env: Environment, key: jax.Array) -> Played:
    """Steps of random episodes, [T, E, ...]."""

    def one_step(carry: Any, key: jax.Array) -> Any:
        state, observation, running = carry
        loops = jnp.ones((N_EPISODES, 1), bool)
        if env.offers("oracle_graph"):
            loops = jnp.diagonal(jax.vmap(env.oracle_graph)(state), axis1=-2, axis2=-1)
        act_key, step_key = jax.random.split(key)
        keys = jax.random.split(step_key, N_EPISODES)
        action = random_actions(act_key, observation)
        state, after, outcome = jax.vmap(env.step)(keys, state, action)
        done = outcome.terminated | outcome.truncated
        played = Played(observation, after, outcome._replace(info={}), running, loops.all(axis=-1))
        return (state, after, running & ~done), played

    @jax.jit
    def play(key: jax.Array) -> Played:
        reset_key, play_key = jax.random.split(key)
        state, observation = jax.vmap(env.reset)(jax.random.split(reset_key, N_EPISODES))
        carry = (state, observation, jnp.ones(N_EPISODES, bool))
        return jax.lax.scan(one_step, carry, jax.random.split(play_key, env.spec.horizon))[1]

    return play(key)


def _traced(function: Callable[..., Any], what: str, parts: str, *arguments: Any) -> Any:
    """The abstract result of `function`, which must be a tuple of `parts` unless that is empty."""
    try:
        result = jax.eval_shape(function, *arguments)
    except Exception as error:
        if not isinstance(error, TRACING_ERRORS) and "Tracer" not in str(error):
            raise _BrokenError(f"{what} raised {one_line(error)}.") from error
        known = (advice for kind, advice in TRACING_ADVICE.items() if isinstance(error, kind))
        advice = next(known, "use jax.numpy, not Python branches")
        raise _BrokenError(
            f"{what} cannot be traced by jit ({one_line(error)}): {advice}."
        ) from error
    n_parts = len(parts.split(","))
    if parts and (not isinstance(result, tuple) or len(result) != n_parts):
        raise _BrokenError(f"{what} returns a {type(result).__name__}, but must return {parts}.")
    return result


def _fingerprint(env: Environment) -> dict[str, str]:
    return {name: repr(value) for name, value in vars(env).items()}


def _where_finite(first: Any, second: Any) -> Any:
    """`second`, or `first` where that is not finite: under jit 0 * NaN may be 0."""

    def chosen(a: Any, b: Any) -> Any:
        is_key = isinstance(a, jax.Array) and jnp.issubdtype(a.dtype, jax.dtypes.prng_key)
        return b if is_key else jnp.where(jnp.isfinite(a), b, a)

    return jax.tree.map(chosen, first, second)


def _equal(first: Any, second: Any, tolerance: float = 0.0) -> bool:
    def same(a: Any, b: Any) -> bool:
        if isinstance(a, jax.Array) and jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))

    return all(jax.tree.leaves(jax.tree.map(same, first, second)))
