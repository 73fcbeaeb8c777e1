# /// script
# dependencies = ["mpe2==1.1.1"]
# ///
"""mpe2 on PettingZoo, the original particle environments: one environment, one thread."""

from typing import Any

from timing import laps, serve, summary


def play_parallel(env: Any) -> dict[str, Any]:
    """Random play of a PettingZoo environment with the parallel interface, resets included."""
    env.reset(seed=0)

    def run(n: int) -> None:
        for _ in range(n):
            env.step({agent: env.action_space(agent).sample() for agent in env.agents})
            if not env.agents:
                env.reset()

    return summary(laps(run))


def play(n_agents: int) -> dict[str, Any]:
    """Simple spread."""
    from mpe2 import simple_spread_v3

    return play_parallel(simple_spread_v3.parallel_env(N=n_agents))


if __name__ == "__main__":
    serve({"play": play}, ("mpe2", "pettingzoo", "numpy"))
