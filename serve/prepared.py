"""Images that may be bad as the model's input; needs neither the model nor what runs it."""

from collections.abc import Callable

from PIL import Image

from scda.models.errors import ImageError
from scda.models.preprocess import Pixels

Prepared = Pixels | ImageError


def prepare(apply: Callable[[Image.Image], Pixels], read: Callable[[], Image.Image]) -> Prepared:
    """Return the image that `read` gives, with `apply` done to it, or why there is none."""
    try:
        return apply(read())
    except ImageError as error:
        return error
