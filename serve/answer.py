"""Images that may be bad to answers, one each: what labelling and the server share."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from scda.models.errors import ImageError
from scda.models.predictor import Prediction
from scda.models.preprocess import Pixels
from scda.serve.prepared import Prepared

Answer = Prediction | ImageError
T = TypeVar("T")


def usable(prepared: Sequence[Prepared]) -> list[Pixels]:
    """Return the good images, in order."""
    return [pixels for pixels in prepared if not isinstance(pixels, ImageError)]


def with_errors(prepared: Sequence[Prepared], said: Iterable[T]) -> list[T | ImageError]:
    """Return what is said of each good image, in its place; a bad image is its own answer."""
    of_good = iter(said)
    return [pixels if isinstance(pixels, ImageError) else next(of_good) for pixels in prepared]
