"""An address for each thing that a model can do."""

from collections.abc import Callable, Hashable
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from albert.inference.encoding import MASK
from albert.inference.server import reply_bodies, request_bodies
from albert.inference.server.acceptance import answered, refuse_too_many_candidates
from albert.inference.server.batcher import Call, Input
from albert.inference.server.calls import as_input
from albert.inference.server.gate import refuse_unready
from albert.inference.server.offered import refuse_inability
from albert.inference.server.service import Service
from albert.runtime.errors import UsageError

_REFUSALS = (400, 408, 413, 415, 422, 429, 503, 504)


def ability_routes(service: Service) -> APIRouter:
    """Every address that takes texts."""
    router = APIRouter(tags=["ask"])

    def post(address: str, reply: type[BaseModel]) -> Callable[[Any], Any]:
        replies: dict[int | str, dict[str, Any]] = {200: {"model": reply, "description": "One result for each text."}}
        replies |= {status: {"model": reply_bodies.ErrorReply} for status in _REFUSALS}
        return router.post(address, responses=replies, response_model=None, response_class=JSONResponse)

    def taken(*texts: Any, counted: int = 1, windowed: bool = False) -> Input:
        return as_input(service.predictor, texts, counted, windowed)

    async def ask(request: Request, inputs: Callable[[], list[Input]], **options: Hashable) -> Response:
        refuse_unready(service)
        address = request.scope["path"]
        refuse_inability(service.predictor, address)
        return await answered(service, request, Call(address.removeprefix("/"), tuple(options.items())), inputs())

    def pairs(body: request_bodies.PairsRequest) -> list[Input]:
        if body.pairs is None:
            return [taken(text, None) for text in body.texts]
        if len(body.pairs) != len(body.texts):
            raise UsageError("pairs", f"{len(body.pairs)} for {len(body.texts)} texts", "give one for each text")
        return [taken(*pair) for pair in zip(body.texts, body.pairs, strict=True)]

    @post("/classify", reply_bodies.LabelsReply)
    async def classify(request: Request, body: request_bodies.PairsRequest) -> Response:
        """Every label with its probability, the likeliest first."""
        return await ask(request, lambda: pairs(body), paired=body.pairs is not None)

    @post("/score", reply_bodies.NumbersReply)
    async def score(request: Request, body: request_bodies.PairsRequest) -> Response:
        """The number that a regression model predicts."""
        return await ask(request, lambda: pairs(body), paired=body.pairs is not None)

    @post("/answer", reply_bodies.AnswersReply)
    async def answer(request: Request, body: request_bodies.QuestionsRequest) -> Response:
        """The parts of a context that answer a question best, as exact slices of it; long contexts are read whole."""
        return await ask(
            request,
            lambda: [taken(each.question, each.context, windowed=True) for each in body.questions],
            top_k=body.top_k,
        )

    @post("/choose", reply_bodies.ChoicesReply)
    async def choose(request: Request, body: request_bodies.OptionsRequest) -> Response:
        """The options, the likeliest first; each counts as a text."""
        return await ask(
            request,
            lambda: [
                taken(each.context, tuple(each.options), each.question, counted=len(each.options))
                for each in body.questions
            ],
        )

    @post("/tag", reply_bodies.TagsReply)
    async def tag(request: Request, body: request_bodies.TextsRequest) -> Response:
        """The likeliest label of every word, with the word's place in the text; long texts are read whole."""
        return await ask(request, lambda: [taken(text, windowed=True) for text in body.texts])

    @post("/fill-mask", reply_bodies.MasksReply)
    async def fill_mask(request: Request, body: request_bodies.MaskedRequest) -> Response:
        """The likeliest pieces for each `[MASK]`."""
        if unmasked := [text for text in body.texts if MASK not in text]:
            raise UsageError(
                "texts", f"{len(unmasked)} without {MASK}", f'write one, as in "The cat {MASK} on the mat."'
            )
        refuse_too_many_candidates(service.limits, sum(text.count(MASK) for text in body.texts), body.top_k)
        return await ask(request, lambda: [taken(text) for text in body.texts], top_k=body.top_k)

    @post("/order", reply_bodies.OrdersReply)
    async def order(request: Request, body: request_bodies.OrderRequest) -> Response:
        """Whether two adjacent segments are in their order, or swapped."""
        return await ask(request, lambda: [taken(*pair) for pair in body.pairs])

    @post("/embed", reply_bodies.VectorsReply)
    async def embed(request: Request, body: request_bodies.EmbedRequest) -> Response:
        """A vector for each text."""
        return await ask(
            request,
            lambda: [taken(text) for text in body.texts],
            pooling=body.pooling,
            normalize=body.normalize,
        )

    @post("/layers", reply_bodies.LayersReply)
    async def layers(request: Request, body: request_bodies.LayersRequest) -> Response:
        """What every layer makes of a text: attention, how far it moves each token, and what a head would say there."""
        return await ask(request, lambda: [taken(body.text, body.pair)], most_tokens=service.limits.layer_tokens)

    return router
