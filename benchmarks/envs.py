"""Random-policy steps per second of each environment, beside `lbforaging` and Jumanji's LBF in the
same process.

    python benchmarks/envs.py                    # this machine's default device
    python benchmarks/envs.py --json envs.json   # also as a file

A step is a random action for every agent, the dynamics, the observation and, where an episode
ended, a new one. Compile time is apart. Times are the best of three, because other programs only
ever slow one down."""

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.progress import track
from rich.table import Table

from dgmarl import make_env
from dgmarl.device import devices_for, use_all_cores
from dgmarl.envs.base import random_actions
from dgmarl.rollout import step_and_reset
from dgmarl.training import for_seeds, spread

SMACLITE_IDS = (
    "smaclite/MMM",
    "smaclite/MMM2",
    "smaclite/corridor",
    "smaclite/bane_vs_bane",
    "smaclite/25m_vs_30m",
    "smaclite/3s5z_vs_3s6z",
)
ENV_IDS = (
    "lbf/10x10-3p-3f",
    "lbf/15x15-4p-3f",
    "lbf/8x8-2p-4f-coop",
    "lbf/2s-10x10-3p-3f",
    "star-spread/10",
    "star-spread/50",
    *SMACLITE_IDS,
)
BESIDE = ("lbf/10x10-3p-3f", "lbf/15x15-4p-3f")
BATCHES = (1, 64, 1024)
REPEATS = 3
# A step of SMAClite simulates eight ticks of a battle and costs hundreds of times a step of the
# others.
SHORTER = {"smaclite": 10}


def measure(run: Callable[[Any], Any], start: Any, n_steps: int) -> dict[str, float]:
    """Compile seconds and steps per second of a jitted function that maps a carry to the next
    carry."""
    began = time.perf_counter()
    carry = jax.block_until_ready(run(start))
    compiled = time.perf_counter() - began
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        carry = jax.block_until_ready(run(carry))
        seconds.append(time.perf_counter() - began)
    return {"compile_s": max(0.0, compiled - min(seconds)), "steps_per_s": n_steps / min(seconds)}


