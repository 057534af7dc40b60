"""The runs of the main study and of the ablations."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocols import PROTOCOLS, task_lists
from runs import Run, name
from scda.adapt.config import TrainConfig, resolve
from scda.models.errors import UsageError

_TRUE_K = 11  # implicit classes of both protocols

# One row is one line: its name, and what it changes in the preset.
ABLATIONS: list[tuple[str, dict[str, Any]]] = [
    ("as it is", {}),
    # what the paper takes away
    ("pre-training only", {"iterations": 0}),
    ("one unknown class", {"k": 1}),
    ("k* without iteration", {"iterations": 1}),
    ("true k without iteration", {"k": _TRUE_K, "iterations": 1}),
    ("true k with iteration", {"k": _TRUE_K}),
    # each departure from the paper taken back alone
    ("adversary=matrix", {"adversary": "matrix"}),
    ("adversary=class", {"adversary": "class"}),
    ("confusion_rows=all", {"confusion_rows": "all"}),
    ("sampling=shuffled", {"sampling": "shuffled"}),
    ("implicit_share=half", {"implicit_share": "half"}),
    ("propagation=0", {"propagation": 0.0}),
    ("propagation=0.9", {"propagation": 0.9}),
    ("propagation=0.95", {"propagation": 0.95}),
    ("cluster_space=features", {"cluster_space": "features"}),
    ("cluster_space=both", {"cluster_space": "both"}),
    ("k_method=scda", {"k_method": "scda"}),
    ("k_method=graph", {"k_method": "graph"}),
    ("batchnorm=target", {"batchnorm": "target"}),
    ("restarts=1", {"restarts": 1}),
    ("pretrain_steps=100", {"pretrain_steps": 100}),
    ("pretrain_steps=400", {"pretrain_steps": 400}),
    ("pretrain_steps=1000", {"pretrain_steps": 1000}),
    ("round_steps=one pass", {"round_steps": 0}),
    ("head_widths=1024-512-256", {"head_widths": (1024, 512, 256)}),
]


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    root: Path
    protocol: str
    study: str
    preset: str
    tasks: tuple[str, ...]
    seeds: int
    cache: Path
    rows: tuple[str, ...] = ()  # variants, or what stands before their `/`; empty takes all

    def wants(self, variant: str) -> bool:
        """Return whether a variant is asked for."""
        return not self.rows or variant in self.rows or variant.split("/")[0] in self.rows

    def config(self, seed: int, **overrides: Any) -> TrainConfig:
        """Return the preset with a seed and what a row changes in it."""
        return resolve({"preset": self.preset, "seed": seed, **overrides})

    def pairs(self) -> Iterator[tuple[str, int]]:
        """Yield every task with every seed; all tasks come before the next seed."""
        for seed in range(self.seeds):
            for task in self.tasks:
                yield task, seed

    def name(self, config: TrainConfig, *, variant: str, task: str) -> dict[str, Any]:
        """Return the fields that tell a run of this request from every other."""
        fields = {"protocol": self.protocol, "study": self.study}
        return name(config, **fields, variant=variant, task=task)


def main_runs(request: Request) -> list[Run]:
    """Return every task with every seed."""
    return _runs(request, [("main", {})])


def ablation_runs(request: Request) -> list[Run]:
    """Return every task with every seed for every row of `ABLATIONS`."""
    return _runs(request, ABLATIONS)


def _runs(request: Request, rows: list[tuple[str, dict[str, Any]]]) -> list[Run]:
    classes = PROTOCOLS[request.protocol]
    lists = {task: task_lists(request.root, task, classes) for task in request.tasks}
    runs = []
    for variant, overrides in rows:
        if not request.wants(variant):
            continue
        for task, seed in request.pairs():
            config = request.config(seed, **overrides)
            run_name = request.name(config, variant=variant, task=task)
            runs.append(Run(run_name, lists[task], config))
    return runs


def check(request: Request) -> None:
    """Refuse what is no protocol, and a task that is named twice.

    Raises:
        UsageError: If it is so.
    """
    if request.protocol not in PROTOCOLS:
        raise UsageError(f"protocol is {request.protocol!r}, want {' or '.join(PROTOCOLS)}")
    if len(set(request.tasks)) < len(request.tasks):
        raise UsageError(f"tasks are {' '.join(request.tasks)}, want each once")
