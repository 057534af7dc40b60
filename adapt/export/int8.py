"""Write a bundle whose model is another bundle's in int8, if both answer alike.

All that a bundle holds of a model's answers is measured anew on the model in int8: temperatures,
centroids, radii, neighbours, exemplars, and the figures on the target.
"""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import torch

from scda.adapt.data.image_files import Images
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.trust.confidence import temperatures
from scda.adapt.export.agreement import check_agreement
from scda.adapt.export.answers import BATCH, Progress, answers
from scda.adapt.export.class_figures import ClassFigures, spread
from scda.adapt.export.class_files import figures_on_target, write_classes
from scda.adapt.export.quantise import quantise, set_temperatures
from scda.models import bundle as names
from scda.models.bundle import Manifest, open_verified, read_manifest, write_bundle
from scda.models.errors import DataError, UsageError
from scda.models.files import printable, write_errors
from scda.models.index import Ids, nearest, read_index
from scda.models.names import folder_label, read_names
from scda.models.networks.network import Tempered
from scda.models.parity import Reference
from scda.models.session import Session
from scda.models.target_figures import HeldOut
from scda.models.trust import Calibration

CALIBRATION_IMAGES = 160
MIN_AGREEMENT = 0.99
_FEW = 12  # images that stand for a class that no image is predicted as


def export_int8(
    bundle: Path,
    out: Path,
    *,
    source: Images,
    target: Images,
    min_agreement: float = MIN_AGREEMENT,
    calibration_images: int = CALIBRATION_IMAGES,
    on_progress: Progress = lambda done, total: None,
) -> Manifest:
    """Write the int8 version of a bundle, or nothing if it does not agree with the float32 one.

    Args:
        bundle: Folder of a bundle of float32.
        out: Folder of the new bundle.
        source: Images of the source, in class folders; read for classes without a target image.
        target: Images of the target, which both models answer. Their labels are not needed.
        min_agreement: Least share of them that has the same class in both models, 0 to 1.
        calibration_images: Largest number of them on which activations are measured.
        on_progress: Called with the number of target images answered, and of all.

    Raises:
        UsageError: If the bundle is int8 already, or has no convolution, or cannot be written.
        DataError: If no image can be read any more.
        GateError: If the bundle is damaged, or too few images keep their class.
    """
    manifest = read_manifest(bundle)
    if manifest.precision != "fp32":
        raise UsageError(f"{bundle}: its model is {manifest.precision} already; expected a float32")
    out.parent.mkdir(parents=True, exist_ok=True)
    with (
        write_errors(out),
        tempfile.TemporaryDirectory(dir=out.parent, prefix=".draft.") as name,
    ):
        draft = Path(name)
        model = draft / names.MODEL
        has_temperatures, used = _quantise(bundle, manifest, model, target, calibration_images)
        exact = Session(bundle / names.MODEL, provider="cpu")
        session, form = Session(model, provider="cpu"), manifest.preprocessing
        rows, found = answers([exact, session], target, form, on_progress)
        if not found:
            raise _lost(target)
        (before, features_before), (after, features) = found
        target = target.rows(rows)
        calibration = manifest.calibration
        if has_temperatures and calibration and manifest.trust:
            accuracy = manifest.trust.expected_accuracy
            after, calibration = _calibrated(manifest, calibration, after, accuracy)
            _write_temperatures(model, manifest, calibration)
            session = Session(model, provider="cpu")
        agreement = check_agreement(
            before, after, manifest, calibration_images=used, least=min_agreement
        )
        source, members = _members(session, manifest, after, source)
        figures = _figures(manifest, calibration, after, features, members)
        images = {"source": source, "target": target}
        has_neighbours = names.NEIGHBOURS in manifest.files
        classes = write_classes(draft, figures, images, neighbours=has_neighbours)
        _write_parity(bundle, manifest, session, draft)
        if names.MEMORY in manifest.files:
            shutil.copy(bundle / names.MEMORY, draft / names.MEMORY)
        given = read_names(bundle, manifest)
        on_target = figures_on_target(
            figures, _held_out(bundle, manifest, features_before, figures)
        )
        return write_bundle(
            draft,
            out,
            classes=classes,
            preprocessing=manifest.preprocessing,
            thresholds=manifest.thresholds,
            status=manifest.status,
            trust=manifest.trust,
            calibration=calibration,
            on_target=on_target,
            previous=manifest.previous,
            quantisation=agreement,
            names=given.to_json() if given.version else None,
            run=manifest.run,
        )


def _quantise(
    bundle: Path, manifest: Manifest, out: Path, target: Images, count: int
) -> tuple[bool, int]:
    """Write the model in int8 with temperatures of 1.

    Returns:
        Whether it has temperatures, and the number of images on which it was calibrated.
    """
    with open_verified(bundle, manifest, names.MODEL) as file:
        model = onnx.load_model_from_string(file.read())
    has_temperatures = set_temperatures(model, [1.0] * len(manifest.classes))
    spread_rows = np.linspace(0, len(target.paths) - 1, min(count, len(target.paths)), dtype=int)
    form = manifest.preprocessing
    pixels = list(target.first_readable(spread_rows.tolist(), count, form))
    if not pixels:
        raise _lost(target)
    batches = (np.stack(pixels[i : i + BATCH]) for i in range(0, len(pixels), BATCH))
    quantise(model, out, batches)
    return has_temperatures, len(pixels)


