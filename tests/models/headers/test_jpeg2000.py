import io
import struct
import tracemalloc
from pathlib import Path

import pytest
from PIL import Image

from scda.models.decoding.unguarded import open_image, read_image
from scda.models.errors import ImageError
from scda.models.headers.jpeg2000 import MAX_PIECES, check_jpeg2000
from tests.nasty import encode, four

FAULTS = Path(__file__).parents[2] / "fixtures" / "faults"
BIG = 50_000_000


def refused(data: bytes, max_pixels: int = BIG) -> str:
    with pytest.raises(ImageError) as caught:
        open_image(data, max_pixels=max_pixels)
    return f"{caught.value.code}: {caught.value}"


def with_size(
    data: bytes, width: int, height: int, *, tile: tuple[int, int] | None = None
) -> bytes:
    """Return a JPEG 2000 whose headers claim another size of the image and of its tiles."""
    changed, size = bytearray(data), data.index(b"\xff\x4f\xff\x51")
    struct.pack_into(">2I", changed, size + 8, width, height)
    struct.pack_into(">2I", changed, size + 24, *(tile or (width, height)))
    box = data.find(b"ihdr")
    if box >= 0:
        struct.pack_into(">2I", changed, box + 4, height, width)
    return bytes(changed)


def in_tile_header(data: bytes, marker: bytes) -> bytes:
    """Return a codestream with its main header's segment `marker` moved to the first tile part."""
    start = data.index(marker)
    segment = data[start : start + 2 + int.from_bytes(data[start + 2 : start + 4])]
    part = data.index(b"\xff\x90")
    length = int.from_bytes(data[part + 6 : part + 10]) + len(segment)
    begin = data[part : part + 6] + struct.pack(">I", length) + data[part + 10 : part + 12]
    plain = encode(Image.new("RGB", (8, 8)), "JPEG2000", no_jp2=True)
    harmless = plain[plain.index(marker) :][: len(segment)]
    assert len(harmless) <= len(segment)
    cod = plain.index(b"\xff\x52")
    default = plain[cod : cod + 2 + int.from_bytes(plain[cod + 2 : cod + 4])]
    main = data[:start] + default + data[start + len(segment) : part]
    return main + begin + segment + data[part + 12 :]


@pytest.mark.parametrize("name", ["jp2-bomb-4mp.jp2", "jp2-bomb-50mp.jp2"])
def test_a_bomb_of_precincts_is_refused_before_it_is_decoded(name: str) -> None:
    data = (FAULTS / name).read_bytes()
    tracemalloc.start()
    assert "precincts and code blocks; the limit is 1,000,000" in refused(data)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_every_way_to_millions_of_pieces_is_refused() -> None:
    small = encode(four(), "JPEG2000", no_jp2=True)
    blocks = encode(four(), "JPEG2000", no_jp2=True, codeblock_size=(4, 4))
    precincts = encode(four(), "JPEG2000", no_jp2=True, precinct_size=(8, 8), codeblock_size=(4, 4))
    layers = encode(four(), "JPEG2000", no_jp2=True, precinct_size=(32, 32))
    many = bytearray(layers)
    many[layers.index(b"\xff\x52") + 6 : layers.index(b"\xff\x52") + 8] = b"\xff\xff"
    assert "precincts and code blocks" in refused(with_size(blocks, 7000, 7000))
    assert "precincts and code blocks" in refused(with_size(precincts, 3000, 3000))
    assert "packets" in refused(with_size(bytes(many), 1000, 1000))
    assert "tiles" in refused(with_size(small, 7000, 7000, tile=(32, 32)))
    assert "50 x" not in refused(with_size(small, 7000, 7000, tile=(1, 1)))


def test_a_coding_style_in_the_header_of_a_tile_counts_too() -> None:
    bomb = with_size(encode(four(), "JPEG2000", no_jp2=True, codeblock_size=(4, 4)), 7000, 7000)
    hidden = in_tile_header(bomb, b"\xff\x52")
    assert "precincts and code blocks" in refused(hidden)


