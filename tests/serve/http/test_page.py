import base64
import dataclasses
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect

from scda.models.bundle import NAMES
from scda.models.predictor import load_predictor
from tests.browser import opened, running, too_wide
from tests.bundles import make_bundle, picture
from tests.serve.http.test_application import app_for

D0, D1 = "discovered-000", "discovered-001"
TARGETS = {"a/red.jpg": "red", "sun.png": "yellow"}
KEY = "sécret 🗝"
LIMITS = {"max_bytes": 20_000, "max_pixels": 100_000}
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_bundle(tmp_path_factory.mktemp("bundles") / "bundle", targets=TARGETS)
    says = {"labels": {D0: "sun", D1: HOSTILE, "known-000": "x" * 200}}
    (folder / NAMES).write_text(json.dumps({"version": 1, **says}))
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    predictor = load_predictor(folder, provider="cpu", threads=1)
    with running(app_for(predictor, **LIMITS)) as address:
        yield f"{address}/"


@pytest.fixture
def page(url: str, chromium: Browser) -> Iterator[Page]:
    with opened(chromium, url) as page:
        expect(page.locator("#model")).to_contain_text("3 known and 2 discovered classes")
        yield page


def choose(page: Page, data: bytes, name: str = "x.jpg") -> None:
    expect(page.locator("#drop")).to_be_visible()
    page.set_input_files("#file", {"name": name, "mimeType": "image/jpeg", "buffer": data})


HAND_OVER = """([kind, files]) => {
    const clipboardData = new DataTransfer();
    for (const text of files) {
        const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
        clipboardData.items.add(new File([bytes], "x.jpg", { type: "image/jpeg" }));
    }
    const about = { clipboardData, dataTransfer: clipboardData, bubbles: true, cancelable: true };
    const event = new { drop: DragEvent, paste: ClipboardEvent }[kind](kind, about);
    document.querySelector("main").dispatchEvent(event);
}"""


def hand_over(page: Page, kind: str, *files: bytes) -> None:
    """Drop files on the page, or paste them, as far as a script can."""
    page.evaluate(HAND_OVER, [kind, [base64.b64encode(data).decode() for data in files]])


def answer(page: Page) -> Locator:
    return page.locator("#label")


def refusal(page: Page) -> Locator:
    return page.locator("#refused p")


def is_shown(image: Locator) -> None:
    expect(image).not_to_have_js_property("naturalWidth", 0)


def test_an_image_is_answered_beside_the_pictures_of_its_cluster(page: Page) -> None:
    expect(page.locator("#status")).to_be_hidden()
    choose(page, picture("red"))
    expect(answer(page)).to_have_text("red")
    expect(page.locator("#kind")).to_contain_text("known")
    expect(page.locator("#kind")).to_contain_text(re.compile(r"9\d\.\d% confidence"))
    expect(page.locator("#message")).to_have_text(re.compile(r"^red, known, 9\d\.\d%$"))
    is_shown(page.locator("#picture"))
    nearest = page.locator("#nearest .card")
    expect(nearest.locator("h3")).to_have_text("red")
    expect(nearest).to_contain_text("distance 0.00")
    expect(nearest).to_contain_text("predicted")
    is_shown(nearest.locator("img"))
    expect(page.locator("#others .card")).to_have_count(4)
    lines = page.locator("#images li")
    expect(lines).to_have_text(
        [re.compile(r"^a/red\.jpg0\.00\d$"), re.compile(r"^sun\.png0\.6\d\d$")]
    )


# Both at once, as the page may become narrower when an image has come.
PERCENT_DRAWN = """(bar) => {
    const width = (element) => element.getBoundingClientRect().width;
    return (100 * width(bar.firstElementChild)) / width(bar);
}"""


