"""The page at "/": give it an image, see the answer beside the pictures of what it is near to."""

from fastapi import FastAPI

from scda.serve.web.assets import serve_assets

_LOADED = ("theme.css", "page.css", "page_api.js", "page_render.js", "page.js")
_ASSETS = {"/": "page.html", **{f"/{name}": name for name in _LOADED}}
PUBLIC = frozenset(_ASSETS)  # paths that tell nothing, and ask for the key themselves


def serve_page(app: FastAPI) -> None:
    """Add `GET /` and the files that it loads."""
    serve_assets(app, "scda.serve.http", _ASSETS)
