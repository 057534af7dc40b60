import io
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from scda.serve.labelling.formats.embeddings import write_npy
from scda.serve.labelling.formats.rows import Row
from tests.rows import ABOUT, BAD, GOOD


def array(*batches: Sequence[Row]) -> NDArray[np.float32]:
    file = io.BytesIO()
    with write_npy(file, ABOUT) as write:
        for rows in batches:
            write(rows)
    read: NDArray[np.float32] = np.load(io.BytesIO(file.getvalue()), allow_pickle=False)
    return read


def test_row_i_of_the_array_is_row_i_of_the_table() -> None:
    read = array([GOOD, BAD], [BAD], [GOOD])
    assert read.dtype == np.float32
    nan = [np.nan, np.nan]
    np.testing.assert_array_equal(read, np.array([[0.5, -1.0], nan, nan, [0.5, -1.0]]))


@pytest.mark.parametrize("num_batches", [0, 1, 9, 10, 1234])
def test_the_number_of_rows_needs_not_be_known(num_batches: int) -> None:
    read = array(*[[GOOD]] * num_batches)
    assert read.shape == (num_batches, 2)
    assert (read == GOOD.features).all()
