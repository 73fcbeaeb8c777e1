"""Recorded episodes: pictures, rewards, dependence graphs and credit.

`train` writes `replay.npz` to the run folder, so that reports need neither the environment nor the
policy. The file is a compressed archive of plain arrays, with text as UTF-8 bytes; nothing in it is
unpickled or executed. JAX is imported only to make a replay, not to read one."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from dgmarl.errors import UsageError
from dgmarl.files import DAMAGE, from_json, to_json, write_atomic
from dgmarl.runs.pictures import draw_state, svg_problem
from dgmarl.runs.reading import read_arrays

FILE_NAME = "replay.npz"
FORMAT = 1
MOST_BYTES = 3_000_000
"""Size limit of a replay's pictures; beyond it episodes are dropped, then pictures."""
UNLIMITED = 2**62
"""For `make_replay` without a size limit."""
MOST_PAIRS = 1_000_000
"""Limit on steps x pairs of agents for which graphs are kept."""
LAGS_AT_ONCE = 14
"""Meeting lags per call of `credited_rewards`, whose shapes are thus fixed."""
NEVER = -1
"""In `Episode.lags` and `Episode.through`: there is no path before the end."""
GRAPH_ARRAYS = {"graph": ("b", 2), "lags": ("i", 2), "through": ("i", 2)}
ARRAYS = {"rewards": ("f", 1), "actions": ("i", 1), **GRAPH_ARRAYS}
"""Arrays of an episode: kind, and number of agent axes after that of steps."""


class Episode(NamedTuple):
    """One episode of T steps and N agents."""

    frames: tuple[str, ...]
    """SVG of the states before steps 0, stride, 2 * stride, ..., and after the last step."""
    stride: int
    """Steps between two pictures; 1 unless the episode was too large."""
    rewards: Float[np.ndarray, "T N"]
    terminated: bool
    """The task ended; otherwise the episode was truncated at the horizon."""
    graph: Bool[np.ndarray, "T N N"] | None = None
    """Dependence graphs: row = source, column = target."""
    lags: Int[np.ndarray, "T N N"] | None = None
    """`meeting_times`: steps after which a path from j's action at t first reaches i, or NEVER."""
    through: Int[np.ndarray, "T N N"] | None = None
    """The agent before i on that path: j itself for a path of one edge; NEVER if there is none."""
    actions: Int[np.ndarray, "T N"] | None = None
    """None in files of older versions."""

    @property
    def length(self) -> int:
        """Number of steps."""
        return len(self.rewards)


class CreditWeights(NamedTuple):
    """Weight of a reward in the advantage of an action, by their distance in steps, [D]."""

    own: Float[np.ndarray, "D"]
    """Weights of the acting agent's rewards."""
    unreached: Float[np.ndarray, "D"]
    """Weights of the rewards of an agent that no path has reached yet."""
    lags: Int[np.ndarray, "R"]
    """Meeting lags that occur, in ascending order."""
    reached: Float[np.ndarray, "R D"]
    """Weights of the rewards of an agent that is reached after each of these lags."""
    full: Float[np.ndarray, "D"]
    """Weight of one reached agent if other agents are averaged: their weights are divided by their
    sum in these units, if it exceeds 1. All 0: no division."""


class Replay(NamedTuple):
    """Episodes of one policy."""

    env: str
    """Name of the environment."""
    n_agents: int
    policy: str
    """Name of the policy."""
    note: str
    """How the policy was credited, as far as the graph alone does not show it."""
    episodes: tuple[Episode, ...]
    weights: CreditWeights | None = None
    """None if the policy was not trained with credit along a dependence graph."""
    action_names: tuple[str, ...] = ()
    """Empty if actions have no names."""

    def mean_graph(self) -> Float[np.ndarray, "N N"] | None:
        """Fraction of the steps of all episodes in which each edge is present."""
        graphs = [episode.graph for episode in self.episodes if episode.graph is not None]
        return np.concatenate(graphs).mean(axis=0) if graphs else None


class Compared(NamedTuple):
    """A replay with several graphs of the same steps; see `dgmarl.runs.graphs`."""

    replay: Replay
    """The episodes, without graphs."""
    graphs: dict[str, tuple[np.ndarray, ...]]
    """By name, one array [T, N, N] per episode. The run's own graph comes first, if it is not a
    reference. A learned graph holds entropy ratios, others hold edges."""
    threshold: float | None
    """Entropy ratios below it are edges in training."""
    notes: tuple[str, ...]


