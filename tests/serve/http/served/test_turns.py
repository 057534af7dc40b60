import asyncio
import threading
from typing import Any

import pytest

from scda.serve.http.served.turns import Asker, RoundRobin, SharedThreads


def test_clients_take_turns_and_so_do_the_requests_of_one() -> None:
    line: RoundRobin[str] = RoundRobin()
    large, other, innocent = Asker("a"), Asker("a"), Asker("b")
    for asker, items in ((large, "123456"), (other, "xy"), (innocent, "!?")):
        for item in items:
            line.add(asker, item)
    assert list(line.firsts()) == ["1", "x", "!"]
    assert len(line) == 10
    assert [line.pop() for _ in range(10)] == [*"1!x?2y3456"]
    with pytest.raises(StopIteration):
        line.pop()


class Held:
    """Work that is under way until it may end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_end = threading.Event()

    async def on(
        self,
        threads: SharedThreads,
        name: str,
        client: str = "",
        *,
        begin_by: float | None = None,
        end_by: float | None = None,
    ) -> None:
        def work() -> None:
            self.begun.append(name)
            assert self.may_end.wait(30)

        await threads.run(Asker(client), work, begin_by=begin_by, end_by=end_by)


async def until(held: Held, count: int) -> None:
    while len(held.begun) < count:
        await asyncio.sleep(0.001)


def test_one_client_does_not_hold_every_thread() -> None:
    async def scenario() -> None:
        threads, held = SharedThreads("t", 2, of_one=1), Held()
        tasks = [asyncio.create_task(held.on(threads, f"{i} of many", "busy")) for i in range(3)]
        await until(held, 1)
        tasks.append(asyncio.create_task(held.on(threads, "innocent", "other")))
        await until(held, 2)
        assert held.begun == ["0 of many", "innocent"]
        held.may_end.set()
        await asyncio.gather(*tasks)
        assert held.begun == ["0 of many", "innocent", "1 of many", "2 of many"]

    asyncio.run(scenario())


def test_what_does_not_begin_in_time_never_does() -> None:
    async def scenario() -> None:
        threads, held = SharedThreads("t", 1), Held()
        first = asyncio.create_task(held.on(threads, "first"))
        await until(held, 1)
        with pytest.raises(TimeoutError):
            await held.on(threads, "impatient", begin_by=0.0)
        held.may_end.set()
        await first
        with pytest.raises(TimeoutError):  # also where a thread is free
            await held.on(threads, "late", begin_by=0.0)
        await held.on(threads, "last")
        assert held.begun == ["first", "last"]

    asyncio.run(scenario())


def test_what_does_not_end_in_time_is_waited_for_no_longer() -> None:
    async def scenario() -> None:
        threads, held = SharedThreads("t", 1), Held()
        soon = asyncio.get_running_loop().time() + 0.01
        with pytest.raises(TimeoutError):
            await held.on(threads, "slow", end_by=soon)
        held.may_end.set()

    asyncio.run(scenario())


def test_what_nobody_waits_for_any_more_keeps_its_thread_until_it_ends() -> None:
    async def scenario() -> None:
        threads, held = SharedThreads("t", 1), Held()
        slow = asyncio.create_task(held.on(threads, "slow"))
        await until(held, 1)
        slow.cancel()
        cancelled = asyncio.create_task(held.on(threads, "cancelled"))
        await asyncio.sleep(0)
        cancelled.cancel()
        after = asyncio.create_task(held.on(threads, "after"))
        await asyncio.sleep(0.05)
        assert held.begun == ["slow"]
        held.may_end.set()
        await after
        assert held.begun == ["slow", "after"]

    asyncio.run(scenario())


def test_the_end_of_work_wakes_the_event_loop_once_and_passes_errors_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        threads, loop, woken = SharedThreads("t", 1), asyncio.get_running_loop(), list[object]()
        wake = loop.call_soon_threadsafe

        def note(callback: Any, *arguments: Any, **options: Any) -> asyncio.Handle:
            woken.append(callback)
            return wake(callback, *arguments, **options)

        monkeypatch.setattr(loop, "call_soon_threadsafe", note)
        assert await threads.run(Asker(), lambda: 7) == 7
        assert len(woken) == 1
        with pytest.raises(ZeroDivisionError):
            await threads.run(Asker(), lambda: 1 // 0)
        assert await threads.run(Asker(), lambda: 8) == 8

    asyncio.run(scenario())
