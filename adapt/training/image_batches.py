"""Batches of images from the disk: random views for training, and preprocessed as for serving."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np
import torch
from PIL import Image
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset

from scda.adapt.data.image_files import Images
from scda.adapt.runtime import distributed
from scda.adapt.training.sampling import Step
from scda.models.errors import DataError
from scda.models.preprocess import Pixels, Preprocessing

_Key = tuple[int, int, int]  # domain, row, seed
_SEEDS = 2**62
_DOMAINS = (0, 1, 1)  # domain of each part of a step: source, pseudo-labelled target, target


def random_view(image: Image.Image, preprocessing: Preprocessing) -> Tensor:
    """Return a random square crop of an image, mirrored at random.

    The crop equals one of the resized image, but only the pixels that are kept are resized.

    Args:
        image: Image of any size.
        preprocessing: Preprocessing of the backbone, which gives the sizes.

    Returns:
        (H, W, 3) uint8.
    """
    side = max(1, round(min(image.size) * preprocessing.crop_px / preprocessing.resize_px))
    # By hand: every process that makes views would take seconds to import torchvision.
    spare = (length - side for length in reversed(image.size))
    top, left = (int(torch.randint(n + 1, (1,))) if n else 0 for n in spare)
    view = image.crop((left, top, left + side, top + side))
    view = view.resize((preprocessing.crop_px,) * 2, Image.Resampling.BICUBIC)
    if torch.rand(1) < 0.5:
        view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(view))


class _RandomViews(Dataset[Tensor]):
    """One view per key, whose seed makes it the same in every process."""

    def __init__(self, domains: Sequence[Images], preprocessing: Preprocessing) -> None:
        self._domains, self._preprocessing = domains, preprocessing

    def __getitem__(self, key: _Key) -> Tensor:
        domain, row, seed = key
        pixels = self._domains[domain].read_or_neighbour(row, self._preprocessing.reading)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return random_view(Image.fromarray(pixels), self._preprocessing)


def _leave_process_group(worker: int) -> None:
    """Let a signal to the whole group, from a terminal or torchrun, reach the trainer alone."""
    os.setpgrp()


class AugmentedBatches:
    """Random views of both domains by row, made ahead by worker processes.

    The workers start with the first batch and live as long as this object.
    """

    def __init__(
        self,
        source: Images,
        target: Images,
        preprocessing: Preprocessing,
        *,
        workers: int,
        pinned: bool = False,
    ) -> None:
        """Create the loader.

        Args:
            source: Source files in the order of their labels.
            target: Target files.
            preprocessing: Preprocessing of the backbone.
            workers: Number of processes; 0 makes the views in this one.
            pinned: Whether views are made in memory from which a GPU copies them faster. It
                belongs to the GPU: a run on the CPU would occupy one.
        """
        self._plan: list[list[_Key]] = []
        self._loader: DataLoader[Tensor] = DataLoader(
            _RandomViews((source, target), preprocessing),
            batch_sampler=self._plan,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=pinned,
            # A fork beside running threads may hang.
            multiprocessing_context="spawn" if workers else None,
            generator=Generator(),  # not the global one: every view has its own seed
            worker_init_fn=_leave_process_group,
        )

    def batches(
        self, steps: Sequence[Step], generator: Generator, *, done: int = 0
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield for each step its source, pseudo-labelled and target views, (B, H, W, 3) uint8.

        Each of several processes gets its shard of all three.

        Args:
            steps: Rows of every step, all known before the first view is made.
            generator: Source of the views' seeds.
            done: Number of steps to skip; their seeds are drawn all the same.

        Raises:
            DataError: If every file of a folder has vanished or changed.
        """
        self._plan[:] = [self._keys(step, generator) for step in steps][done:]
        try:
            for views, step in zip(self._loader, steps[done:], strict=True):
                yield views.split([len(distributed.shard(range(len(rows)))) for rows in step])
        except DataError as error:  # the loader prepends the worker's traceback
            raise DataError(str(error).rpartition("DataError: ")[2]) from None

    def _keys(self, step: Step, generator: Generator) -> list[_Key]:
        keys: list[_Key] = []
        for domain, rows in zip(_DOMAINS, step, strict=True):
            seeds = torch.randint(_SEEDS, (len(rows),), generator=generator)
            views = zip(rows.tolist(), seeds.tolist(), strict=True)
            keys += distributed.shard([(domain, row, seed) for row, seed in views])
        return keys


def preprocessed_batches(
    images: Images,
    batches: Sequence[Sequence[int]],
    preprocessing: Preprocessing,
    *,
    workers: int,
) -> Iterator[Tensor]:
    """Yield the pixels of each batch, preprocessed as for labelling and serving.

    Args:
        images: Image files.
        batches: Rows of each batch.
        preprocessing: Preprocessing of the backbone.
        workers: Number of threads; one batch is read ahead.

    Yields:
        (B, H, W, 3) uint8.

    Raises:
        DataError: If every file of a folder has vanished or changed.
    """
    with ThreadPoolExecutor(workers or 1) as pool:
        read = (
            [pool.submit(_preprocess, images, row, preprocessing) for row in b] for b in batches
        )
        ahead = list(islice(read, 2))
        while ahead:
            batch = ahead.pop(0)
            ahead += islice(read, 1)
            yield torch.from_numpy(np.stack([pixels.result() for pixels in batch]))


def _preprocess(images: Images, row: int, preprocessing: Preprocessing) -> Pixels:
    return images.read_or_neighbour(row, preprocessing)
