"""How long graph advantages take: `python benchmarks/credit.py [--quick]`.

Compilation apart from running, beside a double loop over starts and steps (Algorithm 1 as printed,
in NumPy and as compiled JAX), then growth in steps, agents and edges, then a thousand agents. Times
are medians; "original" is the time of the paper's torch double loop on two cores."""

import argparse
import os
import resource
import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dgmarl import graph_gae, meeting_times

GAMMA, LAMBDA = 0.99, 0.95
# Batch, steps, agents, the original's milliseconds, how many times faster we want to be at least.
SETTINGS = [(10, 50, 3, 48, 100), (10, 50, 25, 72, 12), (10, 150, 25, 570, 30)]


def window(batch: int, n_steps: int, n_agents: int, degree: float, seed: int = 0) -> tuple:
    """Random steps in which every agent reaches `degree` others on average; one episode in fifty
    steps ends early."""
    rng = np.random.default_rng(seed)
    shape = (n_steps, batch, n_agents)
    reward, value, next_value = (jnp.asarray(rng.normal(size=shape), jnp.float32) for _ in range(3))
    graph = np.broadcast_to(np.eye(n_agents, dtype=bool), (*shape, n_agents)).copy()
    for t in range(n_steps):
        graph[t] |= rng.random(graph[t].shape, dtype=np.float32) < degree / n_agents
    continues = jnp.asarray(rng.random(shape[:2]) > 0.02)
    return reward, value, next_value, jnp.asarray(graph), continues, continues


def double_loop(reward, value, next_value, graph, bootstrap, continues, product) -> np.ndarray:
    """Algorithm 1 as printed, vectorised over the batch only."""
    reward, value, next_value, graph = (
        np.asarray(array) for array in (reward, value, next_value, graph)
    )
    bootstrap, continues = np.asarray(bootstrap), np.asarray(continues)
    delta = reward + GAMMA * next_value * bootstrap[..., None] - value
    advantage = np.zeros_like(delta)
    edges = graph.astype(np.float32)
    for start in range(len(delta)):
        reached = np.broadcast_to(np.eye(delta.shape[-1], dtype=np.float32), edges[0].shape)
        discount = np.ones((delta.shape[1], 1), np.float32)
        for t in range(start, len(delta)):
            reached = product(reached, edges[t])
            weight = LAMBDA * reached + 1 - LAMBDA
            advantage[start] += discount * np.einsum("bji,bi->bj", weight, delta[t])
            discount = discount * GAMMA * LAMBDA * continues[t][:, None]
    return advantage


@jax.jit
def compiled_double_loop(reward, value, next_value, graph, bootstrap, continues) -> jax.Array:
    """The same sums as two nested compiled loops."""
    delta = reward + GAMMA * next_value * bootstrap[..., None] - value
    edges = graph.astype(jnp.float32)
    n_steps = len(delta)

    def from_start(start):
        def step(t, carry):
            reached, discount, total = carry
            reached = jnp.minimum(reached @ edges[t], 1.0)
            weight = LAMBDA * reached + 1 - LAMBDA
            total = total + discount * jnp.einsum("bji,bi->bj", weight, delta[t])
            return reached, discount * GAMMA * LAMBDA * continues[t][:, None], total

        nothing = (
            jnp.broadcast_to(jnp.eye(delta.shape[-1]), edges[0].shape),
            jnp.ones_like(delta[0, :, :1]),
            0 * delta[0],
        )
        return jax.lax.fori_loop(start, n_steps, step, nothing)[2]

    return jax.lax.map(from_start, jnp.arange(n_steps))


def timed(function: Callable, *arguments, repeats: int) -> tuple[float, float]:
    """Seconds of the first call (compilation included) and the median of the others."""

    def once() -> float:
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        return time.perf_counter() - start

    return once(), float(np.median([once() for _ in range(repeats)]))


def row(*cells: object) -> None:
    print("  ".join(f"{cell:>12}" for cell in cells), flush=True)


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"


