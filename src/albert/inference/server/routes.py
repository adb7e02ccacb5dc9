"""The HTTP application: addresses of abilities, of the model, of health and metrics, the page, and error replies."""

from collections.abc import Callable, Hashable
from dataclasses import asdict
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from albert import __version__
from albert.inference.predictor import Predictor
from albert.inference.server import bodies as reply_bodies
from albert.inference.server import bodies as request_bodies
from albert.inference.server.batching import Call, Input
from albert.inference.server.bodies import ErrorReply, ModelReply
from albert.inference.server.limits import Limits
from albert.inference.server.middleware import (
    Gate,
    Refused,
    answered,
    refusal,
    refuse_too_many_candidates,
    refuse_unready,
)
from albert.inference.server.service import Service, as_input
from albert.inference.tasks import ANSWERING, CHOOSING, CLASSIFYING, FILLING, MASK, ORDERING, SCORING, TAGGING
from albert.runtime.errors import UsageError

_ANY_MODEL = ""
ABILITY_ROUTES = {
    "/classify": CLASSIFYING,
    "/score": SCORING,
    "/answer": ANSWERING,
    "/choose": CHOOSING,
    "/tag": TAGGING,
    "/fill-mask": FILLING,
    "/order": ORDERING,
    "/embed": _ANY_MODEL,
    "/layers": _ANY_MODEL,
}
"""Address -> what the model must be able to do, in words."""


def addresses_of(predictor: Predictor) -> list[str]:
    """The addresses at which this model answers."""
    can = (_ANY_MODEL, *predictor.abilities)
    return [address for address, ability in ABILITY_ROUTES.items() if ability in can]


def refuse_inability(predictor: Predictor, address: str) -> None:
    """Nothing where the model can do what the address is for.

    Raises:
        Refused: it has no head for that.
    """
    if address not in addresses_of(predictor):
        can = " and ".join(predictor.abilities) or "only embed texts"
        why = f"this model cannot {ABILITY_ROUTES[address]}; it can {can}"
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "inability", why)


def model_facts(predictor: Predictor, limits: Limits) -> dict[str, Any]:
    """What a caller needs to know of a model; not where it lies on this machine."""
    config = predictor.config
    labelled = {CLASSIFYING, SCORING, TAGGING} & set(predictor.abilities)
    return {
        "name": Path(predictor.name).name,
        "abilities": list(predictor.abilities),
        "addresses": addresses_of(predictor),
        "labels": predictor.labels if labelled else [],
        "problem_type": predictor.extra.get("problem_type"),
        "precision": predictor.precision,
        "depth": predictor.depth,
        "patience": predictor.patience,
        "device": str(predictor.device),
        "max_length": predictor.max_length,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "limits": asdict(limits),
    }


# --------------------------------------------------------------------------------------------------------------------
# The page and the documentation's page: files that lie beside this one, read once, and nothing from elsewhere.

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


# --------------------------------------------------------------------------------------------------------------------
# An address for each thing that a model can do.

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


# --------------------------------------------------------------------------------------------------------------------
# Addresses without input: /model, /healthz, /readyz, /metrics.


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


# --------------------------------------------------------------------------------------------------------------------
# The whole application: addresses, one sentence for every error, and a document that shows what this model can do.

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
    return Gate(app, service, frozenset(ABILITY_ROUTES))


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
        absent = set(ABILITY_ROUTES) - set(addresses_of(self._service.predictor))
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
