"""One loaded bundle with all that answers for it; nothing of it is read again but names.json."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scda.models.bundle import bundle_folder
from scda.models.errors import GateError
from scda.models.files import real_path
from scda.models.names import Names
from scda.models.predictor import ActiveNames, Outputs, Prediction, Predictor, load_predictor
from scda.models.preprocess import Pixels
from scda.serve.http.metrics import Metrics
from scda.serve.http.served.batcher import Batcher
from scda.serve.http.served.exemplars import Exemplars
from scda.serve.http.served.target_index import open_target_index
from scda.serve.http.served.turns import Asker
from scda.serve.http.served.watcher import BundleWatcher
from scda.serve.http.settings import Settings

# On a CPU a larger batch is hardly faster per image, and its images wait for each other.
_MAX_BATCH = {"cpu": 4, "cuda": 32, "openvino": 4}


@dataclass(frozen=True)
class Inference:
    """The result of the model for one image."""

    prediction: Prediction
    features: NDArray[np.float32]  # (D,)
    names: Names  # the names that the prediction uses; newer ones may have been loaded since


@dataclass(frozen=True)
class _Job:
    """One prepared image, and the names that its request began with."""

    pixels: Pixels
    naming: ActiveNames


class ServedModel:
    """A loaded bundle: its predictor, exemplars, neighbours, names, and the threads of its model.

    A request holds one of these from its first use to its answer, so that the parts of an answer
    belong together.
    """

    def __init__(self, predictor: Predictor, settings: Settings, metrics: Metrics) -> None:
        """Read the rest of the predictor's bundle, and start the threads of the model.

        Raises:
            GateError: If a file of the bundle is missing, damaged, or does not match the model.
        """
        folder, manifest = predictor.folder, predictor.manifest
        self.predictor, self._metrics = predictor, metrics
        self.id, self.provider = manifest.id, predictor.session.provider
        self.exemplars = Exemplars(folder, manifest)
        self.target_index = open_target_index(folder, manifest, width=predictor.session.width)
        self.watcher = BundleWatcher(predictor, metrics)
        self._batcher: Batcher[_Job, Inference] = Batcher(
            self._run,
            max_batch=settings.max_batch or _MAX_BATCH[self.provider],
            max_wait_seconds=settings.max_wait_ms / 1000,
            lanes=1 if self.provider == "cuda" else settings.parallel,
            on_wait=metrics.images.wait.labels("model").observe,
        )

    async def infer(self, pixels: Pixels, naming: ActiveNames, asker: Asker) -> Inference:
        """Return the inference for a prepared image of a request, under names of this model."""
        return await self._batcher.answer(_Job(pixels, naming), asker)

    def close(self) -> None:
        """End the threads of the model; nothing may be waiting for it."""
        self._batcher.close()

    def _run(self, jobs: Sequence[_Job]) -> list[Inference]:
        self._metrics.images.batch.observe(len(jobs))
        with self._metrics.images.inference.time():
            outputs = self.predictor.run([job.pixels for job in jobs])
        return [
            inference
            for _, rows in groupby(range(len(jobs)), key=lambda row: id(jobs[row].naming))
            for inference in self._describe(outputs, list(rows), jobs)
        ]

    def _describe(self, outputs: Outputs, rows: list[int], jobs: Sequence[_Job]) -> list[Inference]:
        """Return the inferences of the rows, whose requests began with the same names."""
        naming = jobs[rows[0]].naming
        part = Outputs(outputs.probabilities[rows], outputs.features[rows])
        return [
            Inference(prediction, features, naming.names)
            for prediction, features in zip(
                self.predictor.describe(part, naming=naming), part.features, strict=True
            )
        ]


def load_for_serving(bundle: Path, settings: Settings, *, model_id: str = "") -> Predictor:
    """Return the verified model of a bundle or a run, for many parallel callers.

    Args:
        bundle: The bundle or run; a link is followed now, and never again.
        settings: The provider of the model.
        model_id: The id that the model must have; empty for any.

    Raises:
        UsageError: If there is no bundle, or the provider is not available.
        GateError: If the bundle is damaged, fails the parity check, or is of another model.
    """
    folder = real_path(bundle_folder(bundle))
    # Parallel calls on one thread each are faster than one call on several threads.
    predictor = load_predictor(folder, provider=settings.provider, threads=1, spinning=False)
    found = predictor.manifest.id
    if model_id and found != model_id:
        raise GateError(
            f"{folder}: found the model {found}, expected {model_id}, which the other workers "
            "serve: the bundle was replaced under the server; reload the server, or put it back"
        )
    return predictor
