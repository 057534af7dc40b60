"""A signal that comes at a bad moment gives neither a traceback nor a code of its own."""

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
    except BaseException as stop:
        if place == "library":
            raise ImportError("initialization failed") from stop
        raise
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
        (TERM, TERM, "library", 143),  # the second is never sent
        (INT, INT, "library", 130),
    ],
)
def test_a_second_signal_is_no_traceback(first: int, second: int, place: str, code: int) -> None:
    words = [sys.executable, "-c", _COMMAND, str(int(first)), str(int(second)), place]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("scda-adapt: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ("cleaned\n" if place == "cleanup" else "")


_AROUND = """
import os, signal, sys
from contextlib import contextmanager
from importlib.abc import MetaPathFinder

number, place = int(sys.argv.pop(1)), sys.argv.pop(1)

def kill(*unused):
    os.kill(os.getpid(), number)

class Loading(MetaPathFinder):
    def find_spec(self, name, *unused):
        if name == "scda.adapt.cli.label":
            kill()

@contextmanager
def killed_within(*unused):
    if place == "before":
        kill()
    yield
    if place == "after":
        kill()

from scda.adapt.__main__ import main
if place == "loading":
    sys.meta_path.insert(0, Loading())
else:
    from scda.adapt.cli import errors
    errors.ended_within = killed_within
sys.argv[1:] = ["--help"]
main()
"""


@pytest.mark.parametrize(
    ("number", "place"), [(INT, "loading"), (TERM, "before"), (TERM, "after"), (INT, "after")]
)
def test_a_signal_around_the_work_ends_the_command_at_once(number: int, place: str) -> None:
    words = [sys.executable, "-c", _AROUND, str(int(number)), place]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == -number
    assert done.stderr == ""
    assert bool(done.stdout) == (place == "after")
