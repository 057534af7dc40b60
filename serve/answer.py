"""Images that may be bad to answers, one each: what labelling and the server share."""

from collections.abc import Callable, Sequence

from PIL import Image

from scda.models.errors import ImageError
from scda.models.predictor import Prediction, Predictor
from scda.models.preprocess import Pixels

Prepared = Pixels | ImageError
Answer = Prediction | ImageError


def prepare(predictor: Predictor, read: Callable[[], Image.Image]) -> Prepared:
    """Return the image that `read` gives as the model's input, or why there is none."""
    try:
        return predictor.prepare(read())
    except ImageError as error:
        return error


def answer(predictor: Predictor, prepared: Sequence[Prepared]) -> list[Answer]:
    """Return one answer each, in order; a bad image is its own answer and disturbs no other."""
    good = [pixels for pixels in prepared if not isinstance(pixels, ImageError)]
    predictions = iter(predictor.predict(good))
    return [pixels if isinstance(pixels, ImageError) else next(predictions) for pixels in prepared]
