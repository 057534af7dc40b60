import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, Dialog, Page, expect

from scda.models.bundle import read_manifest
from scda.models.names import Names, read_names
from scda.models.naming import change_names
from scda.models.trust import ClassTrust, Doubt
from scda.serve.review.application import create_review_app
from tests.browser import opened, running, too_wide
from tests.bundles import make_bundle, picture
from tests.serve.review.carried import make_carried
from tests.serve.review.many import make_many
from tests.waiting import wait_for

D0, D1, RED = "discovered-000", "discovered-001", "known-002"


@dataclass
class Site:
    folder: Path
    url: str

    def names(self) -> Names:
        return read_names(self.folder, read_manifest(self.folder))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder = make_bundle(tmp_path / "bundle")
    with running(create_review_app(folder, "token")) as address:
        yield Site(folder, f"{address}/token/")


@pytest.fixture
def page(site: Site, chromium: Browser) -> Iterator[Page]:
    with opened(chromium, site.url) as page:
        expect(page.locator("#progress")).to_contain_text("0 of 2 discovered classes named")
        yield page


def hold(page: Page) -> None:
    """From now on the page learns nothing of what others change, as between two of its looks."""
    page.route("**/state", lambda route: None)
    page.evaluate("orders += 1")  # an answer that is on its way is not shown


def name_of(page: Page, class_id: str) -> str:
    return page.locator(f"#{class_id} .name input").input_value()


def test_a_name_is_saved_and_there_after_a_reload(page: Page, site: Site) -> None:
    page.fill(f"#{D0} .name input", "stapler")
    page.press(f"#{D0} .name input", "Enter")
    expect(page.locator("#progress")).to_contain_text("1 of 2 discovered classes named")
    assert site.names().labels == {D0: "stapler"}
    page.reload()
    expect(page.locator(f"#{D0} .name input")).to_have_value("stapler")


def test_leaving_a_field_saves_it(page: Page, site: Site) -> None:
    page.fill(f"#{D1} .name input", "pen")
    page.locator(f"#{D0} .facts").click()
    page.locator(f"#{D0} .name input").focus()
    expect(page.locator("#message")).to_have_text("named pen")
    assert site.names().labels == {D1: "pen"}


def test_two_are_merged_taken_apart_and_undone(page: Page, site: Site) -> None:
    page.check(f"#{D0} .mark input")
    page.check(f"#{D1} .mark input")
    expect(page.locator("#marked")).to_have_text(f"2 selected; merge into {D0}")
    page.click("#merge")
    expect(page.locator(f"#{D1}")).to_have_count(0)
    expect(page.locator(f"#{D0} .members")).to_contain_text(f"merged: {D1}")
    assert site.names().merges == {D1: D0}
    page.click("text=Separate")
    expect(page.locator(f"#{D1}")).to_be_visible()
    page.click("#undo")
    expect(page.locator(f"#{D1}")).to_have_count(0)
    page.click("#undo")
    expect(page.locator(f"#{D1}")).to_be_visible()
    assert site.names().merges == {}
    expect(page.locator("#undo")).to_be_disabled()


def test_one_is_really_a_known_class(page: Page, site: Site) -> None:
    page.focus(f"#{D0} .merge-into")
    page.select_option(f"#{D0} .merge-into", label="red")
    expect(page.locator(f"#{D0}")).to_have_count(0)
    assert site.names().merges == {D0: RED}
    page.click("#known-section summary")
    expect(page.locator(f"#{RED} .members")).to_contain_text(f"merged: {D0}")


def test_a_name_that_is_taken_offers_the_merge(page: Page, site: Site) -> None:
    page.fill(f"#{D0} .name input", "red")
    page.press(f"#{D0} .name input", "Enter")
    expect(page.locator("#refused")).to_contain_text("A class named red exists already")
    page.keyboard.press("Enter")  # the focus is on "Merge the two"
    expect(page.locator(f"#{D0}")).to_have_count(0)
    assert site.names().merges == {D0: RED}


def test_a_class_is_dropped_and_restored(page: Page, site: Site) -> None:
    page.click(f"#{D0} .drop")
    expect(page.locator("#dropped-count")).to_have_text("1")
    assert site.names().drops == {D0}
    page.click("#dropped-section summary")
    page.click(f"#{D0} .restore")
    expect(page.locator("#discovered")).to_contain_text(D0)
    assert site.names().drops == frozenset()


