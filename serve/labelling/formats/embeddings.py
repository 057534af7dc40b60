"""Features of every row as one NumPy array."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np

from scda.serve.labelling.formats.rows import LabellingInfo, Row, Write

HEAD = b"\x93NUMPY"
_DTYPE = "<f4"


@contextmanager
def write_npy(file: BinaryIO, about: LabellingInfo) -> Iterator[Write]:
    """Give a function that writes features (N, D), float32; NaN for a file without them."""
    num_rows = 0
    missing = np.full(about.width, np.nan, np.float32)

    def write(rows: Sequence[Row]) -> None:
        nonlocal num_rows
        for row in rows:
            features = missing if row.features is None else row.features
            file.write(np.ascontiguousarray(features, _DTYPE).tobytes())
        num_rows += len(rows)

    _write_header(file, num_rows, about.width)
    yield write
    file.seek(0)
    _write_header(file, num_rows, about.width)


def _write_header(file: BinaryIO, num_rows: int, width: int) -> None:
    """Write the number of rows; NumPy pads the header, so that its length is constant."""
    np.lib.format.write_array_header_1_0(
        file, {"descr": _DTYPE, "fortran_order": False, "shape": (num_rows, width)}
    )
