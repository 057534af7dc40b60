import sys

import pytest
import typer

from scda.adapt.cli.errors import ExitCode, run
from scda.adapt.runtime.signals import Terminated
from scda.models.errors import DataError, GateError, UsageError


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("no such folder"), ExitCode.USAGE, "no such folder"),
        (DataError("no images"), ExitCode.DATA, "no images"),
        (GateError("damaged"), ExitCode.GATE, "damaged"),
        (OSError(28, "No space left", "x.csv"), ExitCode.USAGE, "x.csv: No space left"),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, "interrupted; rerun with --resume to continue"),
        (Terminated(), ExitCode.TERMINATED, "terminated; rerun with --resume to continue"),
        (
            ZeroDivisionError("x"),
            ExitCode.INTERNAL_ERROR,
            "internal error: ZeroDivisionError('x'); rerun with --verbose for a traceback",
        ),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    error: BaseException,
    code: ExitCode,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _ended(error, "label", monkeypatch) == code
    assert capsys.readouterr().err == f"scda-adapt: {message}\n"


@pytest.mark.parametrize(
    ("words", "resumable"),
    [
        ("evaluate", False),
        ("label --out x.csv", True),
        ("label --out - --out x.csv", True),
        ("label --out - --sort-into sorted", True),
        ("label --out - --embeddings=x.npy", True),
        ("label --out -", False),
        ("label --out=- --summary s.json", False),
        ("train --out run", True),
        ("train --out run --dry-run", False),
    ],
)
def test_only_what_can_be_resumed_says_so(
    words: str,
    resumable: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    advice = "; rerun with --resume to continue" if resumable else ""
    for error, said in ((KeyboardInterrupt(), "interrupted"), (Terminated(), "terminated")):
        _ended(error, words, monkeypatch)
        assert capsys.readouterr().err == f"scda-adapt: {said}{advice}\n"


def test_the_exit_codes_never_change() -> None:
    assert [code.value for code in ExitCode] == [0, 1, 2, 3, 4, 5, 130, 141, 143]


def _ended(error: BaseException, words: str, monkeypatch: pytest.MonkeyPatch) -> object:
    """The exit code of a command that raises `error`, whatever its options."""
    command, *options = words.split()
    any_options = {"allow_extra_args": True, "ignore_unknown_options": True}
    app = typer.Typer(pretty_exceptions_enable=False)

    def fail() -> None:
        raise error

    app.command(command, context_settings=any_options)(fail)
    app.command("other")(lambda: None)  # with two commands, the first word chooses
    monkeypatch.setattr(sys, "argv", ["scda-adapt", command, *options])
    monkeypatch.setattr("scda.adapt.cli.errors.signal.signal", lambda *arguments: None)
    with pytest.raises(SystemExit) as stopped:
        run(app)
    return stopped.value.code
