"""A worker without a model, for the tests of the supervisor; it is run as a program.

It obeys files in the folder of the bundle: `fail` holds the exit code with which it ends before it
is ready, or minus the signal that kills it; `slow` keeps it starting, which it tells with `starts`;
`refuse` makes `prepare` fail, and `hang` keeps it waiting. Each request counts, and is answered
with the model's id.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from scda.models.errors import GateError, ScdaError
from scda.serve.http.snapshots import Snapshot
from scda.serve.workers.channel import Channel


class Stub:
    """The state of one worker."""

    def __init__(self, folder: Path) -> None:
        self.model, self.prepared, self.count = model_of(folder), "", 0

    async def snapshot(self) -> Snapshot:
        samples = [("scda_asked_total", dict[str, str](), float(self.count))]
        family = {"name": "scda_asked", "help": "", "type": "counter", "largest": False}
        return [{**family, "samples": samples}]  # type: ignore[typeddict-item]

    async def prepare(self, folder: str) -> str:
        if (Path(folder) / "refuse").exists():
            raise GateError(f"{folder}: model.onnx is damaged")
        while (Path(folder) / "hang").exists():
            await asyncio.sleep(0.01)
        self.prepared = model_of(Path(folder))
        return self.prepared

    async def commit(self, model_id: str) -> None:
        self.model = model_id

    async def discard(self) -> None:
        self.prepared = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        self.count += 1
        writer.write(f"{os.getpid()} {self.model}\n".encode())
        writer.close()


def model_of(folder: Path) -> str:
    return str(json.loads((folder / "bundle.json").read_text())["id"])


async def main() -> None:
    listener, end = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    folder = Path(os.environ["SCDA_BUNDLE"])
    if (folder / "fail").exists():
        code = int((folder / "fail").read_text())
        if code < 0:
            os.kill(os.getpid(), -code)
        print("stub: cannot start", file=sys.stderr)
        sys.exit(code)
    stub, channel, stop = Stub(folder), Channel(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await channel.open(end)
    names = ("snapshot", "prepare", "commit", "discard")
    calls = asyncio.create_task(channel.run({name: getattr(stub, name) for name in names}))
    calls.add_done_callback(lambda _: stop.set())
    try:
        await channel.call("ready", model_id=stub.model)
    except ScdaError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    server = await asyncio.start_server(stub.answer, sock=listener)
    await stop.wait()
    server.close()
    while (folder / "busy").exists():
        await asyncio.sleep(0.01)


def load(folder: Path) -> None:
    """Take as long as the libraries of a real worker do, outside of the event loop."""
    while (folder / "slow").exists():
        (folder / "starts").touch()
        time.sleep(0.01)


if __name__ == "__main__":
    load(Path(os.environ["SCDA_BUNDLE"]))
    asyncio.run(main())
