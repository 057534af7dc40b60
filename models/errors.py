"""Every error that a user can cause, as one small hierarchy.

ScdaError
├── UsageError     a wrong option, path or setting           exit code 2
├── DataError      the data exists and cannot be used        exit code 4
├── GateError      a gate failed: bundle, parity, training   exit code 5
└── ImageError     one image that cannot be used: a rejected file, a row, an HTTP answer
"""


class ScdaError(Exception):
    """An error explained in one line: what was found, what was expected, and what to do."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        """Join the lines of the message, which may quote a file name or a library."""
        super().__init__(" ".join(message.splitlines()))


class UsageError(ScdaError):
    """A path, option or setting does not exist or is wrong."""

    exit_code = 2


class DataError(ScdaError):
    """The data exists and cannot be used."""

    exit_code = 4


class GateError(ScdaError):
    """A bundle is incomplete, damaged or of another schema, or an export differs from its model."""

    exit_code = 5


class ImageError(ScdaError):
    """One image cannot be used; `code` is the stable error code."""

    exit_code = 3

    def __init__(self, code: str, message: str) -> None:
        """Keep the code beside the message."""
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type["ImageError"], tuple[str, str]]:
        """Support pickling: the default of Exception passes a single argument."""
        return type(self), (self.code, str(self))
