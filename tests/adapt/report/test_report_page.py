import json
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from scda.adapt.report.report import write_report
from scda.adapt.runtime.progress import Reporter
from scda.models.bundle import read_manifest
from tests.browser import opened, too_wide

HOSTILE = (
    '<script>document.title="owned"</script><img src=x onerror=alert(1)>',
    "M" * 500,
    "\N{HEBREW LETTER SHIN}\N{HEBREW LETTER LAMED} (1) \N{RIGHT-TO-LEFT OVERRIDE}gpj.exe",
    "\N{GRINNING FACE}" * 40 + " ünï",
    "first line\nsecond line</title></style>",
    "\"><b onmouseover=alert(1)>'`${1}{{ 1 }}",
)


@pytest.fixture(scope="module")
def hostile(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run whose classes have names that break pages."""
    run = tmp_path_factory.mktemp("hostile") / "run"
    shutil.copytree(tiny_run, run)
    ids = read_manifest(run / "bundle").class_ids
    labels = {class_id: HOSTILE[i % len(HOSTILE)] for i, class_id in enumerate(ids)}
    (run / "bundle" / "names.json").write_text(json.dumps({"version": 1, "labels": labels}))
    rejected = f"path,error_code,error\n{'x' * 300}<b>.jpg,empty,no bytes\n"
    (run / "rejected.csv").write_text(rejected)
    return write_report(run, Reporter(quiet=True))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_and_asks_nobody(
    chromium: Browser, tiny_run: Path, width: int, dark: bool
) -> None:
    with opened(chromium, (tiny_run / "report.html").as_uri(), width=width, dark=dark) as page:
        assert not too_wide(page)
        assert page.locator("img").count() > 20
        assert page.locator("img:not([alt]), img[alt='']").count() == 0
        ground, ink = _colours(page)
        assert (ground < ink) == dark


@pytest.mark.parametrize("width", [1280, 390])
def test_hostile_names_are_inert(chromium: Browser, hostile: Path, width: int) -> None:
    with opened(chromium, hostile.as_uri(), width=width) as page:
        assert page.title().startswith("scda: ")
        assert not too_wide(page)
        assert page.locator("script").count() == 2
        assert page.locator("b[onmouseover], img[src='x'], img[onerror]").count() == 0
        assert page.get_by_role("heading", name=HOSTILE[0][:40]).count() == 1
        assert page.locator("h3 bdi[dir=auto]").count() == page.locator("section.sheet[id]").count()


def test_the_map_answers_to_the_mouse_to_keys_and_to_its_legend(
    chromium: Browser, hostile: Path
) -> None:
    with opened(chromium, hostile.as_uri()) as page:
        tip = page.locator("#tip")
        page.locator("#map").scroll_into_view_if_needed()
        page.locator("#map g.known circle").first.hover(force=True)
        expect(tip).to_be_visible()
        cell = tip.locator(".cell")
        assert "url(" in str(cell.evaluate("it => getComputedStyle(it).backgroundImage"))
        pointed_at = tip.text_content() or ""
        assert ".png" in pointed_at
        page.mouse.move(2, 2)
        expect(tip).to_be_hidden()

        page.locator("#map").focus()
        reached = set()
        for key in ("ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"):
            page.keyboard.press(key)  # there may be no point that way
            reached.add(tip.text_content())
        assert len(reached) > 1
        expect(tip).to_be_visible()
        page.keyboard.press("Escape")
        expect(tip).to_be_hidden()

        button = page.locator("#legend button").first
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        out = page.locator("#map g.out")
        assert out.count() == 1
        assert out.get_attribute("data-class") == button.get_attribute("data-class")


def test_in_print_the_page_is_light_and_has_no_controls(chromium: Browser, tiny_run: Path) -> None:
    url = (tiny_run / "report.html").as_uri()
    with opened(chromium, url, width=760, dark=True) as page:
        page.emulate_media(media="print", color_scheme="dark")
        ground, ink = _colours(page)
        assert ground > ink
        assert page.locator("nav").is_hidden()
        assert not too_wide(page)


def _colours(page: Page) -> tuple[int, int]:
    """How bright the ground is, and the text: the sums of red, green and blue."""
    sums = page.evaluate(
        """() => ["backgroundColor", "color"].map((name) =>
            getComputedStyle(document.body)[name].match(/\\d+/g).slice(0, 3)
                .reduce((sum, part) => sum + Number(part), 0))"""
    )
    return sums[0], sums[1]
