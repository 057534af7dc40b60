"""The API keys of a server: one from the environment, and those of a file that is read again."""

import hmac
import logging
import time
from pathlib import Path

from scda.models.errors import UsageError

INTERVAL_SECONDS = 1.0
_MAX_BYTES = 1_000_000  # of the file

logger = logging.getLogger(__name__)


class Keys:
    """The keys that a request may show.

    The file has one key a line; empty lines and lines that begin with `#` are left out. It is
    checked for changes at most once a second. A file that vanishes or is damaged leaves the last
    keys in use.
    """

    def __init__(self, key: str = "", file: Path | None = None) -> None:
        """Read the file.

        Args:
            key: A key that does not change; empty for none.
            file: File with further keys.

        Raises:
            UsageError: If the file cannot be read, or has no key.
        """
        self._fixed, self._file = [key.encode()] if key else [], file
        self._from_file = _read(file) if file else []
        self._stamp, self._next_check = _stamp(file), 0.0

    @property
    def needed(self) -> bool:
        """Whether requests must show a key."""
        return bool(self._fixed or self._file)

    def accept(self, shown: bytes) -> bool:
        """Return whether a key is one of these, in a time that does not tell how near it is."""
        self._refresh()
        # Every key is compared, so that the time does not tell which one was the same, either.
        keys = (*self._fixed, *self._from_file)
        return sum(hmac.compare_digest(shown, key) for key in keys) > 0

    def _refresh(self) -> None:
        now = time.monotonic()
        if self._file is None or now < self._next_check:
            return
        self._next_check = now + INTERVAL_SECONDS
        stamp = _stamp(self._file)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._from_file = _read(self._file)
            logger.info("the key file was read again: %d keys", len(self._from_file))
        except UsageError as error:
            logger.warning("the key file was not read again, the last keys stay in use: %s", error)


def _read(file: Path) -> list[bytes]:
    name = f"SCDA_API_KEYS_FILE: {file}"
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_BYTES + 1)
        lines = [line.strip() for line in text.decode().splitlines()]
    except OSError as error:
        raise UsageError(f"{name}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{name}: expected UTF-8 text with one key a line") from None
    keys = [line.encode() for line in lines if line and not line.startswith("#")]
    if not keys or len(text) > _MAX_BYTES:
        found = "no key" if not keys else f"more than {_MAX_BYTES:,} bytes"
        raise UsageError(f"{name}: found {found}; expected one key a line")
    return keys


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    try:
        status = file.stat() if file else None
    except OSError:
        return None
    return status and (status.st_mtime_ns, status.st_size, status.st_ino)
