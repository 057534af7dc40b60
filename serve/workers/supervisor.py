"""The supervisor: starts the workers, starts dead ones anew, and passes signals on."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scda.models.bundle import bundle_folder
from scda.models.errors import GateError, ScdaError
from scda.models.files import real_path
from scda.serve.http.snapshots import Snapshot
from scda.serve.workers.counts import Counts
from scda.serve.workers.process import PROGRAM, Process, cause_of, ending
from scda.serve.workers.switch import switch

logger = logging.getLogger(__name__)
PATIENCE_SECONDS = 5.0  # beyond the time that a worker gives its requests
_MAX_DELAY = 60.0  # seconds between two attempts to start a worker that cannot start


@dataclass(frozen=True)
class _End:
    """How a worker ended; one that could not be started has no process."""

    number: int
    pid: int
    code: int
    was_ready: bool
    was_late: bool = False

    def __str__(self) -> str:
        early = "" if self.was_ready else " before it was ready"
        how = "was ended, as its start took too long" if self.was_late else ending(self.code)
        return f"worker {self.number} (process {self.pid or 'none'}) {how}{early}"


class Supervisor:
    """Keeps a number of workers running on one socket, all with the same model."""

    def __init__(
        self,
        listener: socket.socket,
        bundle: Path,
        environment: Mapping[str, str],
        *,
        workers: int,
        start_seconds: float,
        drain_seconds: int,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        """Prepare the workers.

        Args:
            listener: The socket that all workers accept connections from.
            bundle: A bundle or a run, or a link to one, which is followed at every reload.
            environment: The environment of the workers.
            workers: Their number.
            start_seconds: How long a worker may take to start, and to load another bundle.
            drain_seconds: How long a worker may take for its last requests.
            program: As in `Process.start`.

        Raises:
            ScdaError: If there is no bundle.
        """
        self._listener, self._program, self._count = listener, program, workers
        self._bundle, self._folder, self._model_id = bundle, real_path(bundle_folder(bundle)), ""
        self._environment, self._drain_seconds = dict(environment), drain_seconds
        self._start_seconds, self._running = start_seconds, set[int]()  # those that start, too
        self._alive, self._answering = set[Process](), dict[int, Process]()  # by their number
        self._answers, self._wake = asyncio.Event(), asyncio.Event()
        self._stopping, self._reloading, self._code = False, asyncio.Lock(), 0
        self._counts, self._terminal = Counts(), sys.stderr.isatty()
        self._tasks = set[asyncio.Task[None]]()

    async def run(self, announce: Callable[[], None]) -> int:
        """Serve until SIGTERM or SIGINT; SIGHUP loads the bundle anew.

        Args:
            announce: Called once requests are answered.

        Returns:
            The exit code; if no worker answers and none can start, that of the last one, which has
            said why.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end, number)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        # The first worker alone finds out whether any can start, and complains once.
        first, answers = (asyncio.create_task(c) for c in (self._keep(1), self._answers.wait()))
        await asyncio.wait({first, answers}, return_when=asyncio.FIRST_COMPLETED)
        others: range | tuple[int, ...] = ()
        if answers.done():
            announce()
            others = range(2, self._count + 1)
        answers.cancel()
        await asyncio.gather(first, *map(self._keep, others))
        return self._code

    async def reload(self) -> str:
        """Switch all workers to the bundle that is there now, and return its model's id.

        Raises:
            ScdaError: If one cannot load it; all keep the model that they have.
        """
        async with self._reloading:
            before = self._model_id
            try:
                folder = real_path(bundle_folder(self._bundle))
                model_id, failed = "", list[Process]()
                if workers := list(self._answering.values()):
                    model_id, failed = await switch(workers, folder, self._start_seconds)
            except (ScdaError, ConnectionError) as error:
                self._counts.reloads["kept"] += 1
                logger.error("the model %s is kept: %s", before, error)
                raise GateError(f"the model {before} is kept: {error}") from None
            self._folder, self._model_id = folder, model_id
            self._counts.reloads["switched"] += 1
            logger.info("switched from model %s to %s: %s", before, model_id or "(none)", folder)
            for process in failed + [w for w in self._answering.values() if w not in workers]:
                process.send_signal(signal.SIGTERM)  # it still has the model from before
            self._wake.set()  # a worker that could not start may try the other bundle
            self._wake.clear()
            return model_id

    async def _keep(self, number: int) -> None:
        """Keep one worker running until the end."""
        delay = 0.0
        while not self._stopping:
            self._running.add(number)
            end = await self._run_worker(number)
            self._running.discard(number)
            if self._stopping:
                break
            if not end.was_ready and not self._running:
                self._give_up(end)
                break
            # One that was ready starts in a second or two, and its loss is no reason to wait.
            delay = 0.0 if end.was_ready else min(max(1.0, 2 * delay), _MAX_DELAY)
            self._report(end, delay)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), delay)

    async def _run_worker(self, number: int) -> _End:
        try:
            process = await self._start(number)
        except (OSError, RuntimeError) as error:  # no memory, process or thread is left
            logger.error("worker %d cannot be started: %s", number, error)
            return _End(number, 0, 1, was_ready=False)
        was_ready, was_late = await self._is_ready(process)
        if was_ready:
            self._answering[number] = process
            self._answers.set()
        code = await process.wait() if not was_late else await _killed(process)
        self._alive.discard(process)
        self._answering.pop(number, None)
        if not self._stopping:
            cause = "slow_start" if was_late else cause_of(code)
            self._counts.end(cause, process.last_snapshot)
        return _End(number, process.pid, code, was_ready=was_ready, was_late=was_late)

    async def _is_ready(self, process: Process) -> tuple[bool, bool]:
        """Wait until a worker is ready; return whether it is, and whether its time is over."""
        try:
            async with asyncio.timeout(self._start_seconds):
                return await process.ready(), False
        except TimeoutError:
            return False, True

    async def _start(self, number: int) -> Process:
        served = {"SCDA_BUNDLE": str(self._folder), "SCDA_MODEL_ID": self._model_id}
        process = await Process.start(
            number,
            self._listener,
            {**self._environment, **served},
            {"snapshots": self._snapshots, "reload": self.reload},
            accept=self._accept,
            program=self._program,
        )
        self._alive.add(process)
        if self._stopping:  # since it began to start
            process.send_signal(signal.SIGTERM)
        return process

    def _accept(self, model_id: str) -> None:
        """Let a worker answer from the model that it has loaded, unless others have another."""
        self._model_id = self._model_id or model_id
        if model_id != self._model_id:
            raise GateError(f"{self._folder}: holds model {model_id}, expected {self._model_id}")

    def _give_up(self, end: _End) -> None:
        """End the server: nobody answers, and clients would wait on its socket for ever.

        Whoever watches over the server, such as systemd or Kubernetes, starts it anew or tells.
        """
        if end.code < 0 or self._answers.is_set():  # otherwise the first worker has said it all
            logger.error("%s; nobody answers, and the server ends", end)
        self._stopping, self._code = True, end.code if end.code > 0 else 1
        self._wake.set()
        self._listener.close()

    def _report(self, end: _End, delay: float) -> None:
        logger.error(
            "%s; %d of %d workers answer; the next start is %s",
            end,
            len(self._answering),
            self._count,
            f"in {delay:g} seconds" if delay else "now",
        )

    def _end(self, number: int) -> None:
        """Handle a signal: ask the workers to stop, and end them when it comes again."""
        again, self._stopping = self._stopping, True
        self._wake.set()
        # The workers close theirs. As long as one is open, clients connect and wait for nobody.
        self._listener.close()
        for process in self._alive:
            # One that still starts would answer SIGINT with a traceback, and SIGTERM ends it.
            ready = process in self._answering.values()
            process.send_signal(signal.SIGKILL if again else number if ready else signal.SIGTERM)
        if again:
            logger.error("%d workers were killed before they had stopped", len(self._alive))
            return
        logger.info("stopping; requests under way have %d seconds", self._drain_seconds)
        late = self._drain_seconds + PATIENCE_SECONDS
        asyncio.get_running_loop().call_later(late, self._end, signal.SIGKILL)

    def _hang_up(self) -> None:
        """Handle SIGHUP: reload, unless it says that the terminal was closed."""
        if self._terminal and not sys.stderr.isatty():
            self._end(signal.SIGTERM)
        elif self._answers.is_set():
            task = asyncio.create_task(self._try_to_reload())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _try_to_reload(self) -> None:
        with suppress(ScdaError):  # which is logged
            await self.reload()

    async def _snapshots(self) -> list[Snapshot]:
        workers = self._answering.values()
        answers = await asyncio.gather(*(worker.snapshot() for worker in workers))
        return [*answers, *self._counts.snapshots(answering=len(workers))]


async def _killed(process: Process) -> int:
    """Kill a worker; return its exit code, or that of a kill if it waits for a disk for ever."""
    process.send_signal(signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await process.wait()
    return -signal.SIGKILL
