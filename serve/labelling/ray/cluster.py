"""Connection to a Ray cluster, or a temporary one on this machine."""

import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType

from scda.models.cpus import usable_cpus
from scda.models.errors import ScdaError, UsageError
from scda.models.session import check_provider
from scda.serve.labelling.ray.task_errors import carried_error

_ANSWER_SECONDS = 10
# Ray reads these when it is imported; values set by the user are kept.
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@contextmanager
def ray_cluster() -> Iterator[ModuleType]:
    """Give Ray, connected to RAY_ADDRESS or to a temporary cluster on this machine.

    Raises:
        UsageError: If Ray is not installed, or no cluster answers at RAY_ADDRESS.
        ScdaError: If the cluster fails.
    """
    ray = _import_ray()
    ours = not ray.is_initialized()
    if ours:
        _check_there(os.environ.get("RAY_ADDRESS", ""))
        _connect(ray, os.environ.get("RAY_ADDRESS"))
    try:
        with _context(ray):
            yield ray
    except ray.exceptions.RayError as error:
        if carried := carried_error(getattr(error, "cause", None)):
            raise carried from error
        last = str(error).strip().splitlines()[-1]
        advice = "rerun with --resume to continue"
        raise ScdaError(f"Ray failed: {type(error).__name__}: {last}; {advice}") from error
    finally:
        if ours:
            ray.shutdown()


def use_gpus(ray: ModuleType, provider: str) -> bool:
    """Return whether each actor gets a GPU.

    Args:
        ray: Connected Ray module.
        provider: `auto`, which uses GPUs if the cluster has any, `cpu`, `cuda` or `openvino`.

    Raises:
        UsageError: If the provider is unknown or not available.
    """
    check_provider(provider)
    there = bool(ray.cluster_resources().get("GPU"))
    if provider == "cuda" and not there:
        raise UsageError(
            "provider cuda is not available: the cluster has no GPU; use --provider cpu"
        )
    return there and provider in ("auto", "cuda")


def cpus_per_gpu(ray: ModuleType) -> int:
    """Return the number of CPUs for each GPU on the machine that has the fewest, at least 1."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    shares = [node.get("CPU", 0) // node["GPU"] for node in nodes if node.get("GPU")]
    return max(1, int(min(shares, default=1)))


def threads_of_worker(ray: ModuleType, asked: int) -> int:
    """Return the threads of a worker: those asked for, at most the CPUs of the largest machine.

    A worker that needs more CPUs than any machine has would never start.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = max((int(node.get("CPU", 0)) for node in nodes), default=1)
    return max(1, min(asked, most))


def driver_node(ray: ModuleType) -> dict[str, str]:
    """Return the selector of tasks that run on the machine of the driver."""
    return {"ray.io/node-id": ray.get_runtime_context().get_node_id()}


def _import_ray() -> ModuleType:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray.data
    except ModuleNotFoundError as error:
        if error.name not in ("ray", "ray.data"):
            raise
        raise UsageError("Ray is not installed; run pip install 'scda[ray]'") from None
    return ray


def _check_there(address: str) -> None:
    """Refuse an address where nothing listens; Ray would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit():
        try:
            socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()
        except OSError as error:
            raise UsageError(f"RAY_ADDRESS {address}: no cluster answers: {error}") from None


def _connect(ray: ModuleType, address: str | None) -> None:
    local = {"num_cpus": usable_cpus(), "include_dashboard": False}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address or "local",
            logging_level=logging.ERROR,
            log_to_driver=False,
            **({} if address else local),
        )
    except Exception as error:  # a machine that is too busy to start has no class of its own
        first = str(error).strip().partition("\n")[0]
        if not address:
            raise ScdaError(f"Ray cannot start on this machine: {first}") from error
        raise UsageError(f"RAY_ADDRESS {address}: no cluster answers: {first}") from None
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, handler)  # the handler of Ray would set its own exit code


@contextmanager
def _context(ray: ModuleType) -> Iterator[None]:
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.raise_original_map_exception = True  # else Ray keeps only its text
    context.target_max_block_size = 1  # each table of a stage is a block: they leave it one by one
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    with ray.data.DataContext.current(context):
        yield
