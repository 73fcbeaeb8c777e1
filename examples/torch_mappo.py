"""The advantage of dgmarl in somebody else's training loop: a plain MAPPO in PyTorch, in which one
line is swapped. It needs PyTorch.

    python examples/torch_mappo.py local
    python examples/torch_mappo.py graph

The task is the relay of `relay.py` in PyTorch: agent k passes a parcel to agent k + 1, passing
costs 0.05, and only the last agent is paid, when the parcel arrives. With its own reward alone, an
agent that is not the last learns not to pass. Tensors go to dgmarl and back without a copy."""

import sys
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dgmarl import gae, graph_gae

N_AGENTS, N_ENVS, LENGTH = 3, 64, 16
GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2


class Steps(NamedTuple):
    """A rollout; time first."""

    state: Tensor  # [T, B, N] who holds the parcel
    next_state: Tensor  # [T, B, N] before a new parcel
    action: Tensor  # [T, B, N] 1 passes
    log_prob: Tensor  # [T, B, N]
    reward: Tensor  # [T, B, N]
    arrived: Tensor  # [T, B] the episode ends
    graph: Tensor  # [T, B, N, N] row = source: whose action can change whose next state


class Agents(nn.Module):
    """One actor for all agents, which sees whether the agent holds the parcel and who it is, and
    one central critic with a value per agent."""

    def __init__(self, hidden: int = 32):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(1 + N_AGENTS, hidden), nn.Tanh(), nn.Linear(hidden, 2))
        self.critic = nn.Sequential(
            nn.Linear(N_AGENTS, hidden), nn.Tanh(), nn.Linear(hidden, N_AGENTS)
        )

    def policy(self, state: Tensor) -> torch.distributions.Categorical:
        """Of all agents, from who holds the parcel."""
        identity = torch.eye(N_AGENTS).expand(*state.shape, N_AGENTS)
        logits = self.actor(torch.cat([state[..., None], identity], dim=-1))
        return torch.distributions.Categorical(logits=logits)


@torch.no_grad()
def play(agents: Agents) -> Steps:
    """Some steps of all environments; a parcel that arrives is followed by another one."""
    holder, steps = torch.zeros(N_ENVS, dtype=torch.long), []
    numbers = torch.arange(N_AGENTS + 1)
    for _ in range(LENGTH):
        holds = holder[:, None] == numbers
        state = holds[:, :-1].float()
        policy = agents.policy(state)
        action = policy.sample()
        passed = (state * action).sum(-1).long()
        following = holder + passed
        arrived = following == N_AGENTS
        reward = -0.05 * action
        reward[:, -1] += arrived
        to_next = holds[:, :-1, None] & (holder[:, None, None] + 1 == numbers[:-1])
        graph = torch.eye(N_AGENTS, dtype=torch.bool) | to_next
        next_state = (following[:, None] == numbers)[:, :-1].float()
        steps.append((state, next_state, action, policy.log_prob(action), reward, arrived, graph))
        holder = torch.where(arrived, 0, following)
    return Steps(*(torch.stack(part) for part in zip(*steps, strict=True)))


@torch.no_grad()
def advantages(agents: Agents, steps: Steps, credit: str) -> tuple[Tensor, Tensor]:
    """Advantages and targets of the critic."""
    value, next_value = agents.critic(steps.state), agents.critic(steps.next_state)
    goes_on = ~steps.arrived
    numbers = (goes_on, goes_on, GAMMA, LAMBDA)
    own = gae(steps.reward, value, next_value, *numbers)
    if credit == "local":
        return own, own + value
    # The swapped line: the rewards that an agent's action can reach, instead of its own. The form
    # "return" is for critics that see more than the agent: they know before the agent is reached.
    given = (steps.reward, value, next_value, steps.graph, *numbers)
    return graph_gae(*given, advantage_form="return"), own + value


def train(credit: str, iterations: int = 80) -> float:
    """Parcels that arrive per environment and step at the end; 1 / N_AGENTS is the most."""
    torch.manual_seed(0)
    agents = Agents()
    optimiser = torch.optim.Adam(agents.parameters(), lr=5e-3)
    for _ in range(iterations):
        steps = play(agents)
        advantage, target = advantages(agents, steps, credit)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for _ in range(4):
            policy = agents.policy(steps.state)
            ratio = (policy.log_prob(steps.action) - steps.log_prob).exp()
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
            error = (agents.critic(steps.state) - target).square().mean()
            loss = error - gain - 0.01 * policy.entropy().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return play(agents).arrived.float().mean().item()


if __name__ == "__main__":
    kind = sys.argv[1] if len(sys.argv) > 1 else "graph"
    print(f"{kind}: {train(kind):.3f} parcels per step, at most {1 / N_AGENTS:.3f}")
