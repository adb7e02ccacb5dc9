"""The endpoints: one for each pipeline, from the checked body of a request to its reply, and those without input.

`respond` queues an accepted request and waits for its result, its deadline or a disconnect. Requests and replies are
checked and described by models of `albert.inference.server.models`."""

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from albert.checkpoints.hub import name_of
from albert.inference.predictor import Predictor
from albert.inference.server import batching
from albert.inference.server.batching import Request as Accepted
from albert.inference.server.limits import Limits
from albert.inference.server.middleware import ACCEPTED
from albert.inference.server.models import ErrorReply, ModelReply, reply_model, request_model
from albert.inference.server.refusals import Refused, queue_is_full, refuse_too_much, refuse_unready
from albert.inference.texts import check_second_texts
from albert.runtime.errors import UsageError
from albert.tasks.pipeline import Pipeline
from albert.tasks.pipelines import endpoints

# --------------------------------------------------------------------------------------------------------------------
# An endpoint for each pipeline.

_REFUSALS = (400, 413, 415, 421, 422, 429, 503, 504)


def pipeline_routes(service: batching.Service) -> APIRouter:
    """An endpoint for each task."""
    router = APIRouter(tags=["inference"])
    for endpoint in endpoints().values():
        _add_endpoint(router, service, endpoint)
    return router


def _add_endpoint(router: APIRouter, service: batching.Service, endpoint: type[Pipeline]) -> None:
    shape: Any = request_model(endpoint)
    checked = TypeAdapter(endpoint.Request)

    async def answer(request: Request, body: shape) -> Response:  # type: ignore[valid-type]
        refuse_unready(service)
        predictor = service.predictor
        if not predictor.can(endpoint.name):
            can = " and ".join(predictor.abilities) or "only embed texts"
            raise Refused("inability", f"this model cannot {endpoint.needs}; it can {can}")
        pipeline = predictor.pipeline(endpoint.name)
        content = checked.validate_python(body.model_dump())
        examples = pipeline.examples(content)
        if pipeline.takes_pair:
            second = "pair" if hasattr(content, "pair") else "pairs"
            check_second_texts(second, getattr(content, second) is not None, predictor.reads_pairs)
        service.warn_of_unknown(examples)
        why = pipeline.too_much(content)
        if why is not None:
            raise Refused("candidates", why)
        call = batching.Call(pipeline.name, pipeline.settings(content), len(examples[0].texts) > 1)
        sized = [batching.as_input(predictor, example, pipeline.is_windowed) for example in examples]
        return await respond(service, request, call, sized)

    replies: dict[int | str, dict[str, Any]] = {
        200: {"model": reply_model(endpoint), "description": "One result for each text."}
    }
    replies |= {status: {"model": ErrorReply} for status in _REFUSALS}
    answer.__doc__ = endpoint.about
    router.post(f"/{endpoint.name}", name=endpoint.name, responses=replies, response_model=None)(answer)


def addresses_of(predictor: Predictor) -> list[str]:
    """The endpoints that this model supports."""
    return [f"/{pipeline.name}" for pipeline in predictor.pipelines]


def model_facts(predictor: Predictor, limits: Limits) -> dict[str, Any]:
    """Properties of the model for clients; without its path on this machine."""
    labelled = any(pipeline.has_labels for pipeline in predictor.pipelines)
    facts = {
        "name": name_of(Path(predictor.name)),
        "abilities": list(predictor.abilities) or ["embed texts"],
        "addresses": addresses_of(predictor),
        "labels": predictor.labels if labelled else [],
        "pairs": predictor.reads_pairs,
        "columns": predictor.columns,
        "problem_type": predictor.extra.get("problem_type"),
        "device": str(predictor.device),
        "limits": asdict(limits),
    }
    others = {**vars(predictor.config), **vars(predictor), "max_length": predictor.read_length}
    return {name: facts[name] if name in facts else others[name] for name in ModelReply.model_fields}


# --------------------------------------------------------------------------------------------------------------------
# Handling of a request: sizes, the queue, the deadline, disconnected clients.

logger = logging.getLogger("albert.server")


async def respond(
    service: batching.Service, request: Request, call: batching.Call, inputs: Sequence[batching.Input]
) -> Response:
    """Queue the inputs and wait for their results; the reply has `Server-Timing` in milliseconds."""
    refuse_unready(service)
    refuse_too_much(service.limits, inputs)
    try:
        accepted = service.batcher.submit(call, inputs)
    except batching.QueueFull as full:
        raise queue_is_full(full.args[0]) from None
    request.scope[ACCEPTED] = True
    service.in_progress += 1
    results = await _wait(service, request, accepted)
    assert accepted.started is not None and accepted.ended is not None
    queued = accepted.started - accepted.arrived
    computed = accepted.ended - accepted.started
    timing = f"queue;dur={1000 * queued:.2f}, model;dur={1000 * computed:.2f}"
    return Response(await _body(results), media_type="application/json", headers={"server-timing": timing})


async def _body(results: Sequence[Any]) -> str:
    """The results as JSON; yields to the event loop after each, since a result may have megabytes."""
    parts = []
    for result in results:
        try:
            parts.append(json.dumps(result, default=np.ndarray.tolist, allow_nan=False, separators=(",", ":")))
        except ValueError:
            raise Refused("not finite", "the model's output for this text is not finite") from None
        await asyncio.sleep(0)
    return f'{{"results":[{",".join(parts)}]}}'


async def _wait(service: batching.Service, request: Request, accepted: Accepted) -> list[Any]:
    gone = asyncio.ensure_future(_disconnected(request))
    waited = {accepted.answers, gone}
    try:
        await asyncio.wait(waited, timeout=service.limits.request_seconds, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:  # the time to shut down is over
        service.unanswered += 1
        raise Refused("ended", "the server shut down before this was computed") from None
    finally:
        gone.cancel()
    if accepted.answers.done():
        error = accepted.answers.exception()
        if error is not None:
            raise _failure(error)
        return accepted.answers.result()
    if gone.done():
        service.batcher.drop(accepted, "client gone")
        raise Refused("client gone", "the client went away")  # nobody reads this
    service.batcher.drop(accepted, "deadline")
    raise Refused("deadline", f"no answer within {service.limits.request_seconds:g} seconds")


def _failure(error: BaseException) -> Refused:
    """The refusal for a failed computation; unexpected errors are logged."""
    if batching.lacks_memory(error):
        logger.error("albert: error: not enough memory: %s", str(error).partition("\n")[0])
        why = "the server has not enough memory for this; send fewer or shorter texts, or try again later"
        return Refused("memory", why, retry_after="2")
    if isinstance(error, UsageError):
        return Refused("usage", str(error))
    logger.error("albert: error: a text could not be computed", exc_info=error)
    return Refused("internal", "this text could not be computed")


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


# --------------------------------------------------------------------------------------------------------------------
# Endpoints without input: /model, /healthz, /readyz, /metrics.


def report_routes(service: batching.Service) -> APIRouter:
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
