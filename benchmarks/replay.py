"""What replayed episodes cost: memory per seed, a checkpoint of a run whose buffers are full, and a
gradient step on episodes that end early, which are packed into fewer rows.

    python benchmarks/replay.py --json results/benchmarks/replay.json

The buffers of the checkpoint are filled with episodes of the exploration that runs begin with, so
they compress as those do."""

import argparse
import json
import platform
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp

from dgmarl.config.resolve import resolve
from dgmarl.learners.replay import Replay, add
from dgmarl.rollout import collect, reset_envs
from dgmarl.runs.checkpoints import load_latest, save_checkpoint
from dgmarl.training import Trainer, TrainState, init_seeds

ENVS = (
    "lbf/8x8-2p-4f-coop",
    "lbf/10x10-3p-3f",
    "lbf/15x15-4p-3f",
    "star-spread/10",
    "smaclite/MMM",
    "smaclite/bane_vs_bane",
)


def replay_row(env: str, method: str) -> dict[str, Any]:
    """Memory of one seed's buffer."""
    config = resolve(env, method, seeds=1)
    replay = jax.eval_shape(Trainer(config).learner.init, jax.random.key(0)).replay
    names = ("buffer_size", "buffer_precision")
    return {
        "env": env,
        "method": method,
        **{name: getattr(config.learner, name) for name in names},
        "mib": mib(replay),
    }


def checkpoint_row(env: str, method: str, seeds: int) -> dict[str, Any]:
    """Seconds to write and to read a checkpoint of a run with full buffers, and its size."""
    config = resolve(env, method, seeds=seeds)
    trainer = Trainer(config)
    state = init_seeds(trainer)
    # One seed after the other: all episodes of a buffer are played at once, which is more than runs
    # ever do.
    replay = jax.lax.map(lambda seed: filled(trainer, seed), state)
    state = jax.block_until_ready(state._replace(learner=state.learner._replace(replay=replay)))
    with TemporaryDirectory() as folder:
        began = time.perf_counter()
        path = save_checkpoint(Path(folder), 0, state)
        written = time.perf_counter()
        load_latest(Path(folder), state)
        read_s, write_s = time.perf_counter() - written, written - began
        on_disk = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 2**20
    sizes = {"replay_mib": mib(replay), "on_disk_mib": on_disk}
    return {
        "env": env,
        "method": method,
        "seeds": seeds,
        **sizes,
        "write_s": write_s,
        "read_s": read_s,
    }


def filled(trainer: Trainer, state: TrainState) -> Replay:
    """As many episodes as fit, played as at the beginning of a run."""
    replay, learner, env = state.learner.replay, trainer.learner, trainer.env
    n_episodes = len(replay.episodes.length)
    rollout_state = reset_envs(env, state.key, learner.init_hidden_state(n_episodes), n_episodes)
    act = learner.behaviour(state.learner, jnp.int32(0))
    _, batch = collect(
        env, act, rollout_state, state.key, env.spec.horizon, frozenset(), reset=False
    )
    credit = trainer.rule.assign(state.credit_state, batch, None, None)
    return add(replay, batch, credit.reward, where=jnp.bool_(True))


def update_row(env: str, method: str, share: float) -> dict[str, Any]:
    """Seconds of a gradient step of one seed, best of five, on episodes of a share of the
    horizon."""
    batch_size = resolve(env, method).learner.batch_size
    buffer = {"learner.buffer_size": batch_size}
    learner: Any = Trainer(resolve(env, method, buffer, seeds=1)).learner
    state, chosen = learner.init(jax.random.key(0)), jnp.arange(batch_size)[None]
    length = jnp.full(batch_size, round(share * learner.spec.horizon))
    stored, state = state.replay.episodes._replace(length=length), state._replace(replay=None)
    update = jax.jit(learner.updates)
    jax.block_until_ready(update(state, stored, chosen, jnp.int32(0)))
    laps = []
    for _ in range(5):
        began = time.perf_counter()
        jax.block_until_ready(update(state, stored, chosen, jnp.int32(0)))
        laps.append(time.perf_counter() - began)
    return {"env": env, "method": method, "share": share, "update_s": min(laps)}


def mib(tree: Any) -> float:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree)) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", default="qmix")
    parser.add_argument("--env", default="lbf/15x15-4p-3f", help="of the checkpoint")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 10], help="of the checkpoint")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    memory = [replay_row(env, options.method) for env in ENVS]
    for row in memory:
        print(
            f"{row['env']}, {row['buffer_size']} episodes, {row['buffer_precision']}: "
            f"{row['mib']:,.0f} MiB per seed"
        )
    checkpoints = [checkpoint_row(options.env, options.method, seeds) for seeds in options.seeds]
    for row in checkpoints:
        print(
            f"checkpoint of {row['env']}, seeds {row['seeds']}: {row['replay_mib']:,.0f} MiB "
            f"of replay, {row['on_disk_mib']:,.0f} MiB on disk, written in "
            f"{row['write_s']:.1f} s, read in {row['read_s']:.1f} s"
        )
    updates = [
        update_row(env, options.method, share)
        for env in ("lbf/10x10-3p-3f", "smaclite/MMM")
        for share in (1.0, 0.4)
    ]
    for row in updates:
        print(
            f"{row['env']}, gradient step on episodes of {row['share']:.0%} of the horizon: "
            f"{1e3 * row['update_s']:,.0f} ms"
        )
    if options.json:
        device = f"{jax.devices()[0].device_kind} ({platform.machine()})"
        facts = {
            "device": device,
            "jax": jax.__version__,
            "memory": memory,
            "checkpoints": checkpoints,
            "updates": updates,
        }
        options.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
