import json
from pathlib import Path

import pytest

from scda.adapt.config import RENAMED, TrainConfig
from scda.adapt.runs.folder import RunFolder, read_config, settle_config
from scda.models.errors import UsageError

DATA = {"classes": ["bike", "mug"]}


@pytest.fixture
def earlier_run(tmp_path: Path) -> RunFolder:
    """A run whose config.json has the old names of options."""
    run = RunFolder(tmp_path)
    settle_config(run, TrainConfig(rounds=7), DATA, {})
    fields = json.loads(run.config.read_text())
    for old, new in RENAMED.items():
        fields["config"][old] = fields["config"].pop(new)
    run.config.write_text(json.dumps(fields))
    return run


def test_an_earlier_run_is_read_under_the_names_of_now(earlier_run: RunFolder) -> None:
    config = read_config(earlier_run)["config"]
    assert config["rounds"] == 7
    assert not RENAMED.keys() & config.keys()


def test_an_earlier_run_is_resumed_with_the_same_config_only(earlier_run: RunFolder) -> None:
    settle_config(earlier_run, TrainConfig(rounds=7), DATA, {})
    with pytest.raises(UsageError, match="rounds was 7, is 8"):
        settle_config(earlier_run, TrainConfig(rounds=8), DATA, {})
