"""The log of a server: one line per event, as text or as JSON, whatever a client sends."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

Style = Literal["text", "json"]


def configure_logging(style: Style, logger: str = "") -> None:
    """Write the lines of a logger and those below it to standard error.

    Args:
        style: Text for people, or one JSON object per line.
        logger: Its name; the default is every logger.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines(style))
    target = logging.getLogger(logger)
    target.handlers, target.propagate = [handler], False
    target.setLevel(logging.INFO)
    # uvicorn tells of every start and stop, as the supervisor does, and warns of requests that it
    # cannot read or upgrade, which have their line as every request.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)


class Lines(logging.Formatter):
    """Formats a record on one line; its attribute `fields` holds values of their own.

    Only a traceback is written on further lines in the text style, which begin with a bar.
    """

    def __init__(self, style: Style) -> None:
        """Create a formatter."""
        super().__init__()
        self._json = style == "json"

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        message, fields = record.getMessage(), getattr(record, "fields", {})
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if self._json:
            values = {"time": time, "level": record.levelname.lower(), "message": message, **fields}
            return json.dumps({**values, "traceback": trace} if trace else values)
        words = [time, record.levelname, visible(message)]
        words += [f"{name}={_word(value)}" for name, value in fields.items()]
        return "\n".join([" ".join(words), *(f"| {visible(t)}" for t in trace.splitlines())])


def visible(text: str) -> str:
    r"""Return the text with everything escaped that is not a character to see: `\n`, `\x1b` ..."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def _word(value: Any) -> str:
    text = "-" if value is None else str(value)
    return json.dumps(text) if not text or not text.isprintable() or " " in text else text
