"""Optional event files for TensorBoard: the numbers of metrics.jsonl, step by step."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scda.adapt.discovery.counting.estimators import ESTIMATORS
from scda.models.errors import UsageError

_VOTES = tuple(f"k_{name}" for name in ESTIMATORS)
_OF_A_STAGE = ("unknown_share", "k_star", *_VOTES, "skipped", "returns", "seconds")


class Events:
    """Writer of event files; without a folder it writes nothing."""

    def __init__(self, folder: Path | None = None) -> None:
        """Create a writer; the file is created with the first record.

        Args:
            folder: Folder of the event files; None writes nothing.
        """
        self._folder = folder
        self._writer: Any = None

    def add(self, record: dict[str, Any], step: int) -> None:
        """Write and flush the numbers of a line of metrics.jsonl.

        Args:
            record: Fields of the line.
            step: Number of the step in the whole run. The first record of a resumed run replaces
                earlier ones of the same and of later steps.
        """
        if self._folder is None:
            return
        if self._writer is None:
            from torch.utils.tensorboard.writer import SummaryWriter

            self._writer = SummaryWriter(str(self._folder), purge_step=step)
        for name, value in _scalars(record).items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()


def check_tensorboard() -> None:
    """Check that TensorBoard is installed.

    Raises:
        UsageError: If TensorBoard is not installed.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise UsageError("--tensorboard needs tensorboard; pip install 'scda[tensorboard]'")


@contextmanager
def open_events(folder: Path | None) -> Iterator[Events]:
    """Open a writer of event files, and close it at the end.

    Args:
        folder: Folder of the event files; None writes nothing.
    """
    events = Events(folder)
    try:
        yield events
    finally:
        events.close()


def _scalars(record: dict[str, Any]) -> dict[str, float]:
    losses = record.get("losses", {}) if "step" in record else {}
    found = {name: record[name] for name in _OF_A_STAGE if record.get(name) is not None}
    return {f"loss/{name}": value for name, value in losses.items()} | {
        f"round/{name}": float(value) for name, value in found.items()
    }
