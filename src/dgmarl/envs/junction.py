"""A traffic junction, a template for environments; `dgmarl new-env my_env.py` writes this file.

    dgmarl check-env my_env.py:Junction
    dgmarl train my_env.py:Junction --method mappo-dg --graph oracle --steps 1e5

At each junction two one-way roads cross. A car drives or brakes, and its reward is `-hurry` per
step until it has crossed. If two cars drive into one cell, both stay and lose 1 more. A selfish car
always drives; the team return is higher if it yields to a queue with more hurry."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dgmarl import Environment, EnvSpec, Observation, Outcome

CROSSING = 3  # cells 0, 1 and 2 lead to the crossing; a car in cell 4 has left


class JunctionState(NamedTuple):
    """Dynamic state: arrays only, so that jit and vmap can handle it."""

    cell: jax.Array  # [N] each car's position on its road
    hurry: jax.Array  # [N] cost per step
    time: jax.Array


class Junction(Environment[JunctionState]):
    """Four cars per junction, two on each road; junctions do not influence one another."""

    def __init__(self, junctions: int = 2, horizon: int = 16):
        n = 4 * junctions
        self.road = jnp.arange(n) // 2  # roads 0 and 1 cross, roads 2 and 3, ...
        sizes = (n, 2, 7, 7 * n, horizon)  # agents, actions, observation, global state, horizon
        self.spec = EnvSpec("junction", *sizes, action_names=("brake", "drive"))

    def reset(self, key):
        """All randomness comes from the key."""
        cell_key, hurry_key = jax.random.split(key)
        behind = jax.random.randint(cell_key, (self.spec.n_agents // 2,), 0, 2)
        cell = jnp.stack([behind, behind + 1], axis=-1).reshape(-1)
        hurry = jnp.where(jax.random.bernoulli(hurry_key, 0.3, cell.shape), 1.0, 0.1)
        state = JunctionState(cell, hurry, jnp.int32(0))
        return state, self.observation(state)

    def step(self, key, state, action):
        """One step of all cars, without Python branches on arrays. Never resets."""
        drives = (action == 1) & (state.cell <= CROSSING)
        rival, ahead = self.neighbours(state)
        meets = drives & (rival & drives[:, None]).any(axis=0)
        moves = drives & ~meets
        for _ in range(3):  # a car that stays blocks those behind it
            moves = moves & ~(ahead & ~moves[:, None]).any(axis=0)
        reward = -jnp.where(state.cell <= CROSSING, state.hurry, 0) - meets  # one per agent
        state = JunctionState(state.cell + moves, state.hurry, state.time + 1)
        left = (state.cell > CROSSING).all()
        late = ~left & (state.time >= self.spec.horizon)
        return state, self.observation(state), Outcome(reward, left, late, {"all_left": left})

    def neighbours(self, state):
        """rival[j, i]: j would drive into the same cell as i. ahead[j, i]: j is in that cell."""

        def place(cell):  # roads of a junction share the crossing
            return jnp.where(cell == CROSSING, -1 - self.road // 2, 10 * self.road + cell)

        here, there = place(state.cell), place(state.cell + 1)
        waits = state.cell < CROSSING
        other = ~jnp.eye(len(here), dtype=bool)
        return other & waits & (there[:, None] == there), waits & (here[:, None] == there)

    def observation(self, state):
        """What each car sees: itself, its rival, and the hurry of both queues."""
        rival, ahead = self.neighbours(state)
        waiting = jnp.where(state.cell < CROSSING, state.hurry, 0)
        queue = ((self.road[:, None] == self.road) * waiting).sum(axis=-1)
        own = [state.cell == CROSSING - 1, state.cell == CROSSING, state.hurry, ahead.any(axis=0)]
        others = [rival.any(axis=0), queue, (rival * queue).sum(axis=-1)]
        view = jnp.stack([*own, *others], axis=-1).astype(jnp.float32)
        mask = jnp.ones((len(view), 2), bool)  # every action is available
        return Observation(view, view.reshape(-1), mask, alive=state.cell <= CROSSING)

    def oracle_graph(self, state):
        """Optional, for `--graph oracle`. Entry [j, i]: j's action can change i's next cell."""
        rival, ahead = self.neighbours(state)
        graph = (jnp.eye(len(rival), dtype=bool) | rival | ahead).astype(int)
        return graph @ graph @ graph > 0  # also indirectly, through the cars ahead of i

    def local_state(self, state):
        """Optional, for interventional and learned graphs: each car's own state."""
        return jnp.stack([state.cell, state.hurry], axis=-1)
