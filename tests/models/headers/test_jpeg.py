import pytest

from scda.models.decoding.unguarded import read_image
from scda.models.errors import ImageError
from scda.models.headers.jpeg import MAX_LARGE_SCANS, check_jpeg, num_scans
from tests.nasty import encode, four

PROGRESSIVE = encode(four(), "JPEG", progressive=True)


def of_scans(count: int) -> bytes:
    last = PROGRESSIVE[PROGRESSIVE.rindex(b"\xff\xda") : -2]
    return PROGRESSIVE[:-2] + last * (count - num_scans(PROGRESSIVE)) + PROGRESSIVE[-2:]


def test_scans_times_pixels_are_bounded() -> None:
    jpeg, size = of_scans(40), 64 * 48
    assert num_scans(jpeg) == 40
    check_jpeg(jpeg, size, max_pixels=2 * size)
    with pytest.raises(ImageError, match=r"^JPEG of 3,072 pixels with more than 20 scans; save"):
        check_jpeg(jpeg, size, max_pixels=size)
    with pytest.raises(ImageError) as caught:
        read_image(jpeg, max_pixels=size)
    assert caught.value.code == "cannot_decode"


def test_the_scans_that_libraries_write_are_no_fault() -> None:
    size = 64 * 48
    for image in (four(), four().convert("L"), four().convert("CMYK")):
        jpeg = encode(image, "JPEG", progressive=True)
        assert num_scans(jpeg) <= MAX_LARGE_SCANS
        assert read_image(jpeg, max_pixels=size).size == image.size


def test_scans_behind_the_end_do_not_count() -> None:
    jpeg = encode(four(), "JPEG") + b"\xff\xda film" * 500
    assert num_scans(jpeg) == 1
    assert num_scans(jpeg, 501) == 501  # quick, and too high


def test_scans_are_looked_for_among_a_bounded_number_of_segments() -> None:
    nothing = PROGRESSIVE[:-2] + b"\xff\xda\0\2" * 200 + b"\xff\xfe\0\2" * 50_000
    with pytest.raises(ImageError, match=r"^JPEG with more than 50,000 segments"):
        num_scans(nothing, 100)
