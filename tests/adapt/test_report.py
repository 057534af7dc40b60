import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from scda.adapt import report
from scda.adapt.progress import Reporter
from scda.adapt.report import write_report
from scda.models.bundle import Manifest, read_manifest
from scda.models.errors import UsageError

HOSTILE = '<script>alert("x")</script> & ünï \N{GRINNING FACE}'


class Page(HTMLParser):
    """What a browser would load and run, and the pictures' texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.alts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        fields = dict(attrs)
        if tag == "img":
            self.alts.append(fields.get("alt") or "")
        self.addresses += [v for n, v in attrs if n in ("src", "href") and v]


def page(path: Path) -> Page:
    return Page(path.read_text())


def test_every_class_has_its_pictures_with_a_text(tiny_run: Path) -> None:
    manifest = read_manifest(tiny_run / "bundle")
    found = page(tiny_run / "report.html")
    assert all(found.alts)
    for info in manifest.classes:
        typical = {f"typical image {number} of {info.label}" for number in (1, 2, 3, 4)}
        assert typical <= set(found.alts)


def test_the_page_loads_nothing_from_elsewhere(tiny_run: Path) -> None:
    # What matplotlib's SVG links to are parts of itself.
    addresses = page(tiny_run / "report.html").addresses
    assert addresses
    assert all(a.startswith(("data:image/jpeg;base64,", "#")) for a in addresses)


def test_the_page_shows_the_curves_and_every_stage(tiny_run: Path) -> None:
    found = page(tiny_run / "report.html")
    assert found.tags.count("svg") == 6  # five figures and the map
    text = (tiny_run / "report.html").read_text()
    assert "nan" not in text.partition("<svg")[2].partition("</svg")[0]
    assert all(stage in text for stage in ("pre-training", "round 1", "round 2"))


def test_a_hostile_class_name_is_only_text(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def renamed(folder: Path) -> Manifest:
        manifest = read_manifest(folder)
        first = replace(manifest.classes[0], label=HOSTILE)
        return replace(manifest, classes=(first, *manifest.classes[1:]))

    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    monkeypatch.setattr(report, "read_manifest", renamed)
    found = page(write_report(run, Reporter(quiet=True)))
    assert found.tags.count("script") == 2  # the page's own: what it draws, and how
    assert any(HOSTILE in alt for alt in found.alts)


def test_the_same_run_gives_the_same_page(tiny_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    assert (
        write_report(run, Reporter(quiet=True)).read_bytes()
        == (tiny_run / "report.html").read_bytes()
    )


def test_rejected_files_are_shown(tiny_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    (run / "rejected.csv").write_text("path,error_code,error\na<b>.jpg,empty,no bytes\n")
    text = write_report(run, Reporter(quiet=True)).read_text()
    assert "a&lt;b&gt;.jpg" in text


def test_an_unfinished_run_has_no_report(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="want a finished run"):
        write_report(tmp_path, Reporter(quiet=True))
