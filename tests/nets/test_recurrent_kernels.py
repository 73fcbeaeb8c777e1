"""The GRU's GPU kernels, interpreted, against the loops that they replace."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl import device
from dgmarl.nets import layers, recurrent_kernels

STEPS, ENVS, AGENTS, SIZE, INPUTS = 7, 4, 8, 16, 5


def as_on_gpu(monkeypatch) -> list:
    """As on a GPU for data centres, with kernels interpreted; returns the kernels called so far."""
    called = []
    call = recurrent_kernels._call
    monkeypatch.setattr(recurrent_kernels, "INTERPRET", True)
    for module in (device, recurrent_kernels):
        monkeypatch.setattr(module, "compute_capability", lambda: 9.0)
    monkeypatch.setattr(
        recurrent_kernels, "_call", lambda *given: called.append(given[0]) or call(*given)
    )
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    return called


def gradients(n_seeds: int, padded: bool) -> tuple[jax.Array, dict]:
    """Outputs of a GRU with episodes that start within the batch, and gradients of a weighted sum
    of them with respect to parameters, inputs and the first hidden state. padded: rows end with
    cleared steps, some of them have no other."""
    keys = jax.random.split(jax.random.key(0), 5)
    batch = (n_seeds, STEPS, ENVS, AGENTS)
    x, weight = (
        jax.random.normal(key, (*batch, n)) for key, n in zip(keys, (INPUTS, SIZE), strict=False)
    )
    hidden = jax.random.normal(keys[2], (n_seeds, ENVS, AGENTS, SIZE))
    is_first = jax.random.bernoulli(keys[3], 0.2, batch)
    if padded:
        lengths = jnp.arange(ENVS)[:, None] * 2 * jnp.ones((n_seeds, 1, 1, AGENTS))
        is_first |= jnp.arange(STEPS)[:, None, None] >= lengths
    layer = layers.GRU(SIZE)

    def loss(learned: dict, is_first: jax.Array, weight: jax.Array):
        _, outputs = layer.apply(learned["params"], learned["hidden"], learned["x"], is_first)
        return (outputs * weight).sum(), outputs

    init = jax.vmap(lambda *given: layer.init(keys[4], *given))
    learned = {"params": init(hidden, x, is_first), "hidden": hidden, "x": x}
    found = jax.jit(jax.vmap(jax.grad(loss, has_aux=True)))(learned, is_first, weight)
    return found[1], found[0]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("n_seeds", [1, 3])
def test_same_outputs_and_gradients(monkeypatch, n_seeds, padded):
    expected = gradients(n_seeds, padded)
    called = as_on_gpu(monkeypatch)
    found = gradients(n_seeds, padded)
    assert called
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), found, expected)


@pytest.mark.parametrize(
    ("shape", "capability", "fits"),
    [
        ((4, 8, 64), 8.0, True),
        ((4, 8, 64), 7.5, False),
        ((4, 8, 128), 8.9, False),
        ((4, 8, 128), 9.0, True),
        ((4, 8, 128), 12.0, False),
        ((4, 8, 96), 9.0, False),
        ((3, 3, 64), 9.0, False),
    ],
)
def test_only_where_blocks_are_whole_and_weights_fit(monkeypatch, shape, capability, fits):
    monkeypatch.setattr(recurrent_kernels, "compute_capability", lambda: capability)
    assert recurrent_kernels.suits(jnp.zeros(shape)) is fits


def test_a_single_step_and_a_cpu_take_the_loop(monkeypatch):
    as_on_gpu(monkeypatch)
    hidden = jnp.zeros((ENVS, AGENTS, SIZE))
    assert layers._has_kernels(hidden, STEPS)
    assert not layers._has_kernels(hidden, 1)
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert not layers._has_kernels(hidden, STEPS)


def test_a_cpu_has_no_compute_capability():
    assert device.compute_capability() == 0.0
