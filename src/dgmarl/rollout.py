"""Rollouts: batches for learning, evaluation, recorded episodes, automatic resets.

`env.step` never resets. Rollouts reset finished environments and keep both the true successor,
which bootstrapping and graph inference need, and the observation after the reset."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.arrays import anywhere
from dgmarl.device import over_envs, unroll
from dgmarl.envs.base import Environment, Observation, random_actions
from dgmarl.errors import UsageError

HiddenState = Any
Act = Callable[
    [PRNGKeyArray, Observation, HiddenState, Bool[Array, "B"]],
    tuple[Int[Array, "B N"], Float[Array, "B N"], HiddenState],
]
"""Policy of B environments: from a key, the observations, the hidden state and `is_first` to
actions, their log probabilities and the next hidden state."""

RECORDABLE = ("keys", "local", "oracle", "states")
"""Extras that a graph source, credit rule or learner may need: step keys, local states before and
after each step, oracle graphs, environment states."""
LARGEST_INPUT = 1e18
"""Largest usable reward or observation; sums of larger squares can overflow single precision."""
UNUSABLE = ("unusable reward", "unusable agents_view", "unusable global_state")
"""Names of the metrics of `count_unusable`."""
STEPS_AT_ONCE = 25
"""Most steps per chunk of long episodes, which are played until all have ended."""


class RolloutState(NamedTuple):
    """B environments between two steps."""

    state: Any
    observation: Observation
    hidden_state: HiddenState
    is_first: Bool[Array, "B"]
    """Whether the next step is the first of an episode, which clears the recurrent state."""


class Batch(NamedTuple):
    """T steps of B environments, time first: `[T, B, ...]`."""

    observation: Observation
    next_observation: Observation
    """The true successor, before any reset; for bootstrapping and graph inference."""
    action: Int[Array, "T B N"]
    log_prob: Float[Array, "T B N"]
    reward: Float[Array, "T B N"]
    terminated: Bool[Array, "T B"]
    truncated: Bool[Array, "T B"]
    valid: Bool[Array, "T B"]
    """Whether the step happened; False after the end of an episode in rollouts without resets."""
    is_first: Bool[Array, "T B"]
    hidden_state: HiddenState
    """The policy's hidden state before the first step, [B, ...]."""
    extras: dict[str, Any]
    """The needed ones of `RECORDABLE`; `local` is a pair, before and after each step."""
    last_observation: Observation | None = None
    """The observation after the last step, in rollouts without resets. There `next_observation` is
    `observation` one step later."""

    def all_observations(self) -> Observation:
        """The T + 1 observations of a rollout without resets."""
        assert self.last_observation is not None
        both = (self.observation, self.last_observation)
        return jax.tree.map(lambda steps, last: jnp.concatenate([steps, last[None]]), *both)

    @property
    def bootstrap(self) -> Bool[Array, "T B"]:
        """Whether the successor's value is bootstrapped: not terminated."""
        return ~self.terminated

    @property
    def continues(self) -> Bool[Array, "T B"]:
        """Whether the next step belongs to the same episode; else advantages and paths are cut."""
        return ~(self.terminated | self.truncated)


def needs_of(part: Any, also: Iterable[str] = ()) -> frozenset[str]:
    """The names in `needs` of a graph source, credit rule or learner: any collection of names, or
    one name. also: names allowed besides `RECORDABLE`."""
    given, name = part.needs, type(part).__name__
    try:
        found = frozenset([given] if isinstance(given, str) else given)
    except TypeError:
        raise UsageError(
            f"{name}.needs is {given!r}, but must be a collection of names: write for example "
            "needs = frozenset({'states', 'keys'}), or frozenset() for none."
        ) from None
    allowed = [*RECORDABLE, *also]
    if not found <= set(allowed):
        raise UsageError(
            f"{name} needs {sorted(map(str, found))}, but allowed are {', '.join(allowed)}: leave "
            "out the others."
        )
    return found


def reset_envs(
    env: Environment, key: PRNGKeyArray, hidden_state: HiddenState, n_envs: int
) -> RolloutState:
    """Start B new episodes."""
    state, observation = jax.vmap(env.reset)(jax.random.split(key, n_envs))
    return RolloutState(state, observation, hidden_state, jnp.ones(n_envs, bool))


class _Step(NamedTuple):
    """What `collect` records of one step."""

    before: RolloutState
    """Before the step; with environment states only if they are needed."""
    next_observation: Observation | None
    """None without resets, where it is the observation of the next step."""
    action: Int[Array, "B N"]
    log_prob: Float[Array, "B N"]
    reward: Float[Array, "B N"]
    terminated: Bool[Array, "B"]
    truncated: Bool[Array, "B"]
    keys: PRNGKeyArray | None
    local: tuple[Array, Array] | None


