"""A control group that limits the memory of a program and of all its processes together.

The system ends a process of the group that exceeds the limit, as it does in a container. Only
version 1 of the control groups is used, which lets root create a group inside a container.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from scda.models.cpus import control_groups
from tests.waiting import wait_for


@dataclass(frozen=True)
class MemoryGroup:
    """A control group; `folder` is where the system shows it."""

    folder: Path

    def joined(self, words: Sequence[str]) -> list[str]:
        """Return the words that run a program inside the group."""
        join = 'echo $$ > "$0" && exec "$@"'
        return ["sh", "-c", join, str(self.folder / "cgroup.procs"), *words]

    def most(self) -> int:
        """Return the largest memory so far in MiB, the cache of files included."""
        return int((self.folder / "memory.max_usage_in_bytes").read_text()) // 2**20

    def killed(self) -> int:
        """Return how many processes the system has ended for their memory."""
        lines = (self.folder / "memory.oom_control").read_text().splitlines()
        return int(dict(line.split() for line in lines)["oom_kill"])


@contextmanager
def limited_memory(mebibytes: int) -> Iterator[MemoryGroup]:
    """Create a group until the block ends; skip the test where the system does not allow it."""
    parent = next(control_groups("memory"), None)
    if not parent or not os.access(parent / "memory.limit_in_bytes", os.W_OK):
        pytest.skip("needs root and version 1 of the memory control groups")
    group = MemoryGroup(parent / f"scda-{os.getpid()}")
    group.folder.mkdir()
    try:
        (group.folder / "memory.limit_in_bytes").write_text(str(mebibytes * 2**20))
        yield group
    finally:
        wait_for((group.folder / "cgroup.procs").read_text, "")
        group.folder.rmdir()
