from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks import domainnet, officehome
from benchmarks.open_set.protocols import Files
from benchmarks.open_set.studies import Request, main_runs
from scda.models.errors import UsageError

_HOME = (
    *("Alarm_Clock", "Backpack", "Batteries", "Bed", "Bike", "Bottle"),
    *("Bucket", "Calculator", "Calendar", "Candles", "Chair", "Clipboards"),
    *("Computer", "Couch", "Curtains", "Desk_Lamp", "Drill", "Eraser"),
    *("Exit_Sign", "Fan", "File_Cabinet", "Flipflops", "Flowers", "Folder"),
    *("Fork", "Glasses", "Hammer", "Helmet", "Kettle", "Keyboard"),
    *("Knives", "Lamp_Shade", "Laptop", "Marker", "Monitor", "Mop"),
    *("Mouse", "Mug", "Notebook", "Oven", "Pan", "Paper_Clip"),
    *("Pen", "Pencil", "Postit_Notes", "Printer", "Push_Pin", "Radio"),
    *("Refrigerator", "Ruler", "Scissors", "Screwdriver", "Shelf", "Sink"),
    *("Sneakers", "Soda", "Speaker", "Spoon", "TV", "Table"),
    *("Telephone", "ToothBrush", "Toys", "Trash_Can", "Webcam"),
)
_APART = ("Chair", *(f"animal_{number}" for number in range(296)))  # of DomainNet, merged with none


def folders(root: Path, classes: dict[str, int]) -> None:
    """Make class folders with as many files, which hold no image."""
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            (root / name / f"{number:03}.jpg").write_bytes(b"no image")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """65 classes of Office-Home in four domains; DomainNet with the merged ones and 297 others."""
    root = tmp_path_factory.mktemp("data")
    for number, domain in enumerate(officehome.DOMAINS.values(), 1):
        folders(root / "OfficeHome" / domain, dict.fromkeys(_HOME, number))
    for domain in domainnet.TARGETS.values():
        folders(root / "DomainNet" / domain, dict.fromkeys(domainnet.MERGED, 1))
        folders(root / "DomainNet" / domain, dict.fromkeys(_APART, 12))
    return root


def test_office_home_knows_the_first_25_by_alphabet(root: Path) -> None:
    lists = officehome.task_lists(root / "OfficeHome", officehome.PROTOCOL, "Ar-Rw")
    assert (len(lists.source), len(lists.target), lists.num_known) == (25, 65 * 4, 25)
    assert [path.parent.name for path in lists.source] == list(_HOME[:25])
    assert {path.parent.parent.name for path in lists.target} == {"Real World"}
    for path, label in zip(lists.target, lists.truth, strict=True):
        assert path.parent.name == _HOME[label]


def test_office_home_has_twelve_tasks_and_its_own_k_max(root: Path, tmp_path: Path) -> None:
    data = officehome.OFFICE_HOME
    assert len(data.tasks) == 12
    request = Request(
        root / "OfficeHome", "25/40", "main", "robust", ("Cl-Pr",), 1, tmp_path, data=data
    )
    (run,) = main_runs(request)
    assert run.config.k_max == 120
    assert (run.name["protocol"], run.name["task"]) == ("25/40", "Cl-Pr")


def test_another_folder_is_not_office_home(tmp_path: Path) -> None:
    for domain in ("Art", "Real World"):
        folders(tmp_path / domain, {"Bed": 1})
    with pytest.raises(UsageError, match="Art has 1 class folders, expected 65"):
        officehome.task_lists(tmp_path, officehome.PROTOCOL, "Ar-Rw")


def test_the_paper_s_297_implicit_classes_are_left() -> None:
    assert len(domainnet.MERGED) == 345 - 297
    assert len(_HOME) == 65
    assert set(domainnet.MERGED.values()) <= set(_HOME)


