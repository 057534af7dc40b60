"""Serve the packaged files of a page: its HTML, styles and scripts."""

from collections.abc import Callable, Mapping
from importlib.resources import files

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, Response

SHARED = frozenset({"status.js", "theme.css"})  # files of every page, in this package
_THIS_PACKAGE = __name__.rpartition(".")[0]
_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


def serve_assets(app: FastAPI, package: str, assets: Mapping[str, str]) -> None:
    """Add a route for every file of a page.

    Args:
        app: The application; its OpenAPI document lists the HTML alone.
        package: Package that contains the files, such as `scda.serve.http`; those in `SHARED` are
            in this package.
        assets: URL path → file name.
    """
    for path, name in assets.items():
        app.add_api_route(
            path,
            _answer(_THIS_PACKAGE if name in SHARED else package, name),
            methods=["GET"],
            response_class=HTMLResponse,
            include_in_schema=name.endswith(".html"),
            name=name.partition(".")[0],
        )


def _answer(package: str, name: str) -> Callable[[], Response]:
    """Return a function that answers with a file, which is read now."""
    text = (files(package) / name).read_text("utf-8")
    media_type = _MEDIA_TYPES[name.rpartition(".")[2]]

    def answer() -> Response:
        return Response(text, media_type=media_type)  # a new one each time: headers are added to it

    return answer
