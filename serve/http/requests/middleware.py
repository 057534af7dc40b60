"""The middleware of every request: its id, who may ask, timing, log line and security headers."""

import logging
from collections.abc import Collection

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from scda.serve.http.errors import RequestError, refuse
from scda.serve.http.keys import Keys
from scda.serve.http.metrics import Metrics, route_of
from scda.serve.http.requests.drain import Drain
from scda.serve.http.requests.exchange import Exchange
from scda.serve.web.headers import with_headers
from scda.serve.web.hosts import ANY, is_allowed

logger = logging.getLogger(__name__)
# In the scope of a request that the server could not read, or on a connection too many: its error.
REFUSAL = "scda.refusal"


class RequestMiddleware:
    """Identifies, authorizes, times and logs requests."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: Keys,
        hosts: Collection[str],
        metrics: Metrics,
        drain: Drain,
        public: Collection[str] = (),
        health: Collection[str] = (),
    ) -> None:
        """Wrap an application.

        Args:
            app: The application behind the middleware.
            keys: The keys of which requests must show one.
            hosts: Names that they may have as their host, besides addresses; all if there are none
                and a key is needed.
            metrics: Counts every answer.
            drain: Ends requests when the server stops.
            public: Paths that need no key.
            health: Paths that need no key, may be asked by any host, and are logged if they fail.
        """
        self.app, self._keys = app, keys
        # A page of another site does not know a key, so where one is needed any name is right.
        self._hosts = hosts or ([ANY] if keys.needed else [])
        self._metrics, self._drain = metrics, drain
        self._public, self._health = frozenset(public), frozenset(health)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; answer 401, 403, or 500 after an unexpected exception."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, self._drain)
        exchange.closing = REFUSAL in scope
        if scope["method"] == "HEAD":  # as GET is; the exchange leaves out the body
            scope = {**scope, "method": "GET"}
        request = Request(scope)
        request.state.request_id = exchange.id
        try:
            await self._answer(request, exchange)
        finally:
            if exchange.status:
                self._metrics.requests.count(scope, exchange.status, exchange.seconds)
            if exchange.status >= 400 or scope["path"] not in self._health:
                _log(request, exchange)

    async def _answer(self, request: Request, exchange: Exchange) -> None:
        send = with_headers(exchange.send, {"X-Request-Id": exchange.id})
        app = self._refusal(request) or self.app
        try:
            async with self._drain.request():
                await app(request.scope, exchange.receive, send)
            return
        except TimeoutError:
            if exchange.status or not self._drain.begun:
                raise
            code, message = "unavailable", "the server is stopping; try again"
        except Exception as error:  # the framework would answer it without our headers
            logger.error("request %s failed", exchange.id, exc_info=error)
            if exchange.status:
                raise
            code = "internal"
            message = "internal error; the server's log has the details under this request id"
        exchange.closing = True
        await refuse(request, code, message)(request.scope, exchange.receive, send)

    def _refusal(self, request: Request) -> ASGIApp | None:
        path = request.scope["path"]
        if path in self._health:
            return None
        refusal: RequestError | None = request.scope.get(REFUSAL)
        if refusal:
            return refuse(request, refusal.code, str(refusal))
        host = request.headers.get("host", "")
        if not is_allowed(host, self._hosts):
            return refuse(
                request,
                "forbidden",
                f"the host {host!r} is not allowed; use the address of the server, or list the "
                "name in its SCDA_ALLOWED_HOSTS",
            )
        if not self._keys.needed or path in self._public or self._shows_key(request):
            return None
        return refuse(
            request,
            "unauthorized",
            "expected the header Authorization: Bearer KEY with the server's key",
        )

    def _shows_key(self, request: Request) -> bool:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        shown = key.strip().encode("latin-1")  # as headers arrive
        return scheme.lower() == "bearer" and self._keys.accept(shown)


def _log(request: Request, exchange: Exchange) -> None:
    scope, client = request.scope, request.client
    fields = {
        "id": exchange.id,
        "method": exchange.method,
        "route": route_of(scope),  # never the path or the query, which may hold anything
        "status": exchange.status,
        "code": getattr(request.state, "code", None),
        "bytes_in": exchange.received,
        "bytes_out": exchange.sent,
        "ms": round(1000 * exchange.seconds, 1),
        "client": client.host if client else None,
    }
    level = logging.INFO if exchange.status < 500 else logging.WARNING
    logger.log(level, "request", extra={"fields": fields})
