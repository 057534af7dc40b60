"""Presets of a training run: options that differ from the defaults, by name."""

from typing import Any

# The paper's text; docs/method.md says how what it leaves open is read.
_PAPER: dict[str, Any] = {
    "backbone_lr_scale": 1.0,  # one learning rate for all that is trained
    "backbone_statistics": "pretrained",
    "head_widths": (1024, 512, 256),
    "sampling": "shuffled",
    "batchnorm": "target",
    "pretrain_steps": 1000,
    "ensemble": 1,
    "adversary": "matrix",
    "confusion_rows": "all",
    "k_method": "scda",
    "rounds": 400,
    "round_length": "target",
    "space": "backbone",
    "novel": "yes",
    "novelty": "predicted",
    "implicit_share": "half",
    "propagation_alpha": 0.0,
    "cluster_space": "features",
    "pca": 64,
    "restarts": 3,
}
# The supplement's hyper-parameter table: the paper's backbone, trained as a whole.
_BENCHMARK = {**_PAPER, "backbone": "resnet50", "finetune": "all", "lr": 1e-3, "image_size": 227}

PRESETS: dict[str, dict[str, Any]] = {
    "robust": {},
    "accurate": {"backbone": "lite0+lite2"},  # three times as slow in labelling
    "paper": _PAPER,
    "office31": {**_BENCHMARK, "batch_size": 32, "rounds": 400, "k_max": 40},
    "office-home": {**_BENCHMARK, "batch_size": 32, "rounds": 400, "k_max": 120},
    "domainnet": {**_BENCHMARK, "batch_size": 64, "rounds": 40, "k_max": 650},
}
