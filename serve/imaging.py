"""Bytes to pixels, outputs to answers: what labelling and the server share.

An image that is bad becomes an error in its place. Nothing here loads the model or what runs it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar, Union

from PIL import Image

from scda.models.errors import ImageError
from scda.models.preprocess import Pixels

if TYPE_CHECKING:
    from scda.models.predictor import Prediction

Prepared = Pixels | ImageError
Answer: TypeAlias = Union["Prediction", ImageError]
T = TypeVar("T")


def prepare(apply: Callable[[Image.Image], Pixels], read: Callable[[], Image.Image]) -> Prepared:
    """Return the image that `read` gives, with `apply` done to it, or why there is none."""
    try:
        return apply(read())
    except ImageError as error:
        return error


def usable(prepared: Sequence[Prepared]) -> list[Pixels]:
    """Return the good images, in order."""
    return [pixels for pixels in prepared if not isinstance(pixels, ImageError)]


def with_errors(prepared: Sequence[Prepared], said: Iterable[T]) -> list[T | ImageError]:
    """Return what is said of each good image, in its place; a bad image is its own answer."""
    of_good = iter(said)
    return [pixels if isinstance(pixels, ImageError) else next(of_good) for pixels in prepared]
