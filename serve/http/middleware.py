"""The middleware of every request: request id, API key, timing, security headers."""

import logging
import time
from collections.abc import Collection
from uuid import uuid4

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scda.serve.http.errors import refuse
from scda.serve.http.keys import Keys
from scda.serve.http.metrics import Metrics
from scda.serve.web.headers import with_headers

logger = logging.getLogger(__name__)


class RequestMiddleware:
    """Identifies, authorizes and times requests; BentoML's health routes do not pass here."""

    def __init__(
        self, app: ASGIApp, *, keys: Keys, metrics: Metrics, public: Collection[str] = ()
    ) -> None:
        """Wrap an application.

        Args:
            app: The application behind the middleware.
            keys: The keys of which requests must show one.
            metrics: Counts every answer.
            public: Paths that need no key.
        """
        self.app = app
        self._keys, self._metrics, self._public = keys, metrics, public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; answer 401 without the key, 500 after an unexpected exception."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        request_id = request.state.request_id = uuid4().hex
        began, answered = time.perf_counter(), False

        async def send_timed(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                self._metrics.count_request(scope, message["status"], time.perf_counter() - began)
            await send(message)

        answer = with_headers(send_timed, {"X-Request-Id": request_id})
        app = self.app
        if not self._may_pass(request):
            app = refuse(
                request,
                "unauthorized",
                "expected the header Authorization: Bearer KEY with the server's key",
            )
        try:
            await app(scope, receive, answer)
        except Exception as error:  # the framework would answer it without our headers
            logger.error("request %s failed", request_id, exc_info=error)
            if answered:
                raise
            app = refuse(
                request,
                "internal",
                "internal error; the server's log has the details under this request id",
            )
            await app(scope, receive, answer)

    def _may_pass(self, request: Request) -> bool:
        if not self._keys.needed or request.scope["path"] in self._public:
            return True
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        shown = key.strip().encode("latin-1")  # as headers arrive
        return scheme.lower() == "bearer" and self._keys.accept(shown)
