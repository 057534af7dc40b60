import pytest

from scda.models.decoding.formats import FORMATS, image_format
from scda.models.decoding.unguarded import open_image
from scda.models.headers.cost import CHEAP_BYTES, is_cheap, may_be_cheap
from tests.models.headers.test_jpeg import of_scans
from tests.nasty import ENDINGS, encode, four, png


def cheap(data: bytes) -> bool:
    return may_be_cheap(image_format(data), data) and is_cheap(open_image(data), data)


@pytest.mark.parametrize("name", FORMATS)
def test_small_images_are_cheap_but_in_formats_whose_headers_do_not_bound_the_work(
    name: str,
) -> None:
    if name in ENDINGS.values():
        costly = {"TIFF", "AVIF", "JPEG2000"}
        assert cheap(encode(four(), name)) == (name not in costly)


def test_size_scans_and_kind_make_an_image_costly() -> None:
    assert cheap(encode(four(size=(4000, 4000)), "JPEG"))
    assert not cheap(encode(four(size=(4100, 4000)), "JPEG"))
    assert cheap(png(2000, 2000))
    assert not cheap(png(2100, 2000))
    assert cheap(encode(four(size=(1200, 1200)), "JPEG", progressive=True))
    assert not cheap(encode(four(size=(1300, 1300)), "JPEG", progressive=True))
    assert cheap(of_scans(90))


def test_text_is_counted_by_its_bytes() -> None:
    assert cheap(b"P3 2 2 255 " + b"1 " * 12)
    assert not cheap(b"P3 2 2 255 " + b"1 " * 100_000)
    assert cheap(encode(four(), "MPO", save_all=True, append_images=[four()]))


def test_a_large_file_is_costly_whatever_its_header_says() -> None:
    small = encode(four(), "JPEG")
    assert cheap(small + bytes(CHEAP_BYTES - len(small)))
    assert not cheap(small + bytes(CHEAP_BYTES - len(small) + 1))
