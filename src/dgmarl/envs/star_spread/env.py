"""Star-Spread, the paper's environment with a known dependence graph.

Agent 0 is the hub, the others are leaves. A leaf is rewarded for its distance to *any* landmark;
only the hub's reward depends on the coverage of all landmarks. Local rewards therefore let leaves
crowd the same landmark, the global reward adds the noise of all N rewards to each leaf's signal,
and the correct credit for a leaf is its own reward plus the hub's.

Where the paper's text and code differ, this follows the code: observations of size 4N + 2 for all
agents, a step of 0.1 (0.05 above 30 agents), and noise on every agent's reward, in evaluation
too."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.config.ranges import check_fields
from dgmarl.envs.base import Environment, EnvSpec, Observation, Outcome
from dgmarl.envs.star_spread.draw import draw_star_spread

LANDMARK_RADIUS = 0.7
COVERED_WITHIN = 0.15
CROWDED_ABOVE = 30
ACTION_NAMES = ("none", "up", "down", "left", "right")
DIRECTIONS = np.array([[0, 0], [0, 1], [0, -1], [-1, 0], [1, 0]], np.float32)


@dataclass(frozen=True)
class StarSpreadConfig:
    """Options of Star-Spread."""

    n_agents: int = 5
    """Number of agents, hub included, and of landmarks."""
    noise: float = 1.0
    """Standard deviation of the Gaussian noise on every reward; 0 disables it."""
    horizon: int = 50
    """Episode length; the episode is then truncated."""

    def __post_init__(self) -> None:
        check_fields(self, "star-spread")


class StarSpreadState(NamedTuple):
    """Positions and time step."""

    position: Float[Array, "N 2"]
    time: Int[Array, ""]


class StarSpread(Environment[StarSpreadState]):
    """One hub, N - 1 leaves, N landmarks on a circle."""

    def __init__(self, config: StarSpreadConfig):
        n = config.n_agents
        angle = 2 * np.pi * np.arange(n) / n
        self.config = config
        circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        self.landmarks = (LANDMARK_RADIUS * circle).astype(np.float32)
        self.step_size = 0.05 if n > CROWDED_ABOVE else 0.1
        self.spec = EnvSpec(
            name=f"star-spread/{n}",
            n_agents=n,
            n_actions=len(DIRECTIONS),
            obs_size=4 * n + 2,
            state_size=4 * n,
            horizon=config.horizon,
            action_names=ACTION_NAMES,
        )

    def reset(self, key: PRNGKeyArray) -> tuple[StarSpreadState, Observation]:
        """Positions uniform on the square [-1, 1]^2."""
        position = jax.random.uniform(key, (self.spec.n_agents, 2), minval=-1.0, maxval=1.0)
        state = StarSpreadState(position, jnp.int32(0))
        return state, self.observation(state)

    def step(
        self, key: PRNGKeyArray, state: StarSpreadState, action: Int[Array, "N"]
    ) -> tuple[StarSpreadState, Observation, Outcome]:
        """Move all agents, clip to the square, and compute rewards from the new positions."""
        moved = state.position + self.step_size * jnp.asarray(DIRECTIONS)[action]
        state = StarSpreadState(jnp.clip(moved, -1.0, 1.0), state.time + 1)
        to_landmark, to_agent = self.nearest(state)
        reward = jnp.concatenate([-to_agent.sum(keepdims=True), -to_landmark[1:]])
        if self.config.noise > 0:
            reward += self.config.noise * jax.random.normal(key, reward.shape)
        outcome = Outcome(
            reward=reward,
            terminated=jnp.bool_(False),
            truncated=state.time >= self.spec.horizon,
            info={
                "coverage": (to_agent <= COVERED_WITHIN).mean(),
                "team_coverage_loss": to_agent.sum(),
            },
        )
        return state, self.observation(state), outcome

    def nearest(self, state: StarSpreadState) -> tuple[Float[Array, "N"], Float[Array, "N"]]:
        """Distance of every agent to its nearest landmark, and of every landmark to its nearest
        agent."""
        x, y = state.position[:, 0], state.position[:, 1]
        goal_x, goal_y = self.landmarks.T
        squared = (x[:, None] - goal_x) ** 2 + (y[:, None] - goal_y) ** 2
        return jnp.sqrt(squared.min(axis=1)), jnp.sqrt(squared.min(axis=0))

    def observation(self, state: StarSpreadState) -> Observation:
        """The hub observes all positions, a leaf its own (in its slot); all see the landmarks."""
        n = self.spec.n_agents
        position, landmarks = state.position, jnp.asarray(self.landmarks).reshape(-1)
        visible = jnp.eye(n, dtype=bool).at[0].set(True)
        visible_positions = jnp.where(visible[:, :, None], position[None], 0.0).reshape(n, 2 * n)
        agents_view = jnp.concatenate(
            [position, visible_positions, jnp.broadcast_to(landmarks, (n, 2 * n))], axis=-1
        )
        return Observation(
            agents_view=agents_view,
            global_state=jnp.concatenate([position.reshape(-1), landmarks]),
            action_mask=jnp.ones((n, self.spec.n_actions), bool),
            alive=jnp.ones(n, bool),
        )

    def oracle_graph(self, state: StarSpreadState) -> Bool[Array, "N N"]:
        """Every agent influences itself and the hub, whose local state contains all positions."""
        return jnp.eye(self.spec.n_agents, dtype=bool).at[:, 0].set(True)

    oracle_reward_graph = oracle_graph  # the hub's reward depends on positions after the step

    def local_state(self, state: StarSpreadState) -> Float[Array, "N L"]:
        """The positions an agent observes: all for the hub, its own for a leaf. Positions evolve
        independently, so with the own position alone there would be no edges; the star comes from
        what the hub observes."""
        return self.observation(state).agents_view[:, : 2 * self.spec.n_agents + 2]

    def draw(self, state: StarSpreadState, graph: Bool[Array, "N N"] | None = None) -> str:
        """Landmarks as rings, green when covered; agents as discs, the hub labelled."""
        return draw_star_spread(np.asarray(state.position), self.landmarks, COVERED_WITHIN, graph)
