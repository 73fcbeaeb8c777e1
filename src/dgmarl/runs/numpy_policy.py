"""A trained policy in NumPy, written by `dgmarl export RUN --out FILE.py`. It needs only the
weights in the .npz file of the same name.

    policy = Policy()
    hidden_state = policy.init_hidden_state(n_envs)  # at the start of every episode
    action, hidden_state = policy.act(agents_view, action_mask, hidden_state)
"""

from pathlib import Path

import numpy as np


class Policy:
    """Weights are shared by the agents ([in, out], with a row of `identity` per agent) or one set
    per agent ([N, in, out])."""

    def __init__(self, weights=None):
        """weights: the .npz file; default: next to this file."""
        with np.load(weights or Path(__file__).with_suffix(".npz")) as file:
            self.weights = dict(file)
        self.n_agents, self.n_actions, self.hidden = self.weights["sizes"].tolist()

    def init_hidden_state(self, n_envs):
        """Recurrent state [B, N, h] and last action [B, N] at the start of an episode."""
        memory = np.zeros((n_envs, self.n_agents, self.hidden), np.float32)
        return memory, np.full((n_envs, self.n_agents), -1)

    def act(self, agents_view, action_mask, hidden_state, rng=None):
        """Actions [B, N] of B environments and the next hidden state, from observations [B, N, O]
        and available actions [B, N, A]. Greedy; sampled with `rng`, a NumPy generator."""
        memory, outputs = self.outputs(agents_view, hidden_state)
        if rng is not None and self.weights["kind"] == "values":
            raise ValueError("this policy has action values, not probabilities: leave rng out")
        if rng is not None:
            outputs = outputs + rng.gumbel(size=outputs.shape)
        action = np.where(action_mask, outputs, -np.inf).argmax(axis=-1)
        return action, (memory, action)

    def outputs(self, agents_view, hidden_state):
        """The next recurrent state, and logits or action values [B, N, A]."""
        memory, last_action = hidden_state
        x = np.asarray(agents_view, np.float32)
        if self.weights["sees_last_action"]:
            last = last_action[..., None] == np.arange(self.n_actions)
            x = np.concatenate([x, last.astype(np.float32)], axis=-1)
        x = np.maximum(self._linear("Linear_0", x), 0)
        if self.hidden:
            memory = x = self._gru(memory, x)
        else:
            x = np.maximum(self._linear("Linear_1", x), 0)
        return memory, self._linear("Linear_1" if self.hidden else "Linear_2", x)

    def _linear(self, layer, x):
        y = self._product(x, f"{layer}/weight") + self.weights[f"{layer}/bias"]
        return y + self.weights.get(f"{layer}/identity", np.float32(0))

    def _gru(self, memory, x):
        def gates(x, weight, bias):
            return np.split(
                self._product(x, f"GRU_0/{weight}") + self.weights[f"GRU_0/{bias}"], 3, -1
            )

        reset, update, candidate = gates(x, "weight", "bias")
        from_reset, from_update, from_memory = gates(memory, "recurrent", "offset")
        update = _sigmoid(update + from_update)
        candidate = np.tanh(candidate + _sigmoid(reset + from_reset) * from_memory)
        return (1 - update) * candidate + update * memory

    def _product(self, x, name):
        weight = self.weights[name]
        return x @ weight if weight.ndim == 2 else np.einsum("bni,nio->bno", x, weight)


def _sigmoid(x):
    return 0.5 * (np.tanh(0.5 * x) + 1)
