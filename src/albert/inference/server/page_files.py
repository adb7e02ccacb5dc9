"""The web page and its documentation: files in page/, read once, without external resources."""

from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from albert.checkpoints.hub import example_rows
from albert.inference.server.batching import Service
from albert.inference.server.refusals import refuse_unready
from albert.tasks.pipelines import row_pipelines

_TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_NAMES = {"index.html": "/", "documentation.html": "/docs"}


def page_routes(service: Service) -> APIRouter:
    """An endpoint for each file of the web page."""
    router = APIRouter(include_in_schema=False)

    def add(name: str, content: bytes) -> None:
        content_type = _TYPES["." + name.rsplit(".", 1)[1]]

        @router.get(_NAMES.get(name, f"/page/{name}"))
        async def file() -> Response:
            return Response(content, headers={"content-type": content_type})

    for entry in files("albert.inference.server").joinpath("page").iterdir():
        add(entry.name, entry.read_bytes())

    @router.get("/page/tasks.json")
    async def tasks() -> Response:
        """The tasks that have a tab; page/tasks.js has their fields and views."""
        tabs = sorted(row_pipelines().values(), key=lambda endpoint: not endpoint.has_first_tab)
        return JSONResponse([{"address": f"/{task.name}", "title": task.name, "hint": task.about} for task in tabs])

    @router.get("/page/examples.json")
    async def examples() -> Response:
        refuse_unready(service)
        return JSONResponse({"examples": example_rows(Path(service.predictor.name))})

    return router
