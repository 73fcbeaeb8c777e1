"""Steps per second of other libraries' environments through dgmarl, beside the library's own loop.

    python benchmarks/adapters.py                        # this machine's default device
    python benchmarks/adapters.py --json adapters.json   # also as a file
    python benchmarks/adapters.py --random results/adapters

A step is a random action for every agent and, where an episode ended, a new one; "alone" is the
library's own loop with its own automatic reset, for PettingZoo and Gymnasium one environment in one
process. Training is `ippo-local` with one seed, compile time apart. `--random` instead plays the
random policy in each environment of published results: what trained ones are held against."""

import argparse
import json
import os
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
from ours import play
from peers import jaxmarl_peer, jumanji_peer, mpe2_peer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from timing import Found

import dgmarl
from dgmarl.envs.adapters.worker import make
from dgmarl.report.results import read_results
from dgmarl.rollout import act_randomly, evaluate

ENV_IDS = (
    "jaxmarl:MPE_simple_spread_v3",
    "jaxmarl:2s3z",
    "jumanji:LevelBasedForaging-v0",
    "jumanji:Connector-v3",
    "pettingzoo:mpe2.simple_spread_v3",
    "gymnasium:Foraging-8x8-2p-1f-v3",
)
EPISODES = 512
TRAINED_STEPS = 20_000


def jaxmarl_alone(adapted: Any, batch: int) -> Found:
    return jaxmarl_peer.play_env(adapted.env, batch)()


def jumanji_alone(adapted: Any, batch: int) -> Found:
    spec = adapted.spec
    return jumanji_peer.play_env(adapted.env, spec.n_agents, spec.n_actions, batch)()


def host_alone(adapted: Any, batch: int) -> Found:
    return mpe2_peer.play_parallel(make(adapted.recipe))


ALONE: dict[str, Callable[[Any, int], Found]] = {
    "jaxmarl": jaxmarl_alone,
    "jumanji": jumanji_alone,
    "pettingzoo": host_alone,
    "gymnasium": host_alone,
}
"""The library's own loop."""


def random_play(folder: Path) -> list[dict[str, Any]]:
    """The random policy's mean return with half the width of its 95 % interval, per scenario."""
    found = {}
    for result in read_results(folder):
        config = result.facts["config"]
        if result.scenario in found:
            continue
        env = dgmarl.make_env(result.env, **config["env_options"])
        play = jax.jit(partial(evaluate, env, act_randomly, hidden_state=None, n_episodes=EPISODES))
        played = play(key=jax.random.key(0))
        found[result.scenario] = {
            "scenario": result.scenario,
            "env": result.env,
            "env_options": config["env_options"],
            "episodes": EPISODES,
            "return_mean": float(played.returns.mean()),
            "half_width": 1.96 * float(played.returns.std()) / EPISODES**0.5,
            "endings": {name: float(value.mean()) for name, value in played.endings.items()},
        }
    return list(found.values())


def training(env_id: str) -> float:
    overrides = {"evaluation.episodes": 10, "evaluation.interval": TRAINED_STEPS}
    done = dgmarl.train(env_id, "ippo-local", seeds=1, steps=TRAINED_STEPS, overrides=overrides)
    return done.timing["steps_per_s"]


def row(env_id: str, batch: int) -> dict[str, Any]:
    alone = ALONE[env_id.partition(":")[0]](dgmarl.make_env(env_id), batch)
    return {
        "env": env_id,
        "batch": batch,
        "alone": alone["value"],
        "through": play(env_id, batch)()["value"],
        "training": training(env_id),
    }


def table(measured: list[dict[str, Any]], device: str) -> Table:
    shown = Table(title=f"Environment steps per second on {device}", title_justify="left")
    columns = ("environment", "environments", "alone", "through dgmarl", "training")
    for name in columns:
        shown.add_column(name, justify="left" if name == "environment" else "right")
    for row in measured:
        rates = (f"{row[name]:,.0f}" for name in ("batch", "alone", "through", "training"))
        shown.add_row(row["env"], *rates)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--envs", nargs="+", default=list(ENV_IDS), help="environment ids")
    parser.add_argument("--batch", type=int, default=64, help="environments side by side")
    parser.add_argument("--random", type=Path, help="play randomly where these results are from")
    options = parser.parse_args()
    device = f"{jax.devices()[0].device_kind} ({platform.machine()})"
    if options.random:
        measured = random_play(options.random)
        print(json.dumps(measured, indent=1))
    else:
        jobs = track(options.envs, "measuring", console=Console(stderr=True))
        measured = [row(env_id, options.batch) for env_id in jobs]
        Console(width=140).print(table(measured, device))
    if options.json:
        versions = {"jax": jax.__version__, "python": platform.python_version()}
        load = round(os.getloadavg()[0], 1)
        found = {"device": device, "load": load, "versions": versions, "rows": measured}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
