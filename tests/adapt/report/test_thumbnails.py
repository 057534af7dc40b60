import base64
import io
from pathlib import Path

import pytest
from PIL import Image

from scda.adapt.report.thumbnails import SHEET_PX, cell_size, make_thumbnails

RED, BLUE = (220, 30, 30), (30, 30, 220)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Image.new("RGB", (640, 320), RED).save(tmp_path / "red.jpg")
    Image.new("RGB", (30, 60), BLUE).save(tmp_path / "blue.png")
    (tmp_path / "text.jpg").write_text("no image")
    return tmp_path


def opened(url: str) -> Image.Image:
    head, _, data = url.partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


def close(found: object, wanted: tuple[int, int, int]) -> bool:
    assert isinstance(found, tuple)
    return all(abs(a - b) < 12 for a, b in zip(found, wanted, strict=True))


def test_a_single_image_keeps_its_shape_and_grows_never(folder: Path) -> None:
    made = make_thumbnails(
        folder, ["red.jpg", "blue.png"], [], on_progress=lambda done, total: None
    )
    assert opened(made.urls["red.jpg"]).size == (SHEET_PX, SHEET_PX // 2)
    assert opened(made.urls["blue.png"]).size == (30, 60)
    assert made.sprite is None


def test_every_cell_of_the_sprite_is_its_image(folder: Path) -> None:
    names = ["blue.png", "red.jpg"]
    sprite = make_thumbnails(folder, [], names, on_progress=lambda done, total: None).sprite
    assert sprite
    whole, half = opened(sprite.url), sprite.cell_px // 2
    for name, colour in (("blue.png", BLUE), ("red.jpg", RED)):
        row, column = divmod(sprite.places[name], sprite.columns)
        place = (column * sprite.cell_px + half, row * sprite.cell_px + half)
        assert close(whole.getpixel(place), colour)


def test_what_is_no_image_is_left_out_and_counted(folder: Path) -> None:
    names = ["text.jpg", "gone.jpg", "red.jpg"]
    made = make_thumbnails(folder, names, names, on_progress=lambda done, total: None)
    assert made.unreadable == 2
    assert set(made.urls) == {"red.jpg"}
    assert made.sprite
    assert set(made.sprite.places) == {"red.jpg"}


def test_progress_counts_every_file_once(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    make_thumbnails(
        folder, ["red.jpg"], ["red.jpg", "blue.png"], on_progress=lambda *part: seen.append(part)
    )
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.parametrize("count", [100, 562, 2_000])
def test_the_sprite_stays_small(count: int) -> None:
    assert count * cell_size(count) ** 2 <= 4_500_000


def test_cells_of_a_large_target_can_still_be_seen() -> None:
    assert cell_size(10**6) == 36
