"""Markdown tables of records, one function per table."""

from collections.abc import Sequence

from benchmarks.open_set.aggregate import (
    average,
    grouped,
    markdown,
    over_tasks,
    plain,
    signed_error,
    spread,
    statuses,
    with_deviation,
)
from benchmarks.open_set.published import PUBLISHED, PUBLISHED_K, Benchmark
from benchmarks.open_set.results import Record

_PER_TASK = {
    "os": "OS",
    "os_star": "OS*",
    "unk_pooled": "UNK",
    "unk_macro": "UNK macro",
    "hos": "HOS",
    "hos_before": "HOS before the loop",
    "auroc": "AUROC",
    "accuracy": "accuracy",
    "nmi_implicit": "NMI",
    "ari_implicit": "ARI",
    "acc_joint": "acc_joint",
    "acc_novel": "acc_novel",
    "h3_oracle": "H³ oracle",
    "h3_model": "H³ model",
    "k_star": "k*",
    "k_abs": "\\|k*-k\\|",
    "correspondence_1": "corr. 1",
    "correspondence_3": "corr. 3",
    "correspondence_5": "corr. 5",
    "seconds": "seconds",
}
_ABLATION = ("os", "os_star", "unk_pooled", "hos", "auroc", "nmi_implicit", "acc_novel", "k_star")
_STRESS = {
    "os_star": "OS*",
    "unk_pooled": "UNK",
    "hos": "HOS",
    "accuracy": "accuracy",
    "known_share": "staying known",
    "k_star": "k*",
    "k_true": "true k",
    "auroc": "AUROC",
}
_COMPARED = (
    *("os", "os_star", "unk_pooled", "hos", "auroc", "nmi_implicit", "acc_novel", "h3_oracle"),
    *("k_star", "k_abs", "seconds"),
)
_RATIO = ("os", "os_star", "unk_pooled", "hos", "k_star", "k_abs")
_CORRESPONDENCE = ("correspondence_1", "correspondence_3", "correspondence_5")
_PUBLISHED = ("os", "os_star", "unk_pooled", "hos", "k_star")


def main_tables(records: Sequence[Record]) -> str:
    """Return the tables of the main study: of all methods if there are several, then of scda."""
    ours = [record for record in records if record["method"] == "scda"]
    parts = []
    if len(ours) < len(records):
        parts += ["## Every method, means over tasks", methods_table(records)]
        parts += ["## HOS of every method by task", by_task_table(records)]
    if ours:
        parts += _own_tables(ours)
    return "\n\n".join(parts)


def methods_table(records: Sequence[Record]) -> str:
    """Return one row per method with means over tasks, the highest HOS first."""
    rows = [
        [method, *(with_deviation(members, field) for field in _COMPARED)]
        for method, members in _ranked(records)
    ]
    return markdown(["method", *(_PER_TASK[field] for field in _COMPARED)], rows)


def by_task_table(records: Sequence[Record]) -> str:
    """Return HOS with one row per method and one column per task, the highest mean first."""
    tasks = list(grouped(records, "task"))
    rows = []
    for method, members in _ranked(records):
        of_task = grouped(members, "task")
        cells = (spread([record["hos"] for record in of_task[task]]) for task in tasks)
        rows.append([method, *cells])
    return markdown(["method", *tasks], rows)


