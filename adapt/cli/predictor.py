"""Load the model of a bundle for a command."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scda.models.predictor import Predictor


def load(bundle: Path, *, provider: str = "auto", threads: int = 0) -> "Predictor":
    """Return the verified model of a bundle or a run.

    Raises:
        UsageError: If it does not exist, or the provider is not available.
        GateError: If it is damaged.
    """
    from scda.models.bundle import bundle_folder
    from scda.models.predictor import load_predictor

    return load_predictor(bundle_folder(bundle), provider=provider, threads=threads)
