import json
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from scda.adapt.audit.findings import Finding, Kind, write_findings
from scda.adapt.evaluation.confusions import make_truth
from scda.adapt.evaluation.evaluate import evaluate, score
from scda.adapt.report import report
from scda.adapt.report.report import write_report
from scda.adapt.runtime.progress import Reporter
from scda.models.bundle import Manifest, read_manifest
from scda.models.errors import GateError, UsageError
from scda.models.predictor import load_predictor
from scda.models.previous import Became, Fate, Previous
from scda.models.trust import ClassTrust, Doubt
from tests.conftest import TinyData

HOSTILE = '<script>alert("x")</script> & ünï \N{GRINNING FACE}'


class Page(HTMLParser):
    """What a browser would load and run, and the alternative texts of images."""

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


def test_every_class_has_its_images_with_a_text(tiny_run: Path) -> None:
    manifest = read_manifest(tiny_run / "bundle")
    found = page(tiny_run / "report.html")
    assert all(found.alts)
    for info in manifest.classes:
        typical = {f"typical image {number} of {info.label}" for number in (1, 2, 3, 4)}
        assert typical <= set(found.alts)


@pytest.mark.parametrize(
    ("note", "shown"),
    [
        ("k unsure: counts differ; set --k", "<b>k unsure</b>: counts differ; set --k"),
        ("weak transfer: 0.62 times, want 0.7", "<b>weak transfer</b>: 0.62 times, want 0.7"),
        ("a line: of another version", '<p class="note">a line: of another version</p>'),
    ],
)
def test_notes_of_any_version_are_shown(
    note: str, shown: str, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noted(folder: Path) -> Manifest:
        return replace(read_manifest(folder), run={"notes": [note]})

    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    monkeypatch.setattr(report, "read_manifest", noted)
    assert shown in write_report(run, Reporter(quiet=True)).read_text()


def test_a_doubtful_class_stands_last_and_says_why(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust = ClassTrust(stability=0.4, leak=0.1, similarity=0.6, doubts=(Doubt.UNSTABLE,))
    sure = replace(trust, stability=0.9, doubts=())

    def doubted(folder: Path) -> Manifest:
        manifest = read_manifest(folder)
        known, found = (
            manifest.classes[: manifest.num_known],
            manifest.classes[manifest.num_known :],
        )
        judged = [replace(info, trust=sure) for info in found]
        judged[0] = replace(judged[0], trust=trust)
        return replace(manifest, classes=(*known, *judged))

    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    monkeypatch.setattr(report, "read_manifest", doubted)
    text = write_report(run, Reporter(quiet=True)).read_text()
    before, _, after = text.partition('<h3 class="part">Doubtful</h3>')
    assert 'id="discovered-001"' in before
    assert 'id="discovered-000"' in after
    assert "<b>1</b> doubtful class<" in before
    assert f"<b>Doubtful</b>: {trust.reason}." in after
    assert sure.measures in before
    assert trust.measures not in text  # the reason says them


def test_the_page_loads_nothing_from_elsewhere(tiny_run: Path) -> None:
    # What matplotlib's SVG links to are parts of itself.
    addresses = page(tiny_run / "report.html").addresses
    assert addresses
    assert all(a.startswith(("data:image/jpeg;base64,", "#")) for a in addresses)


def test_the_page_shows_the_curves_and_every_stage(tiny_run: Path) -> None:
    found = page(tiny_run / "report.html")
    assert found.tags.count("svg") == 5  # four figures and the map
    text = (tiny_run / "report.html").read_text()
    assert "nan" not in text.partition("<svg")[2].partition("</svg")[0]
    assert all(stage in text for stage in ("pre-training", "round 1", "round 2"))
    assert "of 100 expected to be right" in text


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
    with pytest.raises(UsageError, match="expected a finished run"):
        write_report(tmp_path, Reporter(quiet=True))


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    """A copy of the run that may be changed."""
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


def rewritten(run: Path) -> str:
    return write_report(run, Reporter(quiet=True)).read_text()


def test_without_its_target_the_page_shows_what_the_bundle_keeps(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "target": "/nowhere/target"}))
    text = rewritten(run)
    assert "/nowhere/target is not on this machine" in text
    found = Page(text)
    assert "typical image 1 of discovered-000" in found.alts
    assert not [alt for alt in found.alts if alt.startswith(("image between", "untypical"))]


def test_images_that_are_gone_are_counted(run: Path) -> None:
    text = (run / "discovery.csv").read_text()
    first = text.splitlines()[1].partition(",")[0]
    for table in ("discovery.csv", "map.csv"):
        (run / table).write_text((run / table).read_text().replace(first, "gone.png"))
    assert "<b>Missing images</b>: 1 file in " in rewritten(run)


def test_without_a_map_the_page_says_so(run: Path) -> None:
    (run / "map.csv").unlink()
    text = rewritten(run)
    assert "map.csv is missing" in text
    assert Page(text).tags.count("svg") == 4


