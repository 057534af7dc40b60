"""Which files a labelling takes, and the path that each one's row gets."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scda.models.errors import UsageError
from scda.models.files import count_hidden, is_hidden, walk
from scda.serve.formats import HEADS


@dataclass(frozen=True)
class Inputs:
    """The folders and single files to label; iterating gives a row's path and its file."""

    roots: tuple[Path, ...]
    outputs: frozenset[Path]  # resolved; results of this or an earlier labelling, no input
    recursive: bool

    def __iter__(self) -> Iterator[tuple[str, Path]]:
        """Yield every file in sorted order; nothing is kept, so it may be millions.

        Raises:
            UsageError: If an input cannot be read, or an output would replace an input.
        """
        only = self._only_folder
        for root in self.roots:
            for path in [root] if root.is_file() else walk(root, recursive=self.recursive):
                if not self._is_output(path):
                    yield (path.relative_to(only) if only else path).as_posix(), path

    @property
    def root(self) -> Path:
        """The absolute folder that the paths of rows are relative to."""
        return (self._only_folder or Path()).absolute()

    def count_hidden(self) -> int:
        """Return how many hidden files and folders are passed over."""
        folders = [root for root in self.roots if root.is_dir()]
        if self.recursive:
            return sum(map(count_hidden, folders))
        return sum(is_hidden(name) for folder in folders for name in os.listdir(folder))

    @property
    def _only_folder(self) -> Path | None:
        return self.roots[0] if len(self.roots) == 1 and self.roots[0].is_dir() else None

    def _is_output(self, path: Path) -> bool:
        # Names are compared first: resolving every path would cost more than walking.
        if (
            path.name not in {out.name for out in self.outputs}
            or path.resolve() not in self.outputs
        ):
            return False
        with path.open("rb") as file:
            head = file.read(max(map(len, HEADS)))
        if head and not head.startswith(HEADS):
            raise UsageError(f"{path}: an output would replace a file that is to be labelled")
        return True


def find_inputs(roots: Sequence[Path], outputs: Iterable[Path], *, recursive: bool) -> Inputs:
    """Return the inputs, checked for files that would be labelled twice.

    Args:
        roots: Folders, or single files.
        outputs: Files that will be written.
        recursive: Whether sub-folders are labelled as well.

    Raises:
        UsageError: If one input lies inside another.
    """
    resolved = [root.resolve() for root in roots]
    for root, place in zip(roots, resolved, strict=True):
        if resolved.count(place) > 1 or not set(place.parents).isdisjoint(resolved):
            raise UsageError(f"{root}: inside another input; its files would be labelled twice")
    return Inputs(tuple(roots), frozenset(path.resolve() for path in outputs), recursive)
