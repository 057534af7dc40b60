"""Serve a bundle: what `scda-adapt serve` does."""

import asyncio
import logging
import os
import sys
from functools import partial
from pathlib import Path

from scda.models.cpus import num_workers, usable_cpus
from scda.models.errors import UsageError
from scda.serve.http.logs import configure_logging
from scda.serve.http.settings import Settings, unknown_settings
from scda.serve.workers.listening import allowed_connections, is_local, listen, url_of
from scda.serve.workers.supervisor import Supervisor

logger = logging.getLogger(__name__)
# Left alone, glibc raises both limits with the largest block that was freed: then the heap of every
# thread keeps the memory of images, and a worker grows by 30 MiB per thread.
_HEAP = {"MALLOC_MMAP_THRESHOLD_": "4194304", "MALLOC_TRIM_THRESHOLD_": "4194304"}  # bytes


def serve(bundle: Path, *, host: str = "127.0.0.1", port: int = 3000, workers: int = 1) -> int:
    """Serve a bundle over HTTP until SIGTERM or SIGINT; return the exit code.

    The settings are environment variables; see `Settings`.

    Args:
        bundle: Folder of a bundle or a run, or a link to one, which SIGHUP follows anew.
        host: IP address to listen on, or `localhost`.
        port: Port to listen on; 0 chooses a free one.
        workers: Number of server processes; they share the CPUs evenly.

    Raises:
        UsageError: If a setting is wrong, the server cannot listen on this host and port, or
            `workers` is below 1 or above what the machine can use.
    """
    if sys.platform == "win32":
        raise UsageError("serving needs Linux or macOS")
    most = num_workers(workers, workers)  # each one loads the model
    if workers < 1 or workers > most:
        expected = "1 or more" if workers < 1 else f"at most {most} on this machine"
        raise UsageError(f"{workers} workers: expected {expected}")
    defaults = {"SCDA_THREADS": str(max(1, usable_cpus() // workers))}
    environment = {**_HEAP, **defaults, **os.environ, "SCDA_BUNDLE": str(bundle)}
    settings = Settings.from_environment(environment)
    configure_logging(settings.log)
    for warning in unknown_settings(os.environ):
        logger.warning(warning)
    connections = allowed_connections(settings.max_connections)
    if connections < settings.max_connections:
        logger.warning("the system's limit of open files allows %d connections", connections)
        environment["SCDA_MAX_CONNECTIONS"] = str(connections)
    with listen(host, port) as listener:
        if not (settings.api_key or settings.api_keys_file) and not is_local(listener):
            logger.warning(
                "other machines may use this server without a key: set SCDA_API_KEY, or listen on "
                "127.0.0.1"
            )
        announce = partial(logger.info, "serving at %s", url_of(listener))
        supervisor = Supervisor(
            listener,
            bundle.absolute(),  # as long as the current folder is there
            environment,
            workers=workers,
            start_seconds=settings.start_seconds,
            drain_seconds=settings.drain_seconds,
        )
        return asyncio.run(supervisor.run(announce))
