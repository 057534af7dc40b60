"""Images that may be bad to answers, one each: what labelling and the server share."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from PIL import Image

from scda.models.errors import ImageError
from scda.models.predictor import Prediction, Predictor
from scda.models.preprocess import Pixels

Prepared = Pixels | ImageError
Answer = Prediction | ImageError
T = TypeVar("T")


def prepare(predictor: Predictor, read: Callable[[], Image.Image]) -> Prepared:
    """Return the image that `read` gives as the model's input, or why there is none."""
    try:
        return predictor.prepare(read())
    except ImageError as error:
        return error


def usable(prepared: Sequence[Prepared]) -> list[Pixels]:
    """Return the good images, in order."""
    return [pixels for pixels in prepared if not isinstance(pixels, ImageError)]


def with_errors(prepared: Sequence[Prepared], said: Iterable[T]) -> list[T | ImageError]:
    """Return what is said of each good image, in its place; a bad image is its own answer."""
    of_good = iter(said)
    return [pixels if isinstance(pixels, ImageError) else next(of_good) for pixels in prepared]
