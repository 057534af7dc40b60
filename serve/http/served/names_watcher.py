"""Reload names.json while the server runs: answers have a new name within a second."""

import logging
import time
from pathlib import Path

from scda.models.bundle import NAMES
from scda.models.errors import GateError
from scda.models.names import read_names
from scda.models.predictor import Predictor
from scda.serve.http.metrics import Metrics

INTERVAL_SECONDS = 1.0

logger = logging.getLogger(__name__)


class NamesWatcher:
    """Checks the time stamp of names.json, at most once a second."""

    def __init__(self, predictor: Predictor, metrics: Metrics) -> None:
        """Watch the names.json of the predictor's bundle."""
        self._predictor, self._metrics = predictor, metrics
        self._path = predictor.folder / NAMES
        self._stamp = _stamp(self._path)
        self._next_check = 0.0

    def refresh(self) -> None:
        """Load the names if the file has changed; a damaged file leaves the old ones in use."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + INTERVAL_SECONDS
        self._reload()
        self._metrics.names_version.set(self._predictor.names.version)

    def _reload(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            names = read_names(self._path, self._predictor.manifest.class_ids)
        except GateError as error:
            logger.warning("names.json was not reloaded, the previous names stay in use: %s", error)
        else:
            self._predictor.rename(names)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
