import pickle

import pytest

from scda.models.errors import DataError, GateError, ImageError, ScdaError, UsageError


@pytest.mark.parametrize("kind", [ScdaError, UsageError, DataError, GateError])
@pytest.mark.parametrize(
    "message", ["two\nlines", "two\r\nlines", "two\u2028lines", "two\x0blines"]
)
def test_every_message_is_one_line(kind: type[ScdaError], message: str) -> None:
    assert str(kind(message)) == "two lines"
    assert str(ImageError("empty", message)) == "two lines"


@pytest.mark.parametrize(
    ("kind", "code"), [(ScdaError, 1), (UsageError, 2), (DataError, 4), (GateError, 5)]
)
def test_every_kind_has_its_exit_code(kind: type[ScdaError], code: int) -> None:
    assert kind("message").exit_code == code


def test_an_image_error_comes_back_from_another_process() -> None:
    error = pickle.loads(pickle.dumps(ImageError("cannot_decode", "damaged PNG")))
    assert (type(error), error.code, str(error)) == (ImageError, "cannot_decode", "damaged PNG")
