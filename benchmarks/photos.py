"""Compare scaled decoding of photographs with decoding in full, by labelling and by the endpoint.

    python -m benchmarks.photos --bundle BUNDLE --images DIR [--count 200] [--rounds 3]

Images spread over a folder are enlarged to JPEGs of 12 megapixels, as phones make them. The bundle
is copied twice: as this version writes it, where a JPEG decodes at the smallest scale that has
twice the pixels of the resized image, and as earlier versions did, where it decodes in full. Both
have the same model. The two programs take turns in every round, and the median of the ratios
counts, because other work on the machine slows both.

The last lines compare each figure with its bound; the exit code is 0 only if all pass.
"""

import argparse
import dataclasses
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.speed import server
from benchmarks.speed.answers import Answer, exit_code
from benchmarks.speed.load import keep_busy
from benchmarks.speed.photographs import COUNT, photographs
from scda.models.bundle import MANIFEST, bundle_folder, read_manifest
from scda.models.decoding.reading import DECODER, DECODER_IN_FULL
from scda.models.folders import walk
from scda.models.predictor import load_predictor
from scda.models.preprocess import Preprocessing
from scda.serve.labelling.label import label_rows

_CLIENTS = 8
_SECONDS = 15.0  # duration of a load
SCALED, IN_FULL = "scaled", "in full"


def main() -> int:
    """Measure both ways of decoding in rounds; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--count", type=int, default=COUNT, help="number of photographs")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        paths = photographs(list(walk(given.images)), root / "photos", given.count)
        bundles = {
            way: with_decoder(bundle_folder(given.bundle), root / decoder[-8:], decoder)
            for way, decoder in ((SCALED, DECODER), (IN_FULL, DECODER_IN_FULL))
        }
        rows, labelled = labelling(bundles, paths, given.rounds)
        served = serving(bundles, [path.read_bytes() for path in paths], given.rounds)
    difference, equal = answers(rows)
    return exit_code(
        [
            Answer("photos_label", statistics.median(labelled), 2.5, at_least=True),
            Answer("photos_serve", statistics.median(served), 2, at_least=True),
            Answer("photos_confidence", difference, 0.05),
            Answer("photos_equal_labels", equal, 0.995, at_least=True),
        ]
    )


def with_decoder(bundle: Path, folder: Path, decoder: str) -> Path:
    """Write a copy of a bundle whose images are decoded in another way, and return it."""
    shutil.copytree(bundle, folder, copy_function=shutil.copyfile)
    manifest = read_manifest(folder)
    changed = dataclasses.replace(
        manifest, preprocessing=_with_decoder(manifest.preprocessing, decoder)
    )
    (folder / MANIFEST).write_text(json.dumps(changed.to_json()))
    (folder / "names.json").unlink(missing_ok=True)
    return folder


def _with_decoder(preprocessing: Preprocessing, decoder: str) -> Preprocessing:
    below = preprocessing.below and _with_decoder(preprocessing.below, decoder)
    return dataclasses.replace(preprocessing, decoder=decoder, below=below)


def labelling(
    bundles: Mapping[str, Path], paths: Sequence[Path], rounds: int
) -> tuple[dict[str, list[tuple[str, float]]], list[float]]:
    """Return the label and confidence of each photograph, and the ratio of speeds by round."""
    predictors = {way: load_predictor(bundle, threads=1) for way, bundle in bundles.items()}
    rows: dict[str, list[tuple[str, float]]] = {}
    ratios = []
    for _ in range(rounds):
        seconds = {}
        for way, predictor in predictors.items():
            began = time.perf_counter()
            found = [row.to_json() for row in label_rows(predictor, paths, workers=None)]
            seconds[way] = time.perf_counter() - began
            rows[way] = [(row["label"], row["confidence"]) for row in found]
        ratios.append(seconds[IN_FULL] / seconds[SCALED])
        rates = ", ".join(f"{way} {len(paths) / took:.1f}" for way, took in seconds.items())
        print(f"label: images/s: {rates}; ratio {ratios[-1]:.2f}", flush=True)
    return rows, ratios


def serving(bundles: Mapping[str, Path], files: Sequence[bytes], rounds: int) -> list[float]:
    """Return the ratio of the speeds of the endpoint, by round."""
    ratios = []
    for _ in range(rounds):
        rates = {}
        for way, bundle in bundles.items():
            with server.ours(bundle) as running:
                url = f"{running.url}/v1/predict"
                loads = [
                    keep_busy(url, "image", files, clients=_CLIENTS, seconds=seconds)
                    for seconds in (2.0, _SECONDS)  # the first is the warm-up
                ]
                rates[way] = loads[-1].rate
        ratios.append(rates[SCALED] / rates[IN_FULL])
        text = ", ".join(f"{way} {rate:.1f}" for way, rate in rates.items())
        print(f"serve: images/s: {text}; ratio {ratios[-1]:.2f}", flush=True)
    return ratios


def answers(rows: Mapping[str, Sequence[tuple[str, float]]]) -> tuple[float, float]:
    """Return the largest difference of confidence, and the share of equal labels."""
    pairs = list(zip(rows[SCALED], rows[IN_FULL], strict=True))
    differences = [abs(one[1] - other[1]) for one, other in pairs]
    equal = sum(one[0] == other[0] for one, other in pairs) / len(pairs)
    print(
        f"confidence: largest difference {max(differences):.4f}, mean "
        f"{statistics.mean(differences):.5f}; equal labels {equal:.4f}"
    )
    return max(differences), equal


if __name__ == "__main__":
    sys.exit(main())
