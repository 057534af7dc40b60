"""The Ray cluster that work runs on: one that is there, or this machine for as long as it takes."""

import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType

from scda.models.cpus import usable_cpus
from scda.models.errors import ScdaError, UsageError
from scda.models.session import PROVIDERS

_ANSWER_SECONDS = 10
_LISTING = 1  # a CPU more than there are: what lists files waits most of the time
# Ray looks at these when it is imported; whoever has set them otherwise is right.
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@contextmanager
def ray_cluster(*, progress: bool = False) -> Iterator[ModuleType]:
    """Give Ray, connected to RAY_ADDRESS, else to a cluster of this machine that ends with it.

    Args:
        progress: Whether Ray Data shows bars.

    Raises:
        UsageError: If Ray is not installed, or no cluster answers at RAY_ADDRESS.
        ScdaError: In place of any error of the cluster.
    """
    ray = _import_ray()
    ours = not ray.is_initialized()
    if ours:
        _check_there(os.environ.get("RAY_ADDRESS", ""))
        _connect(ray, os.environ.get("RAY_ADDRESS"))
    try:
        with _context(ray, progress=progress):
            yield ray
    except ray.exceptions.RayError as error:
        last = str(error).strip().splitlines()[-1]
        raise ScdaError(f"Ray gave up: {type(error).__name__}: {last}") from error
    finally:
        if ours:
            ray.shutdown()


def wants_gpus(ray: ModuleType, provider: str) -> bool:
    """Return whether actors shall have a GPU each.

    Args:
        ray: Connected.
        provider: `auto` takes the cluster's GPUs if it has any; `cpu` or `cuda`.

    Raises:
        UsageError: If the provider is unknown, or a GPU is asked for and there is none.
    """
    if provider not in ("auto", *PROVIDERS):
        raise UsageError(f"provider {provider!r}, want auto, {' or '.join(PROVIDERS)}")
    there = bool(ray.cluster_resources().get("GPU"))
    if provider == "cuda" and not there:
        raise UsageError("provider cuda asked for, the cluster has no GPU")
    return there and provider != "cpu"


def _import_ray() -> ModuleType:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray.data
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise UsageError("Ray is missing; pip install 'scda[ray]'") from None
    return ray


def _check_there(address: str) -> None:
    """Refuse an address where nothing listens; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit():
        try:
            socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()
        except OSError as error:
            raise UsageError(f"RAY_ADDRESS {address}: no cluster answers: {error}") from None


def _connect(ray: ModuleType, address: str | None) -> None:
    local = {"num_cpus": usable_cpus() + _LISTING, "include_dashboard": False}
    heeded = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address or "local",
            logging_level=logging.ERROR,
            log_to_driver=False,
            **({} if address else local),
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise UsageError(f"RAY_ADDRESS {address}: no cluster answers: {first}") from None
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, heeded)  # Ray's own would end with its own exit code


@contextmanager
def _context(ray: ModuleType, *, progress: bool) -> Iterator[None]:
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = progress
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    with ray.data.DataContext.current(context):
        yield
