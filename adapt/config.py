"""One training run as one frozen dataclass, and the presets it can start from."""

import dataclasses
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scda.models.errors import UsageError

_SEEN_PER_CLASS = 640  # source images; right for 2, 10 and 25 classes (benchmarks/README.md)
_LARGEST_BIAS = 100  # nats; nothing or everything is called new long before
_LARGEST_SEED = 2**31 - 1  # k-means++ counts on from it and knows 32 bits

# Old names of options; they still work on the command line, in a TOML file and in a run's config.
RENAMED = {
    "backbone_lr": "backbone_lr_scale",
    "iterations": "rounds",
    "propagation": "propagation_alpha",
    "rejection": "unknown_logit_bias",
}

CHOICES = {
    "adversary": ("sample", "class", "matrix"),
    "confusion_rows": ("present", "all"),
    "implicit_share": ("all", "half"),
    "assignment": ("separate", "joint"),
    "cluster_space": ("backbone", "both", "features"),
    "batchnorm": ("running", "target"),
    "sampling": ("balanced", "shuffled"),
    "novel": ("auto", "yes", "no"),
    "k_method": ("both", "scda", "graph"),
    "finetune": ("none", "last", "all"),
    "precision": ("fp32", "bf16", "fp16"),
    "device": ("auto", "cpu", "cuda"),
}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One run; stored in the run and in the bundle, so that a label can be traced to it.

    The defaults are the preset `robust`. The numbered choices are those of docs/method.md.
    """

    preset: str = "robust"
    # the model
    backbone: str = "efficientnet_lite0"
    weights: str = ""  # file with the backbone's weights; empty takes the published ones
    image_size: int = 0  # pixels; 0 is the backbone's own
    head_widths: tuple[int, ...] = (512, 256, 256)  # F's three layers, choice 18
    finetune: str = "none"  # what of the backbone learns in the alternation, choice 17
    # optimisation: constant SGD, a new optimiser per stage
    batch_size: int = 32  # images per domain in one step
    lr: float = 1e-3
    backbone_lr_scale: float = 0.1  # times lr, where the backbone learns (docs/training.md)
    momentum: float = 0.9
    weight_decay: float = 5e-4
    clip_grad: float = 0.0  # largest norm of a step's gradient; 0 does not clip
    sampling: str = "balanced"  # source and pseudo-labels: each class as often, or as it comes
    batchnorm: str = "running"  # statistics for inference: of training, or the target's, choice 21
    # pre-training, Eq. 1-6
    # The largest single lever, longer training loses the boundary: 0 grows with the known classes.
    pretrain_steps: int = 0
    adversary: str = "sample"  # the form of L_adv, choice 1
    temperature: float = 1.0  # of the class correlation, choice 5
    confusion_rows: str = "present"  # which rows of the correlation count, choice 6
    # alternation, Algorithm 2
    rounds: int = 3  # E
    round_steps: int = 150  # retraining steps per round; 0 is one pass over the target
    # discovery, Algorithm 1
    novel: str = "auto"  # are there new classes at all, choice 22b
    k_method: str = "both"  # Algorithm 1's k*, that of the neighbourhood graph, or their mean
    k_max: int = 40
    unknown_logit_bias: float = 0.0  # nats added to discovered classes at the end
    k: int = 0  # fixes k*; 0 estimates it
    implicit_share: str = "all"  # how much of the images predicted new are clustered, choice 8
    assignment: str = "separate"  # pseudo-labels: k-means on T_im alone, or the sweep's, choice 14
    propagation_alpha: float = 0.98  # how far predictions spread over neighbours first; 0 is off
    cluster_space: str = "backbone"  # its features, F's, or both, choice 16b
    pca: int = 64  # dimensions; 0 is off
    restarts: int = 4  # of k-means, choice 15
    # the machine
    seed: int = 0
    device: str = "auto"
    precision: str = "fp32"  # of passes in training; losses and inference are always fp32
    workers: int = 0  # decode images; 0 takes the CPUs this process may use
    neighbours: bool = True  # keep the target's features in the bundle

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise UsageError(f"{name} is {getattr(self, name)!r}, want {' or '.join(allowed)}")
        least = {"batch_size": 2, "k_max": 1, "restarts": 1, "pretrain_steps": 0, "rounds": 0}
        least |= {"k": 0, "pca": 0, "round_steps": 0, "image_size": 0, "workers": 0, "seed": 0}
        for name, lowest in least.items():
            if getattr(self, name) < lowest:
                raise UsageError(f"{name} is {getattr(self, name)}, want {lowest} or more")
        if self.seed > _LARGEST_SEED:
            raise UsageError(f"seed is {self.seed}, want {_LARGEST_SEED} or less")
        if self.k and self.novel == "no":
            raise UsageError(f"k is {self.k} and novel is 'no'; want one of them")
        # `not (...)`: a TOML file may say nan, which is neither more nor less than anything.
        if not 0 < self.lr < 1:
            raise UsageError(f"lr is {self.lr}, want a number between 0 and 1")
        if not 0 < self.backbone_lr_scale <= 1:
            raise UsageError(
                f"backbone_lr_scale is {self.backbone_lr_scale}, want more than 0, 1 or less"
            )
        if not 0 <= self.clip_grad < math.inf:
            raise UsageError(f"clip_grad is {self.clip_grad}, want 0 or more")
        for name in ("momentum", "weight_decay", "propagation_alpha"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, want 0 or more, less than 1")
        bias, largest = self.unknown_logit_bias, _LARGEST_BIAS
        if not abs(bias) <= largest:
            raise UsageError(f"unknown_logit_bias is {bias}, want -{largest} to {largest}")
        if not 0 < self.temperature < math.inf:
            raise UsageError(f"temperature is {self.temperature}, want more than 0")
        if not self.head_widths or min(self.head_widths) < 1:
            raise UsageError(f"head_widths is {self.head_widths}, want one width or more")

    def pretrain_length(self, num_known: int) -> int:
        """Return the number of pre-training steps: each known class is seen 640 times in it."""
        seen = _SEEN_PER_CLASS * num_known
        return self.pretrain_steps or math.ceil(seen / self.batch_size)

    def round_length(self, num_target: int) -> int:
        """Return the number of retraining steps of a round."""
        return self.round_steps or max(1, num_target // self.batch_size)


# The text to the letter; what it leaves open stands in docs/method.md.
_PAPER: dict[str, Any] = {
    "backbone_lr_scale": 1.0,  # one learning rate for all that is trained
    "head_widths": (1024, 512, 256),
    "sampling": "shuffled",
    "batchnorm": "target",
    "pretrain_steps": 1000,
    "adversary": "matrix",
    "confusion_rows": "all",
    "k_method": "scda",
    "rounds": 400,
    "round_steps": 0,
    "novel": "yes",
    "implicit_share": "half",
    "propagation_alpha": 0.0,
    "cluster_space": "features",
    "restarts": 3,
}
# The supplement's hyper-parameter table: the paper's backbone, trained as a whole.
_BENCHMARK = {**_PAPER, "backbone": "resnet50", "finetune": "all", "lr": 1e-3, "image_size": 227}

PRESETS: dict[str, dict[str, Any]] = {
    "robust": {},
    "paper": _PAPER,
    "office31": {**_BENCHMARK, "batch_size": 32, "rounds": 400, "k_max": 40},
    "office-home": {**_BENCHMARK, "batch_size": 32, "rounds": 400, "k_max": 120},
    "domainnet": {**_BENCHMARK, "batch_size": 64, "rounds": 40, "k_max": 650},
}


def resolve(options: dict[str, Any], config_file: Path | None = None) -> TrainConfig:
    """Return the config: option before config file before preset before default.

    Args:
        options: What the command line gave; None means not given.
        config_file: A TOML file with fields of `TrainConfig`.

    Raises:
        UsageError: If a field is unknown or wrong, or the file cannot be read.
    """
    given = current_names({name: value for name, value in options.items() if value is not None})
    from_file = _read(config_file) if config_file else {}
    preset = given.get("preset", from_file.get("preset", "robust"))
    if preset not in PRESETS:
        raise UsageError(f"preset is {preset!r}, want {' or '.join(PRESETS)}")
    fields = {**PRESETS[preset], **from_file, **given, "preset": preset}
    if "head_widths" in fields:
        fields["head_widths"] = tuple(fields["head_widths"])
    return TrainConfig(**fields)


def current_names(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields under the names that options have now.

    Raises:
        UsageError: If an option is given under its old name and its new one.
    """
    for old, new in RENAMED.items():
        if old in fields and new in fields:
            raise UsageError(f"{old} is the old name of {new}; expected one of them")
    return {RENAMED.get(name, name): value for name, value in fields.items()}


def _read(path: Path) -> dict[str, Any]:
    types = {f.name: type(f.default) for f in dataclasses.fields(TrainConfig)}
    try:
        fields = current_names(tomllib.loads(path.read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot read the config: {error}") from None
    for name, value in fields.items():
        if name not in types:
            raise UsageError(f"{path}: no option {name!r}; there are {', '.join(sorted(types))}")
        wanted = list if types[name] is tuple else types[name]
        if not (type(value) is wanted or (wanted is float and type(value) is int)):
            raise UsageError(f"{path}: {name} is {value!r}, want {wanted.__name__}")
        if isinstance(value, list) and not all(type(width) is int for width in value):
            raise UsageError(f"{path}: {name} is {value!r}, want whole numbers")
    return fields