def test_all_of_it_can_be_done_with_the_keyboard(page: Page, site: Site) -> None:
    press = page.keyboard.press
    expect(page.locator(f"#{D0}")).to_be_focused()
    press("Enter")
    page.keyboard.type("stapler")
    press("Enter")
    expect(page.locator(f"#{D1}")).to_be_focused()  # the next without a name
    press("n")
    page.keyboard.type("nonsense")
    press("Escape")
    assert name_of(page, D1) == ""
    press("d")
    expect(page.locator("#message")).to_have_text(f"dropped {D1}")
    press("u")
    expect(page.locator("#message")).to_have_text(f"undid: dropped {D1}")
    press("k")
    press("k")
    expect(page.locator(f"#{D0}")).to_be_focused()
    press("m")
    press("j")
    press("m")
    press("Shift+M")
    expect(page.locator(f"#{D1}")).to_have_count(0)
    assert site.names().merges == {D1: D0}
    press("Control+z")
    expect(page.locator(f"#{D1}")).to_be_visible()
    press("?")
    expect(page.locator("#keys")).to_be_visible()
    press("Escape")
    expect(page.locator("#keys")).to_be_hidden()
    assert site.names().labels == {D0: "stapler"}


@pytest.mark.parametrize(
    "name", ["<script>window.hacked=1</script>", "שלום עולם", "🧷 pin", "می\u200cخ.exe", "x" * 200]
)
def test_a_hostile_name_is_only_text(page: Page, site: Site, name: str) -> None:
    page.fill(f"#{D0} .name input", name)
    page.press(f"#{D0} .name input", "Enter")
    expect(page.locator("#progress")).to_contain_text("1 of 2 discovered classes named")
    assert site.names().labels == {D0: name}
    page.click(f"#{D1} .mark label, #{D1} .mark input")
    page.focus(f"#{D1} .merge-into")
    page.select_option(f"#{D1} .merge-into", label=name)
    expect(page.locator(f"#{D1}")).to_have_count(0)
    page.set_viewport_size({"width": 390, "height": 844})
    assert not too_wide(page)
    assert page.evaluate("window.hacked") is None


def test_too_long_a_name_and_two_lines_are_kept_out(page: Page, site: Site) -> None:
    change = (
        "fetch('change', {method: 'POST', headers: {'Content-Type': 'application/json'}, body})"
    )
    for label, wanted in (("x" * 500, "500 characters"), ("two\nlines", "one line")):
        body = json.dumps({"action": "name", "class_ids": [D0], "label": label})
        said = page.evaluate(f"body => {change}.then(r => r.json())", body)
        assert wanted in said["error"]
    page.fill(f"#{D0} .name input", "x" * 500)
    page.press(f"#{D0} .name input", "Enter")
    expect(page.locator("#refused")).to_contain_text("500 characters; expected at most 200")
    assert len(name_of(page, D0)) == 500  # what was typed is still there
    assert site.names().version == 0


def test_what_another_tab_says_comes_in_while_one_types(
    page: Page, site: Site, chromium: Browser
) -> None:
    page.locator(f"#{D0} .name input").focus()
    page.keyboard.type("stap")
    with opened(chromium, site.url) as other:
        other.fill(f"#{D1} .name input", "pen")
        other.press(f"#{D1} .name input", "Enter")
        expect(other.locator("#message")).to_have_text("named pen")
    expect(page.locator(f"#{D1} .name input")).to_have_value("pen")
    page.keyboard.type("ler")
    page.keyboard.press("Enter")
    expect(page.locator("#progress")).to_contain_text("2 of 2 discovered classes named")
    assert site.names().labels == {D0: "stapler", D1: "pen"}


def test_undo_does_not_take_back_what_was_not_seen(page: Page, site: Site) -> None:
    page.fill(f"#{D0} .name input", "stapler")
    page.press(f"#{D0} .name input", "Enter")
    expect(page.locator("#undo")).to_be_enabled()
    hold(page)
    change_names(site.folder, lambda naming, names: naming.name(names, D1, "pen"))
    page.evaluate("undo()")
    expect(page.locator("#refused")).to_contain_text("meanwhile")
    assert site.names().labels == {D0: "stapler", D1: "pen"}


