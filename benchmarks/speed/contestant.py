"""A server that takes turns with others under load."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.speed.load import Load, arrive, keep_busy
from benchmarks.speed.server import Server


@dataclass(frozen=True)
class Contestant:
    """A server and its route for images; it is suspended while another one is under load."""

    server: Server
    path: str
    field: str

    def busy(self, files: Sequence[bytes], *, clients: int, seconds: float) -> Load:
        """Measure it under clients that never pause."""
        with self.server.alone():
            before = self.server.processor_seconds()
            load = keep_busy(self.url, self.field, files, clients=clients, seconds=seconds)
            return replace(load, server_seconds=self.server.processor_seconds() - before)

    def now_and_then(self, files: Sequence[bytes], moments: Sequence[float]) -> Load:
        """Measure it with one image at each of these moments."""
        with self.server.alone():
            return arrive(self.url, self.field, files, moments)

    @property
    def url(self) -> str:
        """Address of its route for images."""
        return self.server.url + self.path
