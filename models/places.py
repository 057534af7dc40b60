"""Where a command may write: outside its inputs, and never over files that are not its own."""

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scda.models.bundle import MANIFEST, MODEL
from scda.models.errors import UsageError
from scda.models.files import real_path

_END_BYTES = 1 << 16  # the metadata of a Parquet file is in its end
# What a run writes into its folder.
RUN_FILES = (
    "audit.csv",
    "bundle",
    "bundle-int8",
    "checkpoints",
    "config.json",
    "discovery.csv",
    "held_out.csv",
    "images.csv",
    "map.csv",
    "metrics.jsonl",
    "rejected.csv",
    "report.html",
    "statistics.safetensors",
    "tensorboard",
)


def check_outside(folder: Path, inputs: Iterable[Path], linked: Iterable[Path] = ()) -> None:
    """Check that a folder to write is outside the images, where it would be read as one of them.

    Args:
        folder: Folder that will be written; it need not exist.
        inputs: Folders and files of images, in which linked folders are not read.
        linked: Folders of images in which linked folders are read, too, as class folders are.

    Raises:
        UsageError: If it is inside one of them, or part of a run or a bundle.
    """
    place = real_path(folder)
    read = [(given, [real_path(given)]) for given in inputs]
    read += [(given, [real_path(given), *_linked_folders(given)]) for given in linked]
    for given, places in read:
        if any(place.is_relative_to(images) for images in places):
            raise UsageError(f"{folder}: inside {given}; expected a folder outside the images")
    _check_no_part_of_run(folder)


def check_replaceable(path: Path, heads: Mapping[bytes, bytes]) -> None:
    """Check that a file can be written without a loss: it is new, empty or an earlier output.

    Args:
        path: File that will be written or replaced.
        heads: How the outputs of the command begin, and what the end of each contains.

    Raises:
        UsageError: If it is anything else, or part of a run or a bundle.
    """
    _check_no_part_of_run(path)
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a link" if stat.S_ISLNK(status.st_mode) else "no regular file"
            raise UsageError(f"{path}: is {kind}; expected the name of a new file")
        with path.open("rb") as file:
            head = file.read(max(map(len, heads)))
            file.seek(max(0, status.st_size - _END_BYTES))
            end = file.read()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{path}: cannot replace the file: {error.strerror}") from None
    if head and not any(head.startswith(one) and heads[one] in end for one in heads):
        raise UsageError(
            f"{path}: exists and is not the output of an earlier call; expected a new file"
        )


def training_folder(run: Mapping[str, Any], name: str) -> list[Path]:
    """Return the `source` or `target` that a bundle's facts about its run name, or nothing."""
    return [Path(run[name])] if name in run else []


def is_run(folder: Path) -> bool:
    """Return whether a folder has the config.json of a run, and not of another project."""
    try:
        fields = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and {"config", "data"} <= fields.keys()


def is_bundle(folder: Path) -> bool:
    """Return whether a folder has the bundle.json of a bundle, and not of another program."""
    try:
        fields = json.loads((folder / MANIFEST).read_bytes())
    except OSError:
        return False
    except (ValueError, RecursionError):  # damaged, or no JSON at all
        return (folder / MODEL).is_file()
    return isinstance(fields, dict) and {"schema_version", "classes", "files"} <= fields.keys()


def followed_folders(roots: Iterable[Path]) -> list[Path]:
    """Return the places of all folders that are read in folders where links are followed.

    They are those that a link leads to, at any depth; each is entered once.
    """
    waiting, seen, found = [real_path(root) for root in roots], set[Path](), list[Path]()
    while waiting:
        folder = waiting.pop()
        if folder in seen:
            continue
        seen.add(folder)
        linked = list(_linked_folders(folder))
        found += linked
        waiting += [*linked, *(folder / name for name in _own_folders(folder))]
    return found


def _check_no_part_of_run(path: Path) -> None:
    place = real_path(path.parent) / path.name
    for folder in (place, *place.parents):
        if is_bundle(folder):
            raise UsageError(f"{path}: inside the bundle {folder}; expected a place outside of it")
    for folder in place.parents:
        part = place.relative_to(folder).parts[0]
        if part in RUN_FILES and is_run(folder):
            raise UsageError(f"{path}: {part} is a part of the run {folder}; expected another name")


def _own_folders(images: Path) -> Iterator[str]:
    with suppress(OSError), os.scandir(images) as entries:
        yield from (one.name for one in entries if one.is_dir(follow_symlinks=False))


def _linked_folders(images: Path) -> Iterator[Path]:
    """Yield the places of the folders that are linked in a folder."""
    # What cannot be read is told where it is read. Other than a path, an entry knows its kind.
    with suppress(OSError), os.scandir(images) as entries:
        yield from (
            real_path(Path(one)) for one in entries if one.is_symlink() and os.path.isdir(one)
        )