def test_a_server_that_went_away_is_told(site: Site, chromium: Browser, tmp_path: Path) -> None:
    with running(create_review_app(site.folder, "other")) as address:
        context = chromium.new_context()
        page = context.new_page()
        page.goto(f"{address}/other/")
        expect(page.locator(f"#{D0}")).to_be_visible()
    page.fill(f"#{D0} .name input", "stapler")
    page.press(f"#{D0} .name input", "Enter")
    expect(page.locator("#refused")).to_contain_text("does not answer")
    assert name_of(page, D0) == "stapler"
    context.close()


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_it_fits(site: Site, chromium: Browser, width: int, dark: bool) -> None:
    with opened(chromium, site.url, width=width, dark=dark) as page:
        expect(page.locator(f"#{D0} img")).to_be_visible()
        assert not too_wide(page)
        assert page.locator("img:not([alt])").count() == 0
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") != dark


def give_name(page: Page, class_id: str, name: str) -> None:
    page.fill(f"#{class_id} .name input", name)
    page.press(f"#{class_id} .name input", "Enter")


ASK_AND_KEEP_THE_ANSWER = """() => {
    const [old, real] = [JSON.stringify(state), fetch];
    const answer = new Promise((done) => { window.comes = () => done(new Response(old)); });
    fetch = () => answer;
    window.asked = fetchState();
    fetch = real;
}"""


def test_an_answer_from_before_a_change_does_not_take_it_off_the_page(page: Page) -> None:
    page.evaluate(ASK_AND_KEEP_THE_ANSWER)
    give_name(page, D0, "stapler")
    expect(page.locator("#progress")).to_contain_text("1 of 2 discovered classes named")
    page.evaluate("comes(), asked")
    assert name_of(page, D0) == "stapler"


def test_what_was_asked_for_first_is_done_first(page: Page, site: Site) -> None:
    page.fill(f"#{D0} .name input", "stapler")
    page.click(f"#{D0} .drop")  # leaving the field saves the name
    expect(page.locator("#message")).to_have_text(f"dropped {D0}")
    assert [change.did for change in site.names().history] == [
        f"named {D0} stapler",
        f"dropped {D0}",
    ]


def test_a_server_that_comes_back_ends_the_complaint(page: Page) -> None:
    page.route("**/state", lambda route: route.fulfill(status=500, json={"error": "damaged"}))
    page.evaluate("fetchState()")
    expect(page.locator("#refused")).to_have_text("damaged")
    page.unroute("**/state")
    page.evaluate("fetchState()")
    expect(page.locator("#refused")).to_be_hidden()
    give_name(page, D0, "red")
    expect(page.locator("#refused")).to_contain_text("A class named red exists already")
    page.evaluate("fetchState()")
    expect(page.locator("#refused")).to_be_visible()  # an offer stays until it is answered


