"""The page and the documentation's page: files that lie beside this one, read once, and nothing from elsewhere."""

from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import Response

_TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_NAMES = {"index.html": "/", "documentation.html": "/docs"}


def page_routes() -> APIRouter:
    """An address for each file."""
    router = APIRouter(include_in_schema=False)

    def add(name: str, content: bytes) -> None:
        kind = _TYPES["." + name.rsplit(".", 1)[1]]

        @router.get(_NAMES.get(name, f"/page/{name}"))
        async def file() -> Response:
            return Response(content, headers={"content-type": kind})

    for entry in files("albert.inference.server").joinpath("page").iterdir():
        add(entry.name, entry.read_bytes())
    return router
