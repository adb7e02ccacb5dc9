"""The whole application: addresses, one sentence for every error, and a document that shows what this model can do."""

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from albert import __version__
from albert.inference.server.asking import ability_routes
from albert.inference.server.gate import Gate, Refused, refusal
from albert.inference.server.offered import OFFERED, addresses_of
from albert.inference.server.reporting import report_routes
from albert.inference.server.service import Service
from albert.inference.server.static_page import page_routes
from albert.runtime.errors import UsageError

DESCRIPTION = """Ask a trained ALBERT. A request is JSON; it holds one text or many, and each gets its own answer.

A model does what its head was trained for: `GET /model` says what that is. An error is one sentence under `error`.
"""


def application(service: Service) -> Gate:
    """What an ASGI server is given."""
    app = _Documented(
        service, title="albert", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None
    )
    for routes in (ability_routes(service), report_routes(service), page_routes()):
        app.include_router(routes)
    _add_errors(app, service)
    return Gate(app, service, frozenset(OFFERED))


class _Documented(FastAPI):
    """Its document leaves out what the model at hand cannot do."""

    def __init__(self, service: Service, **settings: Any) -> None:
        super().__init__(**settings)
        self._service = service

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        whole = super().openapi()
        if self._service.state == "starting":
            return whole
        absent = set(OFFERED) - set(addresses_of(self._service.predictor))
        return whole | {"paths": {address: what for address, what in whole["paths"].items() if address not in absent}}


def _add_errors(app: FastAPI, service: Service) -> None:
    """Every error becomes a status and one sentence; what is not the caller's fault is told in the server's log."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if not isinstance(error, Refused):
            status = HTTPStatus(error.status_code)
            headers = {name.lower(): value for name, value in (error.headers or {}).items()}
            if "GET" in (methods := headers.get("allow", "").split(", ")):
                headers["allow"] = ", ".join([*methods, "HEAD"])
            error = Refused(status, status.phrase.lower(), _SENTENCES.get(status, status.phrase.lower()), **headers)
        return refusal(error, service)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return refusal(Refused(HTTPStatus.BAD_REQUEST, "json", "the body is not JSON"), service)
        where = ".".join(str(part) for part in first["loc"][1:]) or "body"
        return refusal(Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "fields", f"{where}: {first['msg']}"), service)

    @app.exception_handler(Exception)
    async def mistaken(request: Request, error: Exception) -> Response:
        return refusal(Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "internal error"), service)

    @app.exception_handler(UsageError)
    async def unusable(request: Request, error: UsageError) -> Response:
        return refusal(Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "usage", str(error)), service)


_SENTENCES = {
    HTTPStatus.BAD_REQUEST: "the body is not JSON that can be read",
    HTTPStatus.NOT_FOUND: "no such address; GET /openapi.json lists them",
    HTTPStatus.METHOD_NOT_ALLOWED: "this address is not asked with this method; GET /openapi.json lists them",
}