class _Collector(NamedTuple):
    """The step function of `collect`, with the arguments that are fixed during a rollout."""

    env: Environment
    act: Act
    needs: frozenset[str]
    reset: bool

    def recorded(self, rollout_state: RolloutState) -> RolloutState:
        """The part of a rollout state that is recorded."""
        state = rollout_state.state if self.needs & {"oracle", "states"} else None
        return rollout_state._replace(state=state, hidden_state=None)

    def step(
        self, carry: tuple[RolloutState, Bool[Array, "B"]], keys_of_step: PRNGKeyArray
    ) -> tuple[tuple[RolloutState, Bool[Array, "B"]], _Step]:
        """One step of all environments; finished ones are reset or frozen."""
        before, running = carry
        act_key, step_key, reset_key = keys_of_step
        action, log_prob, hidden_state = self.act(
            act_key, before.observation, before.hidden_state, before.is_first
        )
        keys = jax.random.split(step_key, running.shape[0])
        stepped_again = self.needs >= {"states", "keys"}  # by interventions
        step = self.env.step_kept if stepped_again else self.env.step
        state, next_observation, outcome = jax.vmap(step)(keys, before.state, action)
        local = None
        if "local" in self.needs:
            local_state = jax.vmap(self.env.local_state)
            local = (local_state(before.state), local_state(state))
        terminated, truncated = outcome.terminated & running, outcome.truncated & running
        done = terminated | truncated
        record = _Step(
            before=self.recorded(before),
            next_observation=next_observation if self.reset else None,
            action=action,
            log_prob=log_prob,
            reward=outcome.reward,
            terminated=terminated,
            truncated=truncated,
            keys=keys if "keys" in self.needs else None,
            local=local,
        )
        if self.reset:
            state, observation = reset_where(self.env, reset_key, done, state, next_observation)
        else:
            new, old = (state, next_observation), (before.state, before.observation)
            state, observation = _where(running, new, old)
            running = running & ~done
        return (RolloutState(state, observation, hidden_state, done), running), record

    def extras(self, steps: _Step) -> dict[str, Any]:
        """The extras that graph source, credit rule and learner need."""
        states = steps.before.state
        offered = {
            "oracle": lambda: jax.vmap(jax.vmap(self.env.oracle_graph))(states),
            "states": lambda: states,
            "keys": lambda: steps.keys,
            "local": lambda: steps.local,
        }
        return {name: offered[name]() for name in sorted(self.needs)}


def collect(
    env: Environment,
    act: Act,
    rollout_state: RolloutState,
    key: PRNGKeyArray,
    length: int,
    needs: frozenset[str],
    reset: bool,
) -> tuple[RolloutState, Batch]:
    """Play `length` steps. Environments whose episode has ended start a new one if `reset`;
    otherwise they are frozen and their further steps are not valid."""
    collector, rollout_state = _Collector(env, act, needs, reset), over_envs(rollout_state)
    last, steps = _play_steps(collector, rollout_state, jax.random.split(key, (length, 3)))
    reward, valid = steps.reward, jnp.ones_like(steps.terminated)
    next_observation = steps.next_observation
    if not reset:
        done = steps.terminated | steps.truncated
        valid = jnp.cumsum(done, axis=0) == done  # no earlier step has ended the episode
        reward = jnp.where(valid[..., None], reward, 0)
        # Without resets the observation of the next step is the successor.
        next_observation = jax.tree.map(
            lambda observations, end: jnp.concatenate([observations[1:], end[None]]),
            steps.before.observation,
            last.observation,
        )
    assert next_observation is not None
    return last, Batch(
        observation=steps.before.observation,
        next_observation=next_observation,
        action=steps.action,
        log_prob=steps.log_prob,
        reward=reward,
        terminated=steps.terminated,
        truncated=steps.truncated,
        valid=valid,
        is_first=steps.before.is_first,
        hidden_state=rollout_state.hidden_state,
        extras=collector.extras(steps),
        last_observation=None if reset else last.observation,
    )


def count_unusable(batch: Batch) -> dict[str, Float[Array, ""]]:
    """Number of rewards, observations and states that are NaN or beyond `LARGEST_INPUT`."""

    def count(*arrays: Array) -> Float[Array, ""]:
        return sum(
            ((~(jnp.abs(array) <= LARGEST_INPUT)).sum(dtype=jnp.float32) for array in arrays),
            start=jnp.float32(0),
        )

    now, then = batch.observation, batch.next_observation
    counts = (
        count(jnp.where(batch.valid[..., None], batch.reward, 0)),
        count(now.agents_view, then.agents_view),
        count(now.global_state, then.global_state),
    )
    return dict(zip(UNUSABLE, counts, strict=True))


