"""The connections of a worker: how many all clients together, and one client, may have open."""

import logging
import time
from collections import Counter
from collections.abc import Callable

from scda.serve.http.errors import RequestError
from scda.serve.http.metrics import RequestMetrics
from scda.serve.http.settings import Settings

logger = logging.getLogger(__name__)
TOLD = 64  # connections above the limit that are answered; further ones are cut off
_LOG_SECONDS = 60.0  # between two lines about connections that were refused


class TooManyError(Exception):
    """There are so many connections that a further one cannot even be answered."""


class Connections:
    """Counts the open connections of one worker.

    A client is an address. The connections of a proxy are those of many clients, and only the limit
    of all holds for them.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: RequestMetrics,
        *,
        is_proxy: Callable[[str], bool] = lambda address: False,
    ) -> None:
        """Begin with none.

        Args:
            settings: The limits.
            metrics: Shows the connections, and counts those refused.
            is_proxy: Whether an address is that of a proxy that says whose requests it brings.
        """
        self._most, self._most_of_one = settings.max_connections, settings.max_client_connections
        self._metrics, self._is_proxy = metrics, is_proxy
        self._all, self._by_client, self._next_line = 0, Counter[str](), 0.0

    def open(self, client: str) -> RequestError | None:
        """Count a new connection; return the error for its requests if it is one too many.

        Raises:
            TooManyError: If it must be cut off; it is counted all the same, until `close`.
        """
        self._all += 1
        self._by_client[client] += 1
        self._metrics.connections.set(self._all)
        if self._by_client[client] > self._most_of_one and not self._is_proxy(client):
            limit = "client", "SCDA_MAX_CLIENT_CONNECTIONS"
            code, why = "overloaded", f"{client} has {self._most_of_one:,} connections"
        elif self._all > self._most:
            limit = "all", "SCDA_MAX_CONNECTIONS"
            code, why = "unavailable", f"this worker has {self._most:,} connections"
        else:
            return None
        self._metrics.refused_connections.labels(limit[0]).inc()
        self._log(f"connections are refused: {why}, the most that {limit[1]} allows")
        if self._all > self._most + TOLD or self._by_client[client] > self._most_of_one + TOLD:
            raise TooManyError
        return RequestError(code, f"{why}, the most that it may have; try again later")

    def close(self, client: str) -> None:
        """Count a connection that has ended."""
        self._all -= 1
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]
        self._metrics.connections.set(self._all)

    def _log(self, line: str) -> None:
        now = time.monotonic()
        if now >= self._next_line:
            self._next_line = now + _LOG_SECONDS
            logger.warning(line)
