"""One worker, as the supervisor sees it: its process, its channel and how it ended."""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence

from scda.serve.http.snapshots import Snapshot
from scda.serve.workers.channel import Channel, Handler

# -P: a module in the current folder is not one of the program's.
PROGRAM = (sys.executable, "-P", "-m", "scda.serve.workers.worker")
_SNAPSHOT_SECONDS = 2.0  # a worker that is too busy to answer is counted as it was before


class Process:
    """A worker that was started.

    Attributes:
        number: Its place among the workers, from 1.
        last_snapshot: Its metrics when they were asked for the last time.
    """

    def __init__(self, number: int, process: asyncio.subprocess.Process) -> None:
        """Use `start`."""
        self.number, self.pid = number, process.pid
        self.channel, self.last_snapshot = Channel(), Snapshot()
        self._process, self._ready = process, asyncio.Event()
        self._calls: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        number: int,
        listener: socket.socket,
        environment: Mapping[str, str],
        handlers: Mapping[str, Handler],
        *,
        accept: Callable[[str], None],
        program: Sequence[str] = PROGRAM,
    ) -> "Process":
        """Start a worker.

        Args:
            number: Its place among the workers.
            listener: The socket that it accepts connections from.
            environment: Its environment.
            handlers: What it may call, besides `ready`.
            accept: Called with the id of the model that it has loaded, before it answers requests;
                raises a ScdaError, which ends the worker, if it must not.
            program: The words of its command; the numbers of its two sockets are added.

        Raises:
            OSError: If the system has no memory, process or file left for it.
        """
        ours, theirs = socket.socketpair()
        files = listener.fileno(), theirs.fileno()
        try:
            started = await asyncio.create_subprocess_exec(
                *program,
                *map(str, files),
                env=environment,
                pass_fds=files,
                stdin=asyncio.subprocess.DEVNULL,
                process_group=0,  # Ctrl+C reaches the supervisor alone, which passes it on
            )
        except (OSError, RuntimeError):
            ours.close()  # on which a worker that was started ends
            raise
        finally:
            theirs.close()
        process = cls(number, started)

        async def ready(model_id: str) -> None:
            accept(model_id)
            process._ready.set()

        await process.channel.open(ours)
        calls = process.channel.run({"ready": ready, **handlers})
        process._calls = asyncio.create_task(calls)
        return process

    async def ready(self) -> bool:
        """Wait until it answers requests; return False if it has ended instead."""
        waits = {asyncio.create_task(self._ready.wait()), asyncio.create_task(self.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        return self._process.returncode is None

    async def wait(self) -> int:
        """Wait until it ends; return its exit code, or minus the number of a signal."""
        return await self._process.wait()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def snapshot(self) -> Snapshot:
        """Return its metrics; those of the last time if it does not answer."""
        try:
            async with asyncio.timeout(_SNAPSHOT_SECONDS):
                self.last_snapshot = await self.channel.call("snapshot")
        except (TimeoutError, ConnectionError):
            pass
        return self.last_snapshot


def cause_of(code: int) -> str:
    """Return why a process ended, as a label with few values."""
    return signal.Signals(-code).name if code < 0 else "exit"


def ending(code: int) -> str:
    """Return how a process ended, in words."""
    if code == -signal.SIGKILL:
        return "was killed by SIGKILL, as the system does when memory runs out"
    return f"was killed by {cause_of(code)}" if code < 0 else f"ended with exit code {code}"
