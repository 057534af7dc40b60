import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scda.adapt.runtime.beside import beside
from scda.models.errors import GateError, UsageError

PARENT = """
import time
from scda.adapt.runtime.beside import beside
with beside(exec, "import os, time; print(os.getpid(), flush=True); time.sleep(60)"):
    time.sleep(60)
"""


def is_gone(process: int) -> bool:
    for _ in range(100):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_a_function_is_called_in_another_process() -> None:
    with beside(eval, "print('no answer') or __import__('os').getpid()") as result:
        assert result() != os.getpid()


def test_what_the_function_raises_is_raised() -> None:
    with (
        beside(
            exec, "from scda.models.errors import UsageError; raise UsageError('wrong')"
        ) as done,
        pytest.raises(UsageError, match=r"^wrong\nTraceback"),  # the note says where
    ):
        done()


def test_an_error_that_cannot_be_copied_is_told() -> None:
    code = "class Own(Exception): pass\nraise Own('wrong')"
    with beside(exec, code) as done, pytest.raises(RuntimeError, match="wrong"):
        done()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("os._exit(3)", "ended with exit code 3$"),
        ("os.kill(os.getpid(), 9)", "ended with exit code -9; free some memory, and rerun"),
    ],
)
def test_a_process_that_ends_without_an_answer_is_an_error_in_one_line(
    code: str, told: str
) -> None:
    with beside(exec, f"import os; {code}") as result, pytest.raises(GateError, match=told):
        result()


def test_the_process_ends_with_the_block(tmp_path: Path) -> None:
    told = tmp_path / "process"
    code = f"import os, time; open({str(told)!r}, 'x').write(str(os.getpid())); time.sleep(60)"
    with beside(exec, code):
        while not (told.exists() and told.read_text()):
            time.sleep(0.02)
    assert is_gone(int(told.read_text()))


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_process_ends_with_its_parent(number: int) -> None:
    words = [sys.executable, "-c", PARENT]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stderr
        other = int(parent.stderr.readline())
        parent.send_signal(number)
        parent.communicate()
    assert is_gone(other)
