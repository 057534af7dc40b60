"""One run in several processes, started by torchrun; with one process nothing here has an effect.

Every process has all of F and C and takes every step. A backbone that learns takes most of the
time, so each process passes one shard of a batch through it. The features are gathered before any
loss that needs the whole batch, so that a step is the same for any number of processes.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from accelerate import PartialState
from accelerate.utils import broadcast, broadcast_object_list, gather, gather_object, reduce
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from scda.models.cpus import local_world_size, usable_cpus
from scda.models.errors import GateError, ScdaError, UsageError

T = TypeVar("T")
# Long enough for a process that discovers, or that has more files left than the others. The death
# of a process is noticed at once.
_TIMEOUT = timedelta(days=7)


def init(device: torch.device) -> None:
    """Connect to the other processes of the run, if torchrun started some.

    Args:
        device: Device of the run.

    Raises:
        UsageError: If this machine has more processes than GPUs.
    """
    if "LOCAL_RANK" not in os.environ:
        return
    processes, gpus = local_world_size(), torch.cuda.device_count()
    if device.type == "cuda" and processes > gpus:
        raise UsageError(
            f"{processes} processes on this machine, but torch finds {gpus} GPUs; use "
            f"--nproc-per-node {gpus}, or --device cpu"
        )
    with _peer_errors():
        PartialState(cpu=device.type == "cpu", timeout=_TIMEOUT)


def destroy() -> None:
    """Disconnect from the other processes."""
    if distributed.is_initialized():  # on a GPU, even a single process has a group
        PartialState().destroy_process_group()


def world_size() -> int:
    """Return the number of processes that share the run."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return distributed.get_rank() if world_size() > 1 else 0


def is_main() -> bool:
    """Return whether this process is rank 0, which discovers, writes files and prints."""
    return rank() == 0


def local_rank() -> int:
    """Return the number of this process on its machine, and so of its GPU, from 0."""
    return int(os.environ.get("LOCAL_RANK", 0))


def cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return max(1, usable_cpus() // local_world_size())


def shard(rows: Sequence[T]) -> Sequence[T]:
    """Return this process's rows; the shards of all processes, in order, are all rows once.

    Raises:
        UsageError: If there are fewer rows than processes.
    """
    if world_size() == 1:
        return rows
    if len(rows) < world_size():
        raise UsageError(
            f"{world_size()} processes share {len(rows)} images; "
            "use fewer processes or larger batches"
        )
    start, stop = (len(rows) * number // world_size() for number in (rank(), rank() + 1))
    return rows[start:stop]


def broadcast_from_main(make: Callable[[], T]) -> T:
    """Return in every process what `make` returns in rank 0, or raise the error it raises there."""
    if world_size() == 1:
        return make()
    result_and_error: list[Any] = [None, None]
    if is_main():
        try:
            result_and_error[0] = make()
        except ScdaError as error:
            result_and_error[1] = error
    with _peer_errors():
        result, raised = broadcast_object_list(result_and_error)
    if raised:
        raise raised
    return result  # type: ignore[no-any-return]  # a list of any objects was broadcast


def all_gather_object(value: T) -> list[T]:
    """Return the values of all processes, by rank."""
    if world_size() == 1:
        return [value]
    with _peer_errors():
        return list(gather_object([value]))


def all_reduce_max(number: int) -> int:
    """Return the largest number of all processes."""
    if world_size() == 1:
        return number
    with _peer_errors():
        return int(reduce(torch.tensor(number, device=PartialState().device), "max"))


def all_gather_rows(rows: Tensor) -> Tensor:
    """Return the rows of all processes, by rank, on the device of this process's rows.

    Every process computes the same loss of the gathered rows. The gradient flows to this process's
    own rows, multiplied by `world_size()`: `average_gradients` then returns the gradient of one
    process that has all rows.

    Args:
        rows: (N, D); N may differ between processes.

    Returns:
        (sum of all N, D).
    """
    # Not torch.distributed.nn.functional.all_gather: torch deprecates it, it takes no shards of
    # different lengths, and its backward pass exchanges gradients that are the same everywhere.
    if world_size() == 1:
        return rows
    own = rows.detach().to(PartialState().device)
    with _peer_errors():
        lengths = gather(torch.tensor([len(own)], device=own.device)).tolist()
        padded = F.pad(own, (0, 0, 0, max(lengths) - len(own)))
        blocks = gather(padded).to(rows.device).chunk(world_size())
    shards = [block[:length] for block, length in zip(blocks, lengths, strict=True)]
    if rows.requires_grad:
        rows.register_hook(lambda gradient: gradient * world_size())
    shards[rank()] = rows
    return torch.cat(shards)


def average_gradients(module: nn.Module) -> None:
    """Replace the gradients in every process by their mean over all processes."""
    average(weight.grad for weight in module.parameters() if weight.grad is not None)


def average_statistics(module: nn.Module, *, weight: float = 1.0) -> None:
    """Replace the batch statistics of layers in training mode by their mean over all processes.

    `nn.SyncBatchNorm` is no substitute: it needs GPUs and exchanges data in every layer and step.

    Args:
        module: Network whose batch norm layers are averaged.
        weight: Weight of this process's statistics.
    """
    layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    statistics = [(layer.running_mean, layer.running_var) for layer in layers if layer.training]
    average((tensor for pair in statistics for tensor in pair if tensor is not None), weight=weight)


@torch.no_grad()
def average(tensors: Iterable[Tensor], *, weight: float = 1.0) -> None:
    """Replace tensors, in place, by their weighted mean over all processes.

    Args:
        tensors: Tensors of the same shapes in every process.
        weight: Weight of this process's tensors.
    """
    if world_size() == 1:
        return
    own = list(tensors)
    if not own:
        return
    weights = torch.tensor([weight], device=own[0].device)
    weighted = torch.cat([tensor.reshape(-1) for tensor in own]) * weights
    with _peer_errors():
        mean = reduce(weighted, "sum") / reduce(weights, "sum")
    for tensor, values in zip(own, mean.split([tensor.numel() for tensor in own]), strict=True):
        tensor.copy_(values.view_as(tensor))


@torch.no_grad()
def broadcast_weights(module: nn.Module) -> None:
    """Replace weights and buffers in every process by those of rank 0."""
    if world_size() > 1:
        with _peer_errors():
            broadcast(module.state_dict())  # in place


@contextmanager
def _peer_errors() -> Iterator[None]:
    """Report the end of another process, which each library reports differently, in one line."""
    try:
        yield
    except (NotImplementedError, torch.OutOfMemoryError):  # errors of this process
        raise
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise GateError(
            f"lost the other processes of this run: {reason}; rerun with --resume to continue"
        ) from None
