"""A worker of a cluster: the local engine, on one part at a time."""

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa

from scda.models.predictor import Predictor, load_predictor
from scda.serve.labelling.formats.parquet import write_parquet
from scda.serve.labelling.formats.rows import LabellingInfo, Row
from scda.serve.labelling.outputs import Options
from scda.serve.labelling.pipeline import in_order, running_batches
from scda.serve.labelling.ray.attempts import Attempt, check_attempt, rows_one_by_one
from scda.serve.labelling.ray.parts import PartCounts, PartsFolder, count_rows
from scda.serve.labelling.ray.task_errors import carried_errors


@dataclass(frozen=True, kw_only=True)
class WorkerPlan:
    """What every worker needs beside its part."""

    bundle: Any  # Ray reference to the result of `read_bundle_files`; workers share no disk
    attempts: Any  # handle of the actor of `start_attempts`
    folder: PartsFolder
    options: Options
    batch_size: int
    provider: str  # cpu, cuda or openvino
    threads: int  # of the model
    decoders: int  # processes


class PartLabeller:
    """The model of one worker; maps a part to its counts, after writing its rows."""

    def __init__(self, plan: WorkerPlan) -> None:
        """Load the model."""
        self._plan, self._predictor = plan, _loaded(plan)
        self._running = ExitStack()  # never closed: it ends with this process
        self._start, self._ahead = self._running.enter_context(
            running_batches(self._predictor, plan.decoders, plan.options, at_once=1)
        )

    @carried_errors()
    def __call__(self, batch: pa.Table) -> pa.Table:
        """Return the counts of a part, from its rows if an earlier attempt wrote them."""
        self._plan.folder.check_ours()
        (fields,) = batch.to_pylist()
        part = fields["part"]
        names, files = (map(os.fsdecode, fields[name]) for name in ("names", "files"))
        attempt = self._begin(part)
        counts = self._plan.folder.counts(part)
        if not counts:
            check_attempt(part, attempt)
            counts = self._label(part, list(zip(names, files, strict=True)), attempt)
        return pa.table({"part": [part], **{name: [json.dumps(counts[name])] for name in counts}})

    def _begin(self, part: str) -> Attempt:
        import ray

        attempt: Attempt = ray.get(self._plan.attempts.begin.remote(part))
        return attempt

    def _label(self, part: str, files: Sequence[tuple[str, str]], attempt: Attempt) -> PartCounts:
        file = BytesIO()
        with write_parquet(file, _about(self._predictor)) as write:
            for rows in self._rows(part, files, attempt):
                write(rows)
        self._plan.folder.write(part, file.getvalue())
        return count_rows(file)

    def _rows(
        self, part: str, files: Sequence[tuple[str, str]], attempt: Attempt
    ) -> Iterator[list[Row]]:
        size = self._plan.batch_size
        if not attempt.one_by_one:
            return in_order(self._start, self._ahead, files, batch_size=size)
        import ray

        def note(index: int | None) -> None:
            ray.get(self._plan.attempts.note.remote(part, index))

        batches = (files[first : first + size] for first in range(0, len(files), size))
        return rows_one_by_one(self._predictor, batches, attempt, note, self._plan.options)


def read_bundle_files(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files of a bundle by their relative names."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _loaded(plan: WorkerPlan) -> Predictor:
    import ray

    with tempfile.TemporaryDirectory(prefix="scda-") as folder:
        for name, data in ray.get(plan.bundle).items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return load_predictor(Path(folder), provider=plan.provider, threads=plan.threads)


def _about(predictor: Predictor) -> LabellingInfo:
    return LabellingInfo(
        model_id=predictor.manifest.id,
        names_version=predictor.names.version,
        classes=predictor.active_classes,
        width=predictor.session.width,
        root=Path(),  # Parquet holds no absolute paths
        image_root="",
    )
