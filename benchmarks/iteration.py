"""Where an iteration's time goes: each part timed apart, beside its arithmetic and memory floor.

    python benchmarks/iteration.py                               # IPPO-DG, oracle graph, one seed
    python benchmarks/iteration.py --graph learned --json profile.json
    python benchmarks/iteration.py --method qmix --seeds 10
    taskset -c 0 python benchmarks/iteration.py --cpu-time       # on a machine with other work

The arithmetic floor is the operations of a part's matrix products over the speed of the fastest
product measured here (a loop of unknown length, such as an evaluation, counts once; of batches of
whole episodes padding counts, which a CPU leaves out); beside it is the time of the same products,
each measured alone. The memory floor is what a part takes and gives over the speed of a copy. Needs
only what training needs."""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
from jax.extend.core import jaxprs_in_params

from dgmarl.config.resolve import resolve
from dgmarl.credit.base import Credit
from dgmarl.rollout import Batch, RolloutState, collect
from dgmarl.training import Trainer, TrainState, for_seeds, init_seeds

LAPS, SECONDS = 5, 0.2
"""How often each part is timed, of which the best counts, and for about how long."""
FACTS = ("env", "method", "graph", "preset", "seeds", "cpu_time")
COLUMNS = (
    "part",
    "ms",
    "MFLOP",
    "arithmetic floor ms",
    "products alone ms",
    "memory floor ms",
    "measured / floor",
)


clock = time.perf_counter


def seconds(function: Callable[[Any], Any], inputs: Any) -> float:
    """The time of one call, from loops on the device that call it often."""

    def often(inputs: Any, n_calls: Any) -> Any:
        def once(k: Any, _: Any) -> Any:
            # The barrier makes the inputs depend on the counter: no call is moved out of the loop.
            return function(jax.lax.optimization_barrier((inputs, k))[0])

        shapes = jax.eval_shape(function, inputs)
        start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return jax.lax.fori_loop(0, n_calls, once, start)

    compiled = jax.jit(often).lower(inputs, 1).compile()

    def timed(n_calls: int) -> float:
        began = clock()
        jax.block_until_ready(compiled(inputs, n_calls))
        return (clock() - began) / n_calls

    timed(1)
    n_calls = max(1, round(SECONDS / timed(1)))
    return min(timed(n_calls) for _ in range(LAPS))


class Product(NamedTuple):
    """A matrix product."""

    shapes: tuple[tuple[int, ...], ...]
    dimensions: Any
    """Contracted and batched ones, as `dot_general` has them."""

    def flops(self) -> float:
        """Operations."""
        (contracted, _), (batched, _) = self.dimensions
        left, right = self.shapes
        shared = prod(left[axis] for axis in (*contracted, *batched))
        return 2 * prod(left) * prod(right) / shared

    @cache  # noqa: B019
    def seconds(self) -> float:
        """Of a call alone."""
        factors = tuple(jnp.ones(shape) for shape in self.shapes)
        return seconds(lambda pair: jax.lax.dot_general(pair[0], pair[1], self.dimensions), factors)


def products(jaxpr: Any) -> Counter[Product]:
    """The matrix products, those in loops of fixed length as often as they run."""
    found: Counter[Product] = Counter()
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            shapes = tuple(factor.aval.shape for factor in equation.invars)
            found[Product(shapes, equation.params["dimension_numbers"])] += 1
        for inner in jaxprs_in_params(equation.params):
            for product, count in products(inner).items():
                found[product] += equation.params.get("length", 1) * count
    return found


def bytes_of(tree: Any) -> int:
    """Of all arrays."""
    arrays = jax.eval_shape(
        lambda: [
            jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
            for leaf in jax.tree.leaves(tree)
        ]
    )
    return sum(array.size * array.dtype.itemsize for array in arrays)


def machine() -> dict[str, float]:
    """The fastest of some matrix products, and of a copy within the cache and beyond it."""
    products = []
    for rows, size in ((1500, 128), (1500, 256), (4096, 1024), (8192, 8192)):
        if rows == 8192 and jax.default_backend() == "cpu":
            continue
        pair = (jnp.ones((rows, size)), jnp.ones((size, size)))
        products.append(2 * rows * size**2 / seconds(lambda pair: pair[0] @ pair[1], pair))
    array = jnp.ones(2**20 if jax.default_backend() == "cpu" else 2**28)
    copied = 2 * array.nbytes / seconds(lambda array: array + 1, array)
    return {"product_flops": max(products), "copy_bytes": copied}


