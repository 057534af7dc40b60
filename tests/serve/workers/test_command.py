import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from scda.models.errors import UsageError
from scda.serve.workers.command import serve
from scda.serve.workers.listening import is_local, listen, url_of

Options = dict[str, Any]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": "example.org"}, r"host 'example\.org': expected an IP address or localhost"),
        ({"host": "192.0.2.1"}, r"cannot listen on 192\.0\.2\.1:3000"),
        ({"host": "2001:db8::1"}, r"cannot listen on \[2001:db8::1\]:3000"),
        ({"port": 70000}, "port 70000: expected a number from 0 to 65535"),
        ({"workers": 0}, "0 workers: expected 1 or more"),
    ],
)
def test_a_command_that_cannot_work_is_refused(
    bundle: Path, options: Options, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        serve(bundle, **options)


def test_a_port_that_is_taken_is_named(bundle: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}: .*in use"):
            serve(bundle, port=port)


@pytest.mark.parametrize(
    ("host", "begin", "local"),
    [
        ("localhost", "http://127.0.0.1:", True),
        ("127.0.0.2", "http://127.0.0.2:", True),
        ("::1", "http://[::1]:", True),
        ("0.0.0.0", "http://127.0.0.1:", False),
        ("::", "http://[::1]:", False),
    ],
)
def test_the_address_that_is_told_can_be_opened(host: str, begin: str, local: bool) -> None:
    with listen(host, 0) as listener:
        url = url_of(listener)
        assert url.startswith(begin)
        assert is_local(listener) == local
        address = url.removeprefix("http://").rpartition(":")
        socket.create_connection((address[0].strip("[]"), int(address[2]))).close()


class Recorder:
    """Stands for the supervisor, and keeps what it is given."""

    environment: Options

    def __init__(self, listener: socket.socket, bundle: Path, environment: Options, **more: Any):
        Recorder.environment = environment

    async def run(self, announce: object) -> int:
        return 0


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    """Lets `serve` return at once."""
    monkeypatch.setattr("scda.serve.workers.command.Supervisor", Recorder)
    monkeypatch.setattr("scda.serve.workers.command.configure_logging", lambda style: None)
    return Recorder


def test_the_workers_divide_the_cpus_unless_the_user_has(
    bundle: Path, environment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scda.serve.workers.command.usable_cpus", lambda: 8)
    monkeypatch.delenv("SCDA_THREADS", raising=False)
    assert serve(bundle, port=0, workers=3) == 0
    assert environment.environment["SCDA_THREADS"] == "2"
    assert environment.environment["MALLOC_TRIM_THRESHOLD_"] == "4194304"
    monkeypatch.setenv("SCDA_THREADS", "7")
    serve(bundle, port=0, workers=3)
    assert environment.environment["SCDA_THREADS"] == "7"


@pytest.mark.parametrize(
    ("host", "key", "warned"),
    [("0.0.0.0", "", True), ("0.0.0.0", "k", False), ("127.0.0.1", "", False)],
)
def test_an_open_port_without_a_key_is_said(
    bundle: Path,
    environment: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    host: str,
    key: str,
    warned: bool,
) -> None:
    monkeypatch.setenv("SCDA_API_KEY", key)
    with caplog.at_level(logging.WARNING):
        serve(bundle, host=host, port=0)
    assert ("without a key" in caplog.text) == warned


def test_a_misspelt_setting_is_said_with_the_right_name(
    bundle: Path,
    environment: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("SCDA_APIKEY", "secret")
    monkeypatch.setenv("SCDA_THREADS", "1")
    serve(bundle, port=0)
    (line,) = caplog.messages
    assert line == "SCDA_APIKEY is no setting and has no effect; did you mean SCDA_API_KEY?"
