"""Image to model input: one definition for training and serving, stored in the bundle."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scda.models.decoding.reading import AS_EARLIER, DECODER, DECODER_IN_FULL, Reading
from scda.models.decoding.scaling import Box
from scda.models.errors import GateError, ImageError
from scda.models.fields import count

INTERPOLATION = "bicubic, antialiased"
Pixels = NDArray[np.uint8]
Prepared = Pixels | ImageError  # of an image that is bad


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How an image becomes model input; the graph of the model does the normalisation."""

    resize_px: int  # length of the shorter side after resizing
    crop_px: int  # side of the central square that is kept
    mean: tuple[float, float, float]  # per channel, on 0 to 255; applied in the graph
    std: tuple[float, float, float]  # per channel, on 0 to 255; applied in the graph
    interpolation: str = INTERPOLATION
    decoder: str = DECODER
    below: "Preprocessing | None" = None  # of a second backbone; its square lies below the first

    def __post_init__(self) -> None:
        """Check the sizes.

        Raises:
            ValueError: If the crop does not fit into the resized image.
        """
        if not 0 < self.crop_px <= self.resize_px:
            raise ValueError(
                f"expected 0 < crop <= resize, got {self.crop_px} and {self.resize_px} px"
            )

    @property
    def id(self) -> str:
        """The first 16 hex digits of the SHA-256 of all fields."""
        text = json.dumps(self._fields(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def parts(self) -> tuple["Preprocessing", ...]:
        """The preprocessing of each backbone, from top to bottom."""
        return (self, *(self.below.parts if self.below else ()))

    @property
    def reading(self) -> Reading:
        """How the image of the first square is decoded: with twice the pixels that it needs."""
        if self.decoder == DECODER_IN_FULL:
            return AS_EARLIER
        return Reading(enough_px=2 * self.resize_px)

    @property
    def sides(self) -> tuple[int, ...]:
        """The sides of the squares in pixels, from top to bottom."""
        return tuple(part.crop_px for part in self.parts)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape (H, W, 3) of the model's input."""
        return sum(self.sides), max(self.sides), 3

    def to_json(self) -> dict[str, Any]:
        """Return the fields and the id, as `bundle.json` keeps them."""
        return {"id": self.id, **self._fields()}

    def _fields(self) -> dict[str, Any]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        below = fields.pop("below")  # left out without one, as in bundles of earlier versions
        return {**fields, "below": below.to_json()} if below else fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Preprocessing":
        """Return what `to_json` gave.

        Raises:
            GateError: If this version of scda prepares images differently.
        """
        stored: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()
        }
        stored_id = stored.pop("id", None)
        try:
            for side in ("resize_px", "crop_px"):
                count(stored, side)
            below = cls.from_json(stored.pop("below")) if "below" in stored else None
            preprocessing = cls(**stored, below=below)
        except (AttributeError, TypeError, ValueError) as error:
            raise GateError(f"preprocessing of another version: {error}") from None
        is_known = preprocessing.interpolation == INTERPOLATION and preprocessing.decoder in (
            DECODER,
            DECODER_IN_FULL,
        )
        if preprocessing.id != stored_id or not is_known:
            raise GateError("preprocessing of another version; train and export the bundle again")
        return preprocessing

    def apply(self, image: Image.Image) -> Pixels:
        """Return an 8-bit RGB image as (H, W, 3) uint8 of `shape`."""
        return self.apply_each([(image, (0, 0, *image.size))] * len(self.parts))

    def apply_each(self, images: Iterable[tuple[Image.Image, Box]]) -> Pixels:
        """Return one image, as each part reads it, as (H, W, 3) uint8 of `shape`.

        With each image comes the box of its content. The squares of several backbones lie one
        below the other, on the left, on black.
        """
        squares = [part._square(*one) for part, one in zip(self.parts, images, strict=True)]
        if len(squares) == 1:
            return squares[0]
        pixels, top = np.zeros(self.shape, np.uint8), 0
        for square in squares:
            side = len(square)
            pixels[top : top + side, :side] = square
            top += side
        return pixels

    def _square(self, image: Image.Image, content: Box) -> Pixels:
        """Return the central square as (H, W, 3) uint8 with H = W = `crop_px`.

        Resizing the central square alone equals resizing everything and cropping, at less cost.
        """
        width, height = content[2] - content[0], content[3] - content[1]
        side = min(width, height) * self.crop_px / self.resize_px
        left, top = content[0] + (width - side) / 2, content[1] + (height - side) / 2
        box = (left, top, left + side, top + side)
        size = (self.crop_px, self.crop_px)
        return np.asarray(image.resize(size, Image.Resampling.BICUBIC, box=box))
