"""Files copied or linked into class folders, with safe names and numbered collisions."""

import errno
import filecmp
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from scda.models.errors import UsageError
from scda.models.files import TEMPORARY, real_path
from scda.models.names import to_nfc

MODES = ("copy", "hardlink", "symlink")
ONE_DISK = "hard links work within one disk only; use --mode copy"
_HINTS = {
    errno.EXDEV: f"; {ONE_DISK}",
    errno.EEXIST: "; it is another file, so move it elsewhere and try again",
}
_MAX_BYTES = 100  # largest length of a folder name
_MAX_NAME_BYTES = 255  # largest length of a file name that file systems allow
_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*\ud800-\udfff]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def folder_name(label: str) -> str:
    """Return a folder name for a label that every file system accepts and no scan skips."""
    encoding = sys.getfilesystemencoding()  # what it lacks becomes a question mark: not safe, too
    text = label.encode(encoding, "replace").decode(encoding)
    name = _UNSAFE.sub("_", text).encode()[:_MAX_BYTES].decode(errors="ignore").strip(" .")
    # A leading dot would hide the folder; Windows reserves some names for devices.
    return f"{name}_" if _RESERVED.fullmatch(name) else name or "_"


def folder_names(labels: Mapping[str, str], *, reserved: Iterable[str] = ()) -> dict[str, str]:
    """Return class id → folder name; the later of two equal names gets a number.

    Args:
        labels: Class id → label; classes may share a label.
        reserved: Names that no class may get.
    """
    taken = {_key(name): 1 for name in reserved}
    return {class_id: _free(folder_name(label), "", taken) for class_id, label in labels.items()}


def check_mode(mode: str) -> None:
    """Check the mode of copying or linking.

    Raises:
        UsageError: If the mode is unknown.
    """
    if mode not in MODES:
        raise UsageError(f"mode {mode!r}; expected {', '.join(MODES[:-1])} or {MODES[-1]}")


class ClassFolders:
    """Class folders under one root, filled with copies or links; no other file is ever replaced."""

    def __init__(
        self, root: Path, mode: str, *, resumed: bool = False, shown: Path | None = None
    ) -> None:
        """Take an existing root.

        Args:
            root: Folder of the class folders.
            mode: One of copy, hardlink and symlink.
            resumed: Whether a killed process may have placed the same files before; they stay.
            shown: Name of the root in messages; None is its own.

        Raises:
            UsageError: If the mode is unknown.
        """
        check_mode(mode)
        self._root, self._mode, self._resumed = root, mode, resumed
        self._shown = shown or root
        self._taken: dict[str, dict[str, int]] = {}  # folder → keys of its names
        self._placed: dict[str, list[str]] = {}  # folder → names of the files placed in it

    def place(self, file: Path, folder: str) -> Path:
        """Copy or link a file into a folder, and return its path relative to the root.

        Raises:
            UsageError: If the file cannot be copied or linked.
        """
        taken = self._taken.setdefault(folder, {})
        name = _free(file.stem, file.suffix, taken)
        try:
            if folder not in self._placed:
                self._open(folder)
            self._put(file, folder, name)
        except OSError as error:
            reason = error.strerror or error
            if not is_readable(file):
                raise UsageError(f"{file}: cannot {self._mode}: {reason}") from None
            to = self._shown / folder / name
            hint = _HINTS.get(error.errno or 0, "")
            raise UsageError(f"{to}: cannot {self._mode} {file}: {reason}{hint}") from None
        return Path(folder, name)

    def remove_placed(self) -> None:
        """Remove the files that were placed, and the folders that are empty without them."""
        for folder, names in self._placed.items():
            for name in names:
                with suppress(OSError):
                    (self._root / folder / name).unlink()
            with suppress(OSError):
                (self._root / folder).rmdir()

    def _open(self, folder: str) -> None:
        """Create a folder, without the unfinished copy that a killed process may have left."""
        (self._root / folder).mkdir(exist_ok=True)
        for left in (self._root / folder).glob(f"{TEMPORARY}*") if self._resumed else ():
            left.unlink()
        self._placed[folder] = []

    def _put(self, file: Path, folder: str, name: str) -> None:
        place, placed = self._root / folder / name, self._placed[folder]
        if self._resumed and os.path.lexists(place) and self._is_placed(file, place):
            placed.append(name)
            return
        _check_free(place)
        placed.append(name)  # before it is there: a signal may interrupt what follows
        try:
            if self._mode == "copy":
                _copy(file, place)
            elif self._mode == "hardlink":
                os.link(real_path(file), place)
            else:
                place.symlink_to(real_path(file))
        except OSError:
            placed.pop()
            raise

    def _is_placed(self, file: Path, place: Path) -> bool:
        """Return whether a file that is there is what would be placed."""
        if self._mode == "symlink":
            return place.is_symlink() and place.readlink() == real_path(file)
        if place.is_symlink() or not file.is_file():
            return False
        is_same = os.path.samefile(place, file)
        if self._mode == "hardlink":
            return is_same
        return not is_same and filecmp.cmp(file, place)  # by size and time, or else by contents


def _copy(file: Path, place: Path) -> None:
    draft = place.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        shutil.copy2(file, draft)
        _check_free(place)  # it is there whole or not at all, and replaces nothing
        draft.rename(place)
    finally:
        draft.unlink(missing_ok=True)


def _check_free(place: Path) -> None:
    if os.path.lexists(place):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def is_readable(file: Path) -> bool:
    """Return whether a file is there and can be read."""
    return os.path.isfile(file) and os.access(file, os.R_OK)


def _free(stem: str, ending: str, taken: dict[str, int]) -> str:
    """Return a name that is not taken yet on any file system, and take it.

    A taken name remembers the last number tried for it: counting from the start each time would
    take hours for many files of one name.
    """
    name = stem + ending
    key = _key(name)
    number = taken.setdefault(key, 0)
    while number and _key(name) in taken:
        number += 1
        mark = f"-{number}{ending}"
        name = _cut(stem, _MAX_NAME_BYTES - len(os.fsencode(mark))) + mark
    taken[_key(name)] = 1
    taken[key] = max(number, 1)
    return name


def _key(name: str) -> str:
    """Return what file systems that ignore case and composition see of a name."""
    key = to_nfc(to_nfc(name).casefold())
    return name if key == name else key  # the same object: millions of names are kept


def _cut(text: str, num_bytes: int) -> str:
    raw = os.fsencode(text)
    return text if len(raw) <= num_bytes else raw[:num_bytes].decode(errors="ignore")
