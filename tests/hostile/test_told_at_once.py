"""A wrong option or path is told before torch or a model is loaded, which takes seconds."""

import json
import subprocess
import sys
from pathlib import Path

from scda.models.networks.backbone_names import NAMES
from scda.models.networks.backbones import BACKBONES
from tests.bundles import make_bundle, picture

# Runs every command line in one process, in which a heavy import, or a model, is an error.
_RUN = """
import json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "sklearn", "timm"):
            raise AssertionError(f"imported {name}")

def load(*bundle, **options):
    raise AssertionError("loaded a model")

sys.meta_path.insert(0, Refuse())
from scda.adapt.cli import predictor
predictor.load = load
from scda.adapt.cli.errors import _exit_code
from scda.adapt.cli.main import app

for words in json.loads(sys.argv[1]):
    sys.argv = ["scda-adapt", *words]
    print(_exit_code(app), words[0])
"""


def test_a_wrong_option_is_told_at_once(tmp_path: Path) -> None:
    bundle, photos, run = tmp_path / "bundle", tmp_path / "photos", tmp_path / "run"
    make_bundle(bundle)
    for name in ("photos", "run", "source/cat", "demo"):
        (tmp_path / name).mkdir(parents=True)
    (photos / "a.jpg").write_bytes(picture("red"))
    (tmp_path / "demo" / "thesis.tex").touch()
    (run / "thesis.tex").touch()
    train = ["train", "--source", str(tmp_path / "source"), "--target", str(photos)]
    new = [*train, "--out", str(tmp_path / "new")]
    label = ["label", str(bundle), str(photos)]
    wrong = [
        [*new, "--k", "-1"],
        [*new, "--novel", "maybe"],
        [*new, "--backbone", "resnet51"],
        [*new, "--backbone", "conv4+lite9"],
        [*new, "--weights", str(tmp_path / "none.pt")],
        [*new, "--config", str(tmp_path / "none.toml")],
        [*new, "--resume", "--overwrite"],
        [*new, "--cache", str(photos / "cache")],
        [*train, "--out", str(run)],
        [*train, "--out", str(photos / "run"), "--dry-run"],
        ["train", "--source", "nope", "--target", str(photos), "--out", "new"],
        ["train", "--source", str(photos), "--target", "nope", "--out", "new"],
        [*label, "--out", str(tmp_path / "rows.xls")],
        [*label, "--out", str(bundle / "names.csv")],
        [*label, "--sort-into", str(photos / "sorted")],
        [*label, "--sort-into", str(tmp_path / "sorted"), "--mode", "move"],
        [*label, "--engine", "ray", "--out", str(tmp_path / "rows.csv")],
        ["label", str(bundle), "nope", "--out", str(tmp_path / "rows.csv")],
        ["evaluate", "nope", str(photos)],
        ["evaluate", str(bundle), "nope"],
        ["report", str(run)],
        ["demo", "--out", str(tmp_path / "demo")],
        ["demo", "--out", str(tmp_path / "other"), "--seed", "-1"],
    ]
    words = [sys.executable, "-c", _RUN, json.dumps(wrong)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"2 {words[0]}" for words in wrong], done.stderr
    assert len(done.stderr.splitlines()) == len(wrong)
    assert not (tmp_path / "new").exists()


def test_every_backbone_has_its_name_checked() -> None:
    assert set(NAMES) == set(BACKBONES)