def test_domainnet_joins_classes_of_one_meaning(root: Path) -> None:
    lists = domainnet.task_lists(root, domainnet.PROTOCOL, "Ar-Cl")
    assert (len(lists.source), lists.num_known) == (65, 65)
    of_class = dict.fromkeys(lists.truth, 0)
    for path, label in zip(lists.target, lists.truth, strict=True):
        of_class[label] += 1
        name = path.parent.name
        assert _HOME[label] == domainnet.MERGED.get(name, name) if label < 65 else name in _APART
    assert len(of_class) == 65 + len(_APART)
    # `telephone` and `cell_phone` beside two files of Office-Home's Clipart.
    assert of_class[_HOME.index("Telephone")] == 4
    # `Chair` of DomainNet is no class of MERGED, so it stays apart from Office-Home's.
    cut = round(297 / 4)
    assert sum(of_class[label] for label in of_class if label >= 65) == 297 * 12 - 2 * cut


def test_a_quarter_is_cut_and_the_same_one_every_time() -> None:
    names = [f"domainnet/{n}" for n in range(40)]
    paths = {name: [Path(f"{name}/{row}") for row in range(30)] for name in names}
    files = Files("here", {"known": [Path("k")] * 30, **paths})
    first, second = (domainnet.thinned(files, names) for _ in range(2))
    assert first.of_class == second.of_class
    sizes = np.array([len(first.of_class[name]) for name in names])
    assert np.bincount(sizes).nonzero()[0].tolist() == [10, 30]
    assert (sizes == 10).sum() == 10
    assert len(first.of_class["known"]) == 30


def test_a_class_that_is_to_be_merged_must_be_there() -> None:
    extra = {name: [Path("a")] for name in domainnet.MERGED}
    home = {name: [Path("a")] for name in domainnet.MERGED.values()}
    domainnet.merged(Files("home", home), Files("real", extra))
    del home["Mouse"]
    with pytest.raises(UsageError, match="home has no images of Mouse"):
        domainnet.merged(Files("home", home), Files("real", extra))
    del extra["mouse"]
    with pytest.raises(UsageError, match="real has no images of mouse"):
        domainnet.merged(Files("home", home), Files("real", extra))


def test_part_of_domainnet_is_not_domainnet(root: Path, tmp_path: Path) -> None:
    (tmp_path / "OfficeHome").symlink_to(root / "OfficeHome")
    folders(tmp_path / "DomainNet" / "real", {**dict.fromkeys(domainnet.MERGED, 1), "bat": 1})
    with pytest.raises(UsageError, match="65 known and 1 implicit classes, expected 65 and 297"):
        domainnet.task_lists(tmp_path, domainnet.PROTOCOL, "Ar-Rw")


def test_one_command_measures_and_prints(
    root: Path, no_backbone: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--root", str(root / "OfficeHome"), "--out", str(tmp_path / "out.jsonl")]
    given += ["--cache", str(tmp_path), "--tasks", "Ar-Cl", "--method", "source_only"]
    assert officehome.main([*given, "--seeds", "1"]) == 0
    told = capsys.readouterr()
    assert "| source_only |" in told.out
    assert "1 of 1" in told.err
    assert no_backbone == [25 + 65 * 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("main", "folder", "row"),
    [
        (officehome.main, "OfficeHome", "| 25/40, 1 of 12 tasks |"),
        (domainnet.main, "", "| 65/297, 1 of 4 tasks |"),
    ],
)
def test_scda_stands_beside_what_is_published_for_the_data_set(
    main: Callable[[list[str]], int],
    folder: str,
    row: str,
    root: Path,
    no_backbone: list[int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["--root", str(root / folder), "--out", str(tmp_path / "out.jsonl"), "--seeds", "1"]
    methods = ["--method", "scda", "--method", "source_only"]
    assert main([*given, "--tasks", "Ar-Cl", *methods, "--cache", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert row in told.out
    assert "| source_only |" in told.out


def test_a_study_of_office_31_is_refused(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--root", str(root), "--out", str(tmp_path / "out.jsonl"), "--study", "stress"]
    assert domainnet.main(given) == 2
    assert "domainnet: study is 'stress', expected main" in capsys.readouterr().err
    assert officehome.main([*given[:4], "--tasks", "Ar-Ar"]) == 2
    assert "officehome: task is 'Ar-Ar', expected Ar-Cl or" in capsys.readouterr().err
