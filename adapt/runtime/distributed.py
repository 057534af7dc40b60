"""One run in several processes, as torchrun starts them; for one alone nothing here does anything.

Every process has all of F and C and knows every step. A backbone that learns, which is what takes
the time, sees a part of every batch in each; its features are put together before all that looks
at a batch as a whole, so that a step is the same step however many processes share it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from accelerate import PartialState
from accelerate.utils import broadcast, broadcast_object_list, gather, gather_object, reduce
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from scda.models.cpus import usable_cpus
from scda.models.errors import GateError, ScdaError, UsageError

T = TypeVar("T")
# While one discovers, or has more files left than the others. Who dies is noticed without it.
_PATIENCE = timedelta(days=7)


def join(device: torch.device) -> None:
    """Meet the other processes of the run, if torchrun started some.

    Raises:
        UsageError: If there are more on this machine than GPUs.
    """
    if "LOCAL_RANK" not in os.environ:
        return
    here, there = on_this_machine(), torch.cuda.device_count()
    if device.type == "cuda" and here > there:
        raise UsageError(
            f"{here} processes on this machine, torch sees {there} GPUs; want "
            f"--nproc-per-node {there}, or --device cpu"
        )
    with _together():
        PartialState(cpu=device.type == "cpu", timeout=_PATIENCE)


def leave() -> None:
    """Be alone from here on."""
    if count() > 1:
        PartialState().destroy_process_group()


def count() -> int:
    """Return how many processes share the run."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def index() -> int:
    """Return which of them this one is, from 0."""
    return distributed.get_rank() if count() > 1 else 0


def first() -> bool:
    """Return whether this is the one that discovers, writes and speaks."""
    return index() == 0


def on_this_machine() -> int:
    """Return how many processes divide this machine's CPUs and GPUs."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1)) if "LOCAL_RANK" in os.environ else 1


def index_here() -> int:
    """Return which of this machine's processes, and so which GPU, is this one's, from 0."""
    return int(os.environ.get("LOCAL_RANK", 0))


def cpus() -> int:
    """Return how many of the CPUs that may be used are this process's."""
    return max(1, usable_cpus() // on_this_machine())


def part(rows: Sequence[T]) -> Sequence[T]:
    """Return those of the rows that are this process's: together, in order, all of them, once.

    Raises:
        UsageError: If there are fewer rows than processes.
    """
    if count() == 1:
        return rows
    if len(rows) < count():
        raise UsageError(
            f"{count()} processes share {len(rows)} images; want fewer processes or larger batches"
        )
    return rows[len(rows) * index() // count() : len(rows) * (index() + 1) // count()]


def told(make: Callable[[], T]) -> T:
    """Return what the first process makes, or raise its error; the others wait for it."""
    if count() == 1:
        return make()
    box: list[Any] = [None, None]
    if first():
        try:
            box[0] = make()
        except ScdaError as error:
            box[1] = error
    with _together():
        made, refusal = broadcast_object_list(box)
    if refusal:
        raise refusal
    return made  # type: ignore[no-any-return]


def everyones(own: T) -> list[T]:
    """Return what each process has, in their order."""
    if count() == 1:
        return [own]
    with _together():
        return list(gather_object([own]))


def largest(number: int) -> int:
    """Return the largest of the processes' numbers."""
    if count() == 1:
        return number
    box = torch.tensor(number, device=PartialState().device)
    with _together():
        distributed.all_reduce(box, distributed.ReduceOp.MAX)
    return int(box)


def joined(rows: Tensor) -> Tensor:
    """Return the rows (N, D) of all processes, in their order, on the device they came from.

    The gradient of a loss that all compute alike goes to this process's own rows, `count()` times:
    `average_gradients` then makes it that of one process with all of them.
    """
    if count() == 1:
        return rows
    own = rows.detach().to(PartialState().device)
    with _together():
        lengths = gather(torch.tensor([len(own)], device=own.device)).tolist()
    longest = max(lengths)
    padded = F.pad(own, (0, 0, 0, longest - len(own)))
    with _together():
        theirs = gather(padded).to(rows.device).chunk(count())
    parts = [rows_of[:length] for rows_of, length in zip(theirs, lengths, strict=True)]
    if rows.requires_grad:
        rows.register_hook(lambda gradient: gradient * count())
    parts[index()] = rows
    return torch.cat(parts)


def average_gradients(module: nn.Module) -> None:
    """Give every process the mean of all gradients."""
    average(weight.grad for weight in module.parameters() if weight.grad is not None)


def average_statistics(module: nn.Module, *, weight: float = 1.0) -> None:
    """Give every process the mean of the batch statistics that were just learnt.

    Args:
        module: Of its layers, those in training mode count.
        weight: Of this process's statistics.
    """
    learnt = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    statistics = [(layer.running_mean, layer.running_var) for layer in learnt if layer.training]
    average((tensor for pair in statistics for tensor in pair if tensor is not None), weight=weight)


@torch.no_grad()
def average(tensors: Iterable[Tensor], *, weight: float = 1.0) -> None:
    """Make tensors, in place, the processes' mean, in which this one counts with a weight."""
    if count() == 1:
        return
    own = list(tensors)
    if not own:
        return
    weights = torch.tensor([weight], device=own[0].device)
    weighted = torch.cat([tensor.reshape(-1) for tensor in own]) * weights
    with _together():
        mean = reduce(weighted, "sum") / reduce(weights, "sum")
    for tensor, values in zip(own, mean.split([tensor.numel() for tensor in own]), strict=True):
        tensor.copy_(values.view_as(tensor))


@torch.no_grad()
def same(module: nn.Module) -> None:
    """Give every process the first one's weights and buffers."""
    if count() > 1:
        with _together():
            broadcast(module.state_dict())  # in place


@contextmanager
def _together() -> Iterator[None]:
    """Turn the end of another process, of which a library tells in its own way, into a line."""
    try:
        yield
    except (NotImplementedError, torch.OutOfMemoryError):  # this process's own
        raise
    except RuntimeError as error:
        why = str(error).splitlines()[0]
        raise GateError(f"lost the other processes of this run: {why}; try --resume") from None
