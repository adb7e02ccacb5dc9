"""Addresses without input: /model, /healthz, /readyz and /metrics."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, Response

from albert.checkpoints.hub import name_of
from albert.inference.predictor import Predictor
from albert.inference.server.batching import Service
from albert.inference.server.limits import Limits
from albert.inference.server.openapi import ErrorReply, ModelReply
from albert.inference.server.refusals import refuse_unready


def status_routes(service: Service) -> APIRouter:
    """The endpoints without input."""
    router = APIRouter(tags=["status"], responses={421: {"model": ErrorReply}})

    @router.get("/model", response_model=None, responses={200: {"model": ModelReply}, 503: {"model": ErrorReply}})
    async def model() -> Response:
        """Abilities and properties of the model, and limits of the server."""
        refuse_unready(service)
        return JSONResponse(model_facts(service.predictor, service.limits))

    @router.get("/healthz", response_model=None)
    async def health() -> Response:
        """Liveness."""
        return JSONResponse({"state": service.state}, 500 if service.state == "broken" else 200)

    @router.get("/readyz", response_model=None, responses={503: {"description": "Starting or broken."}})
    async def readiness() -> Response:
        """Readiness: whether requests are accepted."""
        return JSONResponse({"state": service.state}, 200 if service.state == "ready" else 503)

    @router.get("/metrics", response_model=None, response_class=Response)
    async def metrics() -> Response:
        """Prometheus metrics."""
        return Response(generate_latest(service.metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST})

    return router


def model_facts(predictor: Predictor, limits: Limits) -> dict[str, Any]:
    """Properties of the model for clients; without its path on this machine."""
    labelled = any(pipeline.has_labels for pipeline in predictor.pipelines)
    facts = {
        "name": name_of(Path(predictor.name)),
        "abilities": list(predictor.abilities) or ["embed texts"],
        "addresses": [f"/{pipeline.name}" for pipeline in predictor.pipelines],
        "labels": predictor.labels if labelled else [],
        "pairs": predictor.reads_pairs,
        "columns": predictor.columns,
        "problem_type": predictor.extra.get("problem_type"),
        "device": str(predictor.device),
        "limits": asdict(limits),
    }
    others = {**vars(predictor.config), **vars(predictor), "max_length": predictor.read_length}
    return {name: facts[name] if name in facts else others[name] for name in ModelReply.model_fields}
