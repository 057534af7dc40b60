"""Labelling with Ray Data: the rows of the local engine, on a cluster."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa

from scda.models.decoding.stored import is_uri
from scda.models.folders import Skipped
from scda.models.predictor import Predictor
from scda.models.session import OPENVINO
from scda.serve.labelling.journal import Job
from scda.serve.labelling.label import BATCH_SIZE, check_errors, check_options
from scda.serve.labelling.outputs import DEFAULTS, Options
from scda.serve.labelling.ray.attempts import start_attempts
from scda.serve.labelling.ray.cluster import (
    cpus_per_gpu,
    driver_node,
    ray_cluster,
    threads_of_worker,
    use_gpus,
)
from scda.serve.labelling.ray.counting import counted
from scda.serve.labelling.ray.listing import Source, files_have_changed, list_parts
from scda.serve.labelling.ray.parts import COUNTED, PartsFolder
from scda.serve.labelling.ray.task_errors import carried_errors
from scda.serve.labelling.ray.validation import check_output, check_summary, find_sources
from scda.serve.labelling.ray.worker import PartLabeller, WorkerPlan, read_bundle_files
from scda.serve.labelling.sources import ALL_FILES, FileSelection, LocalFiles
from scda.serve.labelling.summary import Summary, Tally


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
    resume: bool = False,
    max_errors: int | None = None,
    on_progress: Callable[[int, int, int], None] = lambda done, total, failed: None,
) -> Summary:
    """Write one row per file to a folder of Parquet parts, in no order.

    Args:
        predictor: Loaded bundle; every worker gets a copy of its files.
        inputs: Folders, files and patterns visible to all machines, or URIs.
        outs: One new or empty folder or URI. Parts appear in it when they are done, each whole;
            `SUCCESS` appears last.
        options: Options of the rows, and the file of the summary.
        selection: Files to label.
        files_from: List of files or URIs, or folder of lists, instead of inputs.
        batch_size: Number of files per call of the model; None suits the provider.
        provider: As in `use_gpus`.
        threads: Number of threads of the model and CPUs per worker without a GPU; 0 is 1, and at
            most the CPUs of one machine count.
        resume: Whether to continue a stopped labelling with the same output.
        max_errors: Largest number of failed files.
        on_progress: Called after each part with the numbers of files done, in total (0 while they
            are counted) and failed.

    Raises:
        UsageError: If an input, an output or the cluster is missing or wrong, or the resumed
            labelling differs.
        DataError: If there is no file to label, or too many failed.
        ScdaError: If the cluster fails.
    """
    check_options(predictor, options, batch_size)
    folder = PartsFolder(check_output(outs, inputs))
    folder.check(resume=resume)
    check_summary(options.summary)
    outputs = [options.summary] if options.summary else []
    sources = find_sources(inputs, files_from, selection, outputs)
    local = (source for source in sources if isinstance(source, LocalFiles))
    skipped = sum((source.count_skipped() for source in local), Skipped())
    labels = {one.class_id: one.label for one in predictor.active_classes}
    started, tally, resumed = time.monotonic(), Tally(), 0
    with ray_cluster() as ray:
        plan = _plan(ray, predictor, folder, options, batch_size, provider, threads)
        job = _job(predictor, inputs, files_from, selection, plan)
        with folder.writing(job) as before, counted(sources) as total:
            seen = set()
            for part, classes, errors in _labelled(ray, sources, plan, before):
                for class_id, count in classes.items():
                    tally.classes[class_id, labels[class_id]] += count
                tally.errors.update(errors)
                seen.add(part)
                resumed += part in before and classes.total() + errors.total()
                on_progress(tally.num_done, total(), tally.num_failed)
                check_errors(tally.errors, max_errors)
            if before - seen:
                raise files_have_changed(f"of {min(before - seen)}")
            folder.finish(seen)
    summary = Summary(
        **tally.counts(),
        hidden=skipped.hidden,
        linked_folders=skipped.linked_folders,
        resumed=resumed,
        excluded=None,  # `find_sources` refuses a list
        seconds=time.monotonic() - started,
        provider=plan.provider,
        model_id=predictor.manifest.id,
        names_version=predictor.names.version,
    )
    if options.summary:
        summary.write(options.summary)
    return summary


def _plan(
    ray: ModuleType,
    predictor: Predictor,
    folder: PartsFolder,
    options: Options,
    batch_size: int | None,
    provider: str,
    threads: int,
) -> WorkerPlan:
    gpus = use_gpus(ray, provider)
    actual = "cuda" if gpus else provider if provider == OPENVINO else "cpu"
    return WorkerPlan(
        bundle=ray.put(read_bundle_files(predictor.folder)),
        attempts=start_attempts(ray, driver_node(ray)),
        folder=folder,
        options=options,
        batch_size=batch_size or BATCH_SIZE[actual],
        provider=actual,
        threads=threads_of_worker(ray, threads),
        decoders=cpus_per_gpu(ray) if gpus else 1,
    )


def _labelled(
    ray: ModuleType, sources: Sequence[Source], plan: WorkerPlan, written: frozenset[str]
) -> Iterator[tuple[str, Counter[str], Counter[str]]]:
    """Yield each part with its numbers of files per class id and per error code, in no order."""
    numbers = ray.data.from_items(list(range(len(sources))), override_num_blocks=len(sources))
    parts = numbers.map_batches(
        _listed,
        fn_kwargs={
            "sources": sources,
            "here": os.getcwd(),
            "batch_size": plan.batch_size,
            "written": written,
            "job_key": plan.folder.job_key,
        },
        batch_size=1,
        num_cpus=0,  # with all CPUs held by workers it would never start
        label_selector=driver_node(ray),
    )
    gpus = plan.provider == "cuda"
    counts = parts.map_batches(
        PartLabeller,
        fn_constructor_kwargs={"plan": plan},
        batch_size=1,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(min_size=1),
        num_cpus=plan.decoders if gpus else plan.threads,
        num_gpus=1 if gpus else None,
    )
    for block in counts.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
        for row in block.to_pylist():
            classes, errors = (Counter(json.loads(row[name])) for name in COUNTED)
            yield row["part"], classes, errors


def _listed(batch: Mapping[str, Iterable[int]], **given: Any) -> Iterator[pa.Table]:
    with carried_errors():
        yield from list_parts(batch, **given)


def _job(
    predictor: Predictor,
    inputs: Sequence[str],
    files_from: str | None,
    selection: FileSelection,
    plan: WorkerPlan,
) -> Job:
    """Return the properties that a resumed labelling must share, as plain JSON values."""
    return {
        "model_id": predictor.manifest.id,
        "names_version": predictor.names.version,
        "inputs": [_absolute(name) for name in inputs],
        "files_from": files_from and _absolute(files_from),
        **selection.rules,
        "top": plan.options.top,
        "min_confidence": plan.options.min_confidence,
        **vars(plan.options.limits),
        # Another batch size or provider changes the last digits.
        "batch_size": plan.batch_size,
        "provider": plan.provider,
    }


def _absolute(name: str) -> str:
    return name if is_uri(name) else str(Path(name).absolute())
