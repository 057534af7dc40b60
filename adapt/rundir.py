"""The run directory: what was asked, what happened, and the bundle."""

import dataclasses
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scda.adapt.config import TrainConfig
from scda.models.errors import GateError, UsageError
from scda.models.files import write_atomically

_NO_MATTER = ("device", "workers", "weights")  # in a resumed run; the backbone's id tells weights


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run."""

    root: Path

    @property
    def config(self) -> Path:
        """The resolved config and where the data came from."""
        return self.root / "config.json"

    @property
    def metrics(self) -> Path:
        """One JSON object per line and stage."""
        return self.root / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The last two states."""
        return self.root / "checkpoints"

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.root / "report.html"

    @property
    def discovery(self) -> Path:
        """One row per target image."""
        return self.root / "discovery.csv"

    @property
    def map(self) -> Path:
        """Where target images lie on the report's map."""
        return self.root / "map.csv"

    @property
    def bundle(self) -> Path:
        """The product."""
        return self.root / "bundle"

    @property
    def rejected(self) -> Path:
        """One row per file that could not be used."""
        return self.root / "rejected.csv"

    def append(self, record: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        with self.metrics.open("a") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()

    def records(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl; one cut off by a kill is left out.

        Raises:
            UsageError: If there is no such file.
            GateError: If it is damaged.
        """
        try:
            lines = self.metrics.read_text().splitlines()
        except OSError:
            raise UsageError(f"{self.root}: no metrics.jsonl; want a run") from None
        try:
            return [json.loads(line) for line in lines[:-1]] + _whole(lines[-1:])
        except ValueError as error:
            raise GateError(f"{self.metrics}: damaged: {error}") from None

    def forget_after(self, round_number: int) -> None:
        """Drop the lines of stages that a resumed run does again."""
        kept = [r for r in self.records() if r.get("round", r.get("during", 0)) <= round_number]
        write_atomically(self.metrics, "".join(json.dumps(r) + "\n" for r in kept))


def _whole(last_line: list[str]) -> list[dict[str, Any]]:
    """Return the last record, or nothing where a kill cut it off."""
    try:
        return [json.loads(line) for line in last_line]
    except ValueError:
        return []


def open_run(root: Path, *, overwrite: bool, resume: bool) -> RunFolder:
    """Return the folder of a new or resumed run; what stands there is never lost by accident.

    Raises:
        UsageError: If something is there and neither option says what to do with it, or both do.
    """
    run = RunFolder(root)
    if overwrite and resume:
        raise UsageError("--resume goes on, --overwrite starts again: want one of them")
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root}: is a file; want a folder for the run")
    there = root.exists() and any(root.iterdir())
    if there and not _is_run(run):
        raise UsageError(f"{root}: holds something that is no run; want a new folder")
    if there and not resume and not overwrite:
        raise UsageError(f"{root}: a run is there; --resume goes on, --overwrite starts again")
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{root}: cannot make the folder: {error.strerror}") from None
    return run


def _is_run(run: RunFolder) -> bool:
    """Any project may have a config.json; only a run's has these parts."""
    try:
        return {"config", "data"} <= read_config(run).keys()
    except GateError:
        return False


def clear(run: RunFolder) -> None:
    """Remove the files of an earlier run, and nothing that somebody put beside them."""
    for folder in (run.checkpoints, run.bundle):
        shutil.rmtree(folder, ignore_errors=True)
    tables = (run.discovery, run.map, run.rejected)
    for file in (run.config, run.metrics, run.report, *tables):
        file.unlink(missing_ok=True)


def settle_config(
    run: RunFolder, config: TrainConfig, data: dict[str, Any], extra: dict[str, Any]
) -> None:
    """Write config.json, or hold a resumed run to the one that is there.

    Args:
        run: The run.
        config: Resolved.
        data: What the run depends on besides: classes, fingerprints of source and target.
        extra: What is good to know: versions, paths.

    Raises:
        UsageError: If a resumed run would go on with something else.
    """
    fields = {"config": dataclasses.asdict(config), "data": data}
    fields = json.loads(json.dumps(fields))  # tuples become lists, as in the file
    if run.config.is_file():
        stored = read_config(run)
        for part, now in fields.items():
            _refuse_other(run, stored.get(part, {}), now)
        return
    write_atomically(run.config, json.dumps({**fields, **extra}, indent=1))


def _refuse_other(run: RunFolder, before: dict[str, Any], now: dict[str, Any]) -> None:
    for key, value in now.items():
        if key not in _NO_MATTER and value != before.get(key):
            raise UsageError(
                f"{run.root}: cannot resume: {key} was {before.get(key)!r}, is {value!r}"
            )


def read_config(run: RunFolder) -> dict[str, Any]:
    """Return config.json.

    Raises:
        GateError: If it is damaged.
    """
    try:
        fields = json.loads(run.config.read_bytes())
    except (OSError, ValueError) as error:
        raise GateError(f"{run.config}: damaged: {error}") from None
    if not isinstance(fields, dict):
        raise GateError(f"{run.config}: damaged: want an object")
    return fields
