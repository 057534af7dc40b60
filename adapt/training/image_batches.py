"""Images from the disk as batches: at random for training, one way only for everything else."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np
import torch
from PIL import Image
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from scda.adapt.data.image_files import Images
from scda.adapt.runtime import distributed
from scda.adapt.training.sampling import Step
from scda.models.errors import DataError
from scda.models.preprocess import Pixels, Preprocessing

_Key = tuple[int, int, int]  # domain, row, seed
_SEEDS = 2**62
_DOMAINS = (0, 1, 1)  # of a step's three parts: source, pseudo-labelled target, target


def augmented(image: Image.Image, preprocessing: Preprocessing) -> Tensor:
    """Return a random square of an image, maybe mirrored, as (H, W, 3) uint8.

    The same as resizing all of it and cropping then, without the pixels that are thrown away.
    """
    side = max(1, round(min(image.size) * preprocessing.crop_px / preprocessing.resize_px))
    size = [preprocessing.crop_px, preprocessing.crop_px]
    random_view = v2.Compose(
        [
            v2.RandomCrop(side),
            v2.Resize(size, v2.InterpolationMode.BICUBIC),
            v2.RandomHorizontalFlip(),
        ]
    )
    return torch.from_numpy(np.array(random_view(image)))


class _Views(Dataset[Tensor]):
    """One view per key; its seed makes it the same in whatever process it is made."""

    def __init__(self, domains: Sequence[Images], preprocessing: Preprocessing) -> None:
        self._domains, self._preprocessing = domains, preprocessing

    def __getitem__(self, key: _Key) -> Tensor:
        domain, row, seed = key
        image = self._domains[domain].read(row)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return augmented(image, self._preprocessing)


def _leave_group(worker: int) -> None:
    """Leave signals to a whole group, from a terminal or from torchrun, to the one that trains."""
    os.setpgrp()


class TrainingPhotos:
    """Random views of both domains, by row, made ahead by processes that live as long as this."""

    def __init__(
        self, source: Images, target: Images, preprocessing: Preprocessing, *, workers: int
    ) -> None:
        """Start nothing yet: the processes start with the first batch.

        Args:
            source: Its files, in the order of their labels.
            target: Its files.
            preprocessing: Of the backbone.
            workers: Processes; 0 makes the views in this one.
        """
        self._plan: list[list[_Key]] = []
        self._loader: DataLoader[Tensor] = DataLoader(
            _Views((source, target), preprocessing),
            batch_sampler=self._plan,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=torch.cuda.is_available(),
            # A fork beside running threads may hang.
            multiprocessing_context="spawn" if workers else None,
            generator=Generator(),  # not the global one: every view has a seed of its own
            worker_init_fn=_leave_group,
        )

    def batches(
        self, steps: Sequence[Step], generator: Generator, *, done: int = 0
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield for each step its source, pseudo-labelled and target views, (B, H, W, 3) uint8.

        Of several processes each gets its part of all three.

        Args:
            steps: What the steps see; all of it is known before the first view is made.
            generator: Where the views' randomness comes from.
            done: Steps to leave out, whose randomness is drawn all the same.

        Raises:
            DataError: If a file, which could be read before, cannot be read now.
        """
        self._plan[:] = [self._keys(step, generator) for step in steps][done:]
        try:
            for views, step in zip(self._loader, steps[done:], strict=True):
                yield views.split([len(distributed.shard(range(len(rows)))) for rows in step])
        except DataError as error:  # the loader puts the other process's traceback before it
            raise DataError(str(error).rpartition("DataError: ")[2]) from None

    def _keys(self, step: Step, generator: Generator) -> list[_Key]:
        keys: list[_Key] = []
        for domain, rows in zip(_DOMAINS, step, strict=True):
            seeds = torch.randint(_SEEDS, (len(rows),), generator=generator)
            views = zip(rows.tolist(), seeds.tolist(), strict=True)
            keys += distributed.shard([(domain, row, seed) for row, seed in views])
        return keys


def prepared(
    images: Images,
    batches: Sequence[Sequence[int]],
    preprocessing: Preprocessing,
    *,
    workers: int,
) -> Iterator[Tensor]:
    """Yield (B, H, W, 3) uint8 of each batch of rows, as a label of them would be computed from.

    Args:
        images: The files.
        batches: Rows.
        preprocessing: Of the backbone.
        workers: Threads; one batch is read ahead.

    Raises:
        DataError: If a file, which could be read before, cannot be read now.
    """
    with ThreadPoolExecutor(workers or 1) as pool:
        read = ([pool.submit(_prepare, images, row, preprocessing) for row in b] for b in batches)
        ahead = list(islice(read, 2))
        while ahead:
            batch = ahead.pop(0)
            ahead += islice(read, 1)
            yield torch.from_numpy(np.stack([pixels.result() for pixels in batch]))


def _prepare(images: Images, row: int, preprocessing: Preprocessing) -> Pixels:
    return preprocessing.apply(images.read(row))
