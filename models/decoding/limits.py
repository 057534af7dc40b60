"""The memory and time that decoding one image may take."""

import math
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scda.models.cpus import local_world_size
from scda.models.limits import MAX_PIXELS, ImageLimits
from scda.models.memory import usable_memory

# OpenJPEG takes most: 4 bytes per component twice, and the pixels; 19.3 were measured for RGB.
_BYTES_PER_PIXEL = 20
_SECONDS = 10  # of the processor, for an image of the default size; JPEG 2000 takes up to 7
_MIB = 2**20
_SHARE = 0.5  # of the memory of the machine that decoding may take


@dataclass(frozen=True, kw_only=True)
class ProcessLimits:
    """What a decoding process may take for one image."""

    mebibytes: int  # of memory beside what the process has at its start
    seconds: int  # of processor time
    patience: float  # seconds until the process is ended, however little it has worked
    niceness: int = 0  # how far it gives way to other processes, 0 to 19

    @classmethod
    def for_images(
        cls, limits: ImageLimits, *, patience: float = math.inf, niceness: int = 0
    ) -> "ProcessLimits":
        """Return the limits that the largest image fits.

        Args:
            limits: The largest image that is read.
            patience: As the field; without it, ten times the processor time.
            niceness: As the field.
        """
        # The file is held twice where a decoder needs all of it at once.
        memory = _BYTES_PER_PIXEL * limits.max_pixels + 2 * limits.max_bytes
        seconds = math.ceil(_SECONDS * max(1, limits.max_pixels / MAX_PIXELS))
        return cls(
            mebibytes=math.ceil(memory / _MIB),
            seconds=seconds,
            patience=min(patience, 10 * seconds),
            niceness=niceness,
        )

    def at_once(self, most: int) -> int:
        """Return how many such processes fit the memory of this machine, from 1 to `most`."""
        memory = int(usable_memory() * _SHARE) // local_world_size()
        return max(1, min(most, memory // (self.mebibytes * _MIB)))


class Enforced:
    """The limits of this process, in force from now on."""

    def __init__(self, limits: ProcessLimits) -> None:
        """Limit the memory; limits that the system does not have are left out."""
        self._seconds = limits.seconds
        os.nice(limits.niceness)
        _set_limit("RLIMIT_CORE", 0)  # an image leaves no file behind
        if size := _address_space():
            _set_limit("RLIMIT_AS", size + limits.mebibytes * _MIB)

    def renew(self) -> None:
        """Give the next image its processor time; a process that exceeds it is ended."""
        _set_limit("RLIMIT_CPU", math.ceil(sum(os.times()[:2])) + self._seconds)


def _set_limit(name: str, value: int) -> None:
    with suppress(ImportError, AttributeError, OSError, ValueError):  # not on every system
        import resource

        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (most, hard))


def _address_space() -> int:
    """Return the size of this process's address space in bytes, or 0 where it is not known."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text("ascii").split()[0]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
    return 0
