"""The run folder: configuration, metrics, checkpoints, tables, report and bundle."""

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scda.adapt.config import RENAMED, TrainConfig
from scda.adapt.options import current_names
from scda.models.errors import GateError, UsageError
from scda.models.fields import count, table
from scda.models.files import (
    name_errors,
    only_writer,
    put_back,
    remove_left_behind,
    write_atomically,
)
from scda.models.places import RUN_FILES, is_run
from scda.models.run_facts import check_facts

# When resuming; the id of the backbone covers weights, that of the earlier model covers after.
_MAY_CHANGE = ("after", "device", "precision_export", "workers", "weights")
_LONGEST = 200  # largest number of characters of a value in a message
_LOCK_FILE = ".run.lock"
_CHOOSE = "use --resume to continue or --overwrite to start again"


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run."""

    root: Path

    @property
    def config(self) -> Path:
        """Resolved configuration and the folders of the data."""
        return self.root / "config.json"

    @property
    def metrics(self) -> Path:
        """Metrics: one JSON object per line."""
        return self.root / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.root / "checkpoints"

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self.root / "report.html"

    @property
    def discovery(self) -> Path:
        """Table with one row per target image."""
        return self.root / "discovery.csv"

    @property
    def map(self) -> Path:
        """Places of target images on the report's map."""
        return self.root / "map.csv"

    @property
    def tensorboard(self) -> Path:
        """Folder of TensorBoard's event files."""
        return self.root / "tensorboard"

    @property
    def bundle(self) -> Path:
        """Folder of the exported model."""
        return self.root / "bundle"

    @property
    def int8_bundle(self) -> Path:
        """Folder of the exported model in int8, if the run was asked for one."""
        return self.root / "bundle-int8"

    @property
    def images(self) -> Path:
        """Table of the images that are trained on, with the digests of their contents."""
        return self.root / "images.csv"

    @property
    def statistics(self) -> Path:
        """Statistics of the backbone in each domain, if they replace those of its pre-training."""
        return self.root / "statistics.safetensors"

    @property
    def audit(self) -> Path:
        """Table of labels that look wrong, copies and poor classes."""
        return self.root / "audit.csv"

    @property
    def held_out(self) -> Path:
        """Table of the images that a second training held out, if there was one."""
        return self.root / "held_out.csv"

    @property
    def rejected(self) -> Path:
        """Table with one row per unusable file."""
        return self.root / "rejected.csv"

    @property
    def parts(self) -> tuple[Path, ...]:
        """Everything that a run writes."""
        return tuple(self.root / name for name in RUN_FILES)

    def append(self, record: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        with name_errors(self.metrics), self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()

    def records(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl; one cut off by a kill is left out.

        Raises:
            UsageError: If there is no such file.
            GateError: If it is damaged.
        """
        try:
            lines = self.metrics.read_text("utf-8").splitlines()
        except OSError:
            missing = f"{self.root}: found no metrics.jsonl; expected the folder of a run"
            raise UsageError(missing) from None
        try:
            records = [json.loads(line) for line in lines[:-1]] + _whole(lines[-1:])
            return [_checked(record) for record in records]
        except (ValueError, TypeError, RecursionError) as error:
            raise GateError(f"{self.metrics}: damaged: {error}") from None

    def forget_after(self, round_number: int, step: int = 0) -> None:
        """Drop the lines of the steps that a resumed run repeats.

        Args:
            round_number: Number of the last finished round.
            step: Number of finished steps of the next round, if the run was stopped inside it.
        """
        done = (round_number, step)
        kept = [record for record in self.records() if _place(record) <= done]
        write_atomically(self.metrics, "".join(json.dumps(r) + "\n" for r in kept))


def _place(record: dict[str, Any]) -> tuple[int, int]:
    """Return the last finished stage at the time of a record, and the number of steps since."""
    return (record["round"], 0) if "round" in record else (record["during"] - 1, record["step"])


def _checked(record: Any) -> dict[str, Any]:
    """Return a record of metrics.jsonl that says of which stage it is.

    Raises:
        TypeError: If it does not.
    """
    records = {"record": record}
    for name in ("during", "step") if "step" in table(records, "record") else ("round",):
        count(record, name)
    return table(records, "record")


def _whole(last_line: list[str]) -> list[dict[str, Any]]:
    """Return the last record, or nothing if a kill left it incomplete."""
    try:
        return [json.loads(line) for line in last_line]
    except ValueError:
        return []


@contextmanager
def open_run(root: Path, *, overwrite: bool, resume: bool) -> Iterator[RunFolder]:
    """Give the folder of a new or resumed run, without overwriting anything by accident.

    No other command can write the run during the block. A new folder that is still empty at its end
    is removed.

    Args:
        root: Folder of the run.
        overwrite: Whether to replace a run in it.
        resume: Whether to continue a run in it.

    Raises:
        UsageError: As in `check_run`, or if another process is writing the run.
    """
    is_new = not root.exists()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{root}: cannot create the folder: {error.strerror}") from None
    try:
        with only_run_writer(root):
            check_run(root, overwrite=overwrite, resume=resume)  # it may have changed meanwhile
            _remove_unfinished(root)
            yield RunFolder(root)
    finally:
        if is_new:
            with suppress(OSError):
                root.rmdir()


def check_run(root: Path, *, overwrite: bool, resume: bool) -> None:
    """Check that a run can be written to a folder; nothing is written.

    Raises:
        UsageError: If the folder is not empty and neither option is given, or if both are, or if
            it cannot be written.
    """
    if overwrite and resume:
        raise UsageError(f"found both --resume and --overwrite; {_CHOOSE}")
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root}: is a file; expected a folder for the run")
    is_used = root.exists() and any(path.name != _LOCK_FILE for path in root.iterdir())
    if is_used and not is_run(root):
        raise UsageError(f"{root}: holds files that are not a run; use a new folder")
    if is_used and not resume and not overwrite:
        raise UsageError(f"{root}: already holds a run; {_CHOOSE}")
    there = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    if not is_used and not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise UsageError(f"{root}: cannot create the folder: {there} cannot be written")


def check_finished(root: Path) -> None:
    """Check that a folder holds a finished run.

    Raises:
        UsageError: If it holds no bundle.
    """
    put_back(RunFolder(root).bundle)
    if not RunFolder(root).bundle.is_dir():
        raise UsageError(f"{root}: found no bundle; expected a finished run")


def only_run_writer(root: Path) -> AbstractContextManager[None]:
    """Let no other command write a run during the block; it needs its folder.

    Raises:
        UsageError: If another process is writing the run.
    """
    # In the folder: it can be written, has one place under several names, and moves with the run.
    return only_writer(root, lock_file=root / _LOCK_FILE)


def _remove_unfinished(root: Path) -> None:
    """Remove the unfinished bundle and files of a killed run, which have hidden names."""
    bundle = RunFolder(root).bundle.name
    # Earlier versions called the draft of a bundle .bundle.*.
    for left in (*root.glob(".draft.*"), *root.glob(f".{bundle}.*")):
        shutil.rmtree(left, ignore_errors=True)
    for path in RunFolder(root).parts:
        remove_left_behind(path)


def clear(run: RunFolder) -> None:
    """Remove the files of an earlier run, and no other files in the folder."""
    for path in run.parts:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def settle_config(
    run: RunFolder, config: TrainConfig, data: dict[str, Any], extra: dict[str, Any]
) -> None:
    """Write config.json, or check that a resumed run has the same configuration and data.

    Args:
        run: Folder of the run.
        config: Resolved configuration.
        data: Other inputs of the run: classes, fingerprints of source and target.
        extra: Further facts, which may change: versions, paths.

    Raises:
        UsageError: If the configuration or the data of a resumed run differ.
    """
    fields = {"config": dataclasses.asdict(config), "data": data}
    fields = json.loads(json.dumps(fields))  # tuples become lists, as in the file
    if run.config.is_file():
        stored = read_config(run)
        before = {**stored["config"], **stored["data"]}
        _refuse_other(run, before, {**fields["config"], **fields["data"]})
        return
    write_atomically(run.config, json.dumps({**fields, **extra}, indent=1))


def _refuse_other(run: RunFolder, before: dict[str, Any], now: dict[str, Any]) -> None:
    other = [
        f"{key} was {_short(before.get(key))}, is {_short(value)}"
        for key, value in now.items()
        if key not in _MAY_CHANGE and value != before.get(key)
    ]
    if other:
        raise UsageError(
            f"{run.root}: cannot resume: {'; '.join(other)}; use the same values, or --overwrite "
            "to start again"
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def read_config(run: RunFolder) -> dict[str, Any]:
    """Return the content of config.json, with old names of options replaced by current ones.

    Raises:
        GateError: If it is damaged.
    """
    try:
        fields = json.loads(run.config.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise GateError(f"{run.config}: damaged: {error}") from None
    if not isinstance(fields, dict):
        raise GateError(f"{run.config}: damaged: expected a JSON object")
    try:
        check_facts(fields)
        tables = {name: table(fields, name) for name in ("config", "data")}
    except TypeError as error:
        raise GateError(f"{run.config}: damaged: {error}") from None
    return {**fields, **tables, "config": current_names(RENAMED, tables["config"])}
