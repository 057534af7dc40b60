import asyncio
import logging
import resource
from pathlib import Path

import pytest

from scda.models.predictor import Predictor
from scda.serve.http.errors import STATUS, RequestError
from scda.serve.http.metrics import Metrics
from scda.serve.http.settings import Settings
from scda.serve.workers.connections import TOLD, Connections, TooManyError
from scda.serve.workers.listening import allowed_connections
from tests.serve.workers.test_protocol import GET, answer, ask, metrics, refusal, run, serving

A, B, PROXY = "10.0.0.1", "10.0.0.2", "10.9.9.9"


def connections(metrics: Metrics, most: int = 6, most_of_one: int = 3) -> Connections:
    settings = Settings(bundle=Path("b"), max_connections=most, max_client_connections=most_of_one)
    return Connections(settings, metrics.requests, is_proxy=lambda address: address == PROXY)


def code(error: RequestError | None) -> str:
    return error.code if error else ""


def test_the_connections_of_one_client_and_of_all_are_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted = Metrics(STATUS)
    them = connections(counted)
    assert [code(them.open(A)) for _ in range(4)] == ["", "", "", "overloaded"]
    assert [code(them.open(B)) for _ in range(3)] == ["", "", "unavailable"]  # seven of six
    for _ in range(2):
        them.close(A)
        them.close(B)
    assert [code(them.open(B)) for _ in range(2)] == ["", ""]
    (line,) = caplog.messages  # and not one for each
    assert line == (
        "connections are refused: 10.0.0.1 has 3 connections, the most that "
        "SCDA_MAX_CLIENT_CONNECTIONS allows"
    )
    values = {
        name + "".join(labels.values()): value
        for family in counted.snapshot()
        for name, labels, value in family["samples"]
    }
    assert values["scda_connections"] == 5
    assert values["scda_refused_connections_totalclient"] == 1
    assert values["scda_refused_connections_totalall"] == 1


def test_a_proxy_brings_many_clients_and_only_the_limit_of_all_holds() -> None:
    them = connections(Metrics(STATUS))
    assert [code(them.open(PROXY)) for _ in range(7)] == [""] * 6 + ["unavailable"]


@pytest.mark.parametrize(("most", "most_of_one"), [(6, 3), (3, 6)])
def test_so_many_that_they_cannot_be_answered_are_cut_off(most: int, most_of_one: int) -> None:
    them = connections(Metrics(STATUS), most, most_of_one)
    for _ in range(3 + TOLD):
        them.open(A)
    with pytest.raises(TooManyError):
        them.open(A)
    them.close(A)
    them.close(A)
    assert them.open(A)  # it can be answered again


def test_a_connection_too_many_gets_one_answer_and_health_checks_theirs(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    ask_model = GET.replace(b"/livez", b"/v1/model") + b"\r\n"

    async def scenario() -> None:
        async with serving(predictor, max_client_connections=2) as connect:
            held = [await connect() for _ in range(2)]
            for reader, writer in held:
                writer.write(GET + b"\r\n")
                assert (await answer(reader))[0] == 200
            assert await ask(connect, ask_model) == (429, "overloaded")
            reader, writer = await connect()
            writer.write(GET + b"\r\n")
            assert (await answer(reader))[0] == 200
            assert await reader.read() == b""  # closed with its answer
            writer.close()
            with monkeypatch.context() as patch:
                patch.setattr("scda.serve.workers.connections.TOLD", 0)
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await ask(connect, ask_model)
            held[0][1].close()
            while "scda_connections 2.0" not in (text := await metrics(connect)):
                await asyncio.sleep(0.01)
            assert 'scda_refused_connections_total{limit="client"} ' in text
            held[1][1].close()

    run(scenario())
    assert "connections are refused: 127.0.0.1 has 2 connections" in caplog.text


def test_a_connection_too_many_on_which_nothing_is_asked_is_closed(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scda.serve.workers.protocol._LINGER", 0.1)

    async def scenario() -> None:
        async with serving(predictor, max_connections=1) as connect:
            _, first = await connect()
            reader, writer = await connect()
            assert await reader.read() == b""
            writer.close()
            reader, writer = await connect()
            writer.write(b"GET / HT")
            assert await refusal(reader, writer) == (503, "unavailable")
            writer.close()
            first.close()

    run(scenario())


def test_connections_need_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"now": (1024, 4096)}

    def change(kind: int, pair: tuple[int, int]) -> None:
        limits["now"] = pair

    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", change)
    assert allowed_connections(100) == 100
    assert limits["now"] == (1024, 4096)
    assert allowed_connections(2000) == 2000
    assert limits["now"] == (2192, 4096)
    assert allowed_connections(10_000) == 4096 - 192
    assert limits["now"] == (4096, 4096)
