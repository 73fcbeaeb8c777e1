"""Algorithm 1 as the paper writes it: for every start a fresh product of adjacency matrices. The
oracle of the credit tests."""

import numpy as np


def gae_loop(reward, value, next_value, bootstrap, continues, gamma, lambda_):
    """Plain GAE of one window [T, N], term by term."""
    delta = reward + gamma * next_value * bootstrap[:, None] - value
    advantage = np.zeros_like(delta)
    for start in range(len(delta)):
        for t in range(start, len(delta)):
            advantage[start] += (gamma * lambda_) ** (t - start) * delta[t]
            if not continues[t]:
                break
    return advantage


def pair_loop(reward, value, next_value, graph, bootstrap, continues, gamma, lambda_, options=None):
    """The summands [T, j, i] of `graph_gae` for one window [T, N]; its "return" form sums rewards
    and values, not TD errors."""
    defaults = {
        "unreached_weight": 0.0,
        "advantage_form": "td",
        "reward_graph": None,
        "others": "sum",
    }
    options = defaults | (options or {})
    unreached = options["unreached_weight"]
    n_steps, n_agents = reward.shape
    now = graph if options["reward_graph"] is None else graph | options["reward_graph"]
    delta = reward + gamma * next_value * bootstrap[:, None] - value
    own = gae_loop(reward, value, next_value, bootstrap, continues, gamma, lambda_)
    pairs = np.zeros((n_steps, n_agents, n_agents))
    for start in range(n_steps):
        before = np.eye(n_agents, dtype=int)
        met_at = np.full((n_agents, n_agents), -1)
        for t in range(start, n_steps):
            met = (before @ now[t]) > 0
            met_at[met & (met_at < 0)] = t
            if options["advantage_form"] == "td":
                weight = (1 - unreached) * met + unreached
                if options["others"] == "mean":
                    total = (weight * ~np.eye(n_agents, dtype=bool)).sum(-1, keepdims=True)
                    weight = weight / np.maximum(total, 1)
                pairs[start] += (gamma * lambda_) ** (t - start) * weight * delta[t]
            before = (before @ graph[t]).clip(0, 1)
            if not continues[t]:
                break
        if options["advantage_form"] == "return":
            returns = lambda_returns(
                reward, value, next_value, bootstrap, continues, gamma, lambda_
            )
            for j in range(n_agents):
                for i in range(n_agents):
                    m = met_at[j, i]
                    reached = gamma ** (m - start) * returns[m, i] if m >= 0 else 0.0
                    kept = unreached * returns[start, i]
                    pairs[start, j, i] = (1 - unreached) * reached + kept
    return np.where(np.eye(n_agents, dtype=bool), own[:, None, :], pairs)


def lambda_returns(reward, value, next_value, bootstrap, continues, gamma, lambda_):
    """R_t = r_t + gamma * ((1 - lambda) * V' + lambda * R_{t+1}), with V' alone at the end of an
    episode or of the window."""
    returns = np.zeros_like(reward)
    for t in reversed(range(len(reward))):
        ahead = next_value[t] * bootstrap[t]
        goes_on = continues[t] and t + 1 < len(reward)
        mixed = (1 - lambda_) * ahead + lambda_ * returns[t + 1] if goes_on else ahead
        returns[t] = reward[t] + gamma * mixed
    return returns


def meeting_loop(graph, ends, never):
    """Meeting times of one window [T, N, N]: multiply adjacency matrices until the entry turns
    positive."""
    n_steps, n_agents = graph.shape[:2]
    lags = np.full(graph.shape, never)
    for start in range(n_steps):
        reached = np.eye(n_agents, dtype=int)
        for t in range(start, n_steps):
            reached = (reached @ graph[t]).clip(0, 1)
            lags[start] = np.where((reached > 0) & (lags[start] == never), t - start, lags[start])
            if ends[t]:
                break
    return lags
