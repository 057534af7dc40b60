"""The page at "/": it classifies an image and shows the nearest classes and target images."""

from fastapi import FastAPI

from scda.serve.web.assets import serve_assets

_LOADED = ("theme.css", "page.css", "status.js", "page_api.js", "page_render.js", "page.js")
_ASSETS = {"/": "page.html", **{f"/{name}": name for name in _LOADED}}
PUBLIC = frozenset(_ASSETS)  # paths without secrets; the page itself asks for the key


def serve_page(app: FastAPI) -> None:
    """Add `GET /` and the files that the page loads."""
    serve_assets(app, "scda.serve.http", _ASSETS)
