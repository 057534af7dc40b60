"""Whole trainings as users start them: the words of `scda-adapt`, and `torchrun`."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conftest import TinyData


def words_of(tiny: TinyData, out: Path, **changes: Any) -> list[str]:
    """The words of `scda-adapt` for a run."""
    config = dataclasses.asdict(tiny.job(out, workers=1, **changes).config)
    file = out.with_suffix(".toml")
    # TOML's values are written as JSON's are.
    file.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in config.items()))
    paths = {"source": tiny.source, "target": tiny.target, "out": out, "cache": tiny.cache}
    words = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    return ["train", *words, "--config", str(file)]


def torchrun(words: Sequence[str], *, processes: int = 2) -> subprocess.Popen[str]:
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [*launch, "-m", "scda.adapt", *words]
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
