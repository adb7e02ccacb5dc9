"""Addresses that tell: what the model is, whether the server lives and takes work, and its figures."""

from http import HTTPStatus

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

from albert.inference.server.gate import refuse_unready
from albert.inference.server.offered import model_facts
from albert.inference.server.reply_bodies import ErrorReply, ModelReply
from albert.inference.server.service import Service


def report_routes(service: Service) -> APIRouter:
    """The addresses that take nothing."""
    router = APIRouter(tags=["tell"])

    @router.get("/model", response_model=None, responses={200: {"model": ModelReply}, 503: {"model": ErrorReply}})
    async def model() -> Response:
        """What the model can do, how it computes, and what the server takes on at most."""
        refuse_unready(service)
        return JSONResponse(model_facts(service.predictor, service.limits))

    @router.get("/healthz", response_model=None)
    async def health() -> Response:
        """Whether the process answers."""
        broken = service.state == "broken"
        status = HTTPStatus.INTERNAL_SERVER_ERROR if broken else HTTPStatus.OK
        return JSONResponse({"state": service.state}, status)

    @router.get("/readyz", response_model=None, responses={503: {"description": "Starting, ending, or broken."}})
    async def readiness() -> Response:
        """Whether requests are taken."""
        ready = service.state == "ready"
        return JSONResponse({"state": service.state}, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)

    @router.get("/metrics", response_model=None, response_class=Response)
    async def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(service.measurements.text(), headers={"content-type": CONTENT_TYPE_LATEST})

    return router
