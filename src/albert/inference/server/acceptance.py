"""A request from its acceptance to its reply: sizes, the queue, the deadline, a client that goes away."""

import asyncio
import json
import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import numpy as np
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from albert.inference.server.batcher import Abandoned, Call, Input, Late, NotFinite, QueueFull, lacks_memory
from albert.inference.server.batcher import Request as Accepted
from albert.inference.server.gate import ACCEPTED, Refused, queue_is_full, refuse_unready
from albert.inference.server.limits import Limits
from albert.inference.server.service import Service
from albert.runtime.errors import UsageError

logger = logging.getLogger("albert.server")


async def answered(service: Service, request: HttpRequest, call: Call, inputs: Sequence[Input]) -> Response:
    """Queue the inputs, wait for their answers, and say how long both took (`Server-Timing`, milliseconds).

    Raises:
        Refused: too much was asked, there is no room, it took too long, or the model failed on these texts.
    """
    refuse_unready(service)
    refuse_too_much(service.limits, inputs)
    try:
        accepted = service.batcher.submit(call, inputs)
    except QueueFull as full:
        raise queue_is_full(full.retry_after) from None
    request.scope[ACCEPTED] = True
    service.in_progress += 1
    results = await _wait(service, request, accepted)
    return Response(await _body(results), media_type="application/json", headers={"server-timing": _timing(accepted)})


async def _body(results: Sequence[Any]) -> str:
    """The results in JSON; other requests are heard between them, since a result may have megabytes."""
    parts = []
    for result in results:
        parts.append(json.dumps(result, default=np.ndarray.tolist, allow_nan=False, separators=(",", ":")))
        await asyncio.sleep(0)
    return f'{{"results":[{",".join(parts)}]}}'


async def _wait(service: Service, request: HttpRequest, accepted: Accepted) -> list[Any]:
    gone = asyncio.ensure_future(_disconnected(request))
    waited = {accepted.answers, gone}
    try:
        await asyncio.wait(waited, timeout=service.limits.request_seconds, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:  # the time to end is over
        why = "the server ended before this was computed"
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "ended", why) from None
    finally:
        gone.cancel()
    if accepted.answers.done():
        if (error := accepted.answers.exception()) is not None:
            raise _failure(service, error)
        return accepted.answers.result()
    if gone.done():
        service.batcher.drop(accepted, "client gone")
        raise Refused(HTTPStatus.BAD_REQUEST, "client gone", "the client went away")  # nobody reads this
    service.batcher.drop(accepted, "deadline")
    raise _failure(service, Late())


def _failure(service: Service, error: BaseException) -> Refused:
    """What a caller is told; where it is our mistake, the log is told the rest."""
    if isinstance(error, Late | Abandoned):
        why = f"no answer within {service.limits.request_seconds:g} seconds"
        return Refused(HTTPStatus.GATEWAY_TIMEOUT, "deadline", why)
    if lacks_memory(error):
        logger.error("not enough memory: %s", str(error).partition("\n")[0])
        why = "the server has not enough memory for this; send fewer or shorter texts, or try again later"
        return Refused(HTTPStatus.SERVICE_UNAVAILABLE, "memory", why, retry_after="2")
    if isinstance(error, UsageError):
        return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "usage", str(error))
    if isinstance(error, NotFinite):
        why = "the model gave a number that is not finite for this text"
        return Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "not finite", why)
    logger.error("a text could not be computed", exc_info=error)
    return Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "this text could not be computed")


async def _disconnected(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


def refuse_too_much(limits: Limits, inputs: Sequence[Input]) -> None:
    """Nothing where a request keeps to the limits.

    Raises:
        Refused: too many texts, or too long a one.
    """
    texts = sum(each.counted for each in inputs)
    if texts > limits.texts:
        why = f"{texts} texts in a request, the most are {limits.texts}"
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "texts", why)
    longest = max((each.longest for each in inputs), default=0)
    if longest > limits.text_characters:
        why = f"a text of {longest} characters, the most are {limits.text_characters}"
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "characters", why)


def refuse_too_many_candidates(limits: Limits, masks: int, top_k: int) -> None:
    """Nothing where fill-mask is asked for no more pieces than a reply may hold.

    Raises:
        Refused: it is.
    """
    if masks * top_k > limits.candidates:
        why = (
            f"{masks} masks with top_k {top_k} are {masks * top_k} candidates in a request, the most are "
            f"{limits.candidates}; send fewer texts or masks, or a smaller top_k"
        )
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "candidates", why)


def _timing(accepted: Accepted) -> str:
    assert accepted.started is not None and accepted.ended is not None
    queued, computed = accepted.started - accepted.arrived, accepted.ended - accepted.started
    return f"queue;dur={1000 * queued:.2f}, model;dur={1000 * computed:.2f}"
