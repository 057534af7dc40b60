"""What labelled images do not define is null, and not 0."""

import json
from pathlib import Path
from typing import Any

import pytest

from scda.adapt.cli.output import print_table
from scda.adapt.evaluation.confusions import METRICS, make_truth
from scda.adapt.evaluation.evaluate import evaluate, score
from scda.models.predictor import Predictor, load_predictor
from tests.bundles import DISCOVERED, KNOWN, make_bundle, picture

OF_KNOWN = {"os", "os_star", "hos", "auroc", "h3_oracle", "h3_model"}
OF_IMPLICIT = OF_KNOWN - {"os_star"} | {"unk_pooled", "unk_macro", "acc_novel"}
OF_IMPLICIT |= {"nmi_implicit", "ari_implicit"}


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    bundle = make_bundle(tmp_path_factory.mktemp("made") / "bundle")
    return load_predictor(bundle, provider="cpu", threads=1)


def measured(predictor: Predictor, root: Path, folders: dict[str, str]) -> dict[str, Any]:
    """Evaluate on two images per folder; folders are name → colour."""
    for name, colour in folders.items():
        (root / name).mkdir(parents=True)
        for number in range(2):
            (root / name / f"{number}.jpg").write_bytes(picture(colour))
    scored = score(predictor, root, on_progress=lambda done, total: None)
    fields = evaluate(scored, predictor)
    assert make_truth(scored, fields, predictor).metrics[0][0] == next(iter(METRICS))
    return fields


def empty(fields: dict[str, Any]) -> set[str]:
    about_run = {"backbone", "preset", "seed", "seconds"}
    return {name for name, value in fields.items() if value is None} - about_run


@pytest.mark.parametrize(
    ("folders", "undefined"),
    [
        ({colour: colour for colour in (*KNOWN, *DISCOVERED)}, set()),
        ({colour: colour for colour in KNOWN}, {*OF_IMPLICIT, "ece_discovered"}),
        ({colour: colour for colour in DISCOVERED}, {*OF_KNOWN, "acc_named", "ece_known"}),
        ({"red": "red", "lemon": "yellow"}, set()),
        ({"blue": "yellow"}, {*OF_IMPLICIT, "ece_known"}),  # wrong, which is 0 and not undefined
    ],
)
def test_a_metric_without_images_is_null(
    predictor: Predictor, tmp_path: Path, folders: dict[str, str], undefined: set[str]
) -> None:
    fields = measured(predictor, tmp_path, folders)
    assert empty(fields) == undefined
    assert json.loads(json.dumps(fields)) == fields
    if folders == {"blue": "yellow"}:
        assert fields["os_star"] == fields["acc_named"] == 0.0


def test_a_table_shows_it_as_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    print_table({"hos": None, "images": 0})
    assert capsys.readouterr().out == "hos     -\nimages  0\n"
