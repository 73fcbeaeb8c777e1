"""Records episodes of trained policies for replays."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
from jaxtyping import PRNGKeyArray

from dgmarl.config.methods import find_method
from dgmarl.config.schema import TrainConfig
from dgmarl.envs.base import Environment
from dgmarl.errors import UsageError, raised_by_callback
from dgmarl.graphs.sources import as_graphs
from dgmarl.rollout import Batch, Recording, needs_of, record_episodes
from dgmarl.runs.callbacks import TrainResult
from dgmarl.runs.recorder import Recorder
from dgmarl.runs.replays import FILE_NAME, MOST_BYTES, Replay, make_replay, write_replay
from dgmarl.seeds import of_seed
from dgmarl.training import Trainer

REPLAY_EPISODES = 3
"""Number of episodes recorded after training."""


def record(
    trainer: Trainer,
    params: dict[str, Any],
    graph_state: Any,
    key: PRNGKeyArray,
    n_episodes: int,
    needs: frozenset[str] = frozenset(),
    infer: Callable[[Batch], Any] | None = None,
) -> Recording:
    """Whole episodes of one seed, with the graphs that training would have used.

    infer: other graphs instead, from a batch with what the run's graph source needs and `needs`."""
    act = partial(trainer.learner.act, params, greedy=trainer.config.evaluation.greedy)
    if infer is None and trainer.uses_graph:
        infer = partial(infer_edges, trainer, graph_state, key)
    hidden_state = trainer.learner.init_hidden_state(n_episodes)
    needs |= needs_of(trainer.source)
    return record_episodes(trainer.env, act, key, n_episodes, hidden_state, needs, infer)


def infer_edges(trainer: Trainer, graph_state: Any, key: PRNGKeyArray, batch: Batch) -> Any:
    """The edges inferred by the run's graph source."""
    return as_graphs(trainer.source.infer(graph_state, batch, key)).edges > 0


def replay_of(
    config: TrainConfig,
    env: Environment,
    recording: Recording,
    policy: str = "last",
    most_bytes: int = MOST_BYTES,
) -> Replay:
    """A replay for pages: pictures, rewards, graphs and credit weights."""
    note, credit = credit_note(config, env), credit_options(config)
    return make_replay(env, recording, f"{config.method} ({policy})", note, credit, most_bytes)


def write_final_replay(recorder: Recorder, trainer: Trainer, result: TrainResult) -> None:
    """Write a replay of the first seed's final policy to the run folder, for reports."""

    def recorded() -> list[Recording]:
        params, graph_state = of_seed((result.state.learner.params, result.state.graph_state), 0)
        return [record(trainer, params, graph_state, jax.random.key(0), REPLAY_EPISODES)]

    write_final_replays([recorder], [result], trainer.env, recorded)


def write_final_replays(
    recorders: Sequence[Recorder],
    results: Sequence[TrainResult],
    env: Environment,
    recorded: Callable[[], Sequence[Recording]],
) -> None:
    """The same for several runs. recorded: plays all of them; only called if a replay is written.

    If the environment draws invalid pictures or fails, a warning is given instead of a replay."""
    without_folder = all(recorder.folder is None for recorder in recorders)
    if without_folder or any(result.interrupted for result in results):
        return
    try:
        for recorder, recording in zip(recorders, recorded(), strict=True):
            if recorder.folder is not None:
                replay = replay_of(recorder.config, env, recording)
                write_replay(recorder.folder.path / FILE_NAME, replay)
    except (UsageError, jax.errors.JaxRuntimeError) as error:
        reason = raised_by_callback(error) or str(error).splitlines()[0]
        warnings.warn(f"No replay was recorded: {reason}", stacklevel=2)


def credit_note(config: TrainConfig, env: Environment) -> str:
    """How a policy was credited, as far as its dependence graph alone does not show it."""
    credit, method = config.credit, find_method(config.method)
    if not method.uses_graph:
        return f"This policy was trained with {method.label}; the graph is that of the environment."
    notes = []
    if credit_options(config) is None:
        notes.append(
            f"This policy was trained with {method.label}, whose weights do not follow from the "
            "graph alone."
        )
    # A rule from outside the package may have other fields.
    unreached = getattr(credit, "unreached_weight", 0)
    cross_weight = getattr(credit, "cross_weight", 1)
    if unreached:
        notes.append(f"In training, agents not reached had a weight of {unreached:.2g}.")
    if getattr(credit, "others", "sum") == "mean" and env.spec.n_agents > 2:
        notes.append("In training, the rewards of other agents were averaged over those reached.")
    if cross_weight != 1:
        notes.append(f"In training, the rewards of other agents had a weight of {cross_weight:g}.")
    return " ".join(notes)


def credit_options(config: TrainConfig) -> dict[str, Any] | None:
    """Arguments of `credited_rewards` that give the weights used in training; None without graph
    credit, or with a reward graph, which is not recorded."""
    learner, credit = config.learner, config.credit
    names = ("unreached_weight", "cross_weight", "others", "advantage_form")
    uses_graph = find_method(config.method).uses_graph
    if not uses_graph or not all(hasattr(credit, name) for name in names):
        return None
    if getattr(credit, "reward_graph", "none") in ("measured", "oracle"):
        return None
    weights = {name: getattr(credit, name) for name in names}
    return {"gamma": learner.gamma, "lambda_": learner.lambda_, **weights}
