"""Sampling of the images of a step: endless streams of index batches from one generator."""

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

Step = tuple[Tensor, Tensor, Tensor]  # rows of the source, the pseudo-labelled, the target


def shuffled(count: int, batch_size: int, generator: Generator) -> Iterator[Tensor]:
    """Yield (B,) indices in random order, pass after pass; an incomplete last batch is dropped.

    B is `batch_size`, or `count` if there are fewer images. A single image comes twice: batch norm
    has no statistics of one.

    Args:
        count: Number of images.
        batch_size: Number of images in a batch.
        generator: Source of the randomness.
    """
    drawn = max(count, 2)
    size = min(batch_size, drawn)
    while True:
        order = torch.randperm(drawn, generator=generator) % count
        yield from order[: drawn - drawn % size].split(size)


def balanced(labels: Tensor, batch_size: int, generator: Generator) -> Iterator[Tensor]:
    """Yield (B,) indices with replacement, each class that has images equally often.

    Args:
        labels: Class of each image, (N,).
        batch_size: Number of images in a batch, B.
        generator: Source of the randomness.
    """
    weights = 1.0 / labels.bincount()[labels].double()
    while True:
        yield torch.multinomial(weights, batch_size, replacement=True, generator=generator)


def labelled(
    labels: Tensor, batch_size: int, generator: Generator, *, sampling: str
) -> Iterator[Tensor]:
    """Yield batches of labelled images, `balanced` or `shuffled`."""
    if sampling == "balanced":
        return balanced(labels, batch_size, generator)
    return shuffled(len(labels), batch_size, generator)
