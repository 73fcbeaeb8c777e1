"""Random windows for the credit tests: any N and T, padded to one shape so that few programs are
compiled."""

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

MAX_STEPS, MAX_AGENTS, BATCH = 60, 12, 2


class Window(NamedTuple):
    reward: np.ndarray
    value: np.ndarray
    next_value: np.ndarray
    graph: np.ndarray
    bootstrap: np.ndarray
    continues: np.ndarray


def random_window(
    rng, n_steps, n_agents, batch=BATCH, edge=0.2, end=0.1, dtype: Any = np.float64
) -> Window:
    """Several episodes per window, ended by termination and truncation alike; inside one,
    next_value is the next value."""
    reward, value = (rng.uniform(-1, 1, (n_steps, batch, n_agents)).astype(dtype) for _ in range(2))
    graph = (rng.random((n_steps, batch, n_agents, n_agents)) < edge) | np.eye(n_agents, dtype=bool)
    terminated, truncated = (rng.random((n_steps, batch)) < end / 2 for _ in range(2))
    continues = ~(terminated | truncated)
    after = np.concatenate([value[1:], rng.uniform(-1, 1, value[:1].shape).astype(dtype)])
    fresh = rng.uniform(-1, 1, value.shape).astype(dtype)
    return Window(
        reward, value, np.where(continues[..., None], after, fresh), graph, ~terminated, continues
    )


def padded(window: Window) -> Window:
    """The same in the largest shape: agents without edges, and steps after the end, filled with
    sevens."""
    n_steps, _, n_agents = window.reward.shape
    extra = ((0, MAX_STEPS - n_steps), (0, 0), (0, MAX_AGENTS - n_agents))
    after_end = ((0, MAX_STEPS - n_steps), (0, 0), (0, 0))
    reward, value, next_value = (
        np.pad(np.pad(array, after_end, constant_values=7.0), ((0, 0), *extra[1:]))
        for array in window[:3]
    )
    graph = np.pad(window.graph, (*extra, extra[2]), constant_values=False) | np.eye(
        MAX_AGENTS, dtype=bool
    )
    continues = window.continues.copy()
    continues[-1] = False
    bootstrap, continues = (
        np.pad(mask, extra[:2], constant_values=True) for mask in (window.bootstrap, continues)
    )
    return Window(reward, value, next_value, graph, bootstrap, continues)


@st.composite
def windows(draw, dtype: Any = np.float32) -> Window:
    """Windows of 1 to 60 steps and 1 to 12 agents, from no edges to all, from one episode to one
    per step."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_steps, n_agents = draw(st.integers(1, MAX_STEPS)), draw(st.integers(1, MAX_AGENTS))
    edge, end = draw(st.sampled_from([0.0, 0.05, 0.3, 1.0])), draw(st.sampled_from([0.0, 0.1, 0.5]))
    return random_window(rng, n_steps, n_agents, edge=edge, end=end, dtype=dtype)


def over_batch(function, window: Window, *arguments):
    """A one-window function applied to each entry of the batch axis, in float64."""
    entries = [Window(*(array[:, b] for array in window)) for b in range(window.reward.shape[1])]
    return np.stack(
        [
            function(*(np.asarray(a, float) if a.dtype.kind == "f" else a for a in e), *arguments)
            for e in entries
        ],
        1,
    )
