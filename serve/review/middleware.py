"""The middleware of the review page: requests must be local and know the token."""

import hmac

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from scda.serve.web.headers import with_headers
from scda.serve.web.hosts import is_allowed

_MAX_BODY = 64 * 1024  # bytes; the requests of the page are far shorter


class ReviewMiddleware:
    """Checks every request, and removes the token from its path."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        """Wrap an application; `token` is the first part of every path."""
        self.app = app
        self._prefix = f"/{token}/".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with 404, 403, 413 or 415."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"].encode("utf-8", "surrogateescape")
        token, rest = path[: len(self._prefix)], scope["path"][len(self._prefix) - 1 :]
        app = self.app
        if not hmac.compare_digest(token, self._prefix):
            app = JSONResponse({"error": "not found"}, 404)
        elif refusal := _refusal(Request(scope)):
            app = refusal
        else:
            scope = {**scope, "path": rest, "raw_path": rest.encode()}
        await app(scope, receive, with_headers(send))


def _refusal(request: Request) -> JSONResponse | None:
    """Return the refusal of a request with the right token, or None if it is allowed."""
    host = request.headers.get("host", "")
    if not is_allowed(host):
        return JSONResponse({"error": "open this page by its local address, http://127.0.0.1"}, 403)
    if request.method != "POST":
        return None
    if request.headers.get("origin", f"http://{host}") != f"http://{host}":
        return JSONResponse({"error": "expected a request of this page, not of another one"}, 403)
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return JSONResponse({"error": "expected the content type application/json"}, 415)
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > _MAX_BODY:
        return JSONResponse(
            {"error": f"expected a Content-Length of at most {_MAX_BODY} bytes"}, 413
        )
    return None
