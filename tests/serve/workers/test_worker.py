import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scda.serve.workers.worker import main


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Gives a worker its two sockets, and takes back the handler that it sets."""
    monkeypatch.setattr("scda.serve.workers.worker.configure_logging", lambda style: None)
    before = signal.getsignal(signal.SIGHUP)
    pair = socket.socketpair()
    monkeypatch.setattr(sys, "argv", ["worker", *(str(one.detach()) for one in pair)])
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("variable", "value", "code", "line"),
    [
        ("SCDA_QUEUE", "x", 2, "SCDA_QUEUE is 'x'; expected a whole number, 1 or more"),
        ("SCDA_BUNDLE", "damaged", 5, "damaged: model.onnx is damaged (checksum differs)"),
    ],
)
@pytest.mark.usefixtures("sockets")
def test_what_prevents_a_start_is_one_line(
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    variable: str,
    value: str,
    code: int,
    line: str,
) -> None:
    shutil.copytree(bundle, tmp_path / "damaged")
    (tmp_path / "damaged" / "model.onnx").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCDA_BUNDLE", str(bundle))
    monkeypatch.setenv(variable, value)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    (printed,) = capsys.readouterr().err.splitlines()
    assert printed.startswith("scda: ")
    assert printed.endswith(line)
