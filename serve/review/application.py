"""The application of the review page: see the discovered classes, name, merge and drop them.

The page is local and made for one person with any number of tabs. Every edit is applied to the
current names.json, so tabs and the shell do not lose each other's work.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from scda.models.bundle import ClassInfo, Manifest, open_verified, read_manifest
from scda.models.errors import GateError, ImageError, UsageError
from scda.models.names import Names, read_names
from scda.models.naming import (
    ConflictError,
    Edit,
    SaveError,
    change_names,
    decided_classes,
    undoable,
)
from scda.serve.files.target_images import TargetImages, open_target_images
from scda.serve.review.middleware import ReviewMiddleware
from scda.serve.review.names_command import progress
from scda.serve.web.assets import serve_assets

_HISTORY = 20  # changes shown
_PAGE = 60  # images at once
_SCRIPTS = ("api", "cards", "pages", "actions", "images", "picked", "keys")
_SHARED = ("theme.css", "status.js")
_LOADED = (*_SHARED, "review.css", *(f"review_{name}.js" for name in _SCRIPTS), "review.js")
_ASSETS = {"/": "review.html", **{f"/{name}": name for name in _LOADED}}
_CACHED = {"Cache-Control": "private, max-age=3600"}  # the images of a bundle never change


@dataclass(frozen=True)
class Review:
    """One bundle under review."""

    folder: Path
    manifest: Manifest
    target_images: TargetImages
    choose: Callable[[], Sequence[str]] | None = None  # as `picked` of `create_review_app`

    @cached_property
    def picked(self) -> list[int]:
        """The rows of the images to label next, if a choice is offered; it may take seconds."""
        return self.target_images.rows_of(self.choose()) if self.choose else []

    def names(self) -> Names:
        """Return the current names on disk."""
        return read_names(self.folder, self.manifest)

    def state(self, names: Names) -> dict[str, Any]:
        """Return everything that the page shows, as JSON values."""
        last, why = undoable(names), self._to_confirm(names)
        doubtful_last = sorted(self.manifest.classes, key=lambda info: info.doubtful)
        return {
            "model_id": self.manifest.id,
            "status": list(self.manifest.status),
            "trust": self.manifest.trust and dataclasses.asdict(self.manifest.trust),
            "version": names.version,
            "classes": [
                self._class(names, info) | {"to_confirm": why.get(info.class_id, "")}
                for info in doubtful_last
            ],
            "progress": self._progress(names),
            "can_pick": self.choose is not None and not self.target_images.why_not,
            "undo": last.did if last else None,
            "history": [{"at": c.at, "did": c.did} for c in names.history[: -_HISTORY - 1 : -1]],
            "why_no_images": self.target_images.why_not,
        }

    def _progress(self, names: Names) -> dict[str, Any]:
        covered = progress(self.manifest, names)
        texts = {"text": covered.text, "next_text": covered.next_text} if covered.images else {}
        return dataclasses.asdict(covered) | texts

    def _class(self, names: Names, info: ClassInfo) -> dict[str, Any]:
        # What was measured of a class does not hold for the classes merged into it.
        trust = None if info.class_id in names.merges.values() else info.trust
        return {
            "class_id": info.class_id,
            "kind": info.kind,
            "label": names.label(info),
            "named": info.class_id in names.labels,
            "size": info.size,
            "confidence": info.mean_confidence,
            "nearest_known": info.nearest_known,
            "similarity": trust.similarity if trust else None,
            "measures": trust.measures if trust else "",
            "doubt": trust.reason if trust else "",
            "pictures": len(info.exemplars),
            "merged_into": names.merges.get(info.class_id),
            "dropped": info.class_id in names.drops,
        }

    def _to_confirm(self, names: Names) -> dict[str, str]:
        """Return the classes that keep something of an earlier model to be confirmed, and why."""
        previous = self.manifest.previous
        if previous is None:
            return {}
        settled = decided_classes(names)
        return {i: previous.why_to_confirm(i) for i in previous.to_confirm if i not in settled}


def create_review_app(
    bundle: Path,
    token: str,
    *,
    target: Path | None = None,
    picked: Callable[[], Sequence[str]] | None = None,
) -> FastAPI:
    """Return the page's application; everything lies under `/TOKEN/`.

    Args:
        bundle: Folder of the bundle.
        token: Secret part of the address; any other path is answered with 404.
        target: Folder of the target images; the folder used for training if None.
        picked: Returns the paths of the target images to label next, relative to the target
            folder; called once they are asked for. None offers none.

    Raises:
        GateError: If the bundle or its names.json is damaged, or the names are another model's.
    """
    manifest = read_manifest(bundle)
    review = Review(bundle, manifest, open_target_images(bundle, manifest, target), picked)
    review.names()  # those of another model are refused before anybody edits them
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_middleware(ReviewMiddleware, token=token)
    _shape_errors(app, review)
    serve_assets(app, "scda.serve.review", _ASSETS)
    _serve_pictures(app, review)

    @app.get("/state")
    def state() -> dict[str, Any]:
        return review.state(review.names())

    @app.post("/change")
    def change(edit: Edit) -> dict[str, Any]:
        names = change_names(
            bundle, lambda naming, names: naming.apply(names, edit), model_id=manifest.id
        )
        return review.state(names)

    return app


def _serve_pictures(app: FastAPI, review: Review) -> None:
    exemplars = {info.class_id: info.exemplars for info in review.manifest.classes}

    @app.get("/pictures/{class_id}/{number}")
    def picture(class_id: str, number: int) -> Response:
        paths = exemplars.get(class_id, ())
        if not 0 <= number < len(paths):
            raise ImageError("not_found", f"class {class_id} has no typical image {number}")
        try:
            with open_verified(review.folder, review.manifest, paths[number]) as file:
                return Response(file.read(), media_type="image/jpeg", headers=_CACHED)
        except GateError as error:  # the bundle was replaced or deleted under the page
            raise ImageError("not_found", str(error)) from None

    def described(rows: Sequence[int]) -> list[dict[str, Any]]:
        images = review.target_images.images
        return [{"row": row, **dataclasses.asdict(images[row])} for row in rows]

    @app.get("/images/{class_id}")
    def images(class_id: str, start: int = 0, surest_first: bool = True) -> dict[str, Any]:
        rows = review.target_images.rows(class_id, review.names(), surest_first=surest_first)
        return {"total": len(rows), "images": described(rows[max(0, start) :][:_PAGE])}

    @app.get("/picked")
    def picked() -> dict[str, Any]:
        return {"images": described(review.picked)}

    @app.get("/image/{row}")
    def image(row: int) -> Response:
        return Response(
            review.target_images.thumbnail(row), media_type="image/jpeg", headers=_CACHED
        )


def _shape_errors(app: FastAPI, review: Review) -> None:
    def refuse(status: int, error: Exception, **more: Any) -> JSONResponse:
        # The message may quote half a surrogate pair, which JSON cannot hold.
        text = str(error).encode("utf-8", "backslashreplace").decode()
        return JSONResponse({"error": " ".join(text.split()), **more}, status)

    @app.exception_handler(SaveError)
    async def _(request: Request, error: SaveError) -> JSONResponse:
        return refuse(507, error)

    @app.exception_handler(ConflictError)
    async def _(request: Request, error: ConflictError) -> JSONResponse:
        return refuse(409, error, state=review.state(review.names()), conflict=True)

    @app.exception_handler(UsageError)
    async def _(request: Request, error: UsageError) -> JSONResponse:
        return refuse(409, error, state=review.state(review.names()))

    @app.exception_handler(GateError)
    async def _(request: Request, error: GateError) -> JSONResponse:
        return refuse(500, error)

    @app.exception_handler(ImageError)
    async def _(request: Request, error: ImageError) -> JSONResponse:
        return refuse(404, error)

    @app.exception_handler(HTTPException)
    async def _(request: Request, error: HTTPException) -> JSONResponse:
        return refuse(error.status_code, ValueError(error.detail))

    @app.exception_handler(RequestValidationError)
    async def _(request: Request, error: RequestValidationError) -> JSONResponse:
        message = f"not a valid request of the review page: {error.errors()[0]['msg']}"
        return refuse(400, ValueError(message))
