"""Exports policies to files that do not need dgmarl."""

import io
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict
from jaxtyping import Array

from dgmarl.envs.base import EnvSpec, Observation
from dgmarl.errors import UsageError, one_line
from dgmarl.files import write_atomic
from dgmarl.learners.base import Learner
from dgmarl.learners.ppo import PPO
from dgmarl.learners.q_learning import QLearner
from dgmarl.nets.actor_critic import OWN_NETWORKS
from dgmarl.runs import numpy_policy

PLATFORMS = ("cpu", "cuda", "tpu")


def check_export(path: Path) -> None:
    """Raise UsageError for an unknown suffix."""
    if path.suffix not in (".stablehlo", ".py"):
        raise UsageError(
            f"{path} must end in .stablehlo, for jax.export, or in .py, for NumPy: choose one."
        )


def export_policy(
    learner: Learner, params: Any, spec: EnvSpec, path: Path, greedy: bool = True
) -> list[Path]:
    """Write a policy in the format given by the suffix of `path`; returns the files.

    .stablehlo: `jax.export.deserialize(bytes).call(agents_view [B, N, O], action_mask [B, N, A],
      hidden_state, is_first [B], key)` gives the actions [B, N] and the next hidden state, for any
      number B of environments. hidden_state: a tuple of arrays [B, ...] of the shapes in
      `in_avals`, ignored where `is_first`. key: two 32-bit integers; without `greedy` the actions
      are sampled as in evaluations.
    .py: see `numpy_policy`; the weights are written to an .npz file of the same name."""
    check_export(path)
    if path.suffix == ".stablehlo":
        return [write_atomic(path, _stablehlo(learner, params, spec, greedy))]
    weights = io.BytesIO()
    np.savez(weights, **_weights(learner, params, spec))
    source = Path(numpy_policy.__file__).read_text()
    return [write_atomic(path.with_suffix(".npz"), weights.getvalue()), write_atomic(path, source)]


def _stablehlo(learner: Learner, params: Any, spec: EnvSpec, greedy: bool) -> bytes:
    hidden, structure = jax.tree.flatten(learner.init_hidden_state(1))

    def act(
        agents_view: Array, action_mask: Array, hidden_state: Any, is_first: Array, key: Array
    ) -> tuple[Array, tuple[Array, ...]]:
        # Policies use neither the global state nor `alive`.
        unseen = jnp.zeros((agents_view.shape[0], spec.state_size))
        observation = Observation(agents_view, unseen, action_mask, action_mask.any(axis=-1))
        before = jax.tree.unflatten(structure, hidden_state)
        typed = jax.random.wrap_key_data(key)
        action, _, after = learner.act(params, typed, observation, before, is_first, greedy)
        return action, tuple(jax.tree.leaves(after))

    (batch,) = jax.export.symbolic_shape("b")
    agents = (batch, spec.n_agents)
    arguments = (
        jax.ShapeDtypeStruct((*agents, spec.obs_size), jnp.float32),
        jax.ShapeDtypeStruct((*agents, spec.n_actions), jnp.bool_),
        tuple(jax.ShapeDtypeStruct((batch, *leaf.shape[1:]), leaf.dtype) for leaf in hidden),
        jax.ShapeDtypeStruct((batch,), jnp.bool_),
        jax.ShapeDtypeStruct((2,), jnp.uint32),
    )
    try:
        exported = jax.export.export(jax.jit(act), platforms=PLATFORMS)(*arguments)
    except Exception as error:  # a custom network may depend on the number of environments
        raise UsageError(
            f"The policy cannot be exported for any number of environments: {one_line(error)}; "
            "write its network with -1 or without reshapes for the batch axes."
        ) from error
    return bytes(exported.serialize())


def _weights(learner: Learner, params: Any, spec: EnvSpec) -> dict[str, Any]:
    """The arrays that `numpy_policy.Policy` reads."""
    if isinstance(learner, PPO):
        kind, policy, part, last = "logits", learner.policy, params["actor"], False
    elif isinstance(learner, QLearner):
        kind, policy, part = "values", learner.agent, params["agent"]
        last = learner.config.last_action
    else:
        raise _no_numpy_form(type(learner))
    if policy.network not in OWN_NETWORKS.values():
        raise _no_numpy_form(policy.network)
    sizes = np.array([spec.n_agents, spec.n_actions, policy.hidden_state_size])
    arrays = flatten_dict(jax.tree.map(np.asarray, part["params"]), sep="/")
    return {**arrays, "sizes": sizes, "kind": kind, "sees_last_action": last}


def _no_numpy_form(what: type) -> UsageError:
    return UsageError(
        f"{what.__name__} is not built in and cannot be exported to NumPy: export to a file that "
        "ends in .stablehlo."
    )
