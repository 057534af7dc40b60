"""Prepare the images that take little time and memory, and leave out the others."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

from scda.models.decoding.content import File, read
from scda.models.decoding.formats import image_format
from scda.models.decoding.forms import Form, make
from scda.models.decoding.unguarded import open_image
from scda.models.errors import ImageError
from scda.models.headers.cost import is_cheap, may_be_cheap
from scda.models.limits import LIMITS, ImageLimits
from scda.models.preprocess import Prepared

COSTLY = "costly"
_FETCHES = 16  # objects of a store read at the same time; a read mostly waits


def prepare_cheap(
    form: Form, files: Sequence[File], limits: ImageLimits = LIMITS
) -> list[Prepared | None]:
    """Return what a form makes of each file, in order, or its error; None for a costly image."""
    # All objects of a store are under way before one is decoded.
    reads = [
        _fetchers().submit(read, file, limits).result
        if isinstance(file, str)
        else partial(read, file, limits)
        for file in files
    ]
    return [_prepared(form, one, limits) for one in reads]


def _prepared(form: Form, read: Callable[[], bytes], limits: ImageLimits) -> Prepared | None:
    try:
        data = read()
        if not may_be_cheap(image_format(data), data):
            return None
        image = open_image(data, max_pixels=limits.max_pixels)
        if form is not None and not is_cheap(image, data):
            return None
        return make(form, image, data, max_pixels=limits.max_pixels)
    except ImageError as error:
        return error


@cache
def _fetchers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_FETCHES, thread_name_prefix="scda-fetch")
