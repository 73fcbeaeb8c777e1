"""Help in groups with examples, completion of commands and flags, and the doctor."""

import re
import shlex
import subprocess

import pytest

from dgmarl import cli
from dgmarl.cli import doctor
from dgmarl.cli.doctor import causes
from dgmarl.cli.overview import EXAMPLES, GROUPS, examples, overview


def run(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as stop:
        cli.main([*arguments])
    shown = capsys.readouterr()
    assert stop.value.code == 0, shown.err
    return shown.out


def test_every_command_has_a_group_and_two_or_three_examples():
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(cli.commands()) == sorted(EXAMPLES)
    assert all(len(each) in (2, 3) for each in EXAMPLES.values())


@pytest.mark.parametrize("example", [each for own in EXAMPLES.values() for each in own])
def test_every_example_parses(example, monkeypatch, capsys):
    words = shlex.split(re.findall(r"dgmarl ([^|>#)]*)", example)[0])
    name, _ = cli.split_name(words)
    monkeypatch.setattr(cli.load_command(name), "run", lambda self: 0)
    run(capsys, *words)


def test_the_overview_is_grouped_and_tells_of_commands_from_elsewhere():
    text = overview({**cli.commands(), "other": "nowhere:Other"})
    for title, names in {**GROUPS, "from other packages": ("other",)}.items():
        below = text.partition(f"\n{title}\n")[2].partition("\n\n")[0]
        assert [line.split("  ")[1] for line in below.splitlines()] == list(names)


def test_help_of_a_command_ends_with_its_examples(capsys):
    assert run(capsys, "evaluate", "--help").rstrip().endswith(examples("evaluate").rstrip())


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last word."""
    typed = " ".join(map(shlex.quote, words))
    ask = f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _dgmarl; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_bash_completes_commands_and_flags(capsys):
    script = run(capsys, "completion", "bash")
    assert completed(script, "dgmarl", "ev") == ["evaluate"]
    assert completed(script, "dgmarl", "train", "--learner.hi") == ["--learner.hidden"]
    assert completed(script, "dgmarl", "watch", "runs/a", "--trained") == ["--trained-seed"]
    assert completed(script, "dgmarl", "watch", "runs/a") == []  # names of files: bash's own


def test_zsh_and_fish_know_the_same(capsys):
    zsh, fish = run(capsys, "completion", "zsh"), run(capsys, "completion", "fish")
    assert zsh.endswith(run(capsys, "completion", "bash"))
    assert "-a evaluate -d 'Evaluate the policies" in fish
    assert "'__fish_seen_subcommand_from train' -l learner.hidden\n" in fish


CACHED = {"JAX_COMPILATION_CACHE_DIR": "/cache"}
IDLE = {"backend": "gpu", "gpu_present": True, "n_devices": 1, "n_cores": 8, "load": 0.5}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"backend": "cpu", "n_devices": 8}, ["dgmarl[cuda]"]),
        ({"backend": "cpu", "n_devices": 8, "gpu_present": False}, ["no accelerator"]),
        ({"backend": "cpu", "n_devices": 1}, ["dgmarl[cuda]", "1 of 8 cores"]),
        ({"load": 20.0}, ["20 processes compete for 8 cores"]),
        ({"settings": {}}, ["JAX_COMPILATION_CACHE_DIR"]),
        ({"settings": {**CACHED, "JAX_DISABLE_JIT": "1"}}, ["JAX_DISABLE_JIT"]),
        ({"settings": {**CACHED, "JAX_DEBUG_NANS": "false"}}, []),
    ],
)
def test_the_doctor_names_what_makes_training_slow(changes, words):
    told = causes(**{**IDLE, "settings": CACHED, **changes})
    assert len(told) == len(words)
    assert all(word in cause for word, cause in zip(words, told, strict=True))


def test_the_doctor_tells_versions_devices_and_tries_the_library(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "SECONDS", 0.01)
    text = run(capsys, "doctor")
    assert re.search(r"^dgmarl \d.*Python 3.*cores$", text, flags=re.MULTILINE)
    assert re.search(r"^jax \d", text, flags=re.MULTILINE)
    assert re.search(r"^devices: ", text, flags=re.MULTILINE)
    assert re.search(r"self-test: .* [1-9][\d,]* steps/s", text)
