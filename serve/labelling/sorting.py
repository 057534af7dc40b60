"""Labelled files copied or linked into class folders, with a manifest of their places."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from scda.models.errors import ImageError, UsageError
from scda.models.files import atomic_file, real_path, remove_left_behind, write_errors
from scda.models.names import UNKNOWN
from scda.models.places import check_outside, check_replaceable
from scda.serve.files.class_folders import (
    ONE_DISK,
    ClassFolders,
    check_mode,
    folder_names,
    is_readable,
)
from scda.serve.labelling.formats.lines import csv_lines
from scda.serve.labelling.formats.rows import LabellingInfo, Row, Write

MANIFEST = "manifest.csv"
REVIEW = "review"  # folder of files for a person to review
COLUMNS = ("path", "class_id", "label", "placed_at", "error_code")


def check_sort(
    folder: Path,
    mode: str,
    inputs: Sequence[Path],
    linked: Sequence[Path] = (),
    *,
    resumed: bool = False,
) -> None:
    """Check that files can be sorted into a folder, before any work is done.

    Args:
        folder: Folder to sort into.
        mode: One of copy, hardlink and symlink.
        inputs: Files and folders that must not hold it: those to label, and the target of
            training, which would be read with it the next time.
        linked: The same, where the folders linked in them are read, too: the source of training.
        resumed: Whether a killed labelling may have sorted files into it.

    Raises:
        UsageError: If the folder is not empty, is inside a folder of images or cannot be created,
            the mode is unknown, or hard links would cross disks.
    """
    check_mode(mode)
    check_outside(folder, inputs, linked)
    place = real_path(folder)
    if folder.is_symlink() and not folder.exists():
        raise UsageError(f"{folder}: is a link to nothing; expected a new or empty folder")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file; expected a new or empty folder to sort into")
    if resumed:
        _check_manifest(folder)
    else:
        _check_empty(folder)
    if not place.parent.is_dir():
        raise UsageError(
            f"{folder}: no folder {folder.parent}; expected a folder inside an existing one"
        )
    for root in inputs:
        if mode == "hardlink" and root.exists() and not _on_one_disk(root, place):
            raise UsageError(f"{folder}: not on the disk of {root}; {ONE_DISK}")


@contextmanager
def sort_files(
    folder: Path, mode: str, about: LabellingInfo, *, resumed: bool = False
) -> Iterator[Write]:
    """Give a function that copies or links the files of rows into class folders.

    After an error the files that this placed are removed again, and no others.

    Args:
        folder: New or empty folder that `check_sort` accepts.
        mode: One of copy, hardlink and symlink.
        about: Facts shared by all rows.
        resumed: Whether a killed labelling with the same first rows sorted files into it.

    Raises:
        UsageError: If a file cannot be copied or linked, or the folder is not empty.
    """
    if not resumed:
        _check_empty(folder)
    is_new = not folder.exists()
    with write_errors(folder):
        folder.mkdir(exist_ok=True)
    remove_left_behind(folder / MANIFEST)
    sorter = _Sorter(folder, mode, about, resumed=resumed)
    try:
        with atomic_file(folder / MANIFEST) as file:
            file.write(csv_lines([COLUMNS]))

            def write(rows: Sequence[Row]) -> None:
                lines = [sorter.place(row) for row in rows]
                with write_errors(folder / MANIFEST):
                    file.write(csv_lines(lines))

            yield write
            _check_manifest(folder)  # a person's may have appeared meanwhile
    except BaseException:
        sorter.folders.remove_placed()
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise


class _Sorter:
    def __init__(self, folder: Path, mode: str, about: LabellingInfo, *, resumed: bool) -> None:
        names = folder_names(
            {one.class_id: one.label for one in about.classes if one.kind != UNKNOWN},
            reserved=(MANIFEST, REVIEW, UNKNOWN),
        )
        self._of_class = {**{one.class_id: UNKNOWN for one in about.classes}, **names}
        self.folders, self._about = ClassFolders(folder, mode, resumed=resumed), about

    def place(self, row: Row) -> tuple[str, ...]:
        """Copy or link the file of a row, and return its line of the manifest."""
        answer = row.answer
        if isinstance(answer, ImageError):
            return (row.path, "", "", "", answer.code)
        columns = (row.path, answer.class_id, answer.label)
        file = self._about.file(row)
        name = REVIEW if row.review else self._of_class[answer.class_id]
        try:
            return (*columns, self.folders.place(file, name).as_posix(), "")
        except UsageError:
            if is_readable(file):
                raise
            return (*columns, "", "unreadable")  # it vanished after it was labelled


def _check_empty(folder: Path) -> None:
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder}: is not empty; expected a new or empty folder to sort into")


def _check_manifest(folder: Path) -> None:
    check_replaceable(folder / MANIFEST, {csv_lines([COLUMNS]): b""})


def _on_one_disk(root: Path, place: Path) -> bool:
    folder = place if place.exists() else place.parent
    return root.stat().st_dev == folder.stat().st_dev