def make_replay(
    env: Any,
    recording: Any,
    policy: str,
    note: str = "",
    credit: Mapping[str, Any] | None = None,
    most_bytes: int = MOST_BYTES,
) -> Replay:
    """A replay of a `rollout.Recording`, limited in size.

    Episodes are dropped from the end until the pictures take at most `most_bytes`; if the first one
    is larger, only every n-th of its pictures is kept.

    credit: arguments of `credited_rewards` that give the weights used in training, for example
      {"gamma": 0.99, "lambda_": 0.95}; None for other kinds of credit."""
    import jax

    recording = jax.tree.map(np.asarray, recording)
    soft = recording.graph is not None and recording.graph.dtype.kind == "f"
    if soft:  # a path exists along every edge of positive weight
        recording = recording._replace(graph=np.asarray(recording.graph) > 0)
    n_agents, lengths = env.spec.n_agents, [int(length) for length in recording.length]
    if recording.graph is not None and max(lengths) * n_agents**2 > MOST_PAIRS:
        recording = recording._replace(graph=None)
        note = f"{note} The graphs of {n_agents} agents are too large for a replay.".lstrip()
    lags = None if recording.graph is None else _lags(recording.graph, lengths)
    episodes, size, pairs = [], 0, 0
    for k, length in enumerate(lengths):
        episode = _episode(env, recording, lags, k)
        size += sum(map(len, episode.frames))
        pairs += 0 if episode.graph is None else length * n_agents**2
        if episodes and (size > most_bytes or pairs > MOST_PAIRS):
            break
        # Only the first episode may be too large.
        stride = max(1, -(-sum(map(len, episode.frames)) // most_bytes))
        frames = (*episode.frames[:-1:stride], episode.frames[-1])
        episodes.append(episode._replace(frames=frames, stride=stride))
    weights = None
    if credit is not None and lags is not None and not soft:
        weights = credit_weights([episode.lags for episode in episodes], credit)
    return Replay(
        env.spec.name, n_agents, policy, note, tuple(episodes), weights, env.spec.action_names
    )


def credit_weights(lags: list[Any], credit: Mapping[str, Any]) -> CreditWeights:
    """Weights of rewards by distance, for every meeting lag that occurs in these episodes.

    Without averaging, the weight of a reward depends on the graph only through the lag of the pair.
    So the weights are computed for a graph in which agent 0 never reaches agent 1, and reaches each
    of the others after one of the lags."""
    from dgmarl.credit.graph_gae import credited_rewards

    # A power of two: episodes of similar lengths share one compiled program.
    n_steps = max(16, 1 << (max(map(len, lags)) - 1).bit_length())
    found = np.unique(np.concatenate([of[of >= 0] for of in lags])).astype(np.int32)
    step, reached = np.arange(n_steps), []
    own = unreached = np.zeros(n_steps)
    shape = (n_steps, LAGS_AT_ONCE + 2, LAGS_AT_ONCE + 2)
    summed = {**credit, "others": "sum"}
    for chunk in np.split(found, range(LAGS_AT_ONCE, len(found), LAGS_AT_ONCE)):
        graph = np.broadcast_to(np.eye(LAGS_AT_ONCE + 2, dtype=bool), shape).copy()
        graph[:, 0, 2 : 2 + len(chunk)] = step[:, None] >= chunk
        weights = np.asarray(credited_rewards(graph, step == n_steps - 1, 0, 0, **summed))
        own, unreached = weights[:, 0], weights[:, 1]
        reached.append(weights[:, 2 : 2 + len(chunk)].T)
    averaged = credit.get("others") == "mean"
    full = averaged * credit.get("cross_weight", 1.0) * own
    return CreditWeights(own, unreached, found, np.concatenate(reached), full)


def _lags(graph: np.ndarray, lengths: list[int]) -> np.ndarray:
    """Meeting times within each episode, [E, T, N, N]."""
    from dgmarl.graphs.reach import NEVER as FAR
    from dgmarl.graphs.reach import meeting_times

    ends = np.arange(graph.shape[1])[:, None] == np.asarray(lengths) - 1
    lags = np.asarray(meeting_times(graph.swapaxes(0, 1), ends)).swapaxes(0, 1)
    return np.where(lags >= FAR, NEVER, lags).astype(np.int32)


def _episode(env: Any, recording: Any, all_lags: np.ndarray | None, k: int) -> Episode:
    import jax

    length = int(recording.length[k])
    graph = None if recording.graph is None else recording.graph[k, :length]
    lags = None if all_lags is None else all_lags[k, :length]
    states = [jax.tree.map(lambda leaf, t=t: leaf[k, t], recording.state) for t in range(length)]
    frames = [
        draw_state(env, state, None if graph is None else graph[t])
        for t, state in enumerate(states)
    ]
    frames.append(draw_state(env, jax.tree.map(lambda leaf: leaf[k], recording.last_state), None))
    for frame in frames:
        if problem := svg_problem(frame):
            raise UsageError(
                f"{env.spec.name} draws a picture that is not static SVG: {problem}. `draw` "
                "must return one <svg> element of shapes and text."
            )
    return Episode(
        tuple(frames),
        1,
        recording.reward[k, :length].astype(np.float32),
        bool(recording.terminated[k]),
        graph,
        lags,
        None if graph is None or lags is None else paths_through(graph, lags),
        recording.action[k, :length].astype(np.int32),
    )


def paths_through(
    graph: Bool[np.ndarray, "T N N"], lags: Int[np.ndarray, "T N N"]
) -> Int[np.ndarray, "T N N"]:
    """Entry [t, j, i]: the agent before i on a shortest path that starts with j's action at t; the
    lowest of several.

    Following the entries back from i to j gives the agents on the path."""
    n_agents = graph.shape[-1]
    source, target, via = np.ogrid[:n_agents, :n_agents, :n_agents]
    through = np.full(lags.shape, NEVER, np.int32)
    for t, lag in enumerate(lags):
        met = lag != NEVER
        enters = graph[np.where(met, t + lag, 0)[..., None], via, target]
        before = (lag[:, None, :] != NEVER) & (lag[:, None, :] < lag[..., None])
        through[t] = np.where(met, np.argmax(enters & (before | (via == source)), axis=-1), NEVER)
        np.fill_diagonal(through[t], np.arange(n_agents))
    return through


def write_replay(path: Path | str, replay: Replay) -> Path:
    """Write a replay atomically."""
    about = {
        **{"format": FORMAT, "env": replay.env, "n_agents": replay.n_agents},
        **{"policy": replay.policy, "note": replay.note, "action_names": replay.action_names},
        "episodes": [
            {
                "stride": one.stride,
                "terminated": one.terminated,
                **{name: getattr(one, name) is not None for name in ("graph", "actions")},
            }
            for one in replay.episodes
        ],
    }
    arrays: dict[str, Any] = {"about": np.frombuffer(to_json(about).encode(), np.uint8)}
    for k, episode in enumerate(replay.episodes):
        texts = [frame.encode() for frame in episode.frames]
        arrays[f"frames_{k}"] = np.frombuffer(b"".join(texts), np.uint8)
        arrays[f"frame_ends_{k}"] = np.cumsum([len(text) for text in texts])
        for name in ARRAYS:
            if getattr(episode, name) is not None:
                arrays[f"{name}_{k}"] = getattr(episode, name)
    if replay.weights is not None:
        arrays |= {f"weights_{name}": of for name, of in replay.weights._asdict().items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return write_atomic(path, buffer.getvalue())


def read_replay(path: Path | str) -> Replay:
    """Read and check a replay; a damaged or forged file raises UsageError."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(
            f"{path.parent} has no {path.name}: record episodes with `dgmarl watch {path.parent}`."
        )
    try:
        return _checked(read_arrays(path))
    except DAMAGE as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else f"is damaged ({error})"
        raise UsageError(
            f"{path} {reason}: record episodes with `dgmarl watch {path.parent}`."
        ) from None


def _checked(arrays: dict[str, np.ndarray]) -> Replay:
    about = from_json(_array(arrays["about"], "u", (arrays["about"].size,)).tobytes().decode())
    if about["format"] != FORMAT:
        raise ValueError(f"it has the format {about['format']}, this dgmarl reads {FORMAT}")
    n_agents = _require(about["n_agents"], int)
    episodes = tuple(
        _checked_episode(arrays, k, facts, n_agents)
        for k, facts in enumerate(_require(about["episodes"], list))
    )
    if not episodes or n_agents < 1:
        raise ValueError(f"it holds {len(episodes)} episodes of {n_agents} agents")
    env, policy, note = (_require(about[name], str) for name in ("env", "policy", "note"))
    weights = None
    if "weights_own" in arrays:
        arrays.setdefault("weights_full", np.zeros_like(arrays["weights_own"]))
        found = {name: arrays[f"weights_{name}"] for name in CreditWeights._fields}
        weights = _checked_weights(CreditWeights(**found), episodes)
    names = tuple(_require(name, str) for name in _require(about.get("action_names", []), list))
    return Replay(env, n_agents, policy, note, episodes, weights, names)


def _checked_episode(
    arrays: dict[str, np.ndarray], k: int, facts: dict[str, Any], n_agents: int
) -> Episode:
    """Episode number k. facts: its entry in `about`."""
    length = len(arrays[f"rewards_{k}"])
    stride = _require(facts["stride"], int)
    if stride < 1 or length < 1:
        raise ValueError(f"an episode of {length} steps has pictures every {stride} steps")
    present = {"rewards": True, "actions": facts.get("actions")}
    found = {
        name: _array(arrays[f"{name}_{k}"], kind, (length, *[n_agents] * n_axes))
        for name, (kind, n_axes) in ARRAYS.items()
        if present.get(name, facts["graph"])
    }
    n_frames = -(-length // stride) + 1
    ends = _array(arrays[f"frame_ends_{k}"], "i", (n_frames,))
    content = _array(arrays[f"frames_{k}"], "u", (int(ends[-1]),)).tobytes()
    starts = (0, *ends[:-1])
    frames = tuple(content[a:b].decode() for a, b in zip(starts, ends, strict=True))
    for frame in frames:
        if problem := svg_problem(frame):
            raise ValueError(f"a picture is not static SVG: {problem}")
    if facts["graph"]:
        _check_paths(found["lags"], found["through"])
    return Episode(frames, stride, terminated=_require(facts["terminated"], bool), **found)


def _check_paths(lags: np.ndarray, through: np.ndarray) -> None:
    """Check that every path in `through` leads back to its source."""
    length, n_agents, _ = lags.shape
    source, target = np.ogrid[:n_agents, :n_agents]
    left = length - np.arange(length)[:, None, None]
    met = lags != NEVER
    inside = ((lags >= 0) & (lags < left)) | ~met
    valid = inside & (met == (through != NEVER)) & (through >= NEVER) & (through < n_agents)
    before = np.take_along_axis(lags, np.clip(through, 0, n_agents - 1), axis=2)
    leads_back = (through == source) | ((before >= 0) & (before < lags))
    if not (valid & (~met | (source == target) | leads_back)).all():
        raise ValueError("its paths contradict its meeting times")


def _checked_weights(weights: CreditWeights, episodes: tuple[Episode, ...]) -> CreditWeights:
    distance, n_lags = len(weights.own), len(weights.lags)
    longest = max(episode.length for episode in episodes)
    if distance < longest:
        raise ValueError(f"it has weights for {distance} steps, its episodes have {longest}")
    for name in ("own", "unreached", "full"):
        _array(getattr(weights, name), "f", (distance,))
    _array(weights.reached, "f", (n_lags, distance))
    lags = set(_array(weights.lags, "i", (n_lags,)).tolist())
    for episode in episodes:
        if episode.lags is not None and not set(np.unique(episode.lags).tolist()) <= {NEVER, *lags}:
            raise ValueError("it lacks the weights of some meeting times")
    return weights


def _array(array: np.ndarray, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """The array, if it has this kind and shape and finite numbers."""
    if array.dtype.kind != kind or array.shape != shape:
        raise ValueError(
            f"an array is {array.dtype} of shape {array.shape}, not {kind} of shape {shape}"
        )
    if kind == "f" and not np.isfinite(array).all():
        raise ValueError("a number is not finite")
    return array


def _require(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{str(value)[:40]!r} is not of type {kind.__name__}")
    return value
