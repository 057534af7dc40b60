"""The image file of each row of a feature matrix."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from scda.models.errors import DataError, ImageError
from scda.models.images import read_file
from scda.models.limits import LIMITS, ImageLimits


@dataclass(frozen=True)
class Images:
    """Files in the order of a feature matrix, and the folder their names are relative to."""

    root: Path
    paths: Sequence[Path]
    limits: ImageLimits = LIMITS

    def names(self) -> list[str]:
        """Return the paths relative to the folder, with `/` between folders."""
        return [path.relative_to(self.root).as_posix() for path in self.paths]

    def read(self, row: int) -> Image.Image:
        """Return the image of a row.

        Raises:
            DataError: If the file changed since the features were computed and cannot be read.
        """
        try:
            return read_file(self.paths[row], self.limits)
        except ImageError as error:
            raise DataError(f"{self.paths[row]}: changed while training: {error}") from None
