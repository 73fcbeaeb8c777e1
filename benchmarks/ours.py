"""What dgmarl does per second: play, training, learning and credit, as jobs of `bench.py` and
`growth.py`, or by hand:

    python benchmarks/ours.py '{"kind": "play", "env": "smaclite/MMM2", "batch": 512}'
    python benchmarks/ours.py '{"kind": "train", "env": "lbf/10x10-3p-3f", "method": "qmix"}'

Each result has the milliseconds of a fixed calculation, measured right before it: speeds times that
can be compared between calls on a busy machine, and `make bench-check` does."""

import statistics
import time
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from timing import Found, Prepared, Run, compiled, laps, learned, serve, summary

from dgmarl import graph_gae, make_env
from dgmarl.config.resolve import resolve
from dgmarl.device import devices_for, mesh_for, use_all_cores
from dgmarl.envs.base import random_actions
from dgmarl.rollout import reset_where
from dgmarl.seeds import for_seeds, spread
from dgmarl.training import Program, Trainer, init_seeds

GAMMA, LAMBDA = 0.99, 0.95
LISTS_FROM = 64
"""Agents from which credit is measured with neighbour lists."""


def calibration_ms() -> float:
    """Milliseconds of fifty products of 256 x 256 matrices in a compiled loop."""
    run = calibration()
    return 1e3 / statistics.median(laps(lambda n: run(50 * n), repeats=3))


@cache
def calibration() -> Run:
    """A product per unit."""
    weights = jax.random.normal(jax.random.key(0), (256, 256)) / 16
    return compiled(lambda x: jnp.tanh(x @ weights), weights)[0]


def measured(run: Any, facts: Found, work: Any = 1) -> Prepared:
    """A program to be measured later."""
    return Prepared(facts, lambda: {"calibration_ms": calibration_ms(), **summary(laps(run, work))})


