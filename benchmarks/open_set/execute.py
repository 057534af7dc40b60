"""Execute runs: compute the features of their images once, then run in a few processes."""

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.open_set.results import Record
from benchmarks.open_set.runs import Inputs, Run, inputs_of, one_thread
from scda.adapt.data.dataset import job_backbone
from scda.adapt.data.features import extract
from scda.adapt.pipeline.statistics import (
    Chosen,
    adapts_statistics,
    choose,
    offered_statistics,
)
from scda.models.errors import DataError
from scda.models.networks.backbones import Backbone


def say(line: str) -> None:
    """Print a line of progress on standard error."""
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Computed:
    """The backbone's features of images by their paths, and the cache that they come from."""

    features: dict[Path, NDArray[np.float32]]
    cache: Path
    classifier: nn.Linear | None = None  # of the backbone's pre-training

    def inputs(self, run: Run) -> Inputs:
        """Return the inputs of a run, with the statistics that `scda-adapt train` would choose."""
        inputs = replace(inputs_of(run.lists, self.features), classifier=self.classifier)
        if not adapts_statistics(run.config):
            return inputs
        # A folder is scanned in the order of its paths, and so its statistics serve several tasks.
        rows = sorted(range(len(run.lists.target)), key=run.lists.target.__getitem__)
        paths = list(run.lists.source), [run.lists.target[row] for row in rows]
        before = Chosen(inputs.source, inputs.target[rows], job_backbone(run.config), {})

        def features(of: list[Path], adapted: Backbone, domain: str) -> Tensor:
            return torch.from_numpy(extract(of, adapted, cache_folder=self.cache).features)

        found = offered_statistics(before, paths, run.config, cache=self.cache)
        always = run.config.backbone_statistics == "domain"
        chosen = choose(replace(before, statistics=found), paths, features, always=always)
        target = torch.empty_like(chosen.target)
        target[rows] = chosen.target
        return replace(inputs, source=chosen.source, target=target)


def features_of(runs: Sequence[Run], cache: Path) -> Computed:
    """Return the backbone's features of every image that a run needs."""
    if not runs:
        return Computed({}, cache)
    paths = sorted({path for run in runs for path in run.lists.source + run.lists.target})
    say(f"features of {len(paths)} images")
    backbone = job_backbone(runs[0].config)
    extracted = extract(paths, backbone, cache_folder=cache)
    if extracted.rejected:
        raise DataError(f"{extracted.rejected[0].path}: {extracted.rejected[0].message}")
    found = dict(zip(extracted.paths, extracted.features, strict=True))
    return Computed(found, cache, backbone.classifier)


def records_of(
    runs: Sequence[Run],
    features: Computed,
    measure: Callable[[Run, Inputs], Record],
    jobs: int,
) -> Iterator[Record]:
    """Yield the record of every run as it ends; `jobs` is the number of processes."""
    work = ((run, features.inputs(run)) for run in runs)
    if jobs == 1:
        one_thread()
        for run, inputs in work:
            yield measure(run, inputs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=one_thread) as pool:
        pending: set[Future[Record]] = set()
        for run, inputs in work:
            pending.add(pool.submit(measure, run, inputs))
            if len(pending) > jobs:  # no more in advance: each has megabytes of features
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        yield from (future.result() for future in pending)
