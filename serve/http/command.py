"""The command line of BentoML that `scda-adapt serve` becomes."""

import ipaddress
import os
import socket
import sys
from pathlib import Path

from scda.models.cache import user_cache
from scda.models.cpus import num_workers, usable_cpus
from scda.models.errors import UsageError
from scda.models.files import real_path

# Repeated here, because importing the service would import all of BentoML.
SERVICE, SERVICE_NAME = "scda.serve.service:Classifier", "scda"
_OPTIONS = "BENTOML_CONFIG_OPTIONS"
_INSTEAD = "set BENTOML_HOME to a folder that can be written"
_DRAIN_SECONDS = 20  # time for running requests after a signal; Kubernetes kills after 30


def serve_command(
    bundle: Path, *, host: str = "127.0.0.1", port: int = 3000, workers: int = 1
) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and the whole environment for `os.execvpe`.

    Variables that are set already (SCDA_THREADS, SCDA_QUEUE, BENTOML_HOME ...) keep their values.

    Args:
        bundle: Folder of a bundle or a run.
        host: IP address to listen on, or `localhost`.
        port: Port to listen on.
        workers: Number of server processes; they share the CPUs evenly.

    Raises:
        UsageError: If the server cannot listen on this host and port, `workers` is below 1
            or above what the machine can use, or there is no folder for BentoML's files.
    """
    address = "127.0.0.1" if host == "localhost" else host
    _check(address, port, workers)
    # A folder per port: a second server would delete the first one's metrics.
    home = os.environ.get("BENTOML_HOME") or user_cache(instead=_INSTEAD) / f"bentoml-{port}"
    _make(Path(home))
    argv = [sys.executable, "-m", "bentoml", "serve", SERVICE, "--host", address]
    argv += ["--port", str(port), "--timeout-graceful-shutdown", str(_DRAIN_SECONDS)]
    options = f"services.{SERVICE_NAME}.workers={workers} {os.environ.get(_OPTIONS, '')}".strip()
    defaults = {
        "SCDA_THREADS": str(max(1, usable_cpus() // workers)),
        "BENTOML_HOME": str(home),
        "BENTOML_DO_NOT_TRACK": "True",
    }
    forced = {"SCDA_BUNDLE": str(real_path(bundle)), _OPTIONS: options}
    return argv, {**defaults, **os.environ, **forced}


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot write: {error.strerror}; {_INSTEAD}") from None


def _check(address: str, port: int, workers: int) -> None:
    most = num_workers(workers, workers)  # each one loads the model
    if workers < 1 or workers > most:
        expected = "1 or more" if workers < 1 else f"at most {most} on this machine"
        raise UsageError(f"{workers} workers: expected {expected}")
    if not 1 <= port <= 65535:
        raise UsageError(f"port {port}: expected a number from 1 to 65535")
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
        socket.create_server((address, port), family=family).close()
    except ValueError:
        raise UsageError(f"host {address!r}: expected an IP address or localhost") from None
    except OSError as error:  # the port is taken or forbidden, or the address is not this machine's
        raise UsageError(
            f"cannot listen on {address}:{port}: {error}; choose another --host or --port"
        ) from None
