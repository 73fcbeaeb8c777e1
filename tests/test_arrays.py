"""The credit functions with arrays of other libraries; functions of many rows in chunks."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl import credited_rewards, gae, graph_gae, meeting_times, soft_graph_gae
from dgmarl.arrays import _to_jax, in_chunks

T, N = 4, 3
CHAIN = np.eye(N, dtype=bool) | np.eye(N, k=1, dtype=bool)


class Foreign:
    """The least that an array of another library has."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def steps() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    floats = {name: rng.normal(size=(T, N)) for name in ("reward", "value", "next_value")}
    masks = {"bootstrap": np.ones(T, bool), "continues": np.array([1, 0, 1, 1], bool)}
    return {**{name: x.astype(np.float32) for name, x in floats.items()}, **masks}


def calls(convert):
    """Every function with its arrays converted."""
    given = {name: convert(x) for name, x in steps().items()}
    graph, ends = convert(np.stack([CHAIN] * T)), convert(~steps()["continues"])
    weights = convert(np.stack([CHAIN] * T).astype(np.float32))
    numbers = {"gamma": 0.9, "lambda_": 0.8}
    return {
        "gae": gae(**given, **numbers),
        "graph_gae": graph_gae(**given, graph=graph, **numbers),
        "soft_graph_gae": soft_graph_gae(**given, weights=weights, **numbers),
        "meeting_times": meeting_times(graph, ends),
        "credited_rewards": credited_rewards(graph, ends, 0, 0, 0.9, 0.8),
    }


def aligned(shape) -> np.ndarray:
    """A NumPy array that begins at a multiple of 64 bytes."""
    size = int(np.prod(shape))
    memory = np.zeros(size + 16, np.float32)
    start = -memory.ctypes.data % 64 // 4
    return memory[start : start + size].reshape(shape)


def test_numpy_arrays_give_numpy_arrays_of_the_same_values():
    expected, found = calls(jnp.asarray), calls(lambda x: x)
    for name, value in found.items():
        assert type(value) is np.ndarray, name
        assert isinstance(expected[name], jax.Array), name
        np.testing.assert_array_equal(value, expected[name])


def test_an_unknown_library_is_read_and_answered_in_jax():
    expected, found = calls(jnp.asarray), calls(Foreign)
    for name, value in found.items():
        assert isinstance(value, jax.Array), name
        np.testing.assert_array_equal(value, expected[name])


def test_nothing_is_copied_where_jax_can_read_in_place():
    array = aligned((T, N))
    assert _to_jax(array).unsafe_buffer_pointer() == array.ctypes.data
    assert _to_jax(Foreign(array)).unsafe_buffer_pointer() == array.ctypes.data


@pytest.mark.parametrize("convert", [lambda x: x, Foreign], ids=["numpy", "foreign"])
def test_what_jax_cannot_read_in_place_is_copied(convert):
    broadcast = np.broadcast_to(np.arange(N, dtype=np.float32), (T, N)).copy()[::2, :1]
    np.testing.assert_array_equal(_to_jax(convert(broadcast)), broadcast)
    frozen = np.arange(3.0)
    frozen.flags.writeable = False
    np.testing.assert_array_equal(_to_jax(frozen), frozen)


def test_under_jit_and_beside_jax_arrays_results_are_of_jax():
    given, numbers = steps(), {"gamma": 0.9, "lambda_": 0.8}
    plain = gae(**given, **numbers)
    inside = jax.jit(lambda: gae(**given, **numbers))()
    beside = gae(**{**given, "reward": jnp.asarray(given["reward"])}, **numbers)
    for found in (inside, beside):
        assert isinstance(found, jax.Array)
        np.testing.assert_allclose(found, plain, rtol=1e-6)


def test_pytorch_tensors_give_pytorch_tensors():
    torch = pytest.importorskip("torch")
    expected, found = calls(jnp.asarray), calls(torch.from_numpy)
    for name, value in found.items():
        assert isinstance(value, torch.Tensor), name
        np.testing.assert_array_equal(value.numpy(), expected[name])
    tensor = torch.randn(T, N)
    assert _to_jax(tensor).unsafe_buffer_pointer() == tensor.data_ptr()
    np.testing.assert_array_equal(_to_jax(tensor[:1].expand(T, N)), tensor[:1].expand(T, N))
    with pytest.raises(BufferError, match="detach"):
        _to_jax(tensor.requires_grad_())


def test_chunks_change_neither_values_nor_gradients():
    rows = jax.random.normal(jax.random.key(0), (10, 3))

    @partial(jax.jit, static_argnums=1)
    @partial(jax.value_and_grad, argnums=0)
    def loss(weight, at_once):
        return (in_chunks(lambda x: jnp.tanh(x @ weight), rows, at_once) ** 2).sum()

    weight = jax.random.normal(jax.random.key(1), (3, 2))
    for at_once in (1, 4, 6, 9, 10):
        (value, gradient), expected = loss(weight, at_once), loss(weight, 100)
        np.testing.assert_allclose(value, expected[0], rtol=1e-6)
        np.testing.assert_allclose(gradient, expected[1], rtol=1e-5)


@pytest.mark.parametrize("at_once", [3, 4, 6, 7])
def test_all_chunks_are_one_program(at_once):
    sizes = set()

    def function(x):
        sizes.add(len(x))
        return x

    rows = jnp.arange(10)
    np.testing.assert_array_equal(in_chunks(function, rows, at_once), rows)
    (size,) = sizes
    assert size <= at_once
    assert math.ceil(10 / size) == math.ceil(10 / at_once)


def test_arrays_without_entries_are_divided_too():
    rows = (jnp.arange(10), jnp.zeros((10, 0)))
    found = in_chunks(lambda rows: (rows[0] + 1, rows[1]), rows, 4)
    np.testing.assert_array_equal(found[0], rows[0] + 1)
    assert found[1].shape == (10, 0)
