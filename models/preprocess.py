"""Image to model input: one definition for training and serving, stored in the bundle."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scda.models.decoding.reading import DECODER
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
    def sides(self) -> tuple[int, ...]:
        """The sides of the squares in pixels, from top to bottom."""
        return (self.crop_px, *(self.below.sides if self.below else ()))

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
        ways = preprocessing.interpolation, preprocessing.decoder
        if preprocessing.id != stored_id or ways != (INTERPOLATION, DECODER):
            raise GateError("preprocessing of another version; train and export the bundle again")
        return preprocessing

    def apply(self, image: Image.Image) -> Pixels:
        """Return an 8-bit RGB image as (H, W, 3) uint8 of `shape`.

        The squares of several backbones lie one below the other, on the left, on black.
        """
        if self.below is None:
            return self._square(image)
        pixels = np.zeros(self.shape, np.uint8)
        pixels[: self.crop_px, : self.crop_px] = self._square(image)
        below = self.below.apply(image)
        pixels[self.crop_px :, : below.shape[1]] = below
        return pixels

    def _square(self, image: Image.Image) -> Pixels:
        """Return the central square as (H, W, 3) uint8 with H = W = `crop_px`.

        Resizing the central square alone equals resizing everything and cropping, at less cost.
        """
        width, height = image.size
        side = min(width, height) * self.crop_px / self.resize_px
        left, top = (width - side) / 2, (height - side) / 2
        box = (left, top, left + side, top + side)
        size = (self.crop_px, self.crop_px)
        return np.asarray(image.resize(size, Image.Resampling.BICUBIC, box=box))
