import os
from pathlib import Path

import pytest

from scda.models import cpus


@pytest.fixture
def eight_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /proc/self, on a machine of eight CPUs."""
    monkeypatch.setattr(cpus, "_PROC", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    return tmp_path


@pytest.fixture
def limit(eight_cpus: Path) -> Path:
    """The file with the quota of a container that sees its own group alone."""
    mount = f"30 24 0:26 / {eight_cpus}/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
    (eight_cpus / "mountinfo").write_text(f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n{mount}")
    (eight_cpus / "cgroup").mkdir()
    (eight_cpus / "cgroup" / "cpu.max").touch()
    return eight_cpus / "cgroup" / "cpu.max"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("350000 100000\n", 4),
        ("1600000 100000\n", 8),
        ("50000 100000\n", 1),
        ("1000 100000\n", 1),
        ("", 8),
        ("some text\n", 8),
        ("100000 0\n", 8),
    ],
)
def test_the_containers_quota_caps_the_affinity_mask(
    limit: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: int
) -> None:
    monkeypatch.setattr(cpus, "_own_groups", lambda: [("", "/")])
    limit.write_text(text)
    assert cpus.usable_cpus() == expected


def test_without_a_container_the_affinity_mask_counts(eight_cpus: Path) -> None:
    assert cpus.usable_cpus() == 8


@pytest.mark.parametrize("text", ["", "\n", "0::/\n"])
def test_a_process_without_groups_has_no_quota(eight_cpus: Path, text: str) -> None:
    (eight_cpus / "cgroup").write_text(text)
    assert cpus.usable_cpus() == 8


@pytest.mark.parametrize(("found", "expected"), [(6, 6), (None, 1)])
def test_without_an_affinity_mask_every_cpu_counts(
    eight_cpus: Path, monkeypatch: pytest.MonkeyPatch, found: int | None, expected: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: found)
    assert cpus.usable_cpus() == expected


@pytest.mark.parametrize(
    ("asked", "pieces", "expected"), [(0, 9, 0), (3, 9, 3), (5000, 20, 20), (5000, 5000, 32)]
)
def test_workers_have_work(eight_cpus: Path, asked: int, pieces: int, expected: int) -> None:
    assert cpus.num_workers(asked, pieces) == expected