def test_the_size_counts_that_the_decoder_uses() -> None:
    # Pillow reads the size from the box of the container, OpenJPEG from the codestream.
    data, size = encode(four(), "JPEG2000"), b"\xff\x4f\xff\x51"
    lying = bytearray(data)
    struct.pack_into(">2I", lying, data.index(size) + 8, 60_000, 60_000)
    assert refused(bytes(lying)).startswith("too_many_pixels: 3,600,000,000 pixels")


def test_more_components_are_fewer_pixels() -> None:
    rgba = encode(four().convert("RGBA"), "JPEG2000")
    assert read_image(rgba).size == four().size
    assert refused(with_size(rgba, 7000, 7000)).startswith("too_many_pixels")
    assert "the limit is 37,500,000 pixels" in refused(with_size(rgba, 7000, 7000))


def test_usual_files_are_far_from_the_bounds() -> None:
    for options in ({}, {"codeblock_size": (16, 16)}, {"precinct_size": (256, 256)}):
        small = encode(four(), "JPEG2000", no_jp2=True, **options)
        check_jpeg2000(with_size(small, 7000, 7000), max_pixels=BIG)
    tiled = encode(four(), "JPEG2000", no_jp2=True, tile_size=(32, 32))
    check_jpeg2000(with_size(tiled, 7000, 7000, tile=(128, 128)), max_pixels=BIG)
    assert MAX_PIECES == 1_000_000


@pytest.mark.parametrize("kind", [{}, {"no_jp2": True}])
def test_every_cut_is_an_error_of_the_image(kind: dict[str, bool]) -> None:
    data = encode(four(), "JPEG2000", **kind)
    for end in range(12, len(data) - 2, 3):
        with pytest.raises(ImageError):
            read_image(data[:end])


def test_tile_parts_are_bounded() -> None:
    data = encode(four(), "JPEG2000", no_jp2=True)
    part = struct.pack(">HHHIBB", 0xFF90, 10, 0, 14, 0, 0) + b"\xff\x93"
    start = data.index(b"\xff\x90")
    assert "tile parts" in refused(data[:start] + part * 70_000 + data[start:])


def test_what_pillow_writes_stays_readable() -> None:
    file = io.BytesIO()
    four().save(file, "JPEG2000", quality_layers=[40, 20, 10], num_resolutions=3)
    assert read_image(file.getvalue()).size == four().size


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">HH", marker, len(body) + 2) + body


def behind_size(segments: bytes) -> bytes:
    """Return a codestream with more segments behind the first one of its main header."""
    data = encode(four(), "JPEG2000", no_jp2=True)
    start = data.index(b"\xff\x52")
    return data[:start] + segments + data[start:]


def test_the_work_of_reading_a_header_is_bounded() -> None:
    # Files of the largest size took minutes.
    component = bytes([0, 0, 5, 4, 4, 0, 1])
    check_jpeg2000(behind_size(segment(0xFF53, component) * 200_000), max_pixels=BIG)
    other = [bytes([0, 0, levels, 4, 4, 0, 1]) for levels in range(33)]
    narrow = [bytes([0, 0, levels, 3, 4, 0, 1]) for levels in range(33)]
    differing = b"".join(segment(0xFF53, body) for body in (*other, *narrow))
    assert "more than 64 ways to divide its tiles" in refused(behind_size(differing))
    assert "more than 262,144 segments" in refused(behind_size(segment(0xFF64, b"") * 262_144))
    assert "more than 8 images" in refused(behind_size(b"") + b"\xff\x4f\xff\x51" * 8)


def test_a_tile_part_that_begins_again_in_its_own_header_has_an_end() -> None:
    # Its length leads from the data back to the length of its second segment, a marker itself.
    circle = struct.pack(">HHHIBB", 0xFF90, 10, 0, 14, 0, 1)
    circle += struct.pack(">HHH", 0xFF64, 0xFF64, 0xFF64 - 2) + bytes(0xFF64 - 4)
    assert "more than 262,144 segments" in refused(behind_size(circle + b"\xff\x93"))
