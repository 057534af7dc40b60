"""A signal that comes while the first one is handled gives neither a traceback nor another code."""

import signal
import subprocess
import sys

import pytest

_COMMAND = """
import os, signal, sys, typer
from scda.adapt.cli import errors

first, second, place = int(sys.argv.pop(1)), int(sys.argv.pop(1)), sys.argv.pop(1)
app, fail = typer.Typer(), errors._fail

def again(*words):
    errors._fail = fail
    os.kill(os.getpid(), second)
    return fail(*words)

@app.command()
def work():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        os.kill(os.getpid(), first)
    finally:
        if place == "cleanup":
            os.kill(os.getpid(), second)
            print("cleaned")

if place == "message":
    errors._fail = again
errors.run(app)
"""
TERM, INT = signal.SIGTERM, signal.SIGINT


@pytest.mark.parametrize(
    ("first", "second", "place", "code"),
    [
        (TERM, TERM, "cleanup", 143),
        (TERM, TERM, "message", 143),
        (TERM, INT, "message", 143),
        (INT, TERM, "message", 143),
        (INT, INT, "message", 130),
    ],
)
def test_a_second_signal_is_no_traceback(first: int, second: int, place: str, code: int) -> None:
    words = [sys.executable, "-c", _COMMAND, str(int(first)), str(int(second)), place]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("scda-adapt: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ("cleaned\n" if place == "cleanup" else "")
