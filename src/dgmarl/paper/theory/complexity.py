"""Empirical check of Theorem 1: policy gradient with both estimators and the theorem's parameters,
counting samples until E ||grad J||^2 <= epsilon^2.

The parameters are eta = epsilon^2 m / (2 L nu), m = nu / (4 epsilon^2), H = log(N / epsilon) /
log(1 / gamma), with nu = E ||g||^2 of the estimator in use and L = || Hessian of J ||, both
measured at the initial policy. Nothing is tuned, and the gradient norm is exact."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.random import Generator

from dgmarl.paper.theory.moments import trajectory_gradients
from dgmarl.paper.theory.networked_mdp import Array, softmax
from dgmarl.paper.theory.voter import (
    VoterNetwork,
    plain_voter,
    sample_voter,
    topology,
    voter_gradient,
)

MAX_ITERATIONS = 5000
"""Guards against endless loops; a few dozen iterations suffice."""


@dataclass(frozen=True)
class SampleCount:
    """Samples (time steps of all agents together) that an estimator needed on a network."""

    topology: str
    n_agents: int
    estimator: str
    """"graph" or "standard"."""
    batch: int
    """Trajectories m per update."""
    samples: tuple[float, ...]
    """One count per seed."""


def smoothness(voter: VoterNetwork, logits: Float[Array, "N 2 2"], step: float = 1e-5) -> float:
    """Spectral norm of the Hessian of J, by central differences of the exact gradient."""
    shifts = step * np.eye(logits.size).reshape(-1, *logits.shape)
    change = voter_gradient(voter, logits + shifts) - voter_gradient(voter, logits - shifts)
    return float(np.linalg.norm(change.reshape(logits.size, -1) / (2 * step), 2))


def estimate(
    rng: Generator,
    voter: VoterNetwork,
    logits: Float[Array, "runs N 2 2"],
    lags: Float[Array, "N N"],
    n_steps: int,
    batch: int,
) -> Float[Array, "runs B N 2 2"]:
    """Single-trajectory gradients of `batch` trajectories per run."""
    states, actions = sample_voter(rng, voter, logits, n_steps, batch)
    return trajectory_gradients(voter, lags, states, actions, softmax(logits)[:, None])


def samples_to_stationary(
    rng: Generator,
    name: str,
    n_agents: int,
    estimator: str,
    *,
    epsilon: float,
    gamma: float,
    n_seeds: int,
) -> SampleCount:
    """Ascend from uniform policies until the mean of ||grad J||^2 so far is at most epsilon^2."""
    voter = plain_voter(topology(name, n_agents), gamma)
    lags = voter.lags if estimator == "graph" else np.zeros_like(voter.lags)
    n_steps = int(np.ceil(np.log(n_agents / epsilon) / np.log(1 / gamma)))
    logits = np.zeros((n_seeds, n_agents, 2, 2))
    pilot = estimate(rng, voter, logits[:1], lags, n_steps, 4000)
    nu = float((pilot**2).sum(axis=(2, 3, 4)).mean())
    batch = max(1, int(np.ceil(nu / (4 * epsilon**2))))
    step_size = epsilon**2 * batch / (2 * smoothness(voter, logits[0]) * nu)
    total, needed = np.zeros(n_seeds), np.full(n_seeds, np.inf)
    for iteration in range(1, MAX_ITERATIONS + 1):
        total += (voter_gradient(voter, logits) ** 2).sum(axis=(1, 2, 3))
        reached = (total / iteration <= epsilon**2) & np.isinf(needed)
        needed[reached] = iteration * batch * n_steps
        if np.isfinite(needed).all():
            return SampleCount(name, n_agents, estimator, batch, tuple(needed.tolist()))
        gradients = estimate(rng, voter, logits, lags, n_steps, batch)
        logits = logits + step_size * gradients.mean(axis=1)
    raise RuntimeError(
        f"{estimator} estimator, {name}, N = {n_agents}: no stationary point after "
        f"{MAX_ITERATIONS} iterations"
    )


def predicted_samples(
    name: str, n_agents: int, *, epsilon: float, gamma: float
) -> dict[str, float]:
    """Theorem 1's bounds up to constants: as stated, and corrected (`moments.py`)."""
    pairs = plain_voter(topology(name, n_agents), gamma).gamma_matrix
    common = n_agents * float(pairs.sum(axis=1).max()) * np.log(n_agents / epsilon)
    return {
        "graph": common * float(pairs.sum()),
        "standard": common * n_agents**2,
        "graph proved": common * float((np.sqrt(pairs).sum(axis=1) ** 2).sum()),
        "standard proved": common * n_agents**3,
    }
