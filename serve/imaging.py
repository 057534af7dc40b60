"""Outputs to answers: the steps that labelling and the server share.

A bad image becomes an error in its place. Nothing here loads the model or runs it.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar, Union

from scda.models.errors import ImageError
from scda.models.preprocess import Pixels, Prepared

if TYPE_CHECKING:
    from scda.models.predictor import Prediction

Answer: TypeAlias = Union["Prediction", ImageError]
T = TypeVar("T")


def valid_pixels(prepared: Sequence[Prepared]) -> list[Pixels]:
    """Return the images without an error, in order."""
    return [pixels for pixels in prepared if not isinstance(pixels, ImageError)]


def with_errors(prepared: Sequence[Prepared], answers: Iterable[T]) -> list[T | ImageError]:
    """Return one entry per image, in order: its error, or the next of `answers`.

    Args:
        prepared: Images and errors.
        answers: One answer per image without an error, in order.
    """
    valid = iter(answers)
    return [pixels if isinstance(pixels, ImageError) else next(valid) for pixels in prepared]
