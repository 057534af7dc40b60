import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scda.models.errors import GateError
from scda.serve.http.snapshots import add
from scda.serve.workers.supervisor import Supervisor

STUB = (sys.executable, str(Path(__file__).with_name("stub.py")))
SECONDS = 120  # for a machine that is busy with other things


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker that has no processor for seconds still be heard."""
    monkeypatch.setattr("scda.serve.workers.supervisor.PATIENCE_SECONDS", SECONDS)


def bundle_of(folder: Path, model_id: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "bundle.json").write_text(json.dumps({"id": model_id}))
    return folder


@dataclass(frozen=True)
class Running:
    """A supervisor with workers that answer."""

    supervisor: Supervisor
    address: tuple[str, int]
    end: "asyncio.Task[int]"

    async def ask(self) -> tuple[int, str]:
        """Return the process that answers, and its model."""
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(b"\n")
        pid, model = (await reader.readline()).split()
        writer.close()
        return int(pid), model.decode()

    async def until(self, text: str, caplog: pytest.LogCaptureFixture, times: int = 1) -> None:
        while sum(text in line for line in caplog.messages) < times:
            await asyncio.sleep(0.01)

    async def values(self) -> dict[str, float]:
        families = add(await self.supervisor._snapshots())
        return {
            name + "".join(labels.values()): value
            for family in families
            for name, labels, value in family["samples"]
        }


@asynccontextmanager
async def running(bundle: Path, workers: int = 1, code: int = 0) -> AsyncIterator[Running]:
    listener = socket.create_server(("127.0.0.1", 0))
    address, answering = listener.getsockname(), asyncio.Event()
    supervisor = Supervisor(
        listener,
        bundle,
        os.environ,
        workers=workers,
        start_seconds=SECONDS,
        drain_seconds=20,
        program=STUB,
    )
    async with asyncio.timeout(SECONDS):
        run = asyncio.create_task(supervisor.run(answering.set))
        await answering.wait()
        it = Running(supervisor, address, run)
        while (await it.values())["scda_workers"] < workers:
            await asyncio.sleep(0.01)
        try:
            yield it
        finally:
            if not run.done():
                os.kill(os.getpid(), signal.SIGTERM)
            assert await run == code


def first_start(bundle: Path, *, start_seconds: float) -> int:
    """Return the exit code of a supervisor whose first worker does not become ready."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        supervisor = Supervisor(
            listener,
            bundle,
            os.environ,
            workers=3,
            start_seconds=start_seconds,
            drain_seconds=20,
            program=STUB,
        )
        return asyncio.run(supervisor.run(lambda: None))


def test_a_first_worker_whose_start_hangs_ends_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (bundle_of(tmp_path / "b", "one") / "slow").touch()
    assert first_start(tmp_path / "b", start_seconds=0.1) == 1
    assert "was ended, as its start took too long before it was ready; nobody" in caplog.text


def test_a_worker_whose_start_hangs_is_said_counted_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        async with running(folder := bundle_of(tmp_path / "b", "one"), workers=2) as server:
            (folder / "slow").touch()
            server.supervisor._start_seconds = 0.1
            os.kill((await server.ask())[0], signal.SIGKILL)
            await server.until("its start took too long", caplog)
            assert (await server.values())["scda_worker_restarts_totalslow_start"] >= 1
            assert (await server.ask())[1] == "one"  # of the other one
            server.supervisor._start_seconds = SECONDS
            (folder / "slow").unlink()
            while (await server.values())["scda_workers"] < 2:
                await asyncio.sleep(0.01)

    asyncio.run(check())


