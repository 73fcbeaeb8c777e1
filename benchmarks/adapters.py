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
import jax.numpy as jnp
from envs import measure, ours
from rich.console import Console
from rich.progress import track
from rich.table import Table

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


def jaxmarl_alone(env_id: str, batch: int, length: int) -> dict[str, float]:
    """JaxMARL's `step`, which resets, with actions that are available."""
    adapted = dgmarl.make_env(env_id)
    env: Any = adapted.env  # pyright: ignore[reportAttributeAccessIssue]
    masked = bool(adapted._mask)  # pyright: ignore[reportAttributeAccessIssue]

    def actions(key: Any, state: Any) -> dict[str, Any]:
        keys = dict(zip(env.agents, jax.random.split(key, len(env.agents)), strict=True))
        if not masked:
            return {name: env.action_space(name).sample(keys[name]) for name in env.agents}
        available = env.get_avail_actions(state)
        return {
            name: jax.random.categorical(keys[name], jnp.log(available[name].astype(float)))
            for name in env.agents
        }

    def one_step(carry: Any, nothing: None) -> Any:
        key, state, total = carry
        key, act_key, step_key = jax.random.split(key, 3)
        chosen = jax.vmap(actions)(jax.random.split(act_key, batch), state)
        observations, state, rewards, _, _ = jax.vmap(env.step)(
            jax.random.split(step_key, batch), state, chosen
        )
        total += sum(leaf.sum() for leaf in jax.tree.leaves((observations, rewards)))
        return (key, state, total), None

    run = jax.jit(lambda carry: jax.lax.scan(one_step, carry, None, length)[0])
    key = jax.random.key(0)
    _, state = jax.jit(jax.vmap(env.reset))(jax.random.split(key, batch))
    return measure(run, (key, state, jnp.float32(0)), batch * length)


def jumanji_alone(env_id: str, batch: int, length: int) -> dict[str, float]:
    """Jumanji's step in its own wrapper with automatic resets; any action, as it masks none."""
    from jumanji.wrappers import VmapAutoResetWrapper

    adapted = dgmarl.make_env(env_id)
    env = VmapAutoResetWrapper(adapted.env)  # pyright: ignore[reportAttributeAccessIssue]
    shape = (batch, adapted.spec.n_agents)

    def one_step(carry: Any, _: None) -> Any:
        key, state, total = carry
        key, act_key = jax.random.split(key)
        action = jax.random.randint(act_key, shape, 0, adapted.spec.n_actions)
        state, timestep = env.step(state, action)
        seen = jax.tree.leaves((timestep.observation, timestep.reward))
        return (key, state, total + sum(leaf.sum() for leaf in seen)), None

    run = jax.jit(lambda carry: jax.lax.scan(one_step, carry, None, length)[0])
    key = jax.random.key(0)
    state, _ = jax.jit(env.reset)(jax.random.split(key, batch))
    return measure(run, (key, state, jnp.float32(0)), batch * length)


def host_alone(env_id: str, batch: int, length: int) -> dict[str, float]:
    """The loop that PettingZoo's documentation shows, in this process: one environment, as many
    steps as all have elsewhere."""
    adapted = dgmarl.make_env(env_id)
    env = make(adapted.recipe)  # pyright: ignore[reportAttributeAccessIssue]

    def run(seed: int) -> int:
        env.reset(seed=seed)
        for _ in range(batch * length):
            env.step({agent: env.action_space(agent).sample() for agent in env.agents})
            if not env.agents:
                env.reset()
        return seed + 1

    return measure(run, 0, batch * length)


ALONE: dict[str, Callable[[str, int, int], dict[str, float]]] = {
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


def row(env_id: str, batch: int, length: int) -> dict[str, Any]:
    alone = ALONE[env_id.partition(":")[0]](env_id, batch, length)
    return {
        "env": env_id,
        "batch": batch,
        "alone": alone["steps_per_s"],
        "through": ours(env_id, batch, length)["steps_per_s"],
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
    parser.add_argument("--steps", type=int, default=200, help="steps, at least an episode's")
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
        measured = [row(env_id, options.batch, options.steps) for env_id in jobs]
        Console(width=140).print(table(measured, device))
    if options.json:
        versions = {"jax": jax.__version__, "python": platform.python_version()}
        load = round(os.getloadavg()[0], 1)
        found = {"device": device, "load": load, "versions": versions, "rows": measured}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
