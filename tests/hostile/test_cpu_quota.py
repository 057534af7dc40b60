"""The quota of the control group that a container runtime puts a process into."""

import os
from pathlib import Path

import pytest

from scda.models import cpus

V2 = "30 24 0:26 {root} {at} rw,nosuid,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "31 25 0:27 {root} {at}/cpu,cpuacct rw,nosuid shared:10 - cgroup cgroup rw,cpu,cpuacct"
MEMORY = "32 25 0:28 / {at}/memory rw,nosuid shared:11 - cgroup cgroup rw,memory"
BESIDE = "33 25 0:29 / {at}/unified rw,nosuid shared:12 - cgroup2 cgroup2 rw"
SYSTEMD = "system.slice/docker-4f5a.scope"
POD = "kubepods.slice/kubepods-burstable.slice/pod1.slice/cri-7.scope"


class Machine:
    """A machine of 32 CPUs, whose /proc/self and /sys/fs/cgroup are in a folder."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.tree = folder / "proc", folder / "sys"
        self.proc.mkdir()

    def mount(self, *lines: str, root: str = "/") -> None:
        text = "\n".join(line.format(at=self.tree, root=root) for line in lines)
        text = f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n{text}\n"
        (self.proc / "mountinfo").write_bytes(os.fsencode(text))

    def groups(self, *lines: str) -> None:
        (self.proc / "cgroup").write_text("\n".join(lines) + "\n")

    def quota(self, folder: str, text: str) -> None:
        path = self.tree / folder / "cpu.max"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def old_quota(self, folder: str, quota: int, period: int = 100_000) -> None:
        path = self.tree / "cpu,cpuacct" / folder
        path.mkdir(parents=True, exist_ok=True)
        (path / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (path / "cpu.cfs_period_us").write_text(f"{period}\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(cpus, "_PROC", made.proc)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(32)), raising=False)
    return made


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ({SYSTEMD: "400000 100000"}, 4),
        ({SYSTEMD: "max 100000", "system.slice": "600000 100000"}, 6),  # a parent's quota
        ({SYSTEMD: "800000 100000", "system.slice": "600000 100000"}, 6),
        ({SYSTEMD: "300000 100000", "system.slice": "600000 100000"}, 3),
        ({SYSTEMD: "max 100000"}, 32),
        ({}, 32),
    ],
)
def test_nested_groups_of_version_2(
    machine: Machine, quotas: dict[str, str], expected: int
) -> None:
    machine.mount(V2)
    machine.groups(f"0::/{SYSTEMD}")
    for folder, text in quotas.items():
        machine.quota(folder, text)
    assert cpus.usable_cpus() == expected


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ({POD: 200_000}, 2),
        ({POD: -1, POD.rpartition("/")[0]: 500_000}, 5),
        ({POD: -1}, 32),
        ({}, 32),
    ],
)
def test_nested_groups_of_version_1(
    machine: Machine, quotas: dict[str, int], expected: int
) -> None:
    machine.mount(MEMORY, V1)
    machine.groups("5:memory:/elsewhere", f"4:cpu,cpuacct:/{POD}", "1:name=systemd:/init.scope")
    for folder, quota in quotas.items():
        machine.old_quota(folder, quota)
    assert cpus.usable_cpus() == expected


def test_both_versions_side_by_side(machine: Machine) -> None:
    machine.mount(BESIDE, V1)
    machine.groups(f"4:cpu,cpuacct:/{POD}", "0::/init.scope")
    machine.old_quota(POD, 150_000, 50_000)
    assert cpus.usable_cpus() == 3


def test_a_container_of_version_1_that_sees_only_its_own_group(machine: Machine) -> None:
    machine.mount(V1, root="/docker/4f5a")  # without a namespace the path is the host's
    machine.groups("4:cpu,cpuacct:/docker/4f5a")
    machine.old_quota("", 700_000)
    assert cpus.usable_cpus() == 7


def test_a_container_of_version_2_with_a_namespace(machine: Machine) -> None:
    machine.mount(V2)
    machine.groups("0::/")
    machine.quota("", "250000 50000")
    assert cpus.usable_cpus() == 5


@pytest.mark.parametrize("group", ["/../../outside", "/gone", "/a:b/c d"])
def test_a_group_that_is_not_below_the_mount_has_the_quota_of_the_mount(
    machine: Machine, group: str
) -> None:
    machine.mount(V2)
    machine.groups(f"0::{group}")
    machine.quota("", "900000 100000")
    machine.tree.with_name("outside").mkdir()
    assert cpus.usable_cpus() == 9


@pytest.mark.parametrize("name", ["caf\udce9", "a\x85b", "a\x0bb", "a\u2028b", "a\x1cb"])
def test_a_disk_of_any_name_hides_no_quota(machine: Machine, name: str) -> None:
    machine.mount(f"34 25 8:2 / /media/{name} rw - vfat /dev/sdb1 rw", V2)
    machine.groups(f"0::/{SYSTEMD}")
    machine.quota(SYSTEMD, "400000 100000")
    assert cpus.usable_cpus() == 4
