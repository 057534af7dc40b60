"""The program of one worker; the supervisor starts it with two inherited sockets."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

from fastapi import FastAPI

from scda.models.errors import ScdaError
from scda.serve.http.application import load_app
from scda.serve.http.logs import configure_logging
from scda.serve.http.metrics import Metrics
from scda.serve.http.served.switch import ModelSwitch
from scda.serve.http.settings import Settings
from scda.serve.http.snapshots import Snapshot
from scda.serve.workers.channel import Channel, Handler
from scda.serve.workers.server import WorkerServer


def main() -> None:
    """Serve until a signal, or until the supervisor has ended."""
    listener, end = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor's: it changes all workers
    channel = Channel()
    with listener, end:
        try:
            settings = Settings.from_environment(os.environ)
            configure_logging(settings.log)
            app = load_app(
                settings,
                reload=lambda: channel.call("reload"),
                snapshots=lambda: channel.call("snapshots"),
            )
            asyncio.run(_serve(app, listener, channel, end))
        except ScdaError as error:
            print(f"scda: {error}", file=sys.stderr)
            raise SystemExit(error.exit_code) from None


async def _serve(
    app: FastAPI, listener: socket.socket, channel: Channel, end: socket.socket
) -> None:
    models: ModelSwitch = app.state.models
    metrics: Metrics = app.state.metrics

    async def ready() -> None:
        await channel.call("ready", model_id=models.current.id)

    async def snapshot() -> Snapshot:
        models.current.watcher.refresh()
        return metrics.snapshot()

    async def prepare(folder: str) -> str:
        return await models.prepare(Path(folder))

    async def commit(model_id: str) -> None:
        models.commit(model_id)

    async def discard() -> None:
        models.discard()

    calls: dict[str, Handler] = {
        "snapshot": snapshot,
        "prepare": prepare,
        "commit": commit,
        "discard": discard,
    }
    server = WorkerServer(app, app.state.settings, on_start=ready)
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn sets the same, and raises the signal again for this handler when it has stopped.
        signal.signal(number, server.handle_exit)
    await channel.open(end)
    supervised = asyncio.create_task(channel.run(calls))
    supervised.add_done_callback(lambda _: server.handle_exit(signal.SIGTERM))
    await server.serve([listener])
    supervised.cancel()


if __name__ == "__main__":
    main()