def paper_settings(repeats: int, advantage: Callable) -> None:
    row(
        "B",
        "T",
        "N",
        "compile s",
        "graph_gae ms",
        "meeting ms",
        "numpy loop",
        "jax loop",
        "original",
        "x original",
        "wanted x",
    )
    for batch, n_steps, n_agents, original, wanted in SETTINGS:
        steps = window(batch, n_steps, n_agents, degree=1.5)
        first, ours = timed(advantage, *steps, repeats=repeats)
        _, meeting = timed(jax.jit(meeting_times), steps[3], ~steps[5], repeats=repeats)
        clipped = partial(double_loop, product=lambda a, b: np.minimum(a @ b, 1.0))
        _, numpy_loop = timed(clipped, *steps, repeats=1)
        _, jax_loop = timed(compiled_double_loop, *steps, repeats=2)
        np.testing.assert_allclose(advantage(*steps), clipped(*steps), rtol=1e-3, atol=1e-3)
        times = [milliseconds(seconds) for seconds in (ours, meeting, numpy_loop, jax_loop)]
        row(
            batch,
            n_steps,
            n_agents,
            f"{first:.2f}",
            *times,
            original,
            f"{original / (1e3 * ours):.0f}",
            wanted,
        )


def growth(repeats: int, advantage: Callable) -> None:
    print("\nGrowth, B = 10 (B = 1 in edges)")
    row("T", "N", "degree", "dense ms", "neighbour ms")
    for n_steps in (25, 50, 100, 200, 400):
        row(
            n_steps,
            10,
            1.5,
            milliseconds(timed(advantage, *window(10, n_steps, 10, 1.5), repeats=repeats)[1]),
            "",
        )
    for n_agents in (5, 10, 20, 40, 80):
        row(
            50,
            n_agents,
            1.5,
            milliseconds(timed(advantage, *window(10, 50, n_agents, 1.5), repeats=repeats)[1]),
            "",
        )
    for degree in (1, 4, 16, 64):
        steps = window(1, 20, 256, degree)
        dense = jax.jit(partial(graph_gae, gamma=GAMMA, lambda_=LAMBDA, method="dense"))
        most = int(np.asarray(steps[3]).sum(-1).max())
        sparse = jax.jit(
            partial(graph_gae, gamma=GAMMA, lambda_=LAMBDA, method="neighbours", max_degree=most)
        )
        row(
            20,
            256,
            degree,
            *(milliseconds(timed(f, *steps, repeats=repeats)[1]) for f in (dense, sparse)),
        )


def thousand_agents(repeats: int) -> None:
    rng = np.random.default_rng(0)
    n_steps, n_agents, degree = 50, 1000, 8
    steps = list(window(1, n_steps, n_agents, degree=0))
    graph = np.asarray(steps[3]).copy()
    for t in range(n_steps):
        graph[t, 0, np.arange(n_agents)[:, None], rng.integers(0, n_agents, (n_agents, degree))] = (
            True
        )
    steps[3] = jnp.asarray(graph)
    before = peak_megabytes()
    first, ours = timed(partial(graph_gae, gamma=GAMMA, lambda_=LAMBDA), *steps, repeats=repeats)
    print(
        f"\nB = 1, N = {n_agents}, T = {n_steps}, degree {degree}: {ours:.2f} s (first call "
        f"{first:.2f} s)"
    )
    print(
        f"memory: graphs {graph.nbytes / 1e6:.0f} MB, peak before the call {before:.0f} MB, after "
        f"it {peak_megabytes():.0f} MB"
    )


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, no growth curves")
    quick = parser.parse_args().quick
    repeats = 5 if quick else 30
    advantage = jax.jit(partial(graph_gae, gamma=GAMMA, lambda_=LAMBDA))
    print(
        f"jax {jax.__version__} on {jax.devices()[0].platform}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}"
    )
    paper_settings(repeats, advantage)
    if not quick:
        growth(5, advantage)
    thousand_agents(3)


if __name__ == "__main__":
    main()