def test_a_full_disk_is_told_until_the_name_is_saved(
    page: Page, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        give_name(page, D0, "stapler")
        expect(page.locator("#refused")).to_contain_text("cannot save: No space left on device")
        page.evaluate("fetchState()")
        expect(page.locator("#refused")).to_be_visible()
        assert name_of(page, D0) == "stapler"
    page.press(f"#{D0} .name input", "Enter")
    expect(page.locator("#refused")).to_be_hidden()
    assert site.names().labels == {D0: "stapler"}


def test_a_name_given_elsewhere_meanwhile_is_told(page: Page, site: Site) -> None:
    page.locator(f"#{D0} .name input").focus()
    page.keyboard.type("tape")
    change_names(site.folder, lambda naming, names: naming.name(names, D0, "pen"))
    page.evaluate("fetchState()")
    expect(page.locator("#message")).to_contain_text(f"{D0} was named pen elsewhere")
    assert name_of(page, D0) == "tape"


@pytest.mark.parametrize(("choice", "label"), [("Keep pen", "pen"), ("Use tape", "tape")])
def test_a_name_from_a_stale_page_does_not_replace_another_in_silence(
    page: Page, site: Site, choice: str, label: str
) -> None:
    page.locator(f"#{D0} .name input").focus()
    page.keyboard.type("tape")
    change_names(site.folder, lambda naming, names: naming.name(names, D0, "pen"))
    page.evaluate("fetchState()")  # what was seen is what was there when the typing began
    page.keyboard.press("Enter")
    expect(page.locator("#refused p")).to_contain_text("pen now, and tape is not saved")
    assert (site.names().labels, name_of(page, D0)) == ({D0: "pen"}, "tape")
    page.get_by_role("button", name=choice).click()
    expect(page.locator("#refused")).to_be_hidden()
    expect(page.locator(f"#{D0} .name input")).to_have_value(label)
    expect(page.locator(f"#{D0}")).to_be_focused()
    wait_for(lambda: site.names().labels, {D0: label})
    give_name(page, D0, " glue ")
    expect(page.locator("#message")).to_have_text("named glue")
    give_name(page, D0, "chalk")
    expect(page.locator("#message")).to_have_text("named chalk")


def test_a_stale_drop_is_refused_until_the_change_was_seen(page: Page, site: Site) -> None:
    hold(page)
    change_names(site.folder, lambda naming, names: naming.name(names, D0, "pen"))
    page.click(f"#{D0} .drop")
    expect(page.locator("#refused")).to_contain_text(f"named {D0} pen since you saw the class")
    expect(page.locator(f"#{D0} .name input")).to_have_value("pen")
    assert site.names().drops == frozenset()
    page.click(f"#{D0} .drop")
    expect(page.locator("#message")).to_have_text(f"dropped {D0}")


def test_hundreds_of_classes_are_searched_and_paged_with_the_keyboard(
    tmp_path: Path, chromium: Browser
) -> None:
    folder = make_many(tmp_path / "many", known=20, discovered=300)
    with (
        running(create_review_app(folder, "token")) as address,
        opened(chromium, f"{address}/token/") as page,
    ):
        cards, pager = page.locator("#discovered .card"), page.locator(".pager[data-of=discovered]")
        expect(cards).to_have_count(24)
        assert page.evaluate("document.querySelectorAll('*').length") < 2500
        assert page.evaluate("document.documentElement.scrollHeight") < 5000
        for _ in range(24):
            page.keyboard.press("j")
        expect(page.locator("#discovered-024")).to_be_focused()
        expect(pager.locator("span")).to_have_text("25 to 48 of 300")
        page.keyboard.press("k")
        expect(page.locator("#discovered-023")).to_be_focused()
        give_name(page, "discovered-023", "saw")
        expect(page.locator("#discovered-024")).to_be_focused()  # the next one without a name
        pager.locator(".next").click()
        expect(cards.first).to_have_id("discovered-048")
        page.keyboard.press("/")
        page.keyboard.type("SAW")
        expect(cards).to_have_count(1)
        page.keyboard.press("Enter")
        expect(page.locator("#discovered-023")).to_be_focused()
        page.keyboard.press("m")
        page.keyboard.press("/")
        page.fill("#search", "discovered-299")
        page.keyboard.press("Enter")
        page.keyboard.press("m")
        expect(page.locator("#marked")).to_have_text("2 selected; merge into saw")
        page.keyboard.press("M")
        expect(page.locator("#discovered-023")).to_be_focused()
        expect(page.locator("#discovered-023 .members")).to_contain_text("merged: discovered-299")
        page.fill("#search", "tool 007")
        expect(page.locator("#known-007")).to_be_visible()
        expect(pager.locator("span")).to_have_text("no class matches the search")
        page.press("#search", "Escape")
        expect(cards.first).to_be_focused()
        page.set_viewport_size({"width": 390, "height": 844})
        assert not too_wide(page)


def test_a_page_with_unsaved_typing_asks_before_it_is_left(page: Page) -> None:
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", answer)
    page.reload()
    assert asked == []
    page.locator(f"#{D0} .name input").focus()
    page.keyboard.type("tape")
    page.reload()
    assert asked == ["beforeunload"]


def test_what_training_doubts_and_why_images_are_missing_is_said(page: Page) -> None:
    expect(page.locator("#notes")).to_have_text(
        "Only the typical images can be shown: the bundle was written without neighbours."
    )
    page.evaluate("state.status = ['k unsure']; show(state)")
    expect(page.locator("#notes")).to_contain_text(
        "Training status: k unsure (the number of discovered classes is uncertain)."
    )


def test_all_images_of_a_class_surest_or_least_sure_first(
    site: Site, chromium: Browser, tmp_path: Path
) -> None:
    paths = [f"{number}.jpg" for number in range(70)]  # more than are shown at once
    table = {"path": paths, "class_id": [D0] * 70, "confidence": [1 - n / 100 for n in range(70)]}
    pq.write_table(pa.table(table), site.folder / "neighbours.parquet")
    (tmp_path / "target").mkdir()
    for path in paths:
        (tmp_path / "target" / path).write_bytes(picture("yellow"))
    app = create_review_app(site.folder, "token", target=tmp_path / "target")
    with running(app) as address, opened(chromium, f"{address}/token/") as page:
        page.click(f"#{D0} .all")
        images = page.locator("#images-grid img")
        expect(images).to_have_count(60)
        page.dblclick("#more")  # twice at once gives the rest once
        expect(images).to_have_count(70)
        page.evaluate("for (const _ of [1, 2, 3]) $('unsure').click()")
        expect(images).to_have_count(60)
        expect(images.first).to_have_attribute("alt", "69.jpg")
        expect(images.first).to_have_js_property("naturalWidth", 48)
        assert [image.get_attribute("alt") for image in images.all()] == paths[:9:-1]


def test_a_doubtful_class_is_marked_with_its_reason(tmp_path: Path, chromium: Browser) -> None:
    trust = ClassTrust(stability=0.4, leak=0.3, similarity=0.6, doubts=(Doubt.LEAKS,))
    folder = make_bundle(tmp_path / "doubted", class_trust={D0: trust})
    with (
        running(create_review_app(folder, "token")) as address,
        opened(chromium, f"{address}/token/", width=390) as page,
    ):
        expect(page.locator(f"#{D0} .doubt")).to_have_text(f"Doubtful: {trust.reason}.")
        expect(page.locator(f"#{D1} .doubt")).to_be_hidden()
        expect(page.locator(f"#{D0} .facts")).to_contain_text("nearest known class: red (0.60)")
        cards = page.locator("#discovered .card")
        assert cards.evaluate_all("all => all.map((card) => card.id)") == [D1, D0]
        assert not too_wide(page)


def test_a_carried_name_is_marked_until_it_is_confirmed(tmp_path: Path, chromium: Browser) -> None:
    folder = make_carried(tmp_path / "carried")
    with (
        running(create_review_app(folder, "token")) as address,
        opened(chromium, f"{address}/token/", width=390) as page,
    ):
        badge, why = page.locator(f"#{D0} .badge"), page.locator(f"#{D0} .confirm")
        expect(badge).to_have_text("to confirm")
        expect(why).to_contain_text("many of its images were known-001 (green), discovered-007")
        expect(page.locator("#notes")).to_contain_text("what 2 classes keep of the earlier run")
        assert not too_wide(page)
        page.click("#dropped-section summary")
        expect(page.locator(f"#{D1} .confirm")).to_be_visible()
        page.click(f"#{D1} .confirm >> text=Keep it dropped")
        expect(page.locator(f"#{D1} .confirm")).to_be_hidden()
        page.click("#undo")
        expect(page.locator(f"#{D1} .confirm")).to_be_visible()
        give_name(page, D0, "a" * 201)
        expect(page.locator("#refused")).to_contain_text("Not saved")
        page.click(f"#{D0} .confirm >> text=Keep the name")  # not what was typed
        expect(badge).to_be_hidden()
        expect(why).to_be_hidden()
        page.click("#undo")
        expect(badge).to_be_visible()
        page.press(f"#{D0} .name input", "Enter")
        expect(badge).to_be_hidden()
        expect(page.locator("#notes")).to_contain_text("what 1 class keeps")
        names = read_names(folder, read_manifest(folder))
        assert (names.labels, names.version) == ({D0: "stapler"}, 6)


def test_a_carried_merge_is_confirmed_where_it_stands(tmp_path: Path, chromium: Browser) -> None:
    folder = make_carried(tmp_path / "carried", Names(version=1, merges={D1: RED}))
    with (
        running(create_review_app(folder, "token")) as address,
        opened(chromium, f"{address}/token/", width=390) as page,
    ):
        page.click("#known-section summary")
        member = page.locator(f"#{RED} .members")
        expect(member).to_contain_text("to confirm: many of its images were known-000")
        assert not too_wide(page)
        member.get_by_text("Keep it merged").click()
        expect(member).not_to_contain_text("to confirm")
        expect(member).not_to_contain_text("Keep")
        expect(page.locator(f"#{RED}")).to_be_focused()
        names = read_names(folder, read_manifest(folder))
        assert (names.merges, names.version) == ({D1: RED}, 2)


def test_the_page_says_what_the_next_name_would_cover_and_goes_there(page: Page) -> None:
    said, following = page.locator("#progress"), page.locator("#next")
    under = "of 40 target images under a name"
    expect(said).to_have_text(f"0 of 2 discovered classes named; 68% {under}")
    expect(following).to_have_text(f"next: {D0} covers 18% more (7 images)")
    give_name(page, D0, "stapler")
    expect(said).to_have_text(f"1 of 2 discovered classes named; 85% {under}")
    expect(page.locator("#bar-named")).to_have_attribute("style", "width: 85%;")
    expect(page.locator("#bar-next")).to_have_attribute("style", "width: 15%;")
    page.locator(f"#{D0}").focus()
    page.keyboard.press("g")
    expect(page.locator(f"#{D1}")).to_be_focused()
    page.keyboard.press("d")
    expect(said).to_have_text(f"1 of 1 discovered classes named; 85% {under}, 15% dropped")
    expect(following).to_be_hidden()


def test_picked_images_are_shown_alone_and_follow_names_and_merges(
    site: Site, chromium: Browser, tmp_path: Path
) -> None:
    images = {"one.jpg": D0, "two.jpg": D1, "three.jpg": RED, "four.jpg": D1}
    table = {"path": list(images), "class_id": list(images.values()), "confidence": [0.5] * 4}
    pq.write_table(pa.table(table), site.folder / "neighbours.parquet")
    (tmp_path / "target").mkdir()
    for path in images:
        (tmp_path / "target" / path).write_bytes(picture("yellow"))
    choices: list[str] = []

    def choose() -> list[str]:
        choices.append("chosen")
        return ["four.jpg", "three.jpg", "gone.jpg"]

    app = create_review_app(site.folder, "token", target=tmp_path / "target", picked=choose)
    with running(app) as address, opened(chromium, f"{address}/token/") as page:
        note, shown = page.locator("#picked-note"), page.locator("#discovered .card")
        # No key does anything before the state is there.
        expect(page.locator("#picked")).to_be_visible()
        expect(page.locator("#picked")).to_have_attribute("aria-pressed", "false")
        assert choices == []  # it takes seconds in a large target
        page.keyboard.press("p")
        expect(note).to_contain_text("Only the 2 images")
        expect(note).to_contain_text("in 2 classes; 1 of them lie in classes with a name")
        expect(shown).to_have_id(D1)
        expect(page.locator(f"#{D1} .pictures img")).to_have_attribute("alt", "four.jpg")
        expect(page.locator(f"#{RED} .pictures img")).to_have_attribute("alt", "three.jpg")
        give_name(page, D1, "pen")
        expect(note).to_contain_text("2 of them lie in classes with a name")
        page.focus(f"#{D1} .merge-into")
        page.select_option(f"#{D1} .merge-into", label="red")
        expect(page.locator(f"#{RED} .head ~ .pictures img")).to_have_count(2)
        page.keyboard.press("g")  # the next class to name has no picked image: all are shown again
        expect(page.locator(f"#{D0}")).to_be_focused()
        expect(page.locator("#picked")).to_have_attribute("aria-pressed", "false")
        expect(page.locator(f"#{D0} .pictures img")).to_have_attribute(
            "alt", f"typical image 1 of {D0}"
        )
        page.click("#picked")
        expect(note).to_be_visible()
        page.set_viewport_size({"width": 390, "height": 844})
        assert not too_wide(page)
    assert choices == ["chosen"]


def test_a_bundle_alone_has_no_picked_images(page: Page) -> None:
    expect(page.locator("#picked")).to_be_hidden()
    page.keyboard.press("p")
    expect(page.locator("#message")).to_contain_text("only a run")
