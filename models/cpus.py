"""Number of CPUs that this process may use."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_PROC = Path("/proc/self")
_WORKERS_PER_CPU = 4  # more than one helps where files come over a network


def usable_cpus() -> int:
    """Return the number of CPUs in the affinity mask, capped by the container's quota; at least 1.

    Thread pools sized to the host instead of the container lose most of their speed.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # absent on macOS and Windows
    allowed = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min([allowed, *map(round, _quotas())]))


def local_world_size() -> int:
    """Return the number of processes of a run, as torchrun starts them, that share this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1)) if "LOCAL_RANK" in os.environ else 1


def num_workers(asked: int, pieces: int) -> int:
    """Return the number of workers to start: those asked for, as far as they have work.

    Args:
        asked: Number of threads or processes.
        pieces: Number of pieces of work; more workers would be idle.
    """
    return min(asked, max(1, pieces), _WORKERS_PER_CPU * usable_cpus())


def _quotas() -> list[float]:
    """Return the quotas that hold for this process, in CPUs."""
    try:
        return [quota for group in control_groups("cpu") if (quota := _quota(group)) is not None]
    except ValueError:  # files of another form
        return []


def control_groups(controller: str) -> Iterator[Path]:
    """Yield the folder of every control group whose limits hold for this process.

    A limit holds for all groups inside its own, so that a group is followed by its parents, up to
    the one that the container sees. Version 1 has a tree per controller, version 2 one tree.

    Args:
        controller: What is limited, such as `cpu` or `memory`.

    Source: cgroups(7) and proc_pid_mountinfo(5).
    """
    own = dict(_own_groups())
    for line in _lines(_PROC / "mountinfo"):
        mount, _, file_system = line.partition(" - ")
        _, _, _, root, point, *_ = mount.split(" ")
        kind, _, options = file_system.split(" ", 2)
        limits = kind == "cgroup2" or (kind == "cgroup" and controller in options.split(","))
        tree = "" if kind == "cgroup2" else controller
        if not limits or tree not in own:
            continue
        group = PurePosixPath(own[tree])
        # The mount may begin at the container's group, while the path begins at the host's.
        inside = group.relative_to(root) if group.is_relative_to(root) else PurePosixPath()
        folder = Path(point) if ".." in inside.parts else Path(point, inside)
        yield from (one for one in (folder, *folder.parents) if one.is_relative_to(point))


def _own_groups() -> Iterator[tuple[str, str]]:
    """Yield the controllers of this process and its group; version 2 has the controller ""."""
    for line in _lines(_PROC / "cgroup"):
        _, controllers, path = line.split(":", 2)
        yield from ((controller, path) for controller in controllers.split(","))


def _quota(group: Path) -> float | None:
    """Return the quota of a control group in CPUs, or None if it has none."""
    try:
        if (group / "cpu.max").is_file():
            quota, period = (group / "cpu.max").read_text("ascii").split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text("ascii")
            period = (group / "cpu.cfs_period_us").read_text("ascii")
        cpus = int(quota) / int(period)  # `max` and -1 mean no quota
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return cpus if cpus > 0 else None


def _lines(file: Path) -> list[str]:
    try:
        text = os.fsdecode(file.read_bytes())  # a mount may have a name in any encoding
    except OSError:  # not on Linux
        return []
    return text.removesuffix("\n").split("\n")