def test_the_bars_are_as_long_as_their_probabilities(page: Page) -> None:
    choose(page, picture("yellow"))
    expect(answer(page)).to_have_text("sun")
    bars = page.locator("#top li")
    expect(bars).to_have_count(5)
    for line in bars.all():
        share = float((line.locator(".share").text_content() or "").rstrip("%"))
        drawn = line.locator(".bar").evaluate(PERCENT_DRAWN)
        assert drawn == pytest.approx(share, abs=0.3)


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_an_image_is_dropped_or_pasted(page: Page, kind: str) -> None:
    hand_over(page, kind, picture("green"))
    expect(answer(page)).to_have_text("green")
    hand_over(page, kind, picture("red"))
    expect(answer(page)).to_have_text("red")


def test_the_keyboard_is_enough(page: Page, tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(picture("yellow"))
    page.keyboard.press("Tab")
    expect(page.locator("#drop")).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Space")
    chooser.value.set_files(tmp_path / "x.jpg")
    expect(answer(page)).to_have_text("sun")
    expect(page.locator("#drop")).to_be_focused()
    # Of Enter, Playwright misses every second chooser, be it a plain file input's.
    page.evaluate("$('file').onclick = () => { document.title = 'asked'; return false; }")
    page.keyboard.press("Enter")
    expect(page).to_have_title("asked")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "the file is empty"),
        (b"hello", "this looks like text; expected an image file: JPEG"),
        (picture("red")[:300], "damaged header"),
        (picture("red", size=(1000, 200), kind="PNG"), "200,000 pixels; the limit is 100,000"),
        (b"x" * 20_001, "20,001 bytes, at most 20,000 are read"),
    ],
)
def test_what_the_server_refuses_is_said_and_no_old_answer_stays(
    page: Page, data: bytes, line: str
) -> None:
    choose(page, picture("red"))
    expect(answer(page)).to_be_visible()
    choose(page, data)
    expect(refusal(page)).to_contain_text(line)
    expect(answer(page)).to_be_hidden()
    choose(page, picture("red"))
    expect(answer(page)).to_be_visible()
    expect(refusal(page)).to_be_hidden()


def test_more_or_less_than_one_file_is_refused(page: Page) -> None:
    hand_over(page, "drop", picture("red"), picture("green"))
    expect(refusal(page)).to_have_text("Got 2 files; expected one image.")
    hand_over(page, "drop")
    expect(refusal(page)).to_have_text("Got no file; expected an image file.")
    hand_over(page, "paste")  # text, maybe into a field
    expect(refusal(page)).to_have_text("Got no file; expected an image file.")


SLOW_ONCE = """() => {
    const read = File.prototype.arrayBuffer;
    let first = true;
    File.prototype.arrayBuffer = async function () {
        if (first) {
            first = false;
            await new Promise((done) => setTimeout(done, 500));
        }
        return read.call(this);
    };
}"""


def test_of_two_images_the_last_one_is_answered(page: Page) -> None:
    page.evaluate(SLOW_ONCE)
    hand_over(page, "drop", picture("green"))
    hand_over(page, "drop", picture("red"))
    expect(answer(page)).to_have_text("red")
    page.wait_for_timeout(800)
    expect(answer(page)).to_have_text("red")
    expect(refusal(page)).to_be_hidden()


def test_names_are_only_text_and_break_nothing(page: Page) -> None:
    choose(page, picture("cyan"))
    expect(answer(page)).to_have_text(HOSTILE)
    choose(page, picture("blue"))
    expect(answer(page)).to_have_text("x" * 200)
    expect(page.locator("#nearest h3")).to_have_text("x" * 200)


def test_an_image_far_from_every_class_is_an_outlier(page: Page) -> None:
    file = io.BytesIO()
    Image.new("RGB", (40, 40)).save(file, "PNG")  # black: by hand 2/3 from blue, green and red
    choose(page, file.getvalue())
    expect(page.locator("#kind .warn")).to_have_text("outlier: far from every class")
    expect(page.locator("#message")).to_contain_text("an outlier")


