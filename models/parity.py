"""Check that a session reproduces the outputs that the training machine wrote down."""

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from scda.models.errors import GateError
from scda.models.preprocess import Pixels
from scda.models.session import Session

# Largest difference of a probability, float32. On a GPU sums run in another order, maybe in TF32.
# A model that itself rounds more states a larger one.
TOLERANCE = {"cpu": 1e-4, "cuda": 5e-3, "openvino": 1e-3}
LARGEST_TOLERANCE = 5e-3
# In lower precision a small difference may become a step: of int8, and of bfloat16.
COARSE_TOLERANCE = 0.15

# Errors that NumPy raises for a damaged archive.
_DAMAGED = (OSError, EOFError, LookupError, RuntimeError, TypeError, ValueError, BadZipFile)


@dataclass(frozen=True)
class Reference:
    """A few decoded images with the expected outputs of the model."""

    pixels: Pixels  # (N, H, W, 3)
    probabilities: NDArray[np.float32]  # (N, C)
    features: NDArray[np.float32]  # (N, D)
    tolerance: float = TOLERANCE["cpu"]  # largest difference of a probability, in float32

    def save(self, path: Path) -> None:
        """Write parity.npz."""
        with path.open("wb") as file:
            np.savez(
                file,
                pixels=self.pixels,
                probabilities=self.probabilities,
                features=self.features,
                tolerance=np.array(self.tolerance),
            )

    @classmethod
    def load(cls, file: BinaryIO) -> "Reference":
        """Return what `save` wrote, from an open file.

        Raises:
            GateError: If the file is damaged.
        """
        try:
            with np.load(file, allow_pickle=False) as arrays:
                tolerance = float(arrays["tolerance"]) if "tolerance" in arrays else cls.tolerance
                return cls(
                    arrays["pixels"],
                    arrays["probabilities"],
                    arrays["features"],
                    min(tolerance, LARGEST_TOLERANCE),
                )
        except _DAMAGED as error:
            raise GateError(f"{Path(file.name).name}: damaged: {error}") from None


def drift(session: Session, reference: Reference) -> float:
    """Return the largest difference of a probability, over batches of 1, 2 and all images."""
    return max(_drift_at(session, reference, size) for size in (1, 2, len(reference.pixels)))


def check_parity(session: Session, reference: Reference, *, precision: str = "fp32") -> float:
    """Return the drift.

    Args:
        session: The session to check.
        reference: What it is expected to answer.
        precision: Precision of the model's file, fp32 or int8.

    Raises:
        GateError: If it exceeds the tolerance of the provider, the model and the precision.
    """
    is_coarse = precision == "int8" or session.precision == "bf16"
    in_float32 = max(TOLERANCE[session.provider], reference.tolerance)
    tolerance = COARSE_TOLERANCE if is_coarse else in_float32
    largest = drift(session, reference)
    if not largest <= tolerance:  # a NaN must fail, too
        raise GateError(
            f"parity: {session.provider} differs by {largest:.2g}, expected {tolerance:g}"
        )
    return largest


def _drift_at(session: Session, reference: Reference, size: int) -> float:
    probabilities, _ = session.run(reference.pixels[:size])
    expected = reference.probabilities[:size]
    if probabilities.shape != expected.shape:
        raise GateError(
            f"parity: the model returns {probabilities.shape}, expected {expected.shape}"
        )
    return float(np.abs(probabilities - expected).max())
