"""Which provider and precision run a bundle fastest on this machine, by measuring them."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scda.models.predictor import Predictor, load_predictor
from scda.models.preprocess import Pixels
from scda.models.session import OPENVINO

INT8 = "bundle-int8"  # what `train --precision-export int8` writes beside a bundle
_BATCH = 8  # images of a call
_SECONDS, _CALLS = 1.0, 20  # of each pair, whichever is over first


def speeds(bundle: Path, providers: Sequence[str] = ("cpu", OPENVINO)) -> dict[str, Any]:
    """Measure a bundle, and the int8 one beside it, with each provider on one thread.

    A pair that cannot be used, because a library is missing or the answers are not those of
    training, is not measured.

    Args:
        bundle: Folder of a bundle, from `bundle_folder`.
        providers: Names of providers, as in `Session`.

    Returns:
        `ms_per_image_PROVIDER_PRECISION` of each pair, that of the fastest of its calls; `fastest`,
        such as `cpu_int8`, or None; and `not_measured`, a line for each other pair.
    """
    beside = bundle.parent / INT8
    bundles = [bundle, beside] if beside != bundle and beside.is_dir() else [bundle]
    found: dict[str, float] = {}
    left: list[str] = []
    for folder, provider in ((folder, name) for name in providers for folder in bundles):
        try:
            predictor = load_predictor(folder, provider=provider, threads=1)
            found[_name(predictor)] = round(1000 * seconds_per_image(predictor), 2)
        except Exception as error:  # whatever a broken installation raises
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            left.append(f"{folder.name} with {provider}: {reason}")
    facts: dict[str, Any] = {f"ms_per_image_{name}": value for name, value in found.items()}
    fastest = min(found, key=found.__getitem__, default=None)
    return facts | {"fastest": fastest, "not_measured": left}


def seconds_per_image(predictor: Predictor) -> float:
    """Return the time of an image in the fastest call, without decoding.

    Other work on the machine makes calls slower and never faster.
    """
    shape = (_BATCH, *predictor.session.shape)
    pixels: Pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    predictor.session.run(pixels)  # the first call of a size allocates its memory
    took: list[float] = []
    while len(took) < _CALLS and sum(took) < _SECONDS:
        began = time.perf_counter()
        predictor.session.run(pixels)
        took.append(time.perf_counter() - began)
    return min(took) / _BATCH


def _name(predictor: Predictor) -> str:
    session, stored = predictor.session, predictor.manifest.precision
    return f"{session.provider}_{session.precision if stored == 'fp32' else stored}"
