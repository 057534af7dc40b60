"""Prepare the images that take little time and memory, and leave out the others."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

from scda.models.errors import ImageError
from scda.models.headers.cost import is_cheap, may_be_cheap
from scda.models.images import decode, image_format, open_image, read_bytes
from scda.models.limits import LIMITS, ImageLimits
from scda.models.preprocess import Preprocessing
from scda.serve.imaging import Prepared

File: TypeAlias = Path | str | bytes  # a path, a URI, or the content
COSTLY = "costly"
_FETCHES = 16  # objects of a store read at the same time; a read mostly waits


def prepare_cheap(
    preprocessing: Preprocessing, files: Sequence[File], limits: ImageLimits = LIMITS
) -> list[Prepared | None]:
    """Return the pixels of each file, in order, or its error; None for a costly image."""
    # All objects of a store are under way before one is decoded.
    reads = [
        _fetchers().submit(read, file, limits).result
        if isinstance(file, str)
        else partial(read, file, limits)
        for file in files
    ]
    return [_prepared(preprocessing, one, limits) for one in reads]


def read(file: File, limits: ImageLimits) -> bytes:
    """Return the content of a file.

    Raises:
        ImageError: With code `unreadable` or `too_many_bytes`.
    """
    if isinstance(file, bytes):
        return file
    if isinstance(file, Path):
        return read_bytes(file, max_bytes=limits.max_bytes)
    # Imported here: it takes longer than all other imports.
    from scda.serve.files.stored import read_stored

    return read_stored(file, max_bytes=limits.max_bytes)


def _prepared(
    preprocessing: Preprocessing, read: Callable[[], bytes], limits: ImageLimits
) -> Prepared | None:
    try:
        data = read()
        if not may_be_cheap(image_format(data), data):
            return None
        image = open_image(data, max_pixels=limits.max_pixels)
        if not is_cheap(image, data):
            return None
        return preprocessing.apply(decode(image, max_pixels=limits.max_pixels))
    except ImageError as error:
        return error


@cache
def _fetchers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_FETCHES, thread_name_prefix="scda-fetch")
