"""Ctrl-C: the first one stops within seconds, the second one at once; exit code 130 and a sentence
that says how to go on."""

import signal
import subprocess
import sys
import time

import pytest

from dgmarl.cli import guard
from dgmarl.cli.guard import explain, guarded
from dgmarl.errors import RunError, UsageError, out_of_memory

LISTEN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""A shell that starts the tests in the background has their children ignore Ctrl-C."""
PROGRAM = """
import sys, time
from dgmarl.cli import guard
guard.GRACE = {grace}

def work(interrupts):
    interrupts.advice = lambda: "go on."
    print("ready", flush=True)
    {work}
    return 0

sys.exit(guard.guarded(work))
"""
DEAF = """
    while True:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            pass
"""
IN_A_FINALISER = """
    class Slow:
        def __del__(self):
            time.sleep(60)
    Slow()
    time.sleep(60)
"""


def stopped(work: str, signals: int, grace: float) -> tuple[int, str]:
    """Exit code and standard error."""
    process = subprocess.Popen(
        [sys.executable, "-c", LISTEN + PROGRAM.format(work=work, grace=grace)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for _ in range(signals):
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=40)
    return process.returncode, errors


@pytest.mark.parametrize(
    ("work", "signals", "grace"),
    [
        ("time.sleep(60)", 1, 50),
        (IN_A_FINALISER, 1, 50),
        (DEAF, 1, 0.2),
        (DEAF, 2, 50),
    ],
    ids=["one", "one in a finaliser", "one that is swallowed", "two"],
)
def test_ctrl_c_ends_a_command_with_one_sentence(work, signals, grace):
    code, errors = stopped(work, signals, grace)
    assert code == 130
    assert errors.splitlines()[-1] == "dgmarl: stopped; go on."
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (UsageError("wrong"), 2, "wrong"),
        (RunError("full"), 1, "full"),
        (MemoryError(), 2, "memory of this machine is exhausted"),
        (OSError(36, "File name too long", "name"), 2, "name cannot be used (File name too long)"),
        (ZeroDivisionError("bug"), 1, ""),
    ],
)
def test_errors_are_told_in_one_sentence_and_bugs_are_not_hidden(error, code, sentence):
    found, text = explain(error)
    assert found == code
    assert sentence in text
    assert bool(text) == bool(sentence)


def test_memory_of_the_device_is_recognised():
    class JaxRuntimeError(RuntimeError):
        pass

    assert out_of_memory(JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes."))
    assert not out_of_memory(JaxRuntimeError("INTERNAL: something else"))
    assert not out_of_memory(RuntimeError("RESOURCE_EXHAUSTED"))


def test_an_interrupt_without_a_signal_is_a_stop_too(capsys):
    def work(interrupts):
        raise KeyboardInterrupt

    assert guarded(work) == guard.EXIT_STOPPED
    assert capsys.readouterr().err == f"dgmarl: stopped; {guard.AGAIN}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "seconds"),
    [
        (["theory"], 2),
        (["demo"], 8),
        (["reproduce", "lbf", "--dry-run"], 8),
        (["reproduce", "lbf", "--workers", "2", "--seeds", "1"], 12),
        (["watch", "lbf/8x8-2p-2f", "--episodes", "1000"], 6),
    ],
    ids=lambda value: str(value),
)
@pytest.mark.parametrize("signals", [1, 2])
def test_every_long_command_stops(tmp_path, arguments, seconds, signals):
    start = f"{LISTEN}import sys; from dgmarl.cli import main; main(sys.argv[1:])"
    program = [sys.executable, "-c", start]
    process = subprocess.Popen(
        [*program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    time.sleep(seconds)
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert b"dgmarl: stopped; " in errors
    assert b"Traceback" not in errors