class Iteration:
    """The parts of one iteration, each a function of what the parts before it gave."""

    def __init__(self, trainer: Trainer):
        self.trainer = trainer

    def start(self, state: TrainState) -> RolloutState:
        return state.rollout_state or self.trainer._reset_envs(state.key)

    def rollout(self, inputs: tuple[TrainState, RolloutState]) -> Batch:
        state, start = inputs
        trainer, policy = self.trainer, self.trainer.learner.behaviour(state.learner, state.step)
        length, reset = trainer.length, trainer.resets
        return collect(trainer.env, policy, start, state.key, length, trainer.needs, reset)[1]

    def acting(self, inputs: tuple[TrainState, RolloutState]) -> Any:
        """The policy's share of a rollout."""
        state, start = inputs
        policy = self.trainer.learner.behaviour(state.learner, state.step)

        def act(hidden_state: Any, key: Any) -> Any:
            action, _, hidden_state = policy(key, start.observation, hidden_state, start.is_first)
            return hidden_state, action

        keys = jax.random.split(state.key, self.trainer.length)
        return jax.lax.scan(act, start.hidden_state, keys)

    def graph(self, inputs: tuple[TrainState, Batch]) -> Any:
        return self.trainer.infer_graph(*inputs, inputs[0].key)

    def values(self, inputs: tuple[TrainState, Batch]) -> Any:
        return self.trainer.learner.values(inputs[0].learner, inputs[1])

    def credit(self, inputs: tuple[TrainState, Batch, Any, Any]) -> Credit:
        state, batch, values, graph = inputs
        return self.trainer.rule.assign(state.credit_state, batch, values, graph)

    def learner(self, inputs: tuple[TrainState, Batch, Credit]) -> Any:
        state, batch, credit = inputs
        return self.trainer.learner.update(state.learner, batch, credit, state.key, jnp.bool_(True))

    def graph_model(self, inputs: tuple[TrainState, Batch]) -> Any:
        state, batch = inputs
        return self.trainer.source.update(state.graph_state, batch, state.key)

    def evaluation(self, state: TrainState) -> Any:
        n_episodes = self.trainer.config.evaluation.episodes
        return self.trainer.evaluate(state.learner.params, state.key, n_episodes)


def profile(trainer: Trainer) -> list[dict[str, Any]]:
    """One row for each part, then the whole iteration and an evaluation."""
    n_seeds, rows = trainer.config.seeds, []
    parts, state = Iteration(trainer), init_seeds(trainer)

    def measure(name: str, part: Callable[[Any], Any], inputs: Any, show: bool = True) -> Any:
        of_all = for_seeds(part, n_seeds)
        given = jax.jit(of_all)(inputs)
        if show:
            with ExitStack() as stack:
                for module in ("blocks", "graphs.learned"):  # each loop over blocks as one block
                    patch = mock.patch(f"dgmarl.{module}.launch_bound", return_value=True)
                    stack.enter_context(patch)
                found = products(jax.make_jaxpr(lambda given: of_all(given))(inputs)).items()
            rows.append({
                "part": name,
                "s": seconds(of_all, inputs),
                "flops": sum(count * product.flops() for product, count in found),
                "products_s": sum(count * product.seconds() for product, count in found),
                "bytes": bytes_of(inputs) + bytes_of(given),
            })  # fmt: skip
        return given

    start = measure("first states", parts.start, state, not trainer.resets)
    batch = measure("rollout", parts.rollout, (state, start))
    measure("of it, acting", parts.acting, (state, start))
    with_graph = trainer.uses_graph
    graph = measure("graph", parts.graph, (state, batch)) if with_graph else None
    values = measure("critic's values", parts.values, (state, batch))
    credit = measure("credit", parts.credit, (state, batch, values, graph))
    measure("learner's update", parts.learner, (state, batch, credit))
    learns = getattr(trainer.source, "learns", False)
    measure("graph model's update", parts.graph_model, (state, batch), learns)
    measure("whole iteration", trainer.iterate, state)
    measure("an evaluation", parts.evaluation, state)
    return rows


def table(rows: list[dict[str, Any]], speed: dict[str, float]) -> str:
    """Markdown."""
    lines = [COLUMNS, ("---", *["---:"] * (len(COLUMNS) - 1))]
    for row in rows:
        floors = (row["flops"] / speed["product_flops"], row["bytes"] / speed["copy_bytes"])
        times = [f"{1e3 * each:.3f}" for each in (floors[0], row["products_s"], floors[1])]
        ratio = f"{row['s'] / max(floors):.1f}"
        lines.append(
            (row["part"], f"{1e3 * row['s']:.2f}", f"{row['flops'] / 1e6:,.0f}", *times, ratio)
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="lbf/10x10-3p-3f")
    parser.add_argument("--method", default="ippo-dg")
    parser.add_argument("--graph", default="oracle")
    parser.add_argument("--preset", default="paper", choices=("paper", "tuned", "fast"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--cpu-time", action="store_true", help="of all threads, not wall-clock")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    if options.cpu_time:
        global clock
        clock = time.process_time
    what = {name: getattr(options, name) for name in FACTS}
    config = resolve(
        options.env, options.method, {}, options.preset, graph=options.graph, seeds=options.seeds,
        steps=10**9,
    )  # fmt: skip
    speed, rows = machine(), profile(Trainer(config))
    device = jax.devices()[0].device_kind
    print(f"{device}: {speed['product_flops'] / 1e9:,.0f} GFLOP/s in matrix products, ", end="")
    print(f"{speed['copy_bytes'] / 1e9:,.1f} GB/s in copies\n\n{table(rows, speed)}")
    if options.json:
        facts = {"device": device, "jax": jax.__version__, **what, "machine": speed}
        options.json.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
