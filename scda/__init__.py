"""Open-set domain adaptation by novel class discovery.

    import scda

    model = scda.load("run")                    # a run or a bundle
    model.predict("photo.jpg").label            # one image
    for row in model.label("folder/"): ...      # many
    scda.train("labelled/", "new/", "run")      # two folders to a run
    scda.adapt(features, labels, target)        # NumPy arrays to classes

Everything is imported when it is first used: `import scda` loads neither torch nor ONNX Runtime,
and only `train` and `adapt` need torch at all.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scda.adapt.config import TrainConfig
    from scda.adapt.pipeline.arrays import Adaptation, adapt
    from scda.models.errors import DataError, GateError, ImageError, ScdaError, UsageError
    from scda.models.predictor import Prediction
    from scda.run import Run, train
    from scda.serve.model import Model, load

    __version__: str

__all__ = [
    "Adaptation",
    "DataError",
    "GateError",
    "ImageError",
    "Model",
    "Prediction",
    "Run",
    "ScdaError",
    "TrainConfig",
    "UsageError",
    "__version__",
    "adapt",
    "load",
    "train",
]

# `adapt` is not here: as an attribute it is the sub-package, which can be called.
_MODULES = {
    "Adaptation": "scda.adapt.pipeline.arrays",
    "DataError": "scda.models.errors",
    "GateError": "scda.models.errors",
    "ImageError": "scda.models.errors",
    "Model": "scda.serve.model",
    "Prediction": "scda.models.predictor",
    "Run": "scda.run",
    "ScdaError": "scda.models.errors",
    "TrainConfig": "scda.adapt.config",
    "UsageError": "scda.models.errors",
    "load": "scda.serve.model",
    "train": "scda.run",
}

if not TYPE_CHECKING:  # with it, type checkers would take any name for granted

    def __getattr__(name: str) -> Any:
        if name == "adapt":
            return import_module("scda.adapt")
        if name == "__version__":
            from importlib.metadata import version

            return version("scda")
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value


def __dir__() -> list[str]:
    return __all__
