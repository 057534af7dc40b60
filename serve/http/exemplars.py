"""The pictures of a bundle's classes: where they are found, and the route that gives them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Request
from fastapi import Path as PathParameter
from fastapi.responses import Response

from scda.models.bundle import Manifest
from scda.models.names import Names
from scda.serve.http.errors import ErrorBody, RequestError
from scda.serve.http.openapi import FILE, errors

_ROUTE = "/v1/exemplars/{class_id}/{n}"
_JPEG = {"content": {"image/jpeg": {"schema": FILE}}, "description": "The picture"}


@dataclass(frozen=True)
class Exemplar:
    """One picture: a small JPEG in the bundle, and the tag of its bytes."""

    path: Path
    tag: str


class Exemplars:
    """The pictures by class id and number; what a client names is looked up, never made a path."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Take the pictures that the manifest of the bundle at `folder` lists."""
        self._by_class: Mapping[str, tuple[Exemplar, ...]] = {
            info.class_id: tuple(
                Exemplar(folder / name, f'"{manifest.files[name][:16]}"') for name in info.exemplars
            )
            for info in manifest.classes
        }

    def addresses(self, class_id: str, names: Names) -> tuple[str, ...]:
        """Return where the pictures of a class are on this server, its own before merged ones."""
        members = [other for other in self._by_class if names.resolve(other) == class_id]
        return tuple(
            _ROUTE.format(class_id=member, n=number)
            for member in sorted(members, key=lambda other: other != class_id)
            for number in range(len(self._by_class[member]))
        )

    def picture(self, class_id: str, number: int) -> Exemplar:
        """Return one picture.

        Raises:
            RequestError: With code `not_found`.
        """
        pictures = self._by_class.get(class_id, ())
        if not 0 <= number < len(pictures):
            raise RequestError("not_found", f"class {class_id!r} has no exemplar {number}")
        return pictures[number]


def serve_exemplars(app: FastAPI, exemplars: Exemplars) -> None:
    """Add `GET /v1/exemplars/{class_id}/{n}`."""

    @app.get(
        _ROUTE,
        response_class=Response,
        responses={
            200: _JPEG,
            304: {"description": "The picture is the one with the ETag in If-None-Match"},
            **errors("unauthorized", "not_found"),
            "default": {"model": ErrorBody},
        },
    )
    def exemplar(
        request: Request, class_id: str, number: Annotated[int, PathParameter(alias="n", ge=0)]
    ) -> Response:
        """Show one of the most typical images of a class, the most typical first; a small JPEG."""
        picture = exemplars.picture(class_id, number)
        # Asked for each time, because another bundle may stand at the same address tomorrow.
        headers = {"ETag": picture.tag, "Cache-Control": "private, no-cache"}
        if picture.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(picture.path.read_bytes(), media_type="image/jpeg", headers=headers)
