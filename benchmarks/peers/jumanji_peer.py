# /// script
# dependencies = ["jumanji==1.1.2"]
# ///
"""Jumanji's foraging, with its own wrapper for batches and automatic resets."""

from typing import Any

from timing import Prepared, compiled, laps, serve, summary


def play_env(env: Any, n_agents: int, n_actions: int, batch: int) -> Prepared:
    """Random play of any environment of Jumanji; any action, as it masks none."""
    import jax
    from jumanji.wrappers import VmapAutoResetWrapper

    wrapped = VmapAutoResetWrapper(env)

    def step(carry: Any) -> Any:
        key, state, total = carry
        key, act_key = jax.random.split(key)
        action = jax.random.randint(act_key, (batch, n_agents), 0, n_actions)
        state, timestep = wrapped.step(state, action)
        # Everything that a learner reads is kept alive.
        seen = jax.tree.leaves((timestep.observation, timestep.reward))
        return key, state, total + sum(leaf.sum() for leaf in seen)

    key = jax.random.key(0)
    state, _ = jax.jit(wrapped.reset)(jax.random.split(key, batch))
    run, facts = compiled(step, (key, state, jax.numpy.float32(0)))
    return Prepared(facts, lambda: summary(laps(run, batch)))


def play(size: int, players: int, foods: int, batch: int) -> Prepared:
    """Foraging with the original's sizes."""
    from jumanji.environments.routing.lbf.env import LevelBasedForaging
    from jumanji.environments.routing.lbf.generator import RandomGenerator

    generator = RandomGenerator(
        grid_size=size,
        fov=size,
        num_agents=players,
        num_food=foods,
        max_agent_level=2,
        force_coop=False,
    )
    env = LevelBasedForaging(generator=generator, time_limit=50)
    return play_env(env, players, 6, batch)


if __name__ == "__main__":
    serve({"play": play}, ("jumanji", "jax", "jaxlib"))
