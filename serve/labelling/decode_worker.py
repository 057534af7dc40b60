"""Read and prepare images for another process: `python -m scda.serve.labelling.decode_worker`.

Each line of standard input is a JSON list of paths or URIs. The answer is a line with a list of
`null`, or `[code, message]` for a bad file, followed by the pixels of the good files as bytes. The
process ends with its input, and so with its parent, however that one ends.
"""

import json
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import BinaryIO

from PIL import Image

from scda.models.errors import ImageError
from scda.models.images import read_file, read_image
from scda.models.limits import LIMITS, ImageLimits
from scda.models.preprocess import Preprocessing
from scda.serve.imaging import Prepared, prepare

_STDERR = 2
_FETCHES = 16  # objects of a store read at the same time; a read mostly waits


def prepare_files(
    preprocessing: Preprocessing, files: Sequence[Path | str], limits: ImageLimits = LIMITS
) -> list[Prepared]:
    """Return the pixels of each file or URI, in order, or its error."""
    fetched = [
        _fetched(str(file), limits) for file in files
    ]  # all are under way before one is decoded
    reads = [
        partial(_image, future, limits) if future else partial(read_file, Path(file), limits)
        for file, future in zip(files, fetched, strict=True)
    ]
    return [prepare(preprocessing.apply, read) for read in reads]


def _fetched(file: str, limits: ImageLimits) -> Future[bytes] | None:
    """Start to read an object of a store; return None for a local file."""
    if "://" not in file:
        return None
    # Imported here: it takes longer than all other imports.
    from scda.serve.labelling.object_stores import read_stored

    return _fetchers().submit(read_stored, file, max_bytes=limits.max_bytes)


def _image(fetched: Future[bytes], limits: ImageLimits) -> Image.Image:
    return read_image(fetched.result(), max_pixels=limits.max_pixels)


@cache
def _fetchers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_FETCHES, thread_name_prefix="scda-fetch")


def main() -> None:
    """Answer until the input ends; the arguments are the preprocessing and the limits as JSON."""
    # Without a parent, end silently.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    answers = _only_for_answers(sys.stdout.fileno())
    preprocessing = Preprocessing.from_json(json.loads(sys.argv[1]))
    limits = ImageLimits(**json.loads(sys.argv[2]))
    for line in sys.stdin.buffer:
        _answer(answers, prepare_files(preprocessing, json.loads(line), limits))


def _only_for_answers(stdout: int) -> BinaryIO:
    """Return standard output as a file, and redirect prints of libraries to standard error."""
    answers = os.fdopen(os.dup(stdout), "wb")
    try:
        os.dup2(_STDERR, stdout)
    except OSError:  # it is closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return answers


def _answer(answers: BinaryIO, prepared: Sequence[Prepared]) -> None:
    bad = [[p.code, str(p)] if isinstance(p, ImageError) else None for p in prepared]
    answers.write(json.dumps(bad).encode() + b"\n")
    for pixels in prepared:
        if not isinstance(pixels, ImageError):
            answers.write(pixels.data)
    answers.flush()


if __name__ == "__main__":
    main()
