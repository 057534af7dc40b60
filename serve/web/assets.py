"""A page's files, as they are packaged beside this module."""

from collections.abc import Callable, Mapping
from importlib.resources import files

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, Response

SHARED = frozenset({"theme.css"})  # files of every page
_WEB = __name__.rpartition(".")[0]
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


def serve_assets(app: FastAPI, package: str, assets: Mapping[str, str]) -> None:
    """Serve packaged files.

    Args:
        app: Its OpenAPI document names the page, not what the page loads.
        package: The folder that holds the page's files, such as `scda.serve.http`.
        assets: Path → file name; what `SHARED` names lies beside this module.
    """
    for path, name in assets.items():
        app.add_api_route(
            path,
            _answering(_WEB if name in SHARED else package, name),
            methods=["GET"],
            response_class=HTMLResponse,
            include_in_schema=name.endswith(".html"),
            name=name.partition(".")[0],
        )


def _answering(package: str, name: str) -> Callable[[], Response]:
    text = (files(package) / name).read_text("utf-8")
    kind = _KINDS[name.rpartition(".")[2]]

    def answer() -> Response:
        return Response(text, media_type=kind)  # a new one each time: headers are added to it

    return answer