def _calibrated(
    manifest: Manifest, before: Calibration, probabilities: Points, accuracy: float
) -> tuple[Points, Calibration]:
    """Return the calibrated probabilities of a model with temperatures of 1, and its calibration.

    How often a class is right was expected from its images' neighbours, which are those of the
    backbone that was trained on: the expectation stays, and the temperatures reach it again.
    """
    logits = np.log(np.maximum(probabilities, np.finfo(np.float32).tiny))
    ids = manifest.class_ids
    found = temperatures(logits, before.expected, ids, manifest.num_known, accuracy=accuracy)
    tempered = Tempered(torch.tensor([found.temperature[class_id] for class_id in ids]))
    return tempered(torch.from_numpy(logits)).softmax(dim=1).numpy(), found


def _write_temperatures(path: Path, manifest: Manifest, calibration: Calibration) -> None:
    model = onnx.load(path)
    set_temperatures(model, [calibration.temperature[i] for i in manifest.class_ids])
    onnx.save_model(model, str(path))


def _members(
    session: Session, manifest: Manifest, probabilities: Points, source: Images
) -> tuple[Images, list[tuple[str, Ids, Points | None]]]:
    """Return, for each class, the images that stand for it, and the source images among them.

    They are the target images predicted as the class; without one, the source images of a known
    class, or the target images that are most likely a discovered one. Features of source images
    are returned with them.
    """
    predicted = probabilities.argmax(axis=1)
    members: list[tuple[str, Ids, Points | None]] = []
    empty = [
        info.label
        for label, info in enumerate(manifest.classes)
        if info.kind == "known" and not (predicted == label).any()
    ]
    labels = [printable(folder_label(name.split("/")[0])) for name in source.names()]
    source = source.rows([row for row, label in enumerate(labels) if label in empty])
    rows, found = answers([session], source, manifest.preprocessing)
    source = source.rows(rows)
    labels = [printable(folder_label(name.split("/")[0])) for name in source.names()]
    for label, info in enumerate(manifest.classes):
        own = np.flatnonzero(predicted == label)
        of_source = np.flatnonzero([one == info.label for one in labels])
        if info.label in empty and len(of_source):
            members.append(("source", of_source, found[0][1][of_source]))
        else:
            likely = np.argsort(-probabilities[:, label], kind="stable")[:_FEW]
            members.append(("target", own if len(own) else likely, None))
    return source, members


def _figures(
    manifest: Manifest,
    calibration: Calibration | None,
    probabilities: Points,
    features: Points,
    members: list[tuple[str, Ids, Points | None]],
) -> ClassFigures:
    centroids, distances = spread(
        [features[rows] if of_source is None else of_source for _, rows, of_source in members]
    )
    known = manifest.num_known
    similar = (centroids[known:] @ centroids[:known].T).max(axis=1)
    return ClassFigures(
        class_names=[info.label for info in manifest.classes[:known]],
        probabilities=probabilities,
        features=features,
        centroids=centroids,
        members=[(domain, rows) for domain, rows, _ in members],
        distances=distances,
        trust=[
            replace(info.trust, similarity=round(float(cosine), 4))
            for info, cosine in zip(manifest.classes[known:], similar, strict=True)
            if info.trust
        ],
        calibration=calibration,
        class_ids=manifest.class_ids,
    )


def _held_out(
    bundle: Path, manifest: Manifest, features: Points, figures: ClassFigures
) -> HeldOut | None:
    """Return how far images lie that were not trained on, in the distances of the new model.

    They were measured on a second model, which is gone: they grow as the target's own do.
    """
    held = manifest.on_target and manifest.on_target.held_out
    if not held:
        return None
    with open_verified(bundle, manifest, names.CLUSTERS) as file:
        before = nearest(read_index(file), features, 1)[0].mean()
    ratio = float(figures.target_distances.min(axis=1).mean() / max(before, 1e-12))
    edges = tuple(edge * ratio for edge in held.distance.edges)
    return replace(held, distance=replace(held.distance, edges=edges))


def _write_parity(bundle: Path, manifest: Manifest, session: Session, draft: Path) -> None:
    """Write the answers of the new model for the images by which the other one is checked."""
    with open_verified(bundle, manifest, names.PARITY) as file:
        pixels = Reference.load(file).pixels
    probabilities, features = session.run(pixels)
    Reference(pixels, probabilities, features).save(draft / names.PARITY)


def _lost(target: Images) -> DataError:
    return DataError(
        f"{target.root}: no image of the target can be read any more; bring the images back"
    )
