"""Star-Spread, the paper's environment with a known dependence graph.

Agent 0 is the hub, the others are leaves. A leaf is paid for standing on *any* landmark; only the
hub's reward asks that all landmarks be covered. So local reward sends leaves to the same landmark,
global reward buries each leaf in N noises, and crediting each leaf with its own and the hub's
reward is just right.

Deviations of the original code from the paper that are followed here: observations of 4N + 2 for
everybody, a step of 0.1 (0.05 beyond 30 agents), and noise drawn for every agent, also in
evaluation."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.envs.base import Environment, EnvSpec, Observation, Outcome
from dgmarl.envs.star_spread.draw import draw_star_spread
from dgmarl.errors import UsageError

LANDMARK_RADIUS = 0.7
COVERED_WITHIN = 0.15
CROWDED_ABOVE = 30
# no-op, up, down, left, right
DIRECTIONS = np.array([[0, 0], [0, 1], [0, -1], [-1, 0], [1, 0]], np.float32)


@dataclass(frozen=True)
class StarSpreadConfig:
    """What can be chosen about Star-Spread."""

    n_agents: int = 5
    """Number of agents, hub included; as many landmarks."""
    noise: float = 1.0
    """Standard deviation of the noise on every reward; 0 turns it off."""
    horizon: int = 50
    """Steps until an episode is truncated."""

    def __post_init__(self) -> None:
        if not 2 <= self.n_agents <= 10_000:
            raise UsageError(
                f"star-spread has n_agents={self.n_agents}, but needs a hub and at least one "
                "leaf: choose 2 to 10000."
            )
        if self.noise < 0:
            raise UsageError(
                f"star-spread has noise={self.noise}, a standard deviation: choose 0 (off) or more."
            )
        if self.horizon < 1:
            raise UsageError(f"star-spread has horizon={self.horizon}: choose 1 step or more.")


class StarSpreadState(NamedTuple):
    """Where everybody is, and how many steps have passed."""

    position: Float[Array, "N 2"]
    time: Int[Array, ""]


class StarSpread(Environment[StarSpreadState]):
    """One hub, N - 1 leaves, N landmarks on a circle."""

    def __init__(self, config: StarSpreadConfig):
        n = config.n_agents
        angle = 2 * np.pi * np.arange(n) / n
        self.config = config
        self.landmarks = (
            LANDMARK_RADIUS * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        ).astype(np.float32)
        self.step_size = 0.05 if n > CROWDED_ABOVE else 0.1
        self.spec = EnvSpec(
            f"star-spread/{n}", n, len(DIRECTIONS), 4 * n + 2, 4 * n, config.horizon
        )

    def reset(self, key: PRNGKeyArray) -> tuple[StarSpreadState, Observation]:
        """Everybody uniform on the square [-1, 1]^2."""
        position = jax.random.uniform(key, (self.spec.n_agents, 2), minval=-1.0, maxval=1.0)
        state = StarSpreadState(position, jnp.int32(0))
        return state, self.observation(state)

    def step(
        self, key: PRNGKeyArray, state: StarSpreadState, action: Int[Array, "N"]
    ) -> tuple[StarSpreadState, Observation, Outcome]:
        """All agents move at once, clipped to the square; rewards are paid for where they
        arrive."""
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
        """Distance from every agent to its nearest landmark, and from every landmark to its nearest
        agent."""
        x, y = state.position[:, 0], state.position[:, 1]
        squared = (x[:, None] - self.landmarks[:, 0]) ** 2 + (
            y[:, None] - self.landmarks[:, 1]
        ) ** 2
        return jnp.sqrt(squared.min(axis=1)), jnp.sqrt(squared.min(axis=0))

    def observation(self, state: StarSpreadState) -> Observation:
        """The hub sees every position, a leaf only its own (in its own slot); all see the
        landmarks."""
        n = self.spec.n_agents
        position, landmarks = state.position, jnp.asarray(self.landmarks).reshape(-1)
        seen = jnp.eye(n, dtype=bool).at[0].set(True)
        positions_seen = jnp.where(seen[:, :, None], position[None], 0.0).reshape(n, 2 * n)
        agents_view = jnp.concatenate(
            [position, positions_seen, jnp.broadcast_to(landmarks, (n, 2 * n))], axis=-1
        )
        return Observation(
            agents_view=agents_view,
            global_state=jnp.concatenate([position.reshape(-1), landmarks]),
            action_mask=jnp.ones((n, self.spec.n_actions), bool),
            alive=jnp.ones(n, bool),
        )

    def oracle_graph(self, state: StarSpreadState) -> Bool[Array, "N N"]:
        """Everybody influences itself and the hub: the hub's local state is what it sees, and it
        sees everybody."""
        return jnp.eye(self.spec.n_agents, dtype=bool).at[:, 0].set(True)

    def local_state(self, state: StarSpreadState) -> Float[Array, "N L"]:
        """What an agent sees of positions: all of them for the hub, its own for a leaf. Positions
        move independently, so an agent's own position alone would leave no edge at all; the star is
        in what the hub observes and is paid for."""
        return self.observation(state).agents_view[:, : 2 * self.spec.n_agents + 2]

    def draw(self, state: StarSpreadState, graph: Bool[Array, "N N"] | None = None) -> str:
        """Landmarks as rings, green when covered; agents as discs, the hub named."""
        return draw_star_spread(np.asarray(state.position), self.landmarks, COVERED_WITHIN, graph)