def play(env: str, batch: int, options: Found | None = None) -> Prepared:
    """Environment steps of a random policy with automatic resets; each device plays its share."""
    made, n_devices = make_env(env, **(options or {})), devices_for(batch)

    def step(carry: Any) -> Any:
        key, state, observation, total = carry
        key, act_key, step_key = jax.random.split(key, 3)
        step_key, reset_key = jax.random.split(step_key)
        keys = jax.random.split(step_key, batch // n_devices)
        action = random_actions(act_key, observation)
        state, after, outcome = jax.vmap(made.step)(keys, state, action)
        done = outcome.terminated | outcome.truncated
        state, observation = reset_where(made, reset_key, done, state, after)
        # Everything that a learner reads is kept alive.
        seen = (outcome.reward, after.agents_view, after.global_state)
        return key, state, observation, total + sum(leaf.sum() for leaf in seen)

    def start(key: Any) -> Any:
        keys = jax.random.split(key, batch // n_devices)
        return key, *jax.vmap(made.reset)(keys), jnp.float32(0)

    begun = jax.jit(jax.vmap(start))(jax.random.split(jax.random.key(0), n_devices))
    run, facts = compiled(step, spread(begun, n_devices), lambda f: for_seeds(f, n_devices))
    return measured(run, facts, batch)


def train(
    env: str,
    method: str,
    graph: str = "self",
    seeds: int = 1,
    preset: Any = "tuned",
    overrides: Found | None = None,
    devices: int | None = None,
) -> Prepared:
    """Environment steps of all seeds in training iterations without evaluations, all laps from the
    same untrained policy: a trained one ends its episodes sooner, for the same work."""
    config = resolve(env, method, overrides or {}, preset, graph=graph, seeds=seeds, steps=10**9)
    trainer = Trainer(config)
    mesh = mesh_for(seeds, trainer.config.n_envs, devices)
    state = spread(init_seeds(trainer), seeds, mesh)
    around = partial(for_seeds, n_seeds=seeds, mesh=mesh)
    run, facts = compiled(lambda state: trainer.advance(state, jnp.int32(1)).state, state, around)
    steps = float(run(1).step.sum())
    facts |= {"agents": trainer.env.spec.n_agents, "steps_per_iteration": steps}
    return measured(run, facts, lambda after: float(after.step.sum()))


def compile_time(env: str, method: str, graph: str, preset: Any, seeds: int) -> Prepared:
    """Seconds until the programs of a run are compiled, all of them at the same time. Its state is
    described, not made: replay memories of large battles fill a GPU."""
    trainer = Trainer(resolve(env, method, {}, preset, graph=graph, seeds=seeds, steps=10**9))
    program = Program(trainer)
    place = NamedSharding(program.mesh, PartitionSpec("seeds"))
    state = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
        jax.eval_shape(lambda: init_seeds(trainer)),
    )
    began = time.perf_counter()
    program.compile(state)
    return Prepared({"compile_s": time.perf_counter() - began}, dict)


def learn(env: str, method: str, settings: Found, seeds: int, steps: int, goal: float) -> Prepared:
    """Whole runs: environment steps per second, and seconds until the return of the episodes that
    training plays, a mean of ten updates, reaches `goal`; compiling apart.

    settings: n_envs, length (that of an episode), hidden, epochs, minibatches, learning_rate,
    entropy and max_grad_norm, for all libraries alike."""
    names = ("hidden", "epochs", "minibatches", "learning_rate", "max_grad_norm")
    overrides = {f"learner.{name}": settings[name] for name in names}
    overrides |= {"learner.entropy_coef": settings["entropy"], "n_envs": settings["n_envs"]}
    trainer = Trainer(resolve(env, method, overrides, seeds=seeds, steps=10**9))
    n_updates = steps // (settings["n_envs"] * settings["length"])

    def whole_run(state: Any) -> Any:
        def update(state: Any, _: None) -> Any:
            state, metrics = trainer.iterate(state)
            return state, metrics["episode_return"]

        return jax.lax.scan(update, state, None, n_updates)

    starts = [spread(_seeds_from(trainer, k), seeds) for k in range(3)]
    began = time.perf_counter()
    program = jax.jit(for_seeds(whole_run, seeds)).lower(starts[0]).compile()
    facts = {"compile_s": time.perf_counter() - began}

    def measure() -> Found:
        rates, curves, calibration = [], [], calibration_ms()
        for start in starts:
            began = time.perf_counter()
            state, returns = jax.block_until_ready(program(start))
            took = time.perf_counter() - began
            rates.append(float(state.step.sum()) / took)
            curves += [(curve, took / n_updates) for curve in np.asarray(returns).tolist()]
        return {"calibration_ms": calibration, **summary(rates), **learned(curves, goal)}

    return Prepared(facts, measure)


def _seeds_from(trainer: Trainer, k: int) -> Any:
    """The states of the k-th set of seeds before their first step."""
    n = trainer.config.seeds
    return jax.jit(jax.vmap(trainer.init))(jax.vmap(jax.random.key)(k * n + jnp.arange(n)))


def window(batch: int, n_steps: int, n_agents: int, degree: int) -> tuple[Any, ...]:
    """Random steps in which every agent reaches `degree` others at most, by their numbers; one
    episode in fifty steps ends early."""
    keys = jax.random.split(jax.random.key(0), 5)
    shape = (n_steps, batch, n_agents)
    reward, value, next_value = (jax.random.normal(key, shape) for key in keys[:3])
    others = jax.random.randint(keys[3], (*shape, degree), 0, n_agents)
    itself = jnp.broadcast_to(jnp.arange(n_agents)[:, None], (*shape, 1))
    continues = jax.random.bernoulli(keys[4], 0.98, shape[:2])
    targets = jnp.concatenate([itself, others], axis=-1)
    return reward, value, next_value, targets, continues, continues


def credit(batch: int, n_steps: int, n_agents: int, degree: int, how: str) -> Prepared:
    """Graph advantages per second: `graph_gae`, with neighbour lists where there are many agents,
    or Algorithm 1 as printed, a double loop over starts and steps, in NumPy or compiled."""
    steps = list(window(batch, n_steps, n_agents, degree))
    lists = n_agents >= LISTS_FROM and how == "graph_gae"
    if not lists:
        steps[3] = jax.nn.one_hot(steps[3], n_agents, dtype=bool).any(axis=-2)
    if how == "numpy loop":
        return measured(lambda n: [numpy_loop(*steps) for _ in range(n)], {})
    method = "lists" if lists else "auto"
    ours = partial(graph_gae, gamma=GAMMA, lambda_=LAMBDA, method=method)
    function = ours if how == "graph_gae" else compiled_loop

    def once(carry: Any) -> Any:
        # Each call waits for the one before: the compiler would otherwise call it once.
        steps, total = jax.lax.optimization_barrier(carry)
        return steps, total + function(*steps)

    run, facts = compiled(once, (steps, jnp.zeros_like(steps[0])))
    return measured(run, facts)


def numpy_loop(*steps: Any) -> Any:
    """Algorithm 1 as printed, vectorised over the batch only."""
    reward, value, next_value, graph, bootstrap, continues = map(np.asarray, steps)
    delta = reward + GAMMA * next_value * bootstrap[..., None] - value
    advantage, edges = np.zeros_like(delta), graph.astype(np.float32)
    for start in range(len(delta)):
        reached = np.broadcast_to(np.eye(delta.shape[-1], dtype=np.float32), edges[0].shape)
        discount = np.ones((delta.shape[1], 1), np.float32)
        for t in range(start, len(delta)):
            reached = np.minimum(reached @ edges[t], 1.0)
            weight = LAMBDA * reached + 1 - LAMBDA
            advantage[start] += discount * np.einsum("bji,bi->bj", weight, delta[t])
            discount = discount * GAMMA * LAMBDA * continues[t][:, None]
    return advantage


def compiled_loop(reward, value, next_value, graph, bootstrap, continues) -> Any:
    """The same sums as two nested compiled loops."""
    delta = reward + GAMMA * next_value * bootstrap[..., None] - value
    edges, n_steps = graph.astype(jnp.float32), len(delta)

    def from_start(start: Any) -> Any:
        def step(t: Any, carry: Any) -> Any:
            reached, discount, total = carry
            reached = jnp.minimum(reached @ edges[t], 1.0)
            weight = LAMBDA * reached + 1 - LAMBDA
            total = total + discount * jnp.einsum("bji,bi->bj", weight, delta[t])
            return reached, discount * GAMMA * LAMBDA * continues[t][:, None], total

        loops = jnp.broadcast_to(jnp.eye(delta.shape[-1]), edges[0].shape)
        begun = (loops, jnp.ones_like(delta[0, :, :1]), jnp.zeros_like(delta[0]))
        return jax.lax.fori_loop(start, n_steps, step, begun)[2]

    return jax.lax.map(from_start, jnp.arange(n_steps))


def main() -> None:
    use_all_cores()
    kinds = {"play": play, "train": train, "learn": learn, "credit": credit}
    serve(kinds | {"compile": compile_time}, ("jax", "jaxlib"))


if __name__ == "__main__":
    main()