def _play_steps(
    collector: _Collector, start: RolloutState, keys: PRNGKeyArray
) -> tuple[RolloutState, _Step]:
    """Play all steps; long episodes in chunks, until all have ended."""
    length, carry = keys.shape[0], (start, jnp.ones(start.is_first.shape, bool))
    chunk = next(n for n in range(STEPS_AT_ONCE, 0, -1) if length % n == 0)
    in_chunks = not collector.reset and length > 2 * STEPS_AT_ONCE and chunk >= 10
    unrolled = 1 if collector.env.loops_inside else unroll(5 if in_chunks else 10)
    if not in_chunks:
        (last, _), steps = jax.lax.scan(collector.step, carry, keys, unroll=unrolled)
        return last, steps
    (last, _), steps, played = _scan_while(
        lambda carry: carry[1], collector.step, carry, keys, chunk, unrolled
    )
    # Steps after the last chunk played have the final state.
    before = _where(jnp.arange(length) >= played, collector.recorded(last), steps.before)
    return last, steps._replace(before=before)


def _scan_while(
    running: Callable[[Any], Array],
    one_step: Callable,
    carry: Any,
    inputs: Array,
    chunk: int,
    unrolled: int,
) -> tuple[Any, Any, Int[Array, ""]]:
    """`lax.scan` in chunks of `chunk` steps while any environment runs; also returns the number of
    steps. Outputs of later steps are 0."""
    n_chunks = inputs.shape[0] // chunk
    chunks = inputs.reshape(n_chunks, chunk, *inputs.shape[1:])

    def next_chunk(state: tuple[Array, Any, Any]) -> tuple[Array, Any, Any]:
        number, carry, outputs = state
        carry, new = jax.lax.scan(one_step, carry, chunks[number], unroll=unrolled)
        outputs = jax.tree.map(lambda all_, part: all_.at[number].set(part), outputs, new)
        return number + 1, carry, outputs

    def unfinished(state: tuple[Array, Any, Any]) -> Bool[Array, ""]:
        return (state[0] < n_chunks) & anywhere(running(state[1]))

    shapes = jax.eval_shape(lambda carry: jax.lax.scan(one_step, carry, chunks[0])[1], carry)
    zeros = jax.tree.map(lambda shape: jnp.zeros((n_chunks, *shape.shape), shape.dtype), shapes)
    start = (jnp.int32(0), carry, zeros)
    number, carry, outputs = jax.lax.while_loop(unfinished, next_chunk, start)
    outputs = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), outputs)
    return carry, outputs, number * chunk


class Evaluation(NamedTuple):
    """Results of whole episodes."""

    returns: Float[Array, "E"]
    """Raw rewards, summed over agents and steps; comparable between all methods."""
    lengths: Int[Array, "E"]
    endings: dict[str, Array]
    """Numbers in the environment's `info` after the last step, [E] each, for example whether a
    battle was won."""


def evaluate(
    env: Environment, act: Act, key: PRNGKeyArray, hidden_state: HiddenState, n_episodes: int
) -> Evaluation:
    """Play `n_episodes` in parallel until the last has ended."""
    reset_key, play_key = jax.random.split(key)
    rollout_state = over_envs(reset_envs(env, reset_key, hidden_state, n_episodes))

    def one_step(carry: Any) -> Any:
        rollout_state, key, running, so_far = carry
        key, act_key, step_key = jax.random.split(key, 3)
        action, _, hidden_state = act(
            act_key, rollout_state.observation, rollout_state.hidden_state, rollout_state.is_first
        )
        state, observation, outcome = jax.vmap(env.step)(
            jax.random.split(step_key, n_episodes), rollout_state.state, action
        )
        returns = so_far.returns + jnp.where(running, outcome.reward.sum(axis=-1), 0)
        endings = _where(running, _numbers(outcome.info), so_far.endings)
        so_far = Evaluation(returns, so_far.lengths + running, endings)
        running = running & ~(outcome.terminated | outcome.truncated)
        after = RolloutState(state, observation, hidden_state, jnp.zeros(n_episodes, bool))
        return after, key, running, so_far

    actions = jnp.zeros((n_episodes, env.spec.n_agents), jnp.int32)
    keys = jax.random.split(key, n_episodes)
    info = jax.eval_shape(
        lambda state: _numbers(jax.vmap(env.step)(keys, state, actions)[2].info),
        rollout_state.state,
    )
    endings = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), info)
    start = Evaluation(jnp.zeros(n_episodes), jnp.zeros(n_episodes, jnp.int32), endings)
    carry = (rollout_state, play_key, jnp.ones(n_episodes, bool), start)
    return jax.lax.while_loop(lambda carry: carry[2].any(), one_step, carry)[-1]


