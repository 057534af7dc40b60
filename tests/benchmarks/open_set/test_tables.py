from typing import Any

from benchmarks.open_set import aggregate, tables


def record(task: str, seed: int, **fields: Any) -> dict[str, Any]:
    return {"task": task, "seed": seed, "protocol": "P1", **fields}


# Task means 91 and 80; the seeds' means over tasks 86 and 85 (A-W, D-W) → deviation 0.7.
RECORDS = [
    record("A-W", 0, os=92.0, k_star=8, k_signed=-3, k_abs=3),
    record("D-W", 0, os=80.0, k_star=13, k_signed=2, k_abs=2),
    record("A-W", 1, os=90.0, k_star=10, k_signed=-1, k_abs=1),
    record("D-W", 1, os=80.0, k_star=11, k_signed=0, k_abs=0),
]


def test_errors_of_k_may_cancel_in_the_papers_and_not_in_ours() -> None:
    assert aggregate.signed_error(RECORDS) == 0.5  # mean k* 10.5
    assert aggregate.over_tasks(RECORDS, "k_abs") == 1.5
    assert "\\|mean k* - k\\| = 0.50" in tables.k_errors(RECORDS)
    assert "mean \\|k* - k\\| = 1.50" in tables.k_errors(RECORDS)


def test_rounds_become_columns() -> None:
    rounds = [
        record("A-W", 0, os_per_round=[80.0, 90.0]),
        record("A-W", 1, os_per_round=[82.0, 90.0]),
        record("D-W", 0, os_per_round=[90.0, 94.0]),
        record("D-W", 1, os_per_round=[90.0, 94.0]),
    ]
    lines = tables.per_round(rounds, "os_per_round").splitlines()
    assert lines[0] == "| task | 0 | 1 |"
    assert lines[2] == "| A-W | 81.0 ± 1.4 | 90.0 ± 0.0 |"
    assert lines[4] == "| **mean** | 85.5 ± 0.7 | 92.0 ± 0.0 |"


def test_estimators_stand_beside_the_paper() -> None:
    rows = [{**each, "variant": "dtc"} for each in RECORDS]
    lines = tables.k_table(rows).splitlines()
    assert lines[0].startswith("| estimator | A-W | D-W | mean k |")
    assert lines[2] == "| dtc | 9.0 | 12.0 | 10.5 | 0.5 | 1.5 | 6.8 |"


def test_a_stress_row_is_a_case_and_a_mode() -> None:
    shares = dict.fromkeys(("os_star", "unk_pooled", "hos", "accuracy", "known_share"), 50.0)
    row = record("A-W", 0, **shares, k_star=0, k_true=0, auroc=0.0, status=["nothing new found"])
    last = tables.stress_table([{**row, "variant": "none/auto"}]).splitlines()[-1]
    assert last.startswith("| none | auto | 50.0 | ")
    assert last.endswith(" | 0.0 | 0.0 | 0.0 | nothing new found 1 |")


def test_an_ablation_is_held_to_the_first_row() -> None:
    names = "os os_star unk_pooled hos auroc nmi_implicit acc_novel k_star k_abs"
    full = dict.fromkeys(names.split(), 90.0)
    rows = [
        record("A-W", 0, **full, variant="as it is"),
        record("A-W", 0, **{**full, "hos": 87.5}, variant="k=1"),
    ]
    lines = tables.ablation_table(rows).splitlines()
    assert lines[0].endswith("| HOS against as it is |")
    assert lines[2].endswith("| +0.0 |")
    assert lines[3].endswith("| -2.5 |")


def test_published_rows_name_their_backbone_and_split() -> None:
    ours = [
        record("A-W", 0, preset="robust", backbone="net")
        | dict.fromkeys(("os", "os_star", "unk_pooled", "hos", "k_star"), 90.0)
    ]
    lines = tables.beside_published(ours).splitlines()
    assert lines[2].startswith("| scda, preset robust | net, frozen | P1, 1 of 6 tasks | 90.0 |")
    cells = lines[3].split(" | ")
    assert cells[0] == "| SCDA (the paper)"
    assert cells[1] == "ResNet-50, fine-tuned"
    assert cells[3:5] == ["95.8", "96.8"]


def test_one_row_per_method_and_one_per_count_and_method() -> None:
    names = "os os_star unk_pooled hos auroc nmi_implicit acc_novel h3_oracle k_star k_abs seconds"
    rows = [
        record(task, 0, **dict.fromkeys(names.split(), value), method=method, variant="3")
        for method, value in (("osbp", 80.0), ("scda", 90.0))
        for task in ("A-W", "D-W")
    ]
    lines = tables.methods_table(rows).splitlines()
    shown = "method|OS|OS*|UNK|HOS|AUROC|NMI|acc_novel|H³ oracle|k*|\\|k*-k\\||seconds"
    assert lines[0].replace(" | ", "|").strip("| ") == shown
    assert [line.split(" | ")[:2] for line in lines[2:]] == [["| scda", "90.0"], ["| osbp", "80.0"]]
    assert tables.ratio_table(rows).splitlines()[2].startswith("| 3 | osbp | 80.0 |")
    by_task = tables.by_task_table(rows).splitlines()
    assert by_task[0] == "| method | A-W | D-W |"
    assert by_task[2:] == ["| scda | 90.0 | 90.0 |", "| osbp | 80.0 | 80.0 |"]


def test_every_data_set_stands_beside_its_own_published_figures() -> None:
    ours = record(
        "Ar-Cl", 0, protocol="25/40", preset="robust", backbone="net", k_signed=-5, k_abs=5
    )
    ours |= dict.fromkeys(("os", "os_star", "unk_pooled", "hos", "k_star"), 70.0)
    lines = tables.beside_published([ours]).splitlines()
    assert lines[2].startswith("| scda, preset robust | net, frozen | 25/40, 1 of 12 tasks |")
    cells = lines[3].split(" | ")
    assert cells[2:4] == ["25/40, SCDA's table", "74.3"]
    assert "(the paper: 6.1)" in tables.k_errors([ours])


def test_correspondence_stands_above_the_papers() -> None:
    fields = {f"correspondence_{n}": float(n + 5) for n in (1, 3, 5)}
    lines = tables.correspondence_table([record("A-W", 0, **fields)]).splitlines()
    assert lines[2] == "| A-W | 6.0 | 8.0 | 10.0 |"
    assert lines[-1] == "| the paper's mean (Office-31) | 8.8 | 9.3 | 10.0 |"