def test_names_that_people_gave_are_on_the_page(run: Path) -> None:
    said = {"version": 1, "labels": {"discovered-000": "ring & cross"}, "drops": ["known-001"]}
    (run / "bundle" / "names.json").write_text(json.dumps(said))
    text = rewritten(run)
    assert "typical image 1 of ring &amp; cross" in text
    assert "1 dropped class" in text


def test_what_is_to_confirm_says_why_for_every_class(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    previous = Previous(
        id="sha256:0",
        in_common=9,
        classes=(Fate(class_id="known-000", label="ring & cross", became=Became.KEPT),),
        new=(),
        retired={},
        to_confirm={"discovered-000": ("known-000",), "discovered-001": ()},
    )
    monkeypatch.setattr(
        report, "read_manifest", lambda folder: replace(read_manifest(folder), previous=previous)
    )
    _, _, text = rewritten(run).partition('<h3 class="part">To confirm</h3>')
    cells = text.partition("</table>")[0].split("<td>")[2::2]
    assert cells[0].startswith("many of its images were known-000 (ring &amp; cross) before</td>")
    assert cells[1].startswith(previous.why_to_confirm("discovered-001"))


def test_a_file_name_cannot_end_the_maps_data(run: Path) -> None:
    name = (run / "map.csv").read_text().splitlines()[1].partition(",")[0]
    for table in ("discovery.csv", "map.csv"):
        text = (run / table).read_text().replace(name, "</script><script>alert(1).png")
        (run / table).write_text(text)
    assert Page(rewritten(run)).tags.count("script") == 2


def test_a_table_of_another_run_is_refused(run: Path) -> None:
    text = (run / "discovery.csv").read_text()
    (run / "discovery.csv").write_text(text.replace("known-001", "known-777"))
    with pytest.raises(GateError, match=r"'known-777' is not a class of .*bundle"):
        write_report(run, Reporter(quiet=True))


def test_what_takes_time_is_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter() as reporter:
        write_report(run, reporter)
    assert "reading images for the report" in capsys.readouterr().err


def test_a_labelled_target_adds_metrics_and_confusions(run: Path, tiny: TinyData) -> None:
    predictor = load_predictor(run / "bundle", provider="cpu", threads=1)
    scored = score(predictor, tiny.labelled, on_progress=lambda done, total: None)
    truth = make_truth(scored, evaluate(scored, predictor), predictor)
    assert "Measured on labelled images" not in (run / "report.html").read_text()
    text = write_report(run, Reporter(quiet=True), truth=truth).read_text()
    assert "Measured on labelled images" in text
    assert "correspondence_5" in text
    assert "Reliability of the confidence" in text
    assert Page(text).tags.count("svg") == 6
    assert "white_cross" in text
    assert text.count('scope="row"') == 5


def test_the_agreement_of_a_second_training_is_shown_and_is_no_accuracy(run: Path) -> None:
    text = rewritten(run)
    assert "second training" not in text  # the run has too few images for one
    rows = [
        f"{number}.png,{kind}-000,0.{number:02},0.9,{'true' if number % 2 else 'false'}"
        for kind in ("known", "discovered")
        for number in range(10, 90)
    ]
    header = "path,class_id,confidence,uncalibrated,agrees"
    (run / "held_out.csv").write_text("\n".join([header, *rows, ""]))
    shown = rewritten(run)
    assert Page(shown).tags.count("svg") == Page(text).tags.count("svg") + 2
    assert "without 160 of the target's images" in shown
    assert "50 of 100 of them into the same class" in shown
    assert "the mean confidence in them is 50% (90% before calibration)" in shown.replace(
        "49%", "50%"
    )
    assert "agreement, not accuracy" in shown


def test_labels_and_copies_to_check_are_shown_and_how_to_leave_them_out(
    tiny: TinyData, tiny_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    one, other, *_ = sorted(path.relative_to(tiny.source) for path in tiny.source.rglob("*.*"))
    write_findings(
        run / "audit.csv",
        [
            Finding(
                kind=Kind.LABEL,
                domain="source",
                path=str(one),
                label="disc",
                suggested=HOSTILE,
                score=-0.5,
                other=str(other),
                remove=True,
                message="x",
            ),
            Finding(
                kind=Kind.COPY,
                domain="source",
                path=str(one),
                label="disc",
                other=str(other),
                remove=True,
                message="x",
            ),
            Finding(kind=Kind.FEW, domain="source", path="disc", label="disc", message="2 images"),
        ],
    )
    shown = write_report(run, Reporter(quiet=True)).read_text()
    assert "<b>1</b> label <a" in shown
    assert "<code>--exclude-from RUN/audit.csv</code>" in shown
    assert shown.count(f'title="{one}" loading') == 2
    assert "<td>2 images</td>" in shown
    assert HOSTILE not in shown

    assert 'id="audit"' in (tiny_run / "report.html").read_text()
    (run / "audit.csv").unlink()  # as in a run of an earlier version
    assert 'id="audit"' not in write_report(run, Reporter(quiet=True)).read_text()