def _numbers(info: dict[str, Any]) -> dict[str, Array]:
    """The entries of a batched `info` that are one number per environment."""
    return {name: value for name, value in info.items() if getattr(value, "ndim", 0) == 1}


def act_randomly(
    key: PRNGKeyArray,
    observation: Observation,
    hidden_state: HiddenState,
    is_first: Bool[Array, "B"],
) -> tuple[Any, Any, HiddenState]:
    """Uniformly random policy."""
    action = random_actions(key, observation)
    return action, -jnp.log(observation.action_mask.sum(axis=-1).astype(jnp.float32)), hidden_state


def reset_where(
    env: Environment,
    key: PRNGKeyArray,
    done: Bool[Array, "B"],
    state: Any,
    observation: Observation,
    chunk: int | None = None,
) -> tuple[Any, Observation]:
    """Reset the environments that are `done`.

    A reset can cost many times a step (placing food, for example), and few environments end at the
    same step. So initial states are drawn `chunk` at a time, while some environment waits for one:
    the distribution is that of `env.reset` with independent keys, the cost that of the resets that
    happen. The default chunk is twice the mean number of episodes that end per step, B / horizon,
    but at least 8."""
    n_envs = done.shape[0]
    if env.on_host:
        keys = jax.random.split(key, n_envs)
        return jax.vmap(env.begin_where)(keys, done, state, observation)
    chunk = min(n_envs, chunk or max(8, 2 * n_envs // env.spec.horizon))

    def reset_chunk(carry: tuple[Array, Bool[Array, "B"], Any]) -> tuple[Array, Array, Any]:
        number, waiting, current = carry
        fresh = jax.vmap(env.reset)(jax.random.split(jax.random.fold_in(key, number), chunk))
        # The k-th waiting environment takes the k-th fresh state.
        rank = jnp.cumsum(waiting) - 1
        takes = waiting & (rank < chunk)
        source = jnp.where(takes, rank, 0)
        current = _where(takes, jax.tree.map(lambda leaf: leaf[source], fresh), current)
        return number + 1, waiting & ~takes, current

    carry = (jnp.int32(0), done, (state, observation))
    return jax.lax.while_loop(lambda carry: carry[1].any(), reset_chunk, carry)[-1]


class Recording(NamedTuple):
    """Whole episodes, for replays: `[E, T, ...]`, states before each step."""

    state: Any
    last_state: Any
    """After the last step, [E, ...]."""
    action: Int[Array, "E T N"]
    reward: Float[Array, "E T N"]
    graph: Any
    """Bool[E, T, N, N], or whatever `infer` returned for every step; None without it."""
    length: Int[Array, "E"]
    terminated: Bool[Array, "E"]


def record_episodes(
    env: Environment,
    act: Act,
    key: PRNGKeyArray,
    n_episodes: int,
    hidden_state: HiddenState = None,
    needs: frozenset[str] = frozenset(),
    infer: Callable[[Batch], Any] | None = None,
) -> Recording:
    """Play `n_episodes` to their end. infer: returns the graphs [T, E, N, N] of a batch with the
    extras `needs`, or a dictionary of several; by default the oracle's."""
    if infer is None and env.offers("oracle_graph"):
        needs, infer = needs | {"oracle"}, lambda batch: batch.extras["oracle"]

    @jax.jit
    def play(key: PRNGKeyArray) -> Recording:
        reset_key, play_key = jax.random.split(key)
        start = reset_envs(env, reset_key, hidden_state, n_episodes)
        last, batch = collect(
            env, act, start, play_key, env.spec.horizon, needs | {"states"}, reset=False
        )
        graph = infer(batch) if infer else None
        steps = (batch.extras["states"], batch.action, batch.reward, graph)
        state, action, reward, graph = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), steps)
        ended = batch.terminated.any(axis=0)
        return Recording(state, last.state, action, reward, graph, batch.valid.sum(axis=0), ended)

    return play(key)


def _where(mask: Bool[Array, "B"], new: Any, old: Any) -> Any:
    """`new` where the mask is set, else `old`, leaf by leaf."""
    return jax.tree.map(lambda new, old: jnp.where(_expand(mask, old), new, old), new, old)


def _expand(mask: Bool[Array, "B"], like: Array) -> Bool[Array, "..."]:
    return mask.reshape(mask.shape + (1,) * (like.ndim - 1))
