"""One contract test over every registered environment, and the checker against environments broken
on purpose."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl.envs import registry
from dgmarl.envs.base import Environment, EnvSpec, NotOfferedError, Observation, Outcome
from dgmarl.envs.checker import check_env
from dgmarl.envs.registry import FAMILIES, make_env
from dgmarl.errors import UsageError, one_line, place_of

# Every example of a family compiles for a while; one of each is enough for every day. Battles are
# tested on a skirmish of their own (test_smaclite.py).
IDS = [
    pytest.param(example, marks=[pytest.mark.slow] * (k > 0 or name == "smaclite"))
    for name, family in FAMILIES.items()
    for k, example in enumerate(family.examples)
]


@pytest.mark.parametrize("env_id", IDS)
def test_every_registered_environment_keeps_the_contract(env_id):
    env = make_env(env_id)
    assert [finding.sentence for finding in check_env(env) if finding.kind == "violation"] == []
    assert all(env.offers(method) for method in ("oracle_graph", "local_state", "draw"))


class Counter(Environment[jax.Array]):
    """The smallest honest environment: count to five. Each test breaks one thing of it."""

    def __init__(self):
        self.spec = EnvSpec("counter", 2, 3, 1, 1, 5)

    def reset(self, key):
        state = jnp.int32(0)
        return state, self.observation(state)

    def step(self, key, state, action):
        state = state + 1
        reward = jnp.where(action == 0, 1.0, 0.0)
        return state, self.observation(state), Outcome(reward, jnp.bool_(False), state >= 5, {})

    def observation(self, state):
        seen = state.astype(jnp.float32)[None]
        return Observation(jnp.stack([seen, seen]), seen, jnp.ones((2, 3), bool), jnp.ones(2, bool))


def test_the_smallest_environment_passes_and_says_what_it_does_not_offer():
    findings = check_env(Counter())
    assert {finding.kind for finding in findings} == {"note"}
    with pytest.raises(NotOfferedError, match="counter does not offer oracle_graph"):
        Counter().oracle_graph(jnp.int32(0))


class BadSpec(Counter):
    def __init__(self):
        self.spec = EnvSpec("counter", 0, 3, 1, 1, 5)


class TwoNames(Counter):
    def __init__(self):
        self.spec = EnvSpec("counter", 2, 3, 1, 1, 5, action_names=("stay", "go"))


class SmallState(Counter):
    def __init__(self):
        self.spec = EnvSpec("counter", 2, 3, 1, 1, 5, state_is_obs=True)


class OtherState(Counter):
    def __init__(self):
        self.spec = EnvSpec("counter", 2, 3, 1, 2, 5, state_is_obs=True)

    def observation(self, state):
        return super().observation(state)._replace(global_state=jnp.ones(2))


class WrongShape(Counter):
    def observation(self, state):
        return super().observation(state)._replace(agents_view=jnp.zeros((2, 7)))


class WrongDtype(Counter):
    def observation(self, state):
        return super().observation(state)._replace(action_mask=jnp.ones((2, 3)))


class TeamReward(Counter):
    def step(self, key, state, action):
        state, observation, outcome = super().step(key, state, action)
        return state, observation, outcome._replace(reward=outcome.reward.sum())


class ChangingState(Counter):
    def step(self, key, state, action):
        state, observation, outcome = super().step(key, state, action)
        return state.astype(jnp.float32), observation, outcome


class PythonBranch(Counter):
    def step(self, key, state, action):
        if state > 3:
            state = state - 1
        return super().step(key, state, action)


class TracedKey(Counter):
    def step(self, key, state, action):
        return super().step(key, {0: 1}[state], action)


class FixedByTracing(Counter):
    """The infinite number must not hide that jit changes the reward."""

    def step(self, key, state, action):
        state, observation, outcome = super().step(key, state, action)
        reward = jnp.ones(2) if isinstance(action, jax.core.Tracer) else jnp.zeros(2)
        return state, observation, outcome._replace(reward=reward, info={"least": jnp.inf})


class OwnRandomness(Counter):
    def step(self, key, state, action):
        state, observation, outcome = super().step(key, state, action)
        return (
            state,
            observation,
            outcome._replace(reward=jnp.asarray(np.random.default_rng().random(2), jnp.float32)),
        )


class SideEffect(Counter):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def step(self, key, state, action):
        self.calls += 1
        return super().step(key, state, action)


class NotANumber(Counter):
    def observation(self, state):
        observation = super().observation(state)
        return observation._replace(
            agents_view=jnp.where(state == 3, jnp.nan, observation.agents_view)
        )


class FoldedNaN(Counter):
    """Under jit, 0 * NaN is 0 here."""

    def step(self, key, state, action):
        state, observation, outcome = super().step(key, state, action)
        reward = (action > 0).astype(jnp.float32) * jnp.nan
        return state, observation, outcome._replace(reward=reward)


class NoWayOut(Counter):
    def observation(self, state):
        return (
            super()
            .observation(state)
            ._replace(action_mask=jnp.ones((2, 3), bool).at[1].set(state != 2))
        )


class BothEnds(Counter):
    def step(self, key, state, action):
        state, observation, outcome = super().step(key, state, action)
        return state, observation, outcome._replace(terminated=outcome.truncated)


class NeverEnds(Counter):
    def step(self, key, state, action):
        state, observation, outcome = super().step(key, state, action)
        return state, observation, outcome._replace(truncated=jnp.bool_(False))


class NoSelfLoops(Counter):
    def oracle_graph(self, state):
        return jnp.zeros((2, 2), bool)


class LosesLoops(Counter):
    def oracle_graph(self, state):
        return jnp.eye(2, dtype=bool) & (state < 3)


class BrokenGraph(Counter):
    def oracle_graph(self, state):
        raise RuntimeError("no graph today")


class BrokenPicture(Counter):
    def draw(self, state, graph=None):
        raise RuntimeError("out of ink")


class NotANumberAtTheEnd(Counter):
    def observation(self, state):
        observation = super().observation(state)
        return observation._replace(
            agents_view=jnp.where(state == 5, jnp.nan, observation.agents_view)
        )


class NoPicture(Counter):
    def draw(self, state, graph=None):
        return "a picture"


class Tuple(Counter):
    def reset(self, key):
        return jnp.int32(0)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (TwoNames, "`spec.action_names` has 2 names, but n_actions is 3"),
        (SmallState, "`spec.state_is_obs` is set, but state_size is 1"),
        (OtherState, "`spec.state_is_obs` is set, but global_state is not"),
        (BadSpec, "`spec.n_agents` is 0"),
        (WrongShape, "observation.agents_view is [2, 7] float32, but must be [2, 1]"),
        (WrongDtype, "observation.action_mask is [2, 3] float32"),
        (TeamReward, "one reward per agent"),
        (ChangingState, "from [] int32 to [] float32"),
        (PythonBranch, "cannot be traced by jit"),
        (TracedKey, "cannot be traced by jit"),
        (FixedByTracing, "a different result under jit"),
        (OwnRandomness, "two different results for the same key"),
        (SideEffect, "changes self.calls"),
        (NotANumber, "agents_view is NaN or infinite at step 3"),
        (FoldedNaN, "reward is NaN or infinite at step 0"),
        (NoWayOut, "agent 1 is alive at step 2, but has no available action"),
        (BothEnds, "both terminated and truncated"),
        (NeverEnds, "still runs after spec.horizon = 5"),
        (NoSelfLoops, "lacks self-loops"),
        (LosesLoops, "lacks self-loops in some states"),
        (BrokenGraph, "oracle_graph(state) raised RuntimeError: no graph today"),
        (BrokenPicture, "draw(state, graph) raised RuntimeError: out of ink"),
        (NotANumberAtTheEnd, "agents_view after the step is NaN or infinite at step 4"),
        (NoPicture, "SVG"),
        (Tuple, "must return (state, observation)"),
    ],
)
def test_each_violation_is_named_in_a_sentence(broken, words):
    sentences = [finding.sentence for finding in check_env(broken()) if finding.kind == "violation"]
    assert any(words in sentence for sentence in sentences), sentences
    assert all("\n" not in sentence for sentence in sentences)


class MissingName(Counter):
    def observation(self, state):
        return super().observation(state + self.first)


class NumPy(Counter):
    def observation(self, state):
        seen = super().observation(state)
        return seen._replace(agents_view=np.sqrt(seen.agents_view))


class Table(Counter):
    def step(self, key, state, action):
        return super().step(key, state + [0, 0, 0][action[0]], action)


class OnlyOutsideJit(Counter):
    def step(self, key, state, action):
        if not isinstance(state, jax.core.Tracer):
            raise RuntimeError("not outside jit")
        return super().step(key, state, action)


@pytest.mark.parametrize(
    ("broken", "method", "offset", "words"),
    [
        (
            MissingName,
            "observation",
            1,
            "reset(key) raised AttributeError: 'MissingName' object has no attribute 'first'.",
        ),
        (NumPy, "observation", 2, "): use jax.numpy instead of numpy."),
        (PythonBranch, "step", 1, "): use jnp.where instead of a Python branch on an array."),
        (Table, "step", 1, "): index jax.numpy arrays instead of lists or NumPy arrays, and let"),
        (OnlyOutsideJit, "step", 2, "an optional method raised RuntimeError: not outside jit."),
        (BrokenPicture, "draw", 1, "draw(state, graph) raised RuntimeError: out of ink."),
    ],
)
def test_what_user_code_raises_is_told_with_its_line(broken, method, offset, words):
    (found,) = (finding for finding in check_env(broken()) if finding.kind == "violation")
    line = getattr(broken, method).__code__.co_firstlineno + offset
    assert found.sentence.startswith(f"test_contract.py:{line}, in {method}: ")
    assert words in found.sentence
    assert "http" not in found.sentence
    assert "occurred while tracing" not in found.sentence


def test_errors_of_import_and_construction_are_told_with_their_line(tmp_path):
    text = "from tests.tiny import Gift\n\nclass Mine(Gift):\n    def __init__(self):\n"
    (tmp_path / "mine.py").write_text(text + "        self.spec = nothing\n")
    with pytest.raises(UsageError, match=r"'nothing' is not defined \(mine.py:5, in __init__\)\."):
        make_env(f"{tmp_path}/mine.py:Mine")
    (tmp_path / "mine.py").write_text("\nnothing\n")
    with pytest.raises(UsageError, match=r"'nothing' is not defined \(mine.py:2\)\."):
        make_env(f"{tmp_path}/mine.py:Mine")


def test_errors_outside_user_code_have_no_place():
    with pytest.raises(UsageError) as refused:
        make_env("nonsense")
    here = place_of(refused.value)
    assert here.startswith("test_contract.py:")
    refused.value.__traceback__ = refused.tb.tb_next  # without the frame of this test
    assert place_of(refused.value) == place_of(None) == ""
    assert place_of(refused.value, registry.__file__) == "", "dgmarl is never the user's"


class PaidDead(Counter):
    def observation(self, state):
        return super().observation(state)._replace(alive=jnp.array([True, False]))


def test_rewards_to_dead_agents_are_a_note():
    assert ("note", True) in {
        (finding.kind, "dead agents receive rewards" in finding.sentence)
        for finding in check_env(PaidDead())
    }


class OneReward(Counter):
    def step(self, key, state, action):
        state, observation, outcome = super().step(key, state, action)
        return state, observation, outcome._replace(reward=jnp.full(2, outcome.reward.mean()))


@pytest.mark.parametrize(("env", "said"), [(OneReward, True), (Counter, False)])
def test_a_team_reward_is_a_note(env, said):
    notes = [finding.sentence for finding in check_env(env()) if finding.kind == "note"]
    assert any("graph credit equals team credit" in note for note in notes) == said


def test_long_messages_end_with_a_sentence():
    text = "It is so. " * 40 + "See https://docs.example/errors.html#long"
    assert one_line(ValueError(text)).endswith("It is so")
    assert len(one_line(ValueError("x" * 400))) < 320