def test_a_bundle_whose_loading_hangs_is_not_waited_for(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(folder := bundle_of(tmp_path / "b", "one")) as server:
            server.supervisor._start_seconds = 0.1
            (folder / "hang").touch()
            with pytest.raises(GateError, match=r"one is kept: .* not loaded within 0\.1 seconds"):
                await server.supervisor.reload()
            assert (await server.ask())[1] == "one"
            (folder / "hang").unlink()
            server.supervisor._start_seconds = SECONDS
            assert await server.supervisor.reload() == "one"

    asyncio.run(check())


def test_a_first_worker_that_cannot_start_ends_the_server_with_its_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (bundle_of(tmp_path / "b", "one") / "fail").write_text("5")
    assert first_start(tmp_path / "b", start_seconds=SECONDS) == 5
    assert capfd.readouterr().err == "stub: cannot start\n"  # once, and not once per worker


def test_a_killed_worker_is_said_counted_and_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        async with running(bundle_of(tmp_path / "b", "one")) as server:
            victim, _ = await server.ask()
            assert (await server.values())["scda_asked_total"] == 1
            os.kill(victim, signal.SIGKILL)
            await server.until("worker 1", caplog)
            pid, model = await server.ask()  # the socket holds the request meanwhile
            assert (pid != victim, model) == (True, "one")
            # The first worker's one counts, too; the second answers before it is said to be ready.
            while (values := await server.values())["scda_asked_total"] < 2:
                await asyncio.sleep(0.01)
            assert values["scda_worker_restarts_totalSIGKILL"] == 1
            assert values["scda_asked_total"] == 2

    asyncio.run(check())
    assert "was killed by SIGKILL, as the system does when memory runs out" in caplog.text
    assert "0 of 1 workers answer; the next start is now" in caplog.text


def test_a_worker_that_cannot_start_again_waits_longer_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    wait_for = asyncio.wait_for

    async def quick(awaitable: object, seconds: float) -> object:
        waits.append(seconds)
        return await wait_for(awaitable, min(seconds, 0.01))  # type: ignore[arg-type]

    monkeypatch.setattr("scda.serve.workers.supervisor.asyncio.wait_for", quick)
    monkeypatch.setattr("scda.serve.workers.supervisor._MAX_DELAY", 3.0)

    async def check() -> None:
        async with running(folder := bundle_of(tmp_path / "b", "one"), workers=2) as server:
            (folder / "fail").write_text("5")
            os.kill((await server.ask())[0], signal.SIGKILL)
            await server.until("ended with exit code 5 before it was ready", caplog, times=4)
            values = await server.values()
            assert values["scda_worker_restarts_totalexit"] >= 4
            assert values["scda_workers"] == 1
            assert (await server.ask())[1] == "one"  # of the other one
            (folder / "fail").unlink()
            while (await server.values())["scda_workers"] < 2:
                await asyncio.sleep(0.01)

    asyncio.run(check())
    assert waits[:5] == [0.0, 1.0, 2.0, 3.0, 3.0]
    assert "1 of 2 workers answer; the next start is in 2 seconds" in caplog.text


@pytest.mark.parametrize(
    ("obstacle", "text", "code", "how"),
    [
        ("fail", "5", 5, "ended with exit code 5"),
        ("fail", "-9", 1, "was killed by SIGKILL, as the system does when memory runs out"),
        ("bundle.json", '{"id": "two"}', 5, "ended with exit code 5"),
    ],
)
def test_the_server_ends_where_nobody_answers_and_nobody_can_start(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    *,
    obstacle: str,
    text: str,
    code: int,
    how: str,
) -> None:
    async def check() -> None:
        folder = bundle_of(tmp_path / "b", "one")
        async with running(folder, workers=2, code=code) as server:
            (folder / obstacle).write_text(text)
            for victim in list(server.supervisor._alive):  # all at once, as where memory runs out
                os.kill(victim.pid, signal.SIGKILL)
            await server.end
            with pytest.raises(ConnectionRefusedError):
                await server.ask()

    asyncio.run(check())
    assert caplog.messages[-1].endswith(
        f" {how} before it was ready; nobody answers, and the server ends"
    )


def test_a_system_that_starts_no_process_is_tried_again_as_long_as_somebody_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*words: object, **options: object) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    async def check() -> None:
        async with running(bundle_of(tmp_path / "b", "one"), workers=2, code=1) as server:
            with monkeypatch.context() as patch:
                patch.setattr(asyncio, "create_subprocess_exec", refuse)
                os.kill((await server.ask())[0], signal.SIGKILL)
                await server.until("1 of 2 workers answer; the next start is in 1 sec", caplog)
                assert (await server.ask())[1] == "one"
                os.kill((await server.ask())[0], signal.SIGKILL)
                await server.end

    asyncio.run(check())
    assert "cannot be started: Resource temporarily unavailable" in caplog.text
    assert "nobody answers, and the server ends" in caplog.messages[-1]


