"""Small PettingZoo environments: one with everything that a ParallelEnv may have, and with every
fault that one may have."""

import os
import threading
import time

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

SIZES = {"runner": 2, "guard": 3, "clock": 1}
"""Lengths of the observations."""


class Lane(ParallelEnv):
    """The runner and the guard walk on a line. The guard's action 2 pushes the runner, by a random
    distance. The clock leaves after two steps. All end at the goal, or after `max_cycles`."""

    def __init__(self, max_cycles=4, fault="", at=3, after=0, goal=100.0, delay=0):
        """fault: in the step `at` of every episode but the first `after`. delay: of a push, in
        steps."""
        self.max_cycles, self.fault, self.at, self.after = max_cycles, fault, at, after
        self.goal, self.delay, self.episodes = goal, delay, 0
        self.possible_agents = list(SIZES)
        self.agents = []

    def observation_space(self, agent):
        return spaces.Box(-np.inf, np.inf, (SIZES[agent],), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3, start=1) if agent == "guard" else spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.random = np.random.default_rng(seed)
        self.place, self.time = {"runner": self.random.normal(), "guard": 0.0, "clock": 0.0}, 0
        self.pushes = [0.0] * self.delay
        self.agents, self.episodes = list(SIZES), self.episodes + 1
        return self._views(), {agent: {} for agent in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents), "an action for each living agent, and no other"
        self.time += 1
        fault = self.fault if self.time == self.at and self.episodes > self.after else ""
        self._fail(fault)
        for agent, action in actions.items():
            self.place[agent] += float(action == 1)
        push = self.random.uniform(1, 2) * (actions["guard"] == 3)
        self.pushes.append(push)
        self.place["runner"] += self.pushes.pop(0)
        acted = list(self.agents)
        ended = self.place["runner"] >= self.goal
        late = self.time >= self.max_cycles
        terminated = {a: ended or (a == "clock" and self.time >= 2) for a in acted}
        truncated = {a: late and not terminated[a] for a in acted}
        views, rewards = self._views(), {a: self.place[a] for a in acted}
        if fault == "nan":
            rewards["guard"] = np.nan
        if fault == "shape":
            views["guard"] = np.zeros(5, np.float32)
        self.agents = [a for a in acted if not (terminated[a] or truncated[a])]
        if fault == "names":
            self.agents[0] = "jogger"
        masks = {a: {"action_mask": np.array([1, 1, self.time < 2])} for a in acted if a == "guard"}
        return views, rewards, terminated, truncated, masks

    def _views(self):
        return {a: np.full(SIZES[a], self.place[a], np.float32) for a in self.agents}

    def _fail(self, fault):
        if fault == "raise":
            raise ValueError("the server\nis gone")
        if fault == "connection":
            raise EOFError
        if fault == "hang":
            time.sleep(3600)
        if fault == "exit":
            os._exit(3)


class Unseeded(Lane):
    """Draws from NumPy's global numbers, which no copy has."""

    def step(self, actions):
        self.place["runner"] += np.random.uniform()
        return super().step(actions)


class Locked(Lane):
    """Cannot be copied."""

    def __init__(self, **options):
        super().__init__(**options)
        self.lock = threading.Lock()


class Settable(Locked):
    """Cannot be copied, but set."""

    def get_state(self):
        return self.place, self.time, self.agents, self.random, self.pushes

    def set_state(self, state):
        self.place, self.time, self.agents, self.random, self.pushes = state


class WithState(Lane):
    """Has a state of its own."""

    def state(self):
        return np.array([self.time, 7.0])


KINDS = {"": Lane, "unseeded": Unseeded, "locked": Locked, "set": Settable, "state": WithState}


def parallel_env(kind="", **options):
    """What `pettingzoo:` calls."""
    fault = os.environ.get("DGMARL_TEST_FAULT", "")
    return KINDS[kind](**{"fault": fault, **options})


def place_of(env, agent):
    """A local state."""
    return [env.place[agent]]
