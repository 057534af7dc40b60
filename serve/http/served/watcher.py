"""Watch the folder of the served bundle: follow names.json, notice when the bundle is replaced."""

import logging
import time
from pathlib import Path
from typing import TypeAlias

from scda.models.bundle import MANIFEST, NAMES, read_manifest
from scda.models.errors import GateError
from scda.models.names import Names, read_names
from scda.models.predictor import Predictor
from scda.serve.http.metrics import Metrics

INTERVAL_SECONDS = 1.0
Stamp: TypeAlias = tuple[int, int, int]  # modification time, size, inode
_UNSEEN: Stamp = (-1, -1, -1)

logger = logging.getLogger(__name__)


class BundleWatcher:
    """Checks the time stamps of bundle.json and names.json, at most once a second.

    What was verified at the start stays in use whatever happens to the folder. Names follow the
    file as long as the folder holds the served bundle; a damaged file, or one of another model,
    leaves the last good names in use.
    """

    def __init__(self, predictor: Predictor, metrics: Metrics) -> None:
        """Watch the bundle of a predictor; the first `refresh` reads both files in any case."""
        self._predictor, self._metrics = predictor, metrics
        self._manifest, self._names = (predictor.folder / name for name in (MANIFEST, NAMES))
        self._manifest_stamp: Stamp | None = _UNSEEN
        self._names_stamp: Stamp | None = _UNSEEN
        self._next_check = 0.0
        self._shown: Names | None = None  # the names in the metrics
        self._replaced = self._refused = ""  # why the files are not those in use; empty if they are

    def refresh(self) -> None:
        """Load the names if the file has changed, and show in the metrics how things stand."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + INTERVAL_SECONDS
        self._check_bundle()
        if not self._replaced:
            self._reload_names()
        names = self._predictor.names
        if names is not self._shown:
            self._metrics.show_expected(self._predictor.manifest, names)
            self._shown = names
        self._metrics.model.names_version.set(names.version)
        self._metrics.model.names_refused.set(bool(self._refused))
        self._metrics.model.bundle_replaced.set(bool(self._replaced))

    def _check_bundle(self) -> None:
        stamp = _stamp(self._manifest)
        if stamp == self._manifest_stamp:
            return
        self._manifest_stamp, served = stamp, self._predictor.manifest.id
        before, self._replaced = self._replaced, _replaced(self._predictor.folder, served)
        if self._replaced:
            logger.warning(
                "the bundle was replaced, the model %s stays in use as it was verified: %s; "
                "reload the server to serve what is there now",
                served,
                self._replaced,
            )
        elif before:
            logger.warning("the bundle is the served one again, model %s", served)

    def _reload_names(self) -> None:
        stamp = _stamp(self._names)
        if stamp == self._names_stamp:
            return
        self._names_stamp = stamp
        try:
            names = read_names(self._predictor.folder, self._predictor.manifest)
        except GateError as error:
            self._refused = str(error)
            logger.warning(
                "names.json was not reloaded, version %d stays in use; a restart would fail: %s",
                self._predictor.names.version,
                error,
            )
            return
        self._refused = ""
        if names == self._predictor.names:
            return
        self._predictor.rename(names)
        logger.info("names.json was reloaded, version %d is in use", names.version)


def _replaced(folder: Path, served: str) -> str:
    """Return why a folder does not hold the served bundle any more, or an empty text if it does."""
    try:
        found = read_manifest(folder, checked=False).id
    except GateError as error:
        return str(error)
    return "" if found == served else f"{folder}: found the model {found}"


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
