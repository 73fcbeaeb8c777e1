"""Matrix games, small enough to verify credit and value decomposition by hand: two players, a
common payoff and one payoff matrix per state.

The payoff is split evenly: the sum of rewards is the entry of the matrix."""

import re
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.envs.base import Environment, EnvSpec, Observation, Outcome
from dgmarl.envs.svg import agent_colour, circle, dependence_arrows, picture, rect, text
from dgmarl.errors import UnknownNameError

OVER = -1


class MatrixState(NamedTuple):
    """Index of the current (or last) payoff matrix, and the last joint action."""

    situation: Int[Array, ""]
    action: Int[Array, "2"]
    time: Int[Array, ""]


class MatrixGame(Environment[MatrixState]):
    """A game that starts in situation 0; `follow[s][a0][a1]` is the next situation, or OVER."""

    def __init__(self, name: str, payoff: np.ndarray, follow: np.ndarray, horizon: int):
        self.payoff, self.follow = np.asarray(payoff, np.float32), np.asarray(follow, np.int32)
        n_situations, n_actions, _ = self.payoff.shape
        self.spec = EnvSpec(f"matrix/{name}", 2, n_actions, n_situations, n_situations, horizon)

    def reset(self, key: PRNGKeyArray) -> tuple[MatrixState, Observation]:
        """Deterministic: situation 0."""
        state = MatrixState(jnp.int32(0), jnp.full(2, -1, jnp.int32), jnp.int32(0))
        return state, self._observation(state)

    def step(
        self, key: PRNGKeyArray, state: MatrixState, action: Int[Array, "2"]
    ) -> tuple[MatrixState, Observation, Outcome]:
        """Pay half of the matrix entry to each agent and move to the next situation."""
        cell = (state.situation, action[0], action[1])
        payoff, following = jnp.asarray(self.payoff)[cell], jnp.asarray(self.follow)[cell]
        over = following == OVER
        state = MatrixState(
            jnp.where(over, state.situation, following), action.astype(jnp.int32), state.time + 1
        )
        outcome = Outcome(jnp.full(2, payoff / 2), over, jnp.bool_(False), {"payoff": payoff})
        return state, self._observation(state), outcome

    def _observation(self, state: MatrixState) -> Observation:
        one_hot = (jnp.arange(self.spec.state_size) == state.situation).astype(jnp.float32)
        return Observation(
            agents_view=jnp.broadcast_to(one_hot, (2, self.spec.obs_size)),
            global_state=one_hot,
            action_mask=jnp.ones((2, self.spec.n_actions), bool),
            alive=jnp.ones(2, bool),
        )

    def oracle_graph(self, state: MatrixState) -> Bool[Array, "2 2"]:
        """Complete: the payoff is common."""
        return jnp.ones((2, 2), bool)

    oracle_reward_graph = oracle_graph

    def local_state(self, state: MatrixState) -> Float[Array, "2 1"]:
        """The index of the situation, shared by both agents."""
        return jnp.full((2, 1), state.situation, jnp.float32)

    def draw(self, state: MatrixState, graph: Bool[Array, "2 2"] | None = None) -> str:
        """The payoff matrix of the current situation, with the last joint action highlighted."""
        size, cell = self.spec.n_actions, 90.0
        situation, (row, column) = int(state.situation), np.asarray(state.action)
        shapes = [rect(0, 0, cell * (size + 1), cell * (size + 1), "#fbfaf7")]
        for a in range(size):
            shapes.append(text(cell * 0.5, cell * (a + 1.5), f"a⁰ = {a}", 18, agent_colour(0)))
            shapes.append(text(cell * (a + 1.5), cell * 0.5, f"a¹ = {a}", 18, agent_colour(1)))
            for b in range(size):
                fill = "#ffe9a8" if (a, b) == (row, column) else "#fff"
                shapes.append(rect(cell * (b + 1), cell * (a + 1), cell, cell, fill, stroke="#bbb"))
                payoff = f"{self.payoff[situation, a, b]:g}"
                shapes.append(text(cell * (b + 1.5), cell * (a + 1.5), payoff, 24))
        shapes += [
            circle(cell * 0.25, cell * 0.65, 8, agent_colour(0)),
            circle(cell * 0.65, cell * 0.25, 8, agent_colour(1)),
        ]
        shapes += dependence_arrows(graph, np.array([[0.25, 0.65], [0.65, 0.25]]) * cell, 10)
        return picture(
            cell * (size + 1), cell * (size + 1), shapes, f"{self.spec.name}, situation {situation}"
        )


def climbing() -> MatrixGame:
    """The climbing game: deviations from the optimum (0, 0) are penalised, (2, 2) is safe."""
    return _one_shot("climbing", np.array([[11, -30, 0], [-30, 7, 6], [0, 0, 5]]))


def penalty(k: float) -> MatrixGame:
    """The penalty game: two optima, (0, 2) and (2, 0), and -k if the agents pick different ones."""
    return _one_shot(f"penalty-{k:g}", np.array([[-k, 0, 10], [0, 2, 0], [10, 0, -k]]))


def two_step() -> MatrixGame:
    """The two-step game: agent 0 chooses a game that always pays 7, or 8 for (1, 1)."""
    payoff = np.array([[[0, 0], [0, 0]], [[7, 7], [7, 7]], [[0, 1], [1, 8]]])
    follow = np.array([[[1, 1], [2, 2]], np.full((2, 2), OVER), np.full((2, 2), OVER)])
    return MatrixGame("two-step", payoff, follow, horizon=2)


def parse_matrix_game(text_: str) -> MatrixGame:
    """The game named after `matrix/`."""
    if text_ == "climbing":
        return climbing()
    if text_ == "two-step":
        return two_step()
    match = re.fullmatch(r"penalty-(\d+(?:\.\d+)?)", text_)
    if match:
        return penalty(float(match[1]))
    raise UnknownNameError(
        f"matrix/{text_} is not a known game: choose matrix/climbing, matrix/two-step or "
        "matrix/penalty-K, K >= 0."
    )


def _one_shot(name: str, payoff: np.ndarray) -> MatrixGame:
    return MatrixGame(name, payoff[None], np.full((1, *payoff.shape), OVER), horizon=1)
