"""The runs of the main study, of the ablations, and of the study of the share of new classes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.open_set.protocols import OFFICE31, PROTOCOLS, Classes, DataSet, Lists, task_lists
from benchmarks.open_set.runs import Run, name
from scda.adapt.config import TrainConfig
from scda.adapt.config_file import resolve
from scda.models.errors import UsageError

_TRUE_K = 11  # implicit classes of both protocols
_FEWEST_IMPLICIT = 2  # smallest number of implicit classes in the ratio study

# Name → changes of the preset: scda, and scda without the decision whether anything is new.
OWN: dict[str, dict[str, Any]] = {"scda": {}, "scda_yes": {"novel": "yes"}}

# Rows of the ablation study: name, and changes of the preset.
ABLATIONS: list[tuple[str, dict[str, Any]]] = [
    ("as it is", {}),
    # ablations of the paper
    ("pre-training only", {"rounds": 0}),
    ("one unknown class", {"k": 1}),
    ("three rounds", {"rounds": 3}),
    ("true k", {"k": _TRUE_K}),
    ("true k, three rounds", {"k": _TRUE_K, "rounds": 3}),
    # each departure from the paper undone separately
    ("adversary=matrix", {"adversary": "matrix"}),
    ("adversary=class", {"adversary": "class"}),
    ("confusion_rows=all", {"confusion_rows": "all"}),
    ("sampling=shuffled", {"sampling": "shuffled"}),
    ("implicit_share=half", {"implicit_share": "half"}),
    ("propagation=0", {"propagation_alpha": 0.0}),
    ("propagation=0.95", {"propagation_alpha": 0.95}),
    ("propagation=0.98", {"propagation_alpha": 0.98}),
    ("space=backbone", {"space": "backbone"}),
    ("novelty=predicted", {"novelty": "predicted"}),
    ("cluster_space=features", {"cluster_space": "features"}),
    ("cluster_space=both", {"cluster_space": "both"}),
    ("k_method=both", {"k_method": "both"}),
    ("k_method=scda", {"k_method": "scda"}),
    ("k_method=graph", {"k_method": "graph"}),
    ("batchnorm=target", {"batchnorm": "target"}),
    ("restarts=1", {"restarts": 1}),
    ("pretrain_steps=100", {"pretrain_steps": 100}),
    ("pretrain_steps=400", {"pretrain_steps": 400}),
    ("pretrain_steps=1000", {"pretrain_steps": 1000}),
    ("round_length=target", {"round_length": "target"}),
    ("head_widths=1024-512-256", {"head_widths": (1024, 512, 256)}),
]


@dataclass(frozen=True)
class Request:
    """The options of the command line."""

    root: Path
    protocol: str
    study: str
    preset: str
    tasks: tuple[str, ...]
    seeds: int
    cache: Path
    rows: tuple[str, ...] = ()  # variants, or their part before the `/`; empty takes all
    methods: tuple[str, ...] = ("scda",)
    data: DataSet = OFFICE31
    options: Mapping[str, Any] = field(default_factory=dict)  # changes of the preset

    def selects(self, variant: str) -> bool:
        """Return whether a variant is selected by `rows`."""
        return not self.rows or variant in self.rows or variant.split("/")[0] in self.rows

    def config(self, seed: int, **overrides: Any) -> TrainConfig:
        """Return the preset with a seed and the changes of a row."""
        given = {**self.data.settings, **self.options, **overrides}
        return resolve({"preset": self.preset, "seed": seed, **given})

    def pairs(self) -> Iterator[tuple[str, int]]:
        """Yield all tasks with the first seed, then all with the next one, and so on."""
        for seed in range(self.seeds):
            for task in self.tasks:
                yield task, seed

    def name(
        self, config: TrainConfig, *, variant: str, task: str, method: str = "scda"
    ) -> dict[str, Any]:
        """Return the fields that identify a run of this request."""
        fields = {"method": method, "protocol": self.protocol, "study": self.study}
        return name(config, **fields, variant=variant, task=task)


def main_runs(request: Request) -> list[Run]:
    """Return the runs of every method, task and seed."""
    return _runs(request, [("main", {})])


def ablation_runs(request: Request) -> list[Run]:
    """Return the runs of every row of `ABLATIONS`, task and seed."""
    return _runs(request, ABLATIONS)


def ratio_runs(request: Request) -> list[Run]:
    """Return the runs of every number of implicit classes, method, task and seed.

    The variant is the number; the classes are the first of the protocol in alphabetical order.

    Source: SCDA, supplement, "The ratio of unobserved classes".
    """
    all_classes = PROTOCOLS[request.protocol]
    runs = []
    for count in range(_FEWEST_IMPLICIT, len(all_classes.implicit) + 1):
        if not request.selects(str(count)):
            continue
        classes = Classes(all_classes.known, all_classes.implicit[:count])
        lists = {task: task_lists(request.root, task, classes) for task in request.tasks}
        runs += _of_methods(request, str(count), {}, lists)
    return runs


def _runs(request: Request, rows: list[tuple[str, dict[str, Any]]]) -> list[Run]:
    lists = {
        task: request.data.lists(request.root, request.protocol, task) for task in request.tasks
    }
    return [
        run
        for variant, overrides in rows
        if request.selects(variant)
        for run in _of_methods(request, variant, overrides, lists)
    ]


def _of_methods(
    request: Request, variant: str, overrides: dict[str, Any], lists: Mapping[str, Lists]
) -> list[Run]:
    runs = []
    for method in request.methods:
        for task, seed in request.pairs():
            config = request.config(seed, **overrides, **OWN.get(method, {}))
            run_name = request.name(config, variant=variant, task=task, method=method)
            runs.append(Run(run_name, lists[task], config))
    return runs


def check(request: Request) -> None:
    """Check a request.

    Raises:
        UsageError: If a protocol or task is unknown, a name is given twice, or the preset
            fine-tunes.
    """
    if request.protocol not in request.data.protocols:
        protocols = " or ".join(request.data.protocols)
        raise UsageError(f"protocol is {request.protocol!r}; expected {protocols}")
    for task in request.tasks:
        if task not in request.data.tasks:
            raise UsageError(f"task is {task!r}, expected {' or '.join(request.data.tasks)}")
    if request.config(0).finetune != "none":
        raise UsageError(
            f"preset {request.preset} trains the backbone; these studies are on frozen features: "
            "expected robust or paper"
        )
    for kind, names in (("tasks", request.tasks), ("methods", request.methods)):
        if len(set(names)) < len(names):
            raise UsageError(f"{kind} are {' '.join(names)}, expected each once")
