"""The image file of each row of a feature matrix."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Self

from scda.models.decoding.content import read_bytes
from scda.models.decoding.forms import Form
from scda.models.errors import DataError, ImageError
from scda.models.images import read_pixels
from scda.models.limits import LIMITS, ImageLimits
from scda.models.preprocess import Pixels

Stamp = tuple[int, int]  # time of the last change in nanoseconds, and size in bytes


def read_stamp(path: Path) -> Stamp | None:
    """Return the stamp of a file; None if there is no such file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size


@dataclass(frozen=True)
class Images:
    """Files in the order of a feature matrix, and the folder their names are relative to.

    A run takes long, and its files may vanish or change meanwhile. A changed file counts as one
    that has vanished: it is another image than the one whose features are known.
    """

    root: Path
    paths: Sequence[Path]
    digests: Sequence[str] = ()  # SHA-256 of each file's bytes; without them nothing is compared
    stamps: Sequence[Stamp | None] = ()  # of each file; None if it was lost before
    limits: ImageLimits = LIMITS

    def names(self) -> list[str]:
        """Return the paths relative to the folder, with `/` between folders."""
        return [path.relative_to(self.root).as_posix() for path in self.paths]

    def only(self, paths: Sequence[Path]) -> Self:
        """Return these of the files, in the order of the feature matrix."""
        wanted = set(paths)
        return self.rows([row for row, path in enumerate(self.paths) if path in wanted])

    def rows(self, rows: Sequence[int]) -> Self:
        """Return the files of these rows, in this order."""
        return replace(
            self,
            paths=[self.paths[row] for row in rows],
            digests=[self.digests[row] for row in rows] if self.digests else (),
            stamps=[self.stamps[row] for row in rows] if self.stamps else (),
        )

    def read(self, row: int, form: Form) -> Pixels:
        """Return what a form makes of the image of a row, (H, W, 3) uint8.

        Raises:
            ImageError: If the file has vanished or changed since its features were computed.
        """
        data = read_bytes(self.paths[row], max_bytes=self.limits.max_bytes)
        if self.digests and hashlib.sha256(data).hexdigest() != self.digests[row]:
            raise ImageError("unreadable", "the file has changed")
        return read_pixels(data, form, self.limits)

    def read_or_neighbour(self, row: int, form: Form) -> Pixels:
        """Return the pixels of a row, or of the next row of the same folder if its image is lost.

        A folder of the source is a class, so that the image has the label of the row.

        Raises:
            DataError: If every file of the folder is lost.
        """
        for other in self._of_folder(row):
            try:
                return self.read(other, form)
            except ImageError:
                continue
        raise DataError(
            f"{self.paths[row]}: vanished or changed while training, as did all images of its "
            "folder; bring them back, and rerun with --resume to continue"
        )

    def first_readable(self, rows: Iterable[int], count: int, form: Form) -> Iterator[Pixels]:
        """Yield the pixels of the first `count` of these rows whose images are not lost."""
        return islice(self._readable(rows, form), count)

    def lost(self) -> list[Path]:
        """Return the files that have vanished or changed, which a stamp shows in no time."""
        rows = zip(self.paths, self.digests, self.stamps, strict=False)
        return [path for path, digest, stamp in rows if not self._is_same(path, digest, stamp)]

    def _is_same(self, path: Path, digest: str, stamp: Stamp | None) -> bool:
        if stamp is None:
            return False
        if read_stamp(path) == stamp:
            return True
        try:
            data = read_bytes(path, max_bytes=self.limits.max_bytes)
        except ImageError:
            return False
        return hashlib.sha256(data).hexdigest() == digest  # touched, or copied back

    def _readable(self, rows: Iterable[int], form: Form) -> Iterator[Pixels]:
        for row in rows:
            try:
                pixels = self.read(row, form)
            except ImageError:
                continue
            yield pixels

    def _of_folder(self, row: int) -> Iterator[int]:
        """Yield the rows of one folder under the root, from this one on."""
        folder = self._folder(row)
        count = len(self.paths)
        following = (other % count for other in range(row, row + count))
        return (other for other in following if self._folder(other) == folder)

    def _folder(self, row: int) -> str:
        """Return the name of the folder under the root that holds a file; empty for the root."""
        first, *rest = self.paths[row].relative_to(self.root).parts
        return first if rest else ""
