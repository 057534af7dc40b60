"""names.json while the server runs: a renaming is picked up within a second."""

import logging
import time
from pathlib import Path

from scda.models.bundle import NAMES
from scda.models.errors import GateError
from scda.models.names import read_names
from scda.models.predictor import Predictor

INTERVAL_SECONDS = 1.0

logger = logging.getLogger(__name__)


class NamesWatch:
    """Looks at the file's time stamp at most once a second, when asked."""

    def __init__(self, predictor: Predictor) -> None:
        """Watch the names of `predictor`'s bundle."""
        self._predictor = predictor
        self._path = predictor.folder / NAMES
        self._seen = _stamp(self._path)
        self._next_look = 0.0

    def refresh(self) -> None:
        """Put new names in force, if there are any; a damaged file changes nothing."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + INTERVAL_SECONDS
        stamp = _stamp(self._path)
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            names = read_names(self._path, self._predictor.manifest.class_ids)
        except GateError as error:
            logger.warning("the names in force stay: %s", error)
        else:
            self._predictor.rename(names)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
