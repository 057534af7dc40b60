"""A folder or URI that every machine writes to, one whole file at a time."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from pyarrow import ArrowException
from pyarrow.fs import FileSelector, FileSystem, FileType

from scda.models.decoding.stored import file_system_of
from scda.models.errors import UsageError
from scda.models.files import TEMPORARY, write_atomically


class OutputFolder:
    """A folder or URI; the same object works on every machine."""

    def __init__(self, out: str) -> None:
        """Take a path or URI; nothing is written yet."""
        self.out = out

    def names(self) -> set[str]:
        """Return the names in the folder, without unfinished files; empty if there is none."""
        selector = FileSelector(self._path, allow_not_found=True)
        names = {entry.base_name for entry in self._system.get_file_info(selector)}
        return {name for name in names if name and not name.startswith(TEMPORARY)}

    def create(self) -> None:
        """Create the folder; an object store has none.

        Raises:
            UsageError: If it cannot be created.
        """
        if self._is_local:
            with self._errors("create it"):
                self._system.create_dir(self._path, recursive=True)

    def remove(self) -> None:
        """Remove the folder if it is empty.

        Raises:
            OSError: If it is not.
        """
        if self._is_local:
            Path(self._path).rmdir()

    def put(self, name: str, data: bytes) -> None:
        """Write a file that is never seen half-written; object stores always do that.

        Raises:
            UsageError: If it cannot be written.
        """
        with self._errors(f"write {name}"):
            if self._is_local:
                write_atomically(Path(self._path, name), data)
                return
            with self._system.open_output_stream(f"{self._path}/{name}") as file:
                file.write(data)

    def delete(self, name: str) -> None:
        """Remove a file, which may be gone.

        Raises:
            UsageError: If it cannot be removed.
        """
        with self._errors(f"remove {name}"):
            try:
                self._system.delete_file(f"{self._path}/{name}")
            except FileNotFoundError:  # another driver was faster
                return

    def read_json(self, name: str) -> Any:
        """Return the value in a file: None if there is no file, empty if it is damaged.

        Raises:
            UsageError: If it cannot be read.
        """
        with self._errors(f"read {name}"):
            try:
                with self._system.open_input_file(f"{self._path}/{name}") as file:
                    return json.loads(file.read())
            except FileNotFoundError:
                return None
            except ValueError:  # of JSON and of Arrow
                return {}

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO | None]:
        """Give a file to read, or None if there is none.

        Raises:
            OSError: If it cannot be read.
        """
        path = f"{self._path}/{name}"
        if self._system.get_file_info(path).type != FileType.File:
            yield None
            return
        with self._system.open_input_file(path) as file:
            yield file

    def remove_left_behind(self) -> None:
        """Remove what killed writers left; an object store shows nothing unfinished."""
        if self._is_local:
            for left in Path(self._path).glob(f"{TEMPORARY}*"):
                left.unlink(missing_ok=True)

    @property
    def _is_local(self) -> bool:
        return bool(self._system.type_name == "local")

    @property
    def _system(self) -> FileSystem:
        return file_system_of(self.out)[0]

    @property
    def _path(self) -> str:
        return file_system_of(self.out)[1]

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ArrowException) as error:
            raise UsageError(f"{self.out}: cannot {doing}: {error}") from None
