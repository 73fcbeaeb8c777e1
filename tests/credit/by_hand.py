"""Batches made by hand, for rules with a critic of their own."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dgmarl.config.resolve import resolve
from dgmarl.credit.base import Values
from dgmarl.envs.base import EnvSpec, Observation
from dgmarl.rollout import Batch
from dgmarl.training import Trainer
from tests.credit.windows import random_window
from tests.tiny import Unplayed

T, B, N, A = 12, 3, 3, 4
SPEC = EnvSpec("by hand", N, n_actions=A, obs_size=2, state_size=5, horizon=20)


class Played(NamedTuple):
    batch: Batch
    values: Values


def played(seed: int = 0) -> Played:
    """Random steps of several episodes, ended by termination and truncation alike."""
    rng = np.random.default_rng(seed)
    window = random_window(rng, T, N, B, end=0.3, dtype=np.float32)
    terminated, continues = ~window.bootstrap, window.continues
    view, state, logits = (
        jnp.asarray(rng.normal(size=(T, B, *rest)), jnp.float32) for rest in ((N, 2), (5,), (N, A))
    )
    ones = jnp.ones((T, B, N), bool)
    observation = Observation(view, state, jnp.ones((T, B, N, A), bool), ones)
    batch = Batch(
        observation=observation,
        next_observation=observation,
        action=jnp.asarray(rng.integers(0, A, (T, B, N))),
        log_prob=jnp.zeros((T, B, N)),
        reward=jnp.asarray(window.reward),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(~continues & ~terminated),
        valid=jnp.ones((T, B), bool),
        is_first=jnp.zeros((T, B), bool),
        hidden_state=None,
        extras={"probs": jax.nn.softmax(logits)},
    )
    return Played(batch, Values(jnp.asarray(window.value), jnp.asarray(window.next_value)))


def made(method: str, **overrides: Any) -> tuple[Any, Any]:
    """A rule as a run has it, and its first state, with all parameters of a critic random."""
    config = resolve("other.py:Env", method, {"learner.hidden": 8, **overrides})
    trainer = Trainer(config, Unplayed(SPEC))
    state = trainer.rule.init(jax.random.key(0), trainer.env)
    if not hasattr(state, "critic"):
        return trainer.rule, state
    rng = np.random.default_rng(0)
    noisy = lambda leaf: leaf + rng.normal(scale=0.2, size=leaf.shape).astype(np.float32)  # noqa: E731
    params = jax.tree.map(noisy, state.critic.params)
    return trainer.rule, state._replace(critic=state.critic._replace(params=params))


def assigned(method: str, played: Played, **overrides: Any) -> Any:
    """The credit of a fresh rule."""
    rule, state = made(method, **overrides)
    return rule.assign(state, *played, None)
