"""Does this machine's session give what the training machine's torch gave?"""

from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from scda.models.errors import GateError
from scda.models.preprocess import Pixels
from scda.models.session import Session

# Largest difference of a probability, float32. On a GPU sums run in another order, maybe in TF32.
TOLERANCE = {"cpu": 1e-4, "cuda": 5e-3}

# What numpy was seen to raise on a damaged archive.
_DAMAGED = (OSError, EOFError, LookupError, RuntimeError, TypeError, ValueError, BadZipFile)


@dataclass(frozen=True)
class Reference:
    """A few decoded images and what the model is to answer for them."""

    pixels: Pixels  # (N, H, W, 3)
    probabilities: NDArray[np.float32]  # (N, C)
    features: NDArray[np.float32]  # (N, D)

    def save(self, path: Path) -> None:
        """Write parity.npz."""
        with path.open("wb") as file:
            np.savez(
                file,
                pixels=self.pixels,
                probabilities=self.probabilities,
                features=self.features,
            )

    @classmethod
    def load(cls, path: Path) -> "Reference":
        """Return what `save` wrote.

        Raises:
            GateError: If the file is damaged.
        """
        try:
            # numpy leaves a damaged file open that it has opened itself.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return cls(arrays["pixels"], arrays["probabilities"], arrays["features"])
        except _DAMAGED as error:
            raise GateError(f"{path.name}: damaged: {error}") from None


def drift(session: Session, reference: Reference) -> float:
    """Return the largest difference of a probability, over batches of 1, 2 and all images."""
    return max(_drift_at(session, reference, size) for size in (1, 2, len(reference.pixels)))


def check_parity(session: Session, reference: Reference) -> float:
    """Return the drift where it is within the provider's tolerance.

    Raises:
        GateError: If it is not.
    """
    largest, tolerance = drift(session, reference), TOLERANCE[session.provider]
    if not largest <= tolerance:  # a NaN must fail, too
        raise GateError(f"parity: {session.provider} differs by {largest:.2g}, want {tolerance:g}")
    return largest


def _drift_at(session: Session, reference: Reference, size: int) -> float:
    probabilities, _ = session.run(reference.pixels[:size])
    expected = reference.probabilities[:size]
    if probabilities.shape != expected.shape:
        raise GateError(f"parity: the model gives {probabilities.shape}, want {expected.shape}")
    return float(np.abs(probabilities - expected).max())
