"""The errors over HTTP: their codes, statuses and the shape of their body."""

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
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "not_reloaded": 409,
    "too_many_bytes": 413,
    "too_many_pixels": 413,
    "too_many_files": 413,
    "not_an_image": 415,
    "cannot_decode": 422,
    "overloaded": 429,
    "headers_too_large": 431,
    "internal": 500,
    "unavailable": 503,
    "timeout": 504,
}
HEADERS = {
    "unauthorized": {"WWW-Authenticate": "Bearer"},
    "overloaded": {"Retry-After": "1"},
    "unavailable": {"Retry-After": "1"},
}
_CODES = {404: "not_found", 405: "method_not_allowed"}  # errors of the framework itself
TEXT_ERRORS = "/v2/"  # beginning of the paths whose protocol wants an error to be a text


class RequestError(Exception):
    """A refused request; `code` is a key of `STATUS`."""

    def __init__(self, code: str, message: str) -> None:
        """Create an error with its code and message."""
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Error:
    """The error of a request, or of one of its images."""

    code: str
    message: str
    request_id: str


@dataclass(frozen=True)
class ErrorBody:
    """The body of every error response."""

    error: Error


def error_body(request: Request, code: str, message: str) -> dict[str, Any]:
    """Return the body of an error as JSON values, and count the error in the metrics."""
    request.app.state.metrics.requests.count_error(code)
    return dataclasses.asdict(ErrorBody(Error(code, message, request.state.request_id)))


def refuse(request: Request, code: str, message: str) -> JSONResponse:
    """Return the response for an error, with its status and headers."""
    body = error_body(request, code, message)
    if f"{request.scope['path']}/".startswith(TEXT_ERRORS):
        body = {"error": f"{code}: {message}"}
    request.state.code = code  # for the log
    return JSONResponse(body, STATUS[code], headers=HEADERS.get(code))


def shape_errors(app: FastAPI) -> None:
    """Give every error of the application the documented shape, those of the framework included.

    Unexpected exceptions are answered by `RequestMiddleware`.
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
        # The routes parse their bodies themselves, so only a number in the path can be invalid.
        return refuse(request, "not_found", f"{request.method} {request.scope['path']}: Not Found")

    @app.exception_handler(ClientDisconnect)
    async def _(request: Request, error: ClientDisconnect) -> JSONResponse:
        return refuse(request, "bad_request", "the client disconnected before the end of the body")
