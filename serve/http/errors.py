"""Every error over HTTP: its code, its status, and the one shape of its body."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from scda.models.errors import ImageError

STATUS = {
    "empty": 400,
    "bad_request": 400,
    "unauthorized": 401,
    "not_found": 404,
    "method_not_allowed": 405,
    "too_many_bytes": 413,
    "too_many_pixels": 413,
    "too_many_files": 413,
    "not_an_image": 415,
    "cannot_decode": 422,
    "overloaded": 429,
    "internal": 500,
    "timeout": 504,
}
_HEADERS = {
    "unauthorized": {"WWW-Authenticate": "Bearer"},
    "overloaded": {"Retry-After": "1"},
    # The rest of the body is not waited for.
    "too_many_bytes": {"Connection": "close"},
    "timeout": {"Connection": "close"},
}
_CODES = {404: "not_found", 405: "method_not_allowed"}  # what the framework itself refuses


class RequestError(Exception):
    """A request that is not answered; `code` is one of `STATUS`."""

    def __init__(self, code: str, message: str) -> None:
        """Keep the code beside the message."""
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Error:
    """What went wrong with a request or with one image of it."""

    code: str
    message: str
    request_id: str


@dataclass(frozen=True)
class ErrorBody:
    """The body of every error."""

    error: Error


def error_body(request: Request, code: str, message: str) -> dict[str, Any]:
    """Return the body of an error as plain JSON values; every error passes here to be counted."""
    request.app.state.metrics.count_error(code)
    return dataclasses.asdict(ErrorBody(Error(code, message, request.state.request_id)))


def refuse(request: Request, code: str, message: str) -> JSONResponse:
    """Return the whole response for an error."""
    body = error_body(request, code, message)
    return JSONResponse(body, STATUS[code], headers=_HEADERS.get(code))


def shape_errors(app: FastAPI) -> None:
    """Make the application answer every error, its framework's own included, in our shape.

    Bugs are answered by the `RequestMiddleware`.
    """

    @app.exception_handler(ImageError)
    @app.exception_handler(RequestError)
    async def _(request: Request, error: ImageError | RequestError) -> JSONResponse:
        return refuse(request, error.code, str(error))

    @app.exception_handler(HTTPException)
    async def _(request: Request, error: HTTPException) -> JSONResponse:
        # Not request.url, which fails on a query that is not UTF-8.
        message = f"{request.method} {request.scope['path']}: {error.detail}"
        response = refuse(request, _CODES.get(error.status_code, "bad_request"), message)
        response.headers.update(error.headers or {})  # a 405 names the methods allowed
        return response

    @app.exception_handler(RequestValidationError)
    async def _(request: Request, error: RequestValidationError) -> JSONResponse:
        # Bodies are read by hand: only a part of the path can be no number.
        return refuse(request, "not_found", f"{request.method} {request.scope['path']}: Not Found")

    @app.exception_handler(ClientDisconnect)
    async def _(request: Request, error: ClientDisconnect) -> JSONResponse:
        return refuse(request, "bad_request", "the client went away before the end of the body")
