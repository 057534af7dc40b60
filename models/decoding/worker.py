"""Read and prepare images for another process: `python -m scda.models.decoding.worker`.

Each line of standard input is a JSON list of two: the form as text, and a list of a path or URI for
each file, or of the number of its bytes, which follow the line in order. The answer is a line with
a list of `[height, width]`, or `[code, message]` for a bad file, followed by the pixels of the good
files as bytes. The process ends with its input, and so with its parent, however that one ends.

With limits, the process reads every image within them. Without limits it leaves the costly ones to
a process that has them: its answer to these is the code `costly`.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import BinaryIO

from scda.models.decoding.cheap import COSTLY, prepare_cheap
from scda.models.decoding.content import File
from scda.models.decoding.formats import load_formats
from scda.models.decoding.forms import Form, form_of, make
from scda.models.decoding.limits import Enforced, ProcessLimits
from scda.models.decoding.unguarded import open_image
from scda.models.errors import ImageError
from scda.models.limits import ImageLimits
from scda.models.preprocess import Prepared

_STDERR = 2
Prepare = Callable[[Form, Sequence[File]], Sequence[Prepared | None]]


def main() -> None:
    """Answer until the input ends; the argument is JSON."""
    # Without a parent, end silently.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    answers = _only_for_answers(sys.stdout.fileno())
    given = json.loads(sys.argv[1])
    limits = ImageLimits(**given["limits"])
    process = given["process"] and ProcessLimits(**given["process"])
    prepare_files = _limited(limits, process) if process else partial(prepare_cheap, limits=limits)
    for line in sys.stdin.buffer:
        text, files = json.loads(line)
        _answer(answers, prepare_files(_form(text), [_file(one) for one in files]))


@cache
def _form(text: str) -> Form:
    return form_of(text)


def _limited(limits: ImageLimits, process: ProcessLimits) -> Prepare:
    """Return a function that prepares files within the limits of this process."""
    from PIL import AvifImagePlugin

    with suppress(ImageError):  # without the package for HEIC
        load_formats()  # what is loaded before the limit does not count
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # the stack of every thread does
    enforced = Enforced(process)

    def prepare_one(form: Form, data: bytes) -> Prepared:
        enforced.renew()
        try:
            image = open_image(data, max_pixels=limits.max_pixels)
            return make(form, image, data, max_pixels=limits.max_pixels)
        except ImageError as error:
            if not isinstance(error.__cause__, MemoryError):
                return error
            message = f"decoding needs more than {process.mebibytes:,} MiB of memory"
            return ImageError(error.code, message)

    return lambda form, files: [
        prepare_one(form, file) for file in files if isinstance(file, bytes)
    ]


def _file(given: int | str) -> File:
    """Return a file of a request: its bytes, or where it is."""
    if isinstance(given, str):
        return given if "://" in given else Path(given)
    data = sys.stdin.buffer.read(given)
    if len(data) < given:  # without a parent
        sys.exit()
    return data


def _only_for_answers(stdout: int) -> BinaryIO:
    """Return standard output as a file, and redirect prints of libraries to standard error."""
    answers = os.fdopen(os.dup(stdout), "wb")
    try:
        os.dup2(_STDERR, stdout)
    except OSError:  # it is closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return answers


def _answer(answers: BinaryIO, prepared: Sequence[Prepared | None]) -> None:
    lines = [_line(one) for one in prepared]
    answers.write(json.dumps(lines).encode() + b"\n")
    for pixels in prepared:
        if pixels is not None and not isinstance(pixels, ImageError):
            answers.write(pixels.data)
    answers.flush()


def _line(prepared: Prepared | None) -> tuple[int, int] | tuple[str, str]:
    if prepared is None:
        return COSTLY, ""
    if isinstance(prepared, ImageError):
        return prepared.code, str(prepared)
    height, width, _ = prepared.shape
    return height, width


if __name__ == "__main__":
    main()
