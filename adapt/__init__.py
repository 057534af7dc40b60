"""Training: scan, pre-train, discover, retrain, export, evaluate, report; and the command line.

The package is callable: `scda.adapt(features, labels, target_features)` adapts to features in
NumPy arrays; see `scda.adapt.pipeline.arrays.adapt`.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from scda.adapt.config import TrainConfig
    from scda.adapt.pipeline.arrays import Adaptation


class _CallableModule(ModuleType):
    # Python binds a sub-package to its name in the package, so `scda.adapt` is this module, and to
    # be the function of the public API as well, the module has to be callable. The language allows
    # it: https://docs.python.org/3/reference/datamodel.html#customizing-module-attribute-access
    def __call__(
        self,
        features: "ArrayLike",
        labels: "ArrayLike",
        target_features: "ArrayLike",
        *,
        config: "TrainConfig | None" = None,
    ) -> "Adaptation":
        """Adapt to features in NumPy arrays; see `scda.adapt.pipeline.arrays.adapt`."""
        from scda.models.extras import needs_extra

        with needs_extra("train"):
            from scda.adapt.pipeline.arrays import adapt
        return adapt(features, labels, target_features, config=config)


sys.modules[__name__].__class__ = _CallableModule