def ours(env_id: str, batch: int, length: int) -> dict[str, float]:
    env = make_env(env_id)

    def one_step(carry: Any, _: None) -> Any:
        key, state, observation, total = carry
        key, act_key, step_key = jax.random.split(key, 3)
        after = step_and_reset(env, step_key, state, random_actions(act_key, observation))
        # Everything a learner would read is kept alive, so that the compiler cannot leave out the
        # observation.
        total += (
            after.outcome.reward.sum()
            + after.next_observation.agents_view.sum()
            + after.next_observation.global_state.sum()
        )
        return (key, after.state, after.observation, total), None

    n_devices = devices_for(batch)  # each plays its share

    def start(key: Any) -> Any:
        return key, *jax.vmap(env.reset)(jax.random.split(key, batch // n_devices)), jnp.float32(0)

    run = for_seeds(lambda carry: jax.lax.scan(one_step, carry, None, length)[0], n_devices)
    begun = jax.vmap(start)(jax.random.split(jax.random.key(0), n_devices))
    return measure(jax.jit(run), spread(begun, n_devices), batch * length)


def jumanji_lbf(env_id: str, batch: int, length: int) -> dict[str, float]:
    """Jumanji's LBF at the same size, reset through its own automatic-reset wrapper."""
    from jumanji.environments.routing.lbf.env import LevelBasedForaging
    from jumanji.environments.routing.lbf.generator import RandomGenerator
    from jumanji.wrappers import VmapAutoResetWrapper

    config = make_env(env_id).config  # pyright: ignore[reportAttributeAccessIssue]
    generator = RandomGenerator(
        grid_size=config.size,
        fov=config.size,
        num_agents=config.n_players,
        num_food=config.n_foods,
        max_agent_level=2,
        force_coop=False,
    )
    env = VmapAutoResetWrapper(LevelBasedForaging(generator=generator, time_limit=50))

    def one_step(carry: Any, _: None) -> Any:
        key, state, total = carry
        key, act_key = jax.random.split(key)
        action = jax.random.randint(act_key, (batch, config.n_players), 0, 6)
        state, timestep = env.step(state, action)
        total += timestep.reward.sum() + timestep.observation.agents_view.sum()
        return (key, state, total), None

    run = jax.jit(lambda carry: jax.lax.scan(one_step, carry, None, length)[0])
    key = jax.random.key(0)
    state, _ = jax.jit(env.reset)(jax.random.split(key, batch))
    return measure(run, (key, state, jnp.float32(0)), batch * length)


def original_lbf(env_id: str, n_steps: int = 4000) -> dict[str, float]:
    """`lbforaging`, one environment, one thread, resets included."""
    import gymnasium
    import lbforaging  # noqa: F401  (registers the ids)
    import numpy as np

    config = make_env(env_id).config  # pyright: ignore[reportAttributeAccessIssue]
    size = config.size
    env = gymnasium.make(
        f"Foraging-{size}x{size}-{config.n_players}p-{config.n_foods}f-v3", disable_env_checker=True
    ).unwrapped
    actions = np.random.default_rng(0).integers(0, 6, (n_steps, config.n_players))
    seconds = []
    for _ in range(REPEATS):
        env.reset(seed=0)
        began = time.perf_counter()
        for action in actions:
            *_, terminated, truncated, _ = env.step(tuple(action))
            if terminated or truncated:
                env.reset()
        seconds.append(time.perf_counter() - began)
    return {"compile_s": 0.0, "steps_per_s": n_steps / min(seconds)}


def rows(
    env_ids: list[str], batches: tuple[int, ...], length: int, beside: bool
) -> list[dict[str, Any]]:
    jobs: list[tuple[str, str, int, Callable[[], dict[str, float]]]] = []
    for env_id in env_ids:
        steps = max(1, length // SHORTER.get(env_id.partition("/")[0], 1))
        jobs += [
            ("dgmarl", env_id, batch, lambda e=env_id, b=batch, n=steps: ours(e, b, n))
            for batch in batches
        ]
        if beside and env_id in BESIDE:
            jobs += [
                ("jumanji", env_id, batch, lambda e=env_id, b=batch: jumanji_lbf(e, b, length))
                for batch in batches
            ]
            jobs.append(("lbforaging", env_id, 1, lambda e=env_id: original_lbf(e)))
    measured = []
    for who, env_id, batch, job in track(jobs, "measuring", console=Console(stderr=True)):
        agents = make_env(env_id).spec.n_agents
        result = job()
        agent_steps = result["steps_per_s"] * agents
        measured.append(
            {"who": who, "env": env_id, "batch": batch, **result, "agent_steps_per_s": agent_steps}
        )
    return measured


def table(measured: list[dict[str, Any]], device: str) -> Table:
    slow = {row["env"]: row["steps_per_s"] for row in measured if row["who"] == "lbforaging"}
    result = Table(
        title=f"Random-policy environment steps per second on {device}", title_justify="left"
    )
    for column in (
        "environment",
        "program",
        "environments",
        "steps/s",
        "agent-steps/s",
        "× lbforaging",
        "compile s",
    ):
        result.add_column(
            column, justify="left" if column in ("environment", "program") else "right"
        )
    for row in measured:
        times = f"{row['steps_per_s'] / slow[row['env']]:,.1f}" if row["env"] in slow else ""
        numbers = (
            f"{row['batch']:,}",
            f"{row['steps_per_s']:,.0f}",
            f"{row['agent_steps_per_s']:,.0f}",
            times,
            f"{row['compile_s']:.1f}",
        )
        result.add_row(row["env"], row["who"], *numbers)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument(
        "--steps",
        type=int,
        default=200,
        help="steps per measurement and environment (a tenth for smaclite)",
    )
    parser.add_argument("--envs", nargs="+", default=list(ENV_IDS), help="environment ids")
    parser.add_argument(
        "--batches", type=int, nargs="+", help="numbers of environments side by side"
    )
    parser.add_argument("--alone", action="store_true", help="leave out lbforaging and Jumanji")
    options = parser.parse_args()
    use_all_cores()
    accelerated = jax.default_backend() != "cpu"
    batches = tuple(options.batches or ((*BATCHES, 16384, 131072) if accelerated else BATCHES))
    device = f"{jax.devices()[0].device_kind} ({platform.machine()})"
    measured = rows(options.envs, batches, options.steps, not options.alone)
    Console(width=140).print(table(measured, device))
    if options.json:
        versions = {"jax": jax.__version__, "python": platform.python_version()}
        options.json.write_text(
            json.dumps({"device": device, "versions": versions, "rows": measured}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
