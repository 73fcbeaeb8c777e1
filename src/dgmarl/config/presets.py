"""Presets per environment family and method, as dotted overrides of a `TrainConfig`.

`paper` has the published hyperparameters, `tuned` (the default) those that we found better, `fast`
the tuned ones with 128 environments. Only `paper` standardises rewards: subtracting a mean acts as
a time penalty where episodes can end early, and with separate statistics per credit rule the rules
differ in more than credit (docs/credit.md). The other presets scale rewards.
"""

from collections.abc import Mapping
from typing import Any, Literal

from dgmarl.errors import UsageError

Preset = Literal["tuned", "paper", "fast"]
PRESETS: tuple[Preset, ...] = ("tuned", "paper", "fast")
Overrides = dict[str, Any]

# The paper's table of hyperparameters; others have the defaults of `parts.py`.
_PPO: Mapping[str, Overrides] = {
    "lbf": {},
    "star-spread": {
        "learner.hidden": 64,
        "learner.entropy_coef": 0.01,
        "credit.reward_scaling": "standardise",
        "learner.normalise_advantage": True,
        "evaluation.interval": 20_000,
        "graph_model.encoder": False,
        "graph_model.multi_head": True,
    },
    "smaclite": {
        "learner.network": "gru",
        "learner.hidden": 64,
        "evaluation.interval": 10_000,
        "evaluation.greedy": True,
        "graph_model.multi_head": True,
    },
    # Not from the paper: rewards of any scale.
    "other": {
        "learner.entropy_coef": 0.01,
        "credit.reward_scaling": "standardise",
        "learner.normalise_advantage": True,
    },
}

# One iteration of 128 environments collects what the paper's ten collect in eight. A minibatch has
# as many steps as a batch of the paper (16 environments x 32 steps against 10 episodes of about
# 50), and there are as many gradient steps per environment step, also those of a learned graph,
# each on all steps but an eighth of the pairs.
_FAST: Overrides = {
    "n_envs": 128,
    "rollout_length": 32,
    "learner.minibatches": 8,
    "graph_model.gradient_steps": 8,
    "graph_model.pair_fraction": 1 / 8,
    "evaluation.interval": 50_000,
}

_Q: Mapping[str, Overrides] = {
    # EPyMARL's tuned numbers, used by the paper for IQL and QMIX; VDN and QPLEX take QMIX's, so
    # that only the mixer differs. Observations are small integers.
    "lbf": {
        "learner.network": "gru",
        "learner.learning_rate": 3e-4,
        "learner.epsilon_steps": 200_000,
        "learner.evaluation_epsilon": 0.05,
        "learner.tau": 0.01,
        "learner.buffer_precision": "float16",
        "credit.reward_scaling": "standardise",
    },
    "star-spread": {"evaluation.interval": 20_000, "credit.reward_scaling": "standardise"},
    # pymarl2's, tuned for SMAC; observations are of order 1, so float16 keeps three decimals.
    "smaclite": {
        "learner.buffer_precision": "float16",
        "n_envs": 8,
        "learner.network": "gru",
        "learner.last_action": True,
        "learner.learning_rate": 1e-3,
        "learner.loss_weight": 0.5,
        "learner.lambda_": 0.6,
        "learner.batch_size": 128,
        "learner.episodes_per_update": 8,
        "learner.target_update_unit": "episodes",
        "learner.epsilon_steps": 100_000,
        "evaluation.interval": 10_000,
    },
    "other": {"credit.reward_scaling": "standardise"},
}
_IQL: Mapping[str, Overrides] = {"lbf": {"learner.hidden": 128, "learner.tau": 0.0}}
_HEADS = ("star-spread", "smaclite")


def is_tuned(env: str) -> bool:
    """Whether there are presets for the environment's family."""
    return _family(env) in _PPO


def ppo_preset(env: str, preset: Preset) -> Overrides:
    """IPPO and MAPPO with local or team credit."""
    if preset == "paper":
        return _of_family(_PPO, env)
    # With short episodes, ten environments give small and slow updates.
    sizes = {} if is_tuned(env) else {"n_envs": 0}
    return _scaled({**_of_family(_PPO, env), **(_FAST if preset == "fast" else sizes)})


def graph_preset(env: str, preset: Preset) -> Overrides:
    """IPPO-DG: the paper's runs sum over reached agents and give unreached ones the weight
    1 - lambda. The mean over reached agents is better in larger teams, where others' rewards are
    mostly noise, and the same in pairs (docs/credit.md)."""
    credit = {"credit.unreached_weight": 0.05} if preset == "paper" else {"credit.others": "mean"}
    return {**ppo_preset(env, preset), **credit}


def central_graph_preset(env: str, preset: Preset) -> Overrides:
    """MAPPO-DG: the paper has one critic head per agent where the state is not all observations."""
    heads = {"learner.critic": "central-heads"} if _family(env) in _HEADS else {}
    return {**graph_preset(env, preset), **heads}


def q_preset(env: str, preset: Preset) -> Overrides:
    """VDN, QMIX and QPLEX."""
    if preset == "fast":
        raise UsageError(
            "preset is fast, which collects fixed-length rollouts, but Q-learning replays whole "
            "episodes: choose tuned or paper."
        )
    numbers = _of_family(_Q, env)
    if preset == "paper":
        return {**numbers, "learner.standardise_padding": True}
    return _scaled(numbers)


def iql_preset(env: str, preset: Preset) -> Overrides:
    """IQL, which EPyMARL tuned separately."""
    return {**q_preset(env, preset), **_IQL.get(_family(env), {})}


def _family(env: str) -> str:
    return env.partition("/")[0]


def _of_family(table: Mapping[str, Overrides], env: str) -> Overrides:
    return table.get(_family(env), table["other"])


def _scaled(numbers: Overrides) -> Overrides:
    """Scale rewards where the paper standardises them."""
    if numbers.get("credit.reward_scaling") != "standardise":
        return numbers
    return {**numbers, "credit.reward_scaling": "scale"}
