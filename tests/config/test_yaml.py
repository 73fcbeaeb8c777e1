"""Configuration: exact round trips, and every mistake named in one sentence."""

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dgmarl.config.yaml import build, override, parse_assignments, plain, read_yaml, write_yaml
from dgmarl.errors import UsageError


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    kind: Literal["fc", "gru"] = "fc"


@dataclass(frozen=True)
class Outer:
    steps: int
    name: str = "run"
    on: bool = True
    sizes: tuple[int, ...] = (1, 2)
    pair: tuple[int, float] = (1, 2.0)
    maybe: int | None = None
    where: Path = Path("here")
    inner: Inner = field(default_factory=Inner)


integers = st.integers(-(2**63) + 1, 2**63 - 1)
text = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=20)
configs = st.builds(
    Outer,
    steps=st.integers(-(10**12), 10**12),
    name=text,
    on=st.booleans(),
    sizes=st.lists(integers, max_size=4).map(tuple),
    maybe=st.none() | integers,
    inner=st.builds(Inner, rate=st.floats(allow_nan=False), kind=st.sampled_from(["fc", "gru"])),
)


@given(configs)
@example(Outer(1, name="0E0"))
def test_written_and_read_back_it_is_the_identical_object(tmp_path_factory, config):
    path = tmp_path_factory.mktemp("config") / "config.yaml"
    write_yaml(path, config)
    assert build(Outer, read_yaml(path)) == config


def test_numbers_may_be_written_with_an_exponent():
    assert build(Outer, {"steps": "1e6"}) == build(Outer, {"steps": 1e6}) == Outer(1_000_000)
    assert type(build(Outer, {"steps": 1e6}).steps) is int


def test_override_reaches_into_nested_fields():
    assert override(Outer(1), {"inner.rate": 0.25, "steps": 3}) == Outer(3, inner=Inner(0.25))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"stepps": 3}, ["stepps", "did you mean steps"]),
        ({}, ["steps", "missing"]),
        ({"steps": 2.5}, ["steps", "2.5", "whole number"]),
        ({"steps": True}, ["steps", "True", "whole number"]),
        ({"steps": "many"}, ["steps", "'many'", "whole number"]),
        ({"steps": float("inf")}, ["steps", "inf", "whole number"]),
        ({"steps": 1, "on": "yes"}, ["on", "'yes'", "true or false"]),
        ({"steps": 1, "name": 3}, ["name", "3", "text"]),
        ({"steps": 1, "inner": {"kind": "grru"}}, ["inner.kind", "'grru'", "did you mean gru"]),
        ({"steps": 1, "inner": {"kind": "transformer"}}, ["inner.kind", "allowed are fc, gru"]),
        ({"steps": 1, "inner": {"rat": 1}}, ["inner.rat", "did you mean rate"]),
        ({"steps": 1, "inner": 3}, ["inner", "3", "mapping"]),
        ({"steps": 1, "pair": [1]}, ["pair", "1 entries", "2"]),
        ({"steps": 1, "sizes": [1, "x"]}, ["sizes[1]", "'x'"]),
        ({"steps": 1, "sizes": 4}, ["sizes", "4", "list"]),
    ],
)
def test_a_mistake_is_one_sentence_that_names_it(values, words):
    with pytest.raises(UsageError) as refusal:
        build(Outer, values)
    sentence = str(refusal.value)
    assert "\n" not in sentence
    for word in words:
        assert word in sentence


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("steps: 3\n\tname: x", "line 2"),
        ("steps: !!python/object/apply:os.system ['true']", "python/object"),
        ("steps: [1, 2", "line 1"),
        ("- 1\n- 2", "list"),
    ],
)
def test_broken_or_unsafe_yaml_is_refused(tmp_path, content, word):
    path = tmp_path / "broken.yaml"
    path.write_text(content)
    with pytest.raises(UsageError) as refusal:
        build(Outer, read_yaml(path))
    assert word in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_yaml(tmp_path / "none.yaml")


def test_assignments_are_read_as_values():
    assert parse_assignments(["noise=0", "layout=grid", "on=true"]) == {
        "noise": 0,
        "layout": "grid",
        "on": True,
    }
    with pytest.raises(UsageError, match="NAME=VALUE"):
        parse_assignments(["noise"])


def test_plain_holds_only_plain_values():
    assert plain(Outer(1))["inner"] == {"rate": 0.5, "kind": "fc"}
    assert plain(Outer(1))["sizes"] == [1, 2]


def nested_aliases() -> str:
    """A few hundred bytes that stand for 9**9 values."""
    names = "abcdefghi"
    lines = [f"{old}: &{old} [{', '.join([f'*{new}'] * 9)}]" for new, old in pairwise(names)]
    return "\n".join(["a: &a [x]", *lines])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (nested_aliases(), "an alias or anchor"),
        ("a: &a [*a]", "an alias or anchor"),
        ("a: " + "[" * 50_000, "more than 20 levels"),
        ("- " * 50_000, "more than 20 levels"),
        ("a: " + "9" * 5000, "more than 64 bits"),
        ("a: 0x" + "f" * 17, "more than 64 bits"),
        ("a: 1" + ":59" * 30, "more than 64 bits"),
        ("a: 2020-99-99", "month must be"),
        ("a: " + "x" * 300_000, "more than 200,000 bytes"),
    ],
)
def test_what_makes_a_small_file_large_is_refused(tmp_path, content, words):
    path = tmp_path / "a.yaml"
    path.write_text(content)
    with pytest.raises(UsageError, match=words):
        read_yaml(path)


@pytest.mark.parametrize("text", ["1e-3", "2e3", "1.5e6", "-1E+2"])
def test_numbers_with_an_exponent_are_numbers(text, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(f"env_options: {{x: {text}}}")
    assert read_yaml(path) == {"env_options": {"x": float(text)}}
    assert parse_assignments([f"x={text}"]) == {"x": float(text)}