def test_the_page_shows_what_training_doubted(folder: Path, chromium: Browser) -> None:
    predictor = load_predictor(folder, provider="cpu", threads=1)
    status = ("weak transfer", "strange")
    predictor.manifest = dataclasses.replace(predictor.manifest, status=status)
    with running(app_for(predictor)) as address, opened(chromium, address) as page:
        expect(page.locator("#status")).to_contain_text("weak transfer (many target images")
        expect(page.locator("#status")).to_contain_text("), strange.")


def test_without_neighbours_nothing_is_said_of_target_images(
    bundle: Path, chromium: Browser
) -> None:
    app = app_for(load_predictor(bundle, provider="cpu", threads=1))
    with running(app) as address, opened(chromium, address) as page:
        choose(page, picture("red"))
        expect(answer(page)).to_have_text("red")
        expect(page.locator("#alike")).to_be_hidden()


def test_a_server_that_is_gone_is_told(folder: Path, chromium: Browser) -> None:
    app = app_for(load_predictor(folder, provider="cpu", threads=1))
    with running(app) as address:
        context = chromium.new_context()
        page = context.new_page()
        page.goto(address)
        expect(page.locator("#drop")).to_be_visible()
    choose(page, picture("red"))
    expect(refusal(page)).to_have_text(re.compile("^The server does not answer; check"))
    context.close()


@pytest.fixture(scope="module")
def locked_url(folder: Path) -> Iterator[str]:
    predictor = load_predictor(folder, provider="cpu", threads=1)
    with running(app_for(predictor, api_key=KEY)) as address:
        yield f"{address}/"


def enter(page: Page, key: str) -> None:
    page.fill("#key", key)
    page.press("#key", "Enter")


def test_with_a_key_the_page_asks_for_it_and_works(locked_url: str, chromium: Browser) -> None:
    with opened(chromium, locked_url) as page:
        expect(page.locator("#key")).to_be_focused()
        expect(refusal(page)).to_be_hidden()
        expect(page.locator("#drop")).to_be_hidden()
        enter(page, "wrong")
        expect(refusal(page)).to_have_text("The server refused this key.")
        enter(page, KEY)
        expect(page.locator("#drop")).to_be_focused()
        expect(refusal(page)).to_be_hidden()
        choose(page, picture("red"))
        expect(answer(page)).to_have_text("red")
        is_shown(page.locator("#nearest img"))
        page.reload()
        expect(page.locator("#drop")).to_be_visible()
        assert page.evaluate("Object.values(localStorage).length + document.cookie.length") == 0
        page.click("#forget")
        expect(page.locator("#key")).to_be_focused()
        page.reload()
        expect(page.locator("#key")).to_be_visible()


def test_a_key_that_was_changed_is_asked_for_and_the_image_is_not_lost(
    locked_url: str, chromium: Browser
) -> None:
    with opened(chromium, locked_url) as page:
        enter(page, KEY)
        expect(page.locator("#drop")).to_be_visible()
        page.evaluate("sessionStorage.setItem('scda-key', 'old')")
        choose(page, picture("red"))
        expect(refusal(page)).to_have_text("The server refused this key.")
        enter(page, KEY)
        expect(answer(page)).to_have_text("red")


@pytest.mark.parametrize("width", [360, 720, 1280])
def test_no_width_scrolls_sideways(url: str, chromium: Browser, width: int) -> None:
    with opened(chromium, url, width=width, height=740, dark=width == 720) as page:
        assert not too_wide(page)
        # Without its picture an image is as wide as its text, and that has a name of 200 letters.
        page.route("**/v1/exemplars/**", lambda route: route.fulfill(status=404))
        choose(page, picture("blue"))
        expect(answer(page)).to_be_visible()
        assert not too_wide(page)
        choose(page, b"hello")
        expect(refusal(page)).to_be_visible()
        assert not too_wide(page)
