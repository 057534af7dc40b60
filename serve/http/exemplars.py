"""The exemplars, the most typical images of each class, and the route that serves them."""

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
_JPEG = {"content": {"image/jpeg": {"schema": FILE}}, "description": "The exemplar"}


@dataclass(frozen=True)
class Exemplar:
    """One exemplar: a small JPEG in the bundle, and the ETag of its bytes."""

    path: Path
    tag: str


class Exemplars:
    """The exemplars by class id and number; clients cannot reach any other file."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Collect the exemplars that the manifest of the bundle at `folder` lists."""
        self._by_class: Mapping[str, tuple[Exemplar, ...]] = {
            info.class_id: tuple(
                Exemplar(folder / name, f'"{manifest.files[name][:16]}"') for name in info.exemplars
            )
            for info in manifest.classes
        }

    def addresses(self, class_id: str, names: Names) -> tuple[str, ...]:
        """Return the URL paths of a class's exemplars, its own before those of merged classes."""
        members = [other for other in self._by_class if names.resolve(other) == class_id]
        return tuple(
            _ROUTE.format(class_id=member, n=number)
            for member in sorted(members, key=lambda other: other != class_id)
            for number in range(len(self._by_class[member]))
        )

    def exemplar(self, class_id: str, number: int) -> Exemplar:
        """Return one exemplar.

        Raises:
            RequestError: With code `not_found`, if there is no such class or exemplar.
        """
        found = self._by_class.get(class_id, ())
        if not 0 <= number < len(found):
            raise RequestError("not_found", f"class {class_id!r} has no exemplar {number}")
        return found[number]


def serve_exemplars(app: FastAPI, exemplars: Exemplars) -> None:
    """Add `GET /v1/exemplars/{class_id}/{n}`."""

    @app.get(
        _ROUTE,
        response_class=Response,
        responses={
            200: _JPEG,
            304: {"description": "The exemplar has the ETag in If-None-Match"},
            **errors("unauthorized", "not_found"),
            "default": {"model": ErrorBody},
        },
    )
    def exemplar(
        request: Request, class_id: str, number: Annotated[int, PathParameter(alias="n", ge=0)]
    ) -> Response:
        """Return an exemplar of a class as a small JPEG; number 0 is the most typical one."""
        found = exemplars.exemplar(class_id, number)
        # Clients revalidate each time, because the server may be restarted with another bundle.
        headers = {"ETag": found.tag, "Cache-Control": "private, no-cache"}
        if found.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(found.path.read_bytes(), media_type="image/jpeg", headers=headers)