def _ranked(records: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    """Return every method with its records, the highest HOS first."""
    methods = grouped(records, "method").items()
    return sorted(methods, key=lambda pair: over_tasks(pair[1], "hos"), reverse=True)


def ratio_table(records: Sequence[Record]) -> str:
    """Return one row per number of implicit classes and method, with means over tasks."""
    rows = [
        [count, method, *(with_deviation(chosen, field) for field in _RATIO)]
        for count, members in grouped(records, "variant").items()
        for method, chosen in grouped(members, "method").items()
    ]
    return markdown(["implicit classes", "method", *(_PER_TASK[field] for field in _RATIO)], rows)


def correspondence_table(records: Sequence[Record]) -> str:
    """Return the number of implicit classes among the most confident discovered images, by task."""
    rows = [
        [task, *(spread([record[field] for record in members]) for field in _CORRESPONDENCE)]
        for task, members in grouped(records, "task").items()
    ]
    rows.append(["**mean**", *(with_deviation(records, field) for field in _CORRESPONDENCE)])
    paper = _published(records)
    rows.append([f"the paper's mean ({paper.name})", *map(plain, paper.correspondence)])
    return markdown(["task", "1 image of each", "3", "5"], rows)


def _own_tables(records: Sequence[Record]) -> list[str]:
    return [
        "## Per task, mean ± deviation over seeds",
        per_task(records),
        "## Beside published figures, means over tasks",
        beside_published(records),
        k_errors(records),
        "## More or fewer rejections: OS* and UNK by the option `unknown_logit_bias`, in nats",
        rejection_table(records),
        "## OS per round, 0 is pre-training",
        per_round(records, "os_per_round"),
        "## HOS per round",
        per_round(records, "hos_per_round"),
        "## k* per round",
        per_round(records, "k_per_round"),
        "## Implicit classes among the most confident images of every discovered class",
        correspondence_table(records),
    ]


def ablation_table(records: Sequence[Record]) -> str:
    """Return one row per variant with means over tasks and the difference in HOS."""
    rows = []
    variants = grouped(records, "variant")
    full = next(iter(variants.values()))
    for variant, members in variants.items():
        figures = [with_deviation(members, field) for field in _ABLATION]
        difference = over_tasks(members, "hos") - over_tasks(full, "hos")
        rows.append([variant, *figures, plain(over_tasks(members, "k_abs")), f"{difference:+.1f}"])
    header = ["variant", *(_PER_TASK[field] for field in _ABLATION)]
    return markdown([*header, "mean \\|k*-k\\|", f"HOS against {next(iter(variants))}"], rows)


def k_table(records: Sequence[Record]) -> str:
    """Return the error of each estimator of k, next to the table of the paper."""
    tasks = list(grouped(records, "task"))
    rows = []
    for variant, members in grouped(records, "variant").items():
        of_task = grouped(members, "task")
        cells = [
            plain(average(of_task[task], "k_star")) if task in of_task else "" for task in tasks
        ]
        signed, absolute = signed_error(members), over_tasks(members, "k_abs")
        paper = PUBLISHED_K.get(variant)
        mean_k = plain(over_tasks(members, "k_star"))
        rows.append([variant, *cells, mean_k, plain(signed), plain(absolute), plain(paper)])
    header = ["estimator", *tasks, "mean k", "\\|mean k - true\\|", "mean \\|k - true\\|"]
    return markdown([*header, "paper's mean k (ResNet-50 fine-tuned, its own split)"], rows)


def stress_table(records: Sequence[Record]) -> str:
    """Return one row per case and mode with means over tasks and seeds."""
    rows = []
    for variant, members in grouped(records, "variant").items():
        case, mode = variant.rsplit("/", 1)
        figures = [plain(over_tasks(members, field)) for field in _STRESS]
        rows.append([case, mode, *figures, statuses(members)])
    return markdown(["case", "novel", *_STRESS.values(), "status"], rows)


def per_task(records: Sequence[Record]) -> str:
    """Return one row per task and the mean over tasks."""
    tasks = grouped(records, "task")
    rows = [
        [task, *(spread([record[field] for record in members]) for field in _PER_TASK)]
        for task, members in tasks.items()
    ]
    means = [with_deviation(records, field) for field in _PER_TASK]
    rows.append([f"**mean of {len(tasks)}**", *means])
    return markdown(["task", *_PER_TASK.values()], rows)


def beside_published(records: Sequence[Record]) -> str:
    """Return our means followed by the published ones, each with its backbone and split."""
    first, published = records[0], _published(records)
    ours = [with_deviation(records, field) for field in _PUBLISHED]
    tasks = len(grouped(records, "task"))
    some = "" if tasks == published.tasks else f", {tasks} of {published.tasks} tasks"
    method = f"scda, preset {first['preset']}"
    rows = [[method, f"{first['backbone']}, frozen", f"{first['protocol']}{some}", *ours]]
    for row in published.rows:
        cells = (plain(getattr(row, field)) for field in _PUBLISHED)
        rows.append([row.method, row.backbone, row.split, *cells])
    return markdown(["method", "backbone", "split", *(_PER_TASK[f] for f in _PUBLISHED)], rows)


def rejection_table(records: Sequence[Record]) -> str:
    """Return the means of OS* and UNK over tasks, with one column per value of the option."""
    star, unknown = (rejection_means(records, place) for place in (0, 1))
    rows = [["OS*", *map(plain, star.values())], ["UNK", *map(plain, unknown.values())]]
    return markdown(["`unknown_logit_bias`", *star], rows)


def rejection_means(records: Sequence[Record], place: int) -> dict[str, float]:
    """Return the mean over tasks of OS* (index 0) or UNK (1) for each value of the option."""
    flat = [
        {"task": record["task"], **{v: pair[place] for v, pair in record["rejection"].items()}}
        for record in records
    ]
    return {value: over_tasks(flat, value) for value in records[0]["rejection"]}


def k_errors(records: Sequence[Record]) -> str:
    """Return both errors of k* as a line; the first, in which signs cancel, is the paper's."""
    signed, absolute = signed_error(records), over_tasks(records, "k_abs")
    papers, of_its_tasks = _published(records).k_errors
    return (
        f"\\|mean k* - k\\| = {signed:.2f} (the paper: {papers}); "
        f"mean \\|k* - k\\| = {absolute:.2f} (from the paper's tasks: {of_its_tasks})"
    )


def per_round(records: Sequence[Record], field: str) -> str:
    """Return a list field as one row per task, one column per round."""
    rounds = max(len(record[field]) for record in records)
    # A mean over the runs that reached a round would compare different runs.
    full = [record for record in records if len(record[field]) == rounds]
    flat = [{**record, **{str(n): v for n, v in enumerate(record[field])}} for record in full]
    columns = [str(number) for number in range(rounds)]
    rows = [
        [task, *(spread([record[column] for record in members]) for column in columns)]
        for task, members in grouped(flat, "task").items()
    ]
    rows.append(["**mean**", *(with_deviation(flat, column) for column in columns)])
    return markdown(["task", *columns], rows)


def _published(records: Sequence[Record]) -> Benchmark:
    return PUBLISHED[records[0]["protocol"]]
