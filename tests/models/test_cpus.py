import os
from pathlib import Path

import pytest

from scda.models import cpus


@pytest.fixture
def limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cpu.max"
    monkeypatch.setattr(cpus, "_CGROUP_LIMIT", path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    return path


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
    ],
)
def test_the_containers_quota_caps_the_affinity_mask(limit: Path, text: str, expected: int) -> None:
    limit.write_text(text)
    assert cpus.usable_cpus() == expected


def test_without_a_container_the_affinity_mask_counts(limit: Path) -> None:
    assert not limit.exists()
    assert cpus.usable_cpus() == 8


@pytest.mark.parametrize(("found", "expected"), [(6, 6), (None, 1)])
def test_without_an_affinity_mask_every_cpu_counts(
    limit: Path, monkeypatch: pytest.MonkeyPatch, found: int | None, expected: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: found)
    assert cpus.usable_cpus() == expected
