"""Every error a user can cause, as one small tree.

ScdaError
├── UsageError     a wrong option, path or setting           exit code 2
├── DataError      the data is there and cannot be used      exit code 4
├── GateError      a gate failed: bundle, parity, training   exit code 5
└── ImageError     one image that cannot be used: a rejected file, a row, an HTTP answer
"""


class ScdaError(Exception):
    """An error that its message explains in one line: what was found, wanted, and to be done."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        """Keep the message on one line, whatever a file's name or a library's text brings."""
        super().__init__(" ".join(message.splitlines()))


class UsageError(ScdaError):
    """A path, option or setting does not exist or is wrong."""

    exit_code = 2


class DataError(ScdaError):
    """The data is there and cannot be used."""

    exit_code = 4


class GateError(ScdaError):
    """A bundle is incomplete, corrupt or of another schema, or an export drifted."""

    exit_code = 5


class ImageError(ScdaError):
    """One image cannot be used; `code` is the contract's error code."""

    exit_code = 3

    def __init__(self, code: str, message: str) -> None:
        """Keep the code beside the message."""
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type["ImageError"], tuple[str, str]]:
        """Let the error come back from another process; Exception's own way knows one argument."""
        return type(self), (self.code, str(self))
