"""The configuration of a training run: every option, stated once."""

import math
from dataclasses import dataclass
from typing import Any

from scda.adapt.options import current_names, option, options_of
from scda.adapt.presets import PRESETS
from scda.models.errors import UsageError

_SEEN_PER_CLASS = 640  # source images; right for 10 and 25 classes (benchmarks/README.md)
_LEAST_PRETRAIN_STEPS = 200
_STEPS_PER_CLASS, _LEAST_ROUND_STEPS = 12, 150  # of a round
_LARGEST_SEED = 2**31 - 1  # k-means++ counts on from it and knows 32 bits


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Configuration of one run; stored in the run and in its bundle.

    The defaults are the preset `robust`; `from_preset` starts from another one. docs/method.md
    explains the choices by their numbers.

    Raises:
        UsageError: If a value has another type, is out of bounds or contradicts another one.
    """

    preset: str = option(
        "robust",
        panel="Configuration",
        choices=tuple(PRESETS),
        help="Preset that replaces defaults; those shown are of robust.",
    )

    after: str = option(
        "",
        panel="Configuration",
        metavar="OLD",
        help="Earlier run or bundle whose classes keep their ids and names.",
    )

    backbone: str = option(
        "efficientnet_lite0",
        panel="Model",
        metavar="NAME",
        help="Backbone: efficientnet_lite0 (lite0), efficientnet_lite2 (lite2), resnet50, conv4, "
        "timm/NAME, or several such as lite0+lite2.",
    )
    weights: str = option(
        "",
        panel="Model",
        metavar="FILE",
        help="Weights of the backbone, as safetensors or a state dict; default: published ones. "
        "Those of several backbones are joined by +.",
    )
    image_size: int = option(
        0, panel="Model", minimum=0, maximum=2048, help="Side in pixels; 0 is the backbone's own."
    )
    head_widths: tuple[int, ...] = option(
        (512, 256, 256),  # choice 18
        panel="Model",
        minimum=1,
        shown=False,
        help="Widths of the layers of the feature head F.",
    )
    finetune: str = option(
        "none",  # choice 17
        panel="Model",
        choices=("none", "last", "all"),
        help="Part of the backbone that learns in the rounds.",
    )
    space: str = option(
        "auto",
        panel="Model",
        choices=("auto", "whitened", "backbone"),
        shown=False,
        help="Inputs of the head F: whitened features, or those of the backbone; auto: whitened, "
        "and the classes of the backbone's pre-training help to find what is new.",
    )

    backbone_statistics: str = option(
        "auto",
        panel="Model",
        choices=("auto", "pretrained", "domain"),
        help="Batch statistics of a frozen backbone; auto: those that bring the domains closer.",
    )

    # Constant SGD, a new optimiser per stage.
    batch_size: int = option(
        32, panel="Training", minimum=2, maximum=4096, help="Number of images per domain and step."
    )
    lr: float = option(1e-3, panel="Training", above=0, below=1, help="Learning rate.")
    backbone_lr_scale: float = option(
        0.1,  # docs/training.md
        panel="Training",
        above=0,
        maximum=1,
        shown=False,
        aliases=("backbone_lr",),
        help="Factor of the learning rate for a backbone that learns.",
    )
    momentum: float = option(
        0.9, panel="Training", minimum=0, below=1, shown=False, help="Momentum of SGD."
    )
    weight_decay: float = option(
        5e-4, panel="Training", minimum=0, below=1, shown=False, help="Weight decay of SGD."
    )
    clip_grad: float = option(
        0.0, panel="Training", minimum=0, help="Largest norm of a gradient; 0 does not clip."
    )
    sampling: str = option(
        "balanced",
        panel="Training",
        choices=("balanced", "shuffled"),
        shown=False,
        help="Whether a batch draws every class equally often or images as they come.",
    )
    batchnorm: str = option(
        "running",  # choice 21
        panel="Training",
        choices=("running", "target"),
        shown=False,
        help="Statistics of batch normalisation for inference: of training, or of the target.",
    )
    # The largest single lever; a longer pre-training erodes the boundary to unknown classes.
    pretrain_steps: int = option(
        0,
        panel="Training",
        minimum=0,
        shown=False,
        help="Number of pre-training steps; 0 grows with the number of known classes.",
    )
    ensemble: int = option(
        2,
        panel="Training",
        minimum=1,
        maximum=20,
        shown=False,
        help="Number of networks that are pre-trained; what is new is decided by their mean.",
    )
    adversary: str = option(
        "sample",  # choice 1
        panel="Training",
        choices=("sample", "class", "matrix"),
        shown=False,
        help="Form of the adversarial loss L_adv.",
    )
    temperature: float = option(
        1.0,  # choice 5
        panel="Training",
        above=0,
        shown=False,
        help="Temperature of the softmax in the class correlation.",
    )
    confusion_rows: str = option(
        "present",  # choice 6
        panel="Training",
        choices=("present", "all"),
        shown=False,
        help="Rows of the class correlation that count: of classes in the batch, or all.",
    )
    rounds: int = option(
        2,  # E in Algorithm 2
        panel="Training",
        minimum=0,
        aliases=("iterations",),
        help="Number of rounds; each one discovers, restructures and retrains.",
    )
    round_steps: int = option(
        0,
        panel="Training",
        minimum=0,
        shown=False,
        help="Number of training steps per round; 0 follows round_length.",
    )
    round_length: str = option(
        "classes",
        panel="Training",
        choices=("classes", "target"),
        shown=False,
        help="What the length of a round grows with: the number of classes, or one target pass.",
    )

    novel: str = option(
        "auto",  # choice 22b
        panel="Discovery",
        choices=("auto", "yes", "no"),
        help="Whether the target holds classes that the source lacks.",
    )
    novelty: str = option(
        "orphans",  # choice 22b
        panel="Discovery",
        choices=("orphans", "predicted"),
        shown=False,
        help="Images that count as new in the first round: orphans, or those predicted unknown.",
    )
    k_method: str = option(
        "votes",
        panel="Discovery",
        choices=("votes", "accuracy", "size", "surroundings", "both", "scda", "graph"),
        help="Estimator of the number of new classes: accuracy, size, surroundings or their median "
        "(votes); scda, graph or their mean (both).",
    )
    k_max: int = option(
        40, panel="Discovery", minimum=1, help="Largest number of new classes considered."
    )
    k: int = option(0, panel="Discovery", minimum=0, help="Number of new classes; 0 estimates it.")
    unknown_logit_bias: float = option(
        0.0,
        panel="Discovery",
        minimum=-100,  # everything is predicted as known, or as new, long before
        maximum=100,
        aliases=("rejection",),
        help="Nats added to the new classes' logits at the end: above 0 predicts more as new.",
    )
    implicit_share: str = option(
        "all",  # choice 8
        panel="Discovery",
        choices=("all", "half"),
        shown=False,
        help="Share of the images predicted as new that are clustered.",
    )
    assignment: str = option(
        "separate",  # choice 14
        panel="Discovery",
        choices=("separate", "joint"),
        shown=False,
        help="Source of pseudo-labels: k-means of the new images alone, or of the sweep over k.",
    )
    propagation_alpha: float = option(
        0.9,
        panel="Discovery",
        minimum=0,
        below=1,
        shown=False,
        aliases=("propagation",),
        help="Weight of the neighbours' predictions in label propagation; 0 turns it off.",
    )
    cluster_space: str = option(
        "backbone",  # choice 16b
        panel="Discovery",
        choices=("backbone", "both", "features"),
        shown=False,
        help="Features that are clustered: of the backbone, of the head F, or both.",
    )
    pca: int = option(
        0,
        panel="Discovery",
        minimum=0,
        shown=False,
        help="Number of principal components that are clustered; 0 takes all dimensions.",
    )
    restarts: int = option(
        4,  # choice 15
        panel="Discovery",
        minimum=1,
        shown=False,
        help="Number of k-means runs per k; the best one counts.",
    )

    seed: int = option(0, panel="Training", minimum=0, maximum=_LARGEST_SEED, help="Random seed.")
    device: str = option(
        "auto", panel="Machine", choices=("auto", "cpu", "cuda"), help="Device of the training."
    )
    precision: str = option(
        "fp32",
        panel="Machine",
        choices=("fp32", "bf16", "fp16"),
        help="Precision of forward passes in training; losses and inference use fp32.",
    )
    precision_export: str = option(
        "fp32",
        panel="Output",
        choices=("fp32", "int8"),
        help="Precision of the exported model; int8 adds a second bundle, bundle-int8.",
    )
    workers: int = option(
        0, panel="Machine", minimum=0, help="Number of decoding threads; 0 uses all available CPUs."
    )
    neighbours: bool = option(
        True, panel="Output", help="Keep the target's features in the bundle."
    )

    def __post_init__(self) -> None:
        """Check every value."""
        for name, stated in OPTIONS.items():
            stated.check(getattr(self, name))
        if self.k and self.novel == "no":
            raise UsageError(f"k is {self.k} and novel is 'no'; expected one of them")
        if self.finetune != "none" and "+" in self.backbone:
            raise UsageError(
                f"finetune is {self.finetune!r} and backbone is {self.backbone!r}; expected one "
                "backbone, or finetune 'none'"
            )

    @classmethod
    def from_preset(cls, preset: str, **options: Any) -> "TrainConfig":
        """Return the configuration of a preset with the given options in place of its own."""
        OPTIONS["preset"].check(preset)
        given = current_names(RENAMED, options)
        return cls(**{**PRESETS[preset], **given, "preset": preset})

    @property
    def whitens(self) -> bool:
        """Whether F's inputs are whitened; those of a backbone that learns cannot be."""
        return self.space != "backbone" and self.finetune == "none"

    def pretrain_length(self, num_known: int) -> int:
        """Return the number of pre-training steps: each known class is seen 640 times or more."""
        grown = max(_LEAST_PRETRAIN_STEPS, math.ceil(_SEEN_PER_CLASS * num_known / self.batch_size))
        return self.pretrain_steps or grown

    def steps_of_round(self, num_target: int, num_classes: int) -> int:
        """Return the steps of a round for M target images and K + k* classes."""
        if self.round_steps:
            return self.round_steps
        if self.round_length == "target":
            return max(1, num_target // self.batch_size)
        return max(_LEAST_ROUND_STEPS, _STEPS_PER_CLASS * num_classes)


OPTIONS = options_of(TrainConfig)
RENAMED = {old: new.name for new in OPTIONS.values() for old in new.aliases}
