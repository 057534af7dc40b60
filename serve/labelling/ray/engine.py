"""Labelling with Ray Data: the rows of the local engine, on a cluster."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.compute as pc
from pyarrow.dataset import dataset

from scda.models.files import atomic_folder
from scda.models.folders import Skipped
from scda.models.predictor import Predictor
from scda.serve.labelling.formats.parquet import ROW_GROUP, schema_of
from scda.serve.labelling.label import check_options
from scda.serve.labelling.object_stores import file_system_of, is_uri
from scda.serve.labelling.outputs import DEFAULTS, Options
from scda.serve.labelling.ray.cluster import ray_cluster, use_gpus
from scda.serve.labelling.ray.stages import Predict, Source, decode, list_files, read_bundle_files
from scda.serve.labelling.ray.validation import check_output, check_summary, find_sources
from scda.serve.labelling.sources import ALL_FILES, FileSelection, LocalFiles
from scda.serve.labelling.summary import Summary, by_label

SUCCESS = "_SUCCESS"  # empty object: every part is written; readers of Parquet skip it
_BATCH_SIZE = 32
_BATCHES_A_TASK = 8  # a few seconds of one core
_ROWS_A_PART = 8 * ROW_GROUP


def label_on_ray(
    predictor: Predictor,
    inputs: Sequence[str],
    outs: Sequence[str],
    *,
    options: Options = DEFAULTS,
    selection: FileSelection = ALL_FILES,
    files_from: str | None = None,
    batch_size: int | None = None,
    provider: str = "auto",
    threads: int = 0,
    progress: bool = False,
) -> Summary:
    """Write one row per file to a folder of Parquet files, in no order.

    Args:
        predictor: Loaded bundle; every actor gets a copy of its files.
        inputs: Folders, files and patterns visible to all machines, or URIs.
        outs: One new or empty folder or URI. A folder appears at the end, complete; under a URI
            `SUCCESS` appears last.
        options: Options of the rows, and the file of the summary.
        selection: Files to label.
        files_from: List of files or URIs instead of inputs.
        batch_size: Number of files per call of the model; None is 32.
        provider: As in `use_gpus`.
        threads: Number of threads and CPUs per actor; 0 is 1.
        progress: Whether Ray shows progress bars.

    Raises:
        UsageError: If an input, an output or the cluster is missing or wrong.
        DataError: If there is no file to label.
        ScdaError: If the cluster fails.
    """
    check_options(predictor, options)
    batch_size = batch_size or _BATCH_SIZE
    out = check_output(outs, inputs)
    check_summary(options.summary)
    outputs = [options.summary] if options.summary else []
    sources = find_sources(inputs, files_from, selection, outputs)
    local = (source for source in sources if isinstance(source, LocalFiles))
    skipped = sum((source.count_skipped() for source in local), Skipped())
    started = time.monotonic()
    with ray_cluster(progress=progress) as ray, _written_whole(out) as folder:
        gpus = use_gpus(ray, provider)
        files = _files(ray, sources, _BATCHES_A_TASK * batch_size)
        rows = _rows(ray, files, predictor, options, batch_size, threads or 1, gpus=gpus)
        system, path = file_system_of(folder)
        rows.write_parquet(
            path,
            filesystem=system,  # in a URI, Ray would interpret %xx, ? and #
            min_rows_per_file=_ROWS_A_PART,
            row_group_size=ROW_GROUP,
            schema=schema_of(predictor.manifest.id, predictor.names.version),
            # Writing mostly waits for storage; with all CPUs held by actors it would never start.
            ray_remote_args={"num_cpus": 0},
        )
        classes, errors = _counts(folder)
    named = {one.class_id: one.label for one in predictor.active_classes}
    summary = Summary(
        labels=by_label(Counter({(i, named[i]): count for i, count in classes.items()})),
        errors=dict(errors.most_common()),
        hidden=skipped.hidden,
        linked_folders=skipped.linked_folders,
        seconds=time.monotonic() - started,
        provider="cuda" if gpus else "cpu",
        model_id=predictor.manifest.id,
        names_version=predictor.names.version,
    )
    if options.summary:
        summary.write(options.summary)
    return summary


def _files(ray: ModuleType, sources: Sequence[Source], rows_a_block: int) -> Any:
    """Return the dataset of names and files; one task lists each source lazily."""
    numbers = ray.data.from_items(list(range(len(sources))), override_num_blocks=len(sources))
    listed = numbers.map_batches(
        list_files, fn_kwargs={"sources": sources, "here": os.getcwd()}, batch_size=1
    )
    # Ray fuses the two stages: blocks leave the listing as they fill.
    return listed.repartition(target_num_rows_per_block=rows_a_block)


def _rows(
    ray: ModuleType,
    files: Any,
    predictor: Predictor,
    options: Options,
    batch_size: int,
    threads: int,
    *,
    gpus: bool,
) -> Any:
    """Return the dataset of rows.

    Without GPUs both stages need the same resources, and Ray fuses them: pixels stay local.
    With GPUs decoding runs on every CPU of the cluster.
    """
    pixels = files.map_batches(
        decode,
        fn_kwargs={"preprocessing": predictor.manifest.preprocessing},
        batch_size=batch_size,
        batch_format="pyarrow",
        num_cpus=1 if gpus else threads,
    )
    return pixels.map_batches(
        Predict,
        fn_constructor_kwargs={
            "bundle": ray.put(read_bundle_files(predictor.folder)),
            "options": options,
            "provider": "cuda" if gpus else "cpu",
            "threads": threads,
        },
        batch_size=batch_size,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(min_size=1),
        num_cpus=threads,
        **({"num_gpus": 1} if gpus else {}),
    )


@contextmanager
def _written_whole(out: str) -> Iterator[str]:
    """Give the folder or URI to write to."""
    if not is_uri(out):
        with atomic_folder(Path(out).absolute()) as draft:
            yield str(draft)
        return
    yield out  # object stores cannot rename
    system, path = file_system_of(out)
    system.open_output_stream(f"{path}/{SUCCESS}").close()


def _counts(folder: str) -> tuple[Counter[str], Counter[str]]:
    """Return the numbers of files per class id and per error code in the written files."""
    system, path = file_system_of(folder)
    classes, errors = Counter[str](), Counter[str]()
    columns = {"class_id": classes, "error_code": errors}
    for batch in dataset(path, filesystem=system).to_batches(columns=list(columns)):
        for name, counter in columns.items():
            for entry in pc.value_counts(batch[name].drop_null()).to_pylist():
                counter[entry["values"]] += entry["counts"]
    return classes, errors
