# /// script
# dependencies = ["lbforaging==2.0.0"]
# ///
"""`lbforaging` on Gymnasium, the original foraging: one environment, one thread."""

from typing import Any

from timing import laps, serve, summary


def play(env: str) -> dict[str, Any]:
    """Random play, resets included. env: an id of Gymnasium."""
    import gymnasium
    import lbforaging  # noqa: F401  (registers the ids)
    import numpy as np

    made: Any = gymnasium.make(env, disable_env_checker=True).unwrapped
    n_players = len(made.action_space)
    rng = np.random.default_rng(0)
    made.reset(seed=0)

    def run(n: int) -> None:
        for action in rng.integers(0, 6, (n, n_players)):
            *_, terminated, truncated, _ = made.step(tuple(action))
            if terminated or truncated:
                made.reset()

    return summary(laps(run))


if __name__ == "__main__":
    serve({"play": play}, ("lbforaging", "gymnasium", "numpy"))