def test_a_worker_that_is_being_started_counts_where_another_one_cannot_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody answers, and the system has one process left."""
    start, asked = asyncio.create_subprocess_exec, list[asyncio.Event]()

    async def one_left(*words: Any, **options: Any) -> asyncio.subprocess.Process:
        asked.append(asyncio.Event())
        if len(asked) == 2:
            raise BlockingIOError("Resource temporarily unavailable")
        if len(asked) == 1:
            await asked[0].wait()
        return await start(*words, **options)

    async def check() -> None:
        async with running(bundle_of(tmp_path / "b", "one"), workers=2) as server:
            monkeypatch.setattr(asyncio, "create_subprocess_exec", one_left)
            for victim in list(server.supervisor._alive):
                os.kill(victim.pid, signal.SIGKILL)
            await server.until("0 of 2 workers answer; the next start is in 1 sec", caplog)
            asked[0].set()
            assert (await server.ask())[1] == "one"

    asyncio.run(check())


def test_a_hang_up_switches_all_workers_or_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    one, two = bundle_of(tmp_path / "one", "one"), bundle_of(tmp_path / "two", "two")
    link = tmp_path / "current"
    link.symlink_to(one)

    async def check() -> None:
        async with running(link, workers=2) as server:
            link.unlink()
            link.symlink_to(two)
            (two / "refuse").touch()
            os.kill(os.getpid(), signal.SIGHUP)
            await server.until("the model one is kept: ", caplog)
            assert {(await server.ask())[1] for _ in range(8)} == {"one"}
            (two / "refuse").unlink()
            os.kill(os.getpid(), signal.SIGHUP)
            await server.until("switched from model one to two", caplog)
            assert {(await server.ask())[1] for _ in range(8)} == {"two"}
            values = await server.values()
            assert (values["scda_reloads_totalkept"], values["scda_reloads_totalswitched"]) == (
                1,
                1,
            )
            os.kill((await server.ask())[0], signal.SIGKILL)  # the next one has the new model
            await server.until("was killed by SIGKILL", caplog)
            while (await server.values())["scda_workers"] < 2:
                await asyncio.sleep(0.01)
            assert {(await server.ask())[1] for _ in range(8)} == {"two"}

    asyncio.run(check())
    assert f"{two}: model.onnx is damaged" in caplog.text


def test_a_worker_that_loads_another_model_than_the_others_does_not_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        async with running(folder := bundle_of(tmp_path / "b", "one"), workers=2) as server:
            bundle_of(folder, "two")  # replaced under the running server
            os.kill((await server.ask())[0], signal.SIGKILL)
            await server.until("ended with exit code 5 before it was ready", caplog)
            assert {(await server.ask())[1] for _ in range(4)} == {"one"}
            await server.supervisor.reload()
            while (await server.values())["scda_workers"] < 2:
                await asyncio.sleep(0.01)
            assert {(await server.ask())[1] for _ in range(8)} == {"two"}

    asyncio.run(check())


def test_a_reload_that_fails_says_why_to_its_caller(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(folder := bundle_of(tmp_path / "b", "one")) as server:
            (folder / "bundle.json").rename(folder / "moved")
            with pytest.raises(GateError, match=r"the model one is kept: .*no bundle\.json found"):
                await server.supervisor.reload()
            (folder / "moved").rename(folder / "bundle.json")
            assert await server.supervisor.reload() == "one"

    asyncio.run(check())


def test_an_interrupt_ends_a_worker_that_still_starts_without_a_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def check() -> None:
        async with running(folder := bundle_of(tmp_path / "b", "one"), workers=2) as server:
            (folder / "slow").touch()
            os.kill((await server.ask())[0], signal.SIGKILL)
            while not (folder / "starts").exists():
                await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
            await server.end

    asyncio.run(check())
    assert capfd.readouterr().err == ""


def test_nobody_can_connect_as_soon_as_the_server_stops(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(folder := bundle_of(tmp_path / "b", "one"), workers=2) as server:
            (folder / "busy").touch()  # the workers have requests under way
            os.kill(os.getpid(), signal.SIGTERM)
            while True:
                try:
                    await asyncio.wait_for(server.ask(), SECONDS)
                except (ConnectionError, ValueError):  # refused, or the last one was not accepted
                    break
            with pytest.raises(ConnectionRefusedError):
                await server.ask()
            (folder / "busy").unlink()

    asyncio.run(check())
