"""List the files in the source and target folders, without reading images."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scda.models.decoding.content import read_bytes
from scda.models.errors import DataError, ImageError, UsageError
from scda.models.excluded import NOTHING, Excluded
from scda.models.folders import Skipped, count_skipped, visible_folders, walk
from scda.models.images import check_image
from scda.models.limits import LIMITS, ImageLimits
from scda.models.names import folder_label


@dataclass(frozen=True)
class Rejected:
    """A file that is not a usable image."""

    path: Path
    code: str
    message: str


@dataclass(frozen=True)
class SourceFiles:
    """The files of each class, classes sorted by name.

    Folders whose names are equal in composed Unicode hold one class.
    """

    root: Path
    classes: dict[str, tuple[Path, ...]]
    skipped: Skipped
    loose: int  # number of files beside the class folders, which are skipped


@dataclass(frozen=True)
class TargetFiles:
    """The files under the target folder; the names of sub-folders have no meaning."""

    root: Path
    paths: tuple[Path, ...]
    skipped: Skipped


def scan_source(
    root: Path, *, recursive: bool = True, role: str = "source", excluded: Excluded = NOTHING
) -> SourceFiles:
    """Return the files of every class folder, empty ones included, without excluded files.

    Raises:
        UsageError: If `root` is not a readable folder.
        DataError: If it has no class folder.
    """
    require_folder(root, role)
    folders = visible_folders(root)
    if not folders:
        raise DataError(f"{root}: no class folder found; expected one folder per class")
    found: dict[str, tuple[Path, ...]] = {}
    for name in folders:
        files = tuple(excluded.others(walk(root / name, recursive=recursive), root))
        found[folder_label(name)] = found.get(folder_label(name), ()) + files
    classes = dict(sorted(found.items()))
    loose = sum(1 for _ in walk(root, recursive=False))
    return SourceFiles(root, classes, _skipped(root, folders, recursive=recursive), loose)


def scan_target(root: Path, *, recursive: bool = True, excluded: Excluded = NOTHING) -> TargetFiles:
    """Return every file under the target folder, without excluded ones.

    Raises:
        UsageError: If `root` is not a folder.
        DataError: If it has no file.
    """
    require_folder(root, "target")
    paths = tuple(excluded.others(walk(root, recursive=recursive), root))
    if not paths:
        raise DataError(f"{root}: no file found; expected a folder of images")
    return TargetFiles(root, paths, count_skipped(root, recursive=recursive))


def _skipped(root: Path, folders: list[str], *, recursive: bool) -> Skipped:
    """Return what is skipped beside and in class folders, which may themselves be links."""
    inside = (count_skipped(root / name, recursive=recursive) for name in folders)
    return sum(inside, count_skipped(root, recursive=False))


def read_headers(
    paths: Sequence[Path], limits: ImageLimits = LIMITS
) -> tuple[dict[Path, str], list[Rejected]]:
    """Return the SHA-256 of every file that may be an image, and the others, by their headers."""
    digests: dict[Path, str] = {}
    rejected = []
    for path in paths:
        try:
            data = read_bytes(path, max_bytes=limits.max_bytes)
            check_image(data, limits)
        except ImageError as error:
            rejected.append(Rejected(path, error.code, str(error)))
        else:
            digests[path] = hashlib.sha256(data).hexdigest()
    return digests, rejected


def require_folder(root: Path, role: str) -> None:
    """Check that the folder of a role exists.

    Raises:
        UsageError: If it is not a folder.
    """
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise UsageError(f"{root}: the {role} folder {what}")
