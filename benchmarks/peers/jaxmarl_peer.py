# /// script
# dependencies = [
#   "jaxmarl==0.2.0", "distrax==0.1.9", "hydra-core==1.3.8", "wandb==0.31.0",
# ]
# ///
# pyright: reportMissingImports=false
"""JaxMARL's environments, and its IPPO from a checkout: the scripts are not in the package."""

import os
import sys
import time
from pathlib import Path
from typing import Any

from timing import Found, Prepared, compiled, laps, learned, serve, summary

SCRIPT = Path("baselines") / "IPPO" / "ippo_ff_mpe.py"


def play_env(env: Any, batch: int) -> Prepared:
    """Random play of any environment of JaxMARL, whose `step` resets, with available actions."""
    import jax
    import jax.numpy as jnp

    def actions(key: Any, state: Any) -> dict[str, Any]:
        keys = dict(zip(env.agents, jax.random.split(key, len(env.agents)), strict=True))
        try:
            available = env.get_avail_actions(state)
        except (AttributeError, NotImplementedError):
            return {name: env.action_space(name).sample(keys[name]) for name in env.agents}
        return {
            name: jax.random.categorical(keys[name], jnp.log(available[name].astype(float)))
            for name in env.agents
        }

    def step(carry: Any) -> Any:
        key, state, total = carry
        key, act_key, step_key = jax.random.split(key, 3)
        chosen = jax.vmap(actions)(jax.random.split(act_key, batch), state)
        keys = jax.random.split(step_key, batch)
        observations, state, rewards, _, _ = jax.vmap(env.step)(keys, state, chosen)
        # Everything that a learner reads is kept alive.
        seen = jax.tree.leaves((observations, rewards))
        return key, state, total + sum(leaf.sum() for leaf in seen)

    key = jax.random.key(0)
    _, state = jax.jit(jax.vmap(env.reset))(jax.random.split(key, batch))
    run, facts = compiled(step, (key, state, jnp.float32(0)))
    return Prepared(facts, lambda: summary(laps(run, batch)))


def play(env: str, batch: int) -> Prepared:
    """An environment by its name, or SMAX on the map of that name."""
    import jaxmarl
    from jaxmarl.environments.smax.smax_env import MAP_NAME_TO_SCENARIO

    scenario = MAP_NAME_TO_SCENARIO.get(env)
    if scenario is None:
        return play_env(jaxmarl.make(env), batch)
    return play_env(jaxmarl.make("HeuristicEnemySMAX", scenario=scenario), batch)


def train(env: str, settings: Found, seeds: int, steps: int, goal: float) -> Prepared | Found:
    """Whole runs of the script's `make_train`, all seeds in one program, as the script has them.
    settings: as of `ours.learn`, in JaxMARL's names here."""
    checkout = Path(os.environ.get("JAXMARL_CHECKOUT", "not given"))
    if not (checkout / SCRIPT).is_file():
        return {"error": f"needs {SCRIPT} of a checkout: give --jaxmarl-checkout DIR"}
    sys.path.insert(0, str(checkout / SCRIPT.parent))
    import jax
    import wandb
    from ippo_ff_mpe import make_train

    wandb.init(mode="disabled")
    per_update = settings["n_envs"] * settings["length"]
    n_updates = steps // per_update
    config = {
        "ENV_NAME": env,
        "ENV_KWARGS": {},
        "LR": settings["learning_rate"],
        "NUM_ENVS": settings["n_envs"],
        "NUM_STEPS": settings["length"],
        "TOTAL_TIMESTEPS": n_updates * per_update,
        "UPDATE_EPOCHS": settings["epochs"],
        "NUM_MINIBATCHES": settings["minibatches"],
        "GAMMA": 0.99,
        "GAE_LAMBDA": 0.95,
        "CLIP_EPS": 0.2,
        "ENT_COEF": settings["entropy"],
        "VF_COEF": 0.5,
        "MAX_GRAD_NORM": settings["max_grad_norm"],
        "ACTIVATION": "relu",
        "ANNEAL_LR": False,
    }
    began = time.perf_counter()
    keys = [jax.random.split(jax.random.PRNGKey(k), seeds) for k in range(3)]
    program = jax.jit(jax.vmap(make_train(config))).lower(keys[0]).compile()
    compile_s = time.perf_counter() - began

    def measure() -> Found:
        rates, curves = [], []
        for key in keys:
            began = time.perf_counter()
            out = jax.block_until_ready(program(key))
            took = time.perf_counter() - began
            rates.append(seeds * n_updates * per_update / took)
            # Its log has the return of the last finished episode, so an update late; 0 before.
            returns = out["metrics"]["returned_episode_returns"].at[:, :2].set(-jax.numpy.inf)
            curves += [(curve, took / n_updates) for curve in returns.tolist()]
        return {**summary(rates), **learned(curves, goal)}

    return Prepared({"compile_s": compile_s}, measure)


if __name__ == "__main__":
    serve({"play": play, "train": train}, ("jaxmarl", "jax", "jaxlib"))
