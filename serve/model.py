"""A bundle as a Python object: the result of `scda.load`."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scda.models.bundle import bundle_folder
from scda.models.decoding.content import read_bytes
from scda.models.decoding.reading import Reading
from scda.models.errors import UsageError
from scda.models.images import read_pixels, to_rgb
from scda.models.predictor import ActiveClass, Prediction, Predictor, load_predictor
from scda.models.preprocess import Pixels
from scda.models.trust import Trust
from scda.serve.labelling.label import label_rows
from scda.serve.labelling.outputs import Options
from scda.serve.labelling.sources import FileSelection

PathLike: TypeAlias = str | os.PathLike[str]
ImageLike: TypeAlias = PathLike | bytes | Image.Image | NDArray[np.uint8]


class Model:
    """A model ready to answer; `scda.load` makes one.

    It may be shared by threads. Names, merges and drops are those of the time it was loaded.
    """

    def __init__(self, predictor: Predictor) -> None:
        """Wrap a loaded bundle; `scda.load` reads it."""
        self._predictor = predictor

    def __repr__(self) -> str:
        """Return the bundle's folder and its number of classes."""
        return f"<scda.Model {str(self.path)!r}: {len(self.classes)} classes>"

    @property
    def id(self) -> str:
        """The bundle's id, 16 hex digits; equal for equal models."""
        return self._predictor.manifest.id

    @property
    def path(self) -> Path:
        """The bundle's folder."""
        return self._predictor.folder

    @property
    def trust(self) -> Trust | None:
        """The estimated accuracy, made without labels; None in a bundle of an older version."""
        return self._predictor.manifest.trust

    @property
    def classes(self) -> tuple[ActiveClass, ...]:
        """The classes that an answer can name: known, discovered, and `unknown` after a drop."""
        return self._predictor.active_classes

    def predict(self, image: ImageLike) -> Prediction:
        """Return the prediction for one image.

        Args:
            image: A path, the bytes of an image file, a Pillow image, or RGB pixels in an array of
                shape (H, W, 3) and type uint8.

        Raises:
            ImageError: If the image cannot be read.
            UsageError: If an array has another shape or type.

        Example:
            >>> model = scda.load("run")
            >>> model.predict("photo.jpg").label
            'stapler'
        """
        return self._predictor.predict([self._prepared(image)])[0]

    def _prepared(self, image: ImageLike) -> Pixels:
        if isinstance(image, str | os.PathLike):
            image = read_bytes(Path(image))
        preprocessing = self._predictor.manifest.preprocessing
        if isinstance(image, bytes):
            return read_pixels(image, preprocessing)
        return self._predictor.prepare(_opened(image, preprocessing.reading))

    def label(
        self,
        images: PathLike | Sequence[PathLike],
        *,
        recursive: bool = True,
        follow_symlinks: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        top: int | None = None,
        min_confidence: float = 0.0,
        batch_size: int | None = None,
        workers: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield one row per file in sorted order, as soon as it is ready; bad files included.

        A row is a dict with the columns of `scda-adapt label`: `path`, `status`, `error_code`,
        `error`, the fields of a prediction, and `review`; columns that do not apply are None.
        `pandas.DataFrame(model.label("folder/"))` is a table of the folder.

        Args:
            images: Folders, files or patterns such as `photos/*.jpg`: one or several.
            recursive: Whether to include the files of sub-folders.
            follow_symlinks: Whether to include the files of folders behind symbolic links.
            include: Patterns of names or paths; only files that match one are labelled.
            exclude: Patterns of names or paths; files that match one are left out.
            top: Number of entries of a prediction's `top`; None takes five.
            min_confidence: Confidence, 0 to 1, below which a row is marked for review.
            batch_size: Number of images per call of the model; None chooses by the provider.
            workers: Number of processes that decode; 0 decodes in this one, None takes the
                available CPUs, or 0 for a few files.

        Raises:
            UsageError: If an input does not exist or an option is wrong.
            DataError: If there is no file to label.

        Example:
            >>> for row in scda.load("run").label("folder/"):
            ...     print(row["path"], row["label"])
        """
        roots = [images] if isinstance(images, str | os.PathLike) else images
        selection = FileSelection(
            recursive=recursive,
            follow_links=follow_symlinks,
            include=tuple(include),
            exclude=tuple(exclude),
        )
        rows = label_rows(
            self._predictor,
            list(map(Path, roots)),
            options=Options(top=top, min_confidence=min_confidence),
            selection=selection,
            batch_size=batch_size,
            workers=workers,
        )
        return (row.to_json() for row in rows)


def load(path: PathLike, *, provider: str = "auto", threads: int = 0) -> Model:
    """Return the model of a run or a bundle, with every checksum and parity image checked.

    Args:
        path: A bundle, or the run that holds it.
        provider: `auto`, `cpu`, `cuda` or `openvino`.
        threads: Number of threads of the model; 0 uses all available CPUs.

    Raises:
        UsageError: If there is no bundle, or the provider is not available.
        GateError: If the bundle is damaged, of another schema, or answers differently here.

    Example:
        >>> import scda
        >>> model = scda.load("run")
    """
    folder = bundle_folder(Path(path))
    return Model(load_predictor(folder, provider=provider, threads=threads))


def _opened(image: Image.Image | NDArray[np.uint8], reading: Reading) -> Image.Image:
    """Return an image in memory, upright, 8-bit RGB."""
    if isinstance(image, Image.Image):
        return to_rgb(image, reading)
    if not (isinstance(image, np.ndarray) and image.dtype == np.uint8):
        found = f"an array of {image.dtype}" if isinstance(image, np.ndarray) else repr(type(image))
        raise UsageError(f"image is {found}; expected a path, bytes, a Pillow image or uint8 array")
    if image.ndim != 3 or image.shape[2] != 3 or not image.size:
        raise UsageError(f"image has the shape {image.shape}; expected (height, width, 3)")
    return Image.fromarray(image)
