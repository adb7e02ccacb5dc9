"""The OpenAPI document of the served model, and the pydantic models of requests and replies, which check bodies, too.

The models are made from the hints of a pipeline's dataclasses and TypedDicts."""

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NotRequired, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from fastapi import FastAPI
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model
from pydantic_core import PydanticCustomError

from albert.checkpoints.hub import example_rows
from albert.inference.predictor import Predictor
from albert.inference.server.batching import Service
from albert.tasks.pipeline import Bounds, Pipeline
from albert.tasks.pipelines import endpoints

UNMASKED = "The captain stood on the deck of the ship."
SECOND = "A man stood on the deck."
DESCRIPTION = """HTTP API of a trained model. Requests are JSON with one or more texts; each gets its own result.

The endpoints depend on the model's head; `GET /model` lists them. An error is one sentence under `error`.
"""


def describe_model(app: FastAPI, service: Service) -> None:
    """Let the document describe what the served model supports, with examples that it answers."""
    full_document = app.openapi

    def supported_document() -> dict[str, Any]:
        """The OpenAPI document without the tasks that the model does not support."""
        document = full_document()
        if service.state == "starting":
            return document
        supported = {pipeline.name for pipeline in service.predictor.pipelines}
        absent = {f"/{name}" for name in endpoints() if name not in supported}
        paths = {address: methods for address, methods in document["paths"].items() if address not in absent}
        schemas = _referenced(paths, document["components"]["schemas"])
        components = document["components"] | {"schemas": schemas}
        return _with_examples(document | {"paths": paths, "components": components}, service.predictor)

    app.openapi = supported_document


def _referenced(paths: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """The schemas that these paths refer to, and those that these refer to."""
    found: set[str] = set()
    to_read = [json.dumps(paths)]
    while to_read:
        names = set(re.findall(r'"#/components/schemas/([^"]+)"', to_read.pop())) - found
        found |= names
        to_read += [json.dumps(schemas[name]) for name in names]
    return {name: schema for name, schema in schemas.items() if name in found}


def _with_examples(document: dict[str, Any], predictor: Predictor) -> dict[str, Any]:
    """The document with examples that this model answers: of `/layers` without a mask if it fills none, and with a
    second text if it was trained on pairs; where the model's files have a row, it is that one."""
    own = next((row for row in example_rows(Path(predictor.name)) if row.get("text")), None)
    row = own or {"text": UNMASKED}
    if predictor.reads_pairs is True:
        row = {"pair": SECOND} | row
    examples: dict[str, dict[str, Any]] = {}
    if not predictor.can("fill-mask"):
        examples["LayersRequest"] = {name: row[name] for name in ("text", "pair") if row.get(name)}
    if own is not None or row.get("pair"):
        texts = {"texts": [row["text"]], **({"pairs": [row["pair"]]} if row.get("pair") else {})}
        examples |= {"ClassifyRequest": texts, "ScoreRequest": texts}
    schemas = document["components"]["schemas"]
    changed = {name: schemas[name] | {"examples": [example]} for name, example in examples.items() if name in schemas}
    return document | {"components": document["components"] | {"schemas": schemas | changed}}


# --------------------------------------------------------------------------------------------------------------------
# Models of requests and replies.


def _refuse_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("unpaired_surrogate", "contains an unpaired surrogate") from None
    return text


Text = Annotated[str, AfterValidator(_refuse_surrogates)]


def request_model(pipeline: type[Pipeline]) -> type[BaseModel]:
    """The model that checks a pipeline's requests; an instance has the fields of the pipeline's dataclass."""
    examples = {"examples": [dict(pipeline.request_example)]}
    return _dataclass_model(pipeline.Request, f"{_title(pipeline)}Request", json_schema_extra=examples)


def reply_model(pipeline: type[Pipeline]) -> type[BaseModel]:
    """The model of a pipeline's replies."""
    title = _title(pipeline)
    results = list[_result_type(pipeline.Reply, f"{title}Result")]
    return create_model(f"{title}Reply", __doc__=pipeline.about_reply, results=(results, ...))


def _title(pipeline: type[Pipeline]) -> str:
    """The beginning of the names of a pipeline's models."""
    return pipeline.name.title().replace("-", "")


class ErrorReply(BaseModel):
    """An error message of one sentence."""

    error: str


class ModelReply(BaseModel):
    """Abilities and properties of the model, and limits of the server."""

    model_config = ConfigDict(protected_namespaces=())
    name: str
    abilities: list[str]
    addresses: list[str]
    labels: list[str]
    columns: dict[str, str] = Field(description="The columns of the table that it was trained on, by their use.")
    pairs: bool | None = Field(description="Whether it was trained on pairs of texts; null if unknown.")
    problem_type: str | None
    precision: str
    depth: int
    device: str
    max_length: int
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    limits: dict[str, float]


def _dataclass_model(declared: type, name: str, **settings: Any) -> type[BaseModel]:
    """A model of a dataclass; types are those of JSON, without conversion, and an unknown key is an error."""
    parts: dict[str, Any] = {}
    hints = get_type_hints(declared, include_extras=True)
    for field in fields(declared):
        hint, about, bounds = _unpacked(hints[field.name])
        default = ... if field.default is MISSING else field.default
        part = _request_type(hint, bounds, f"{name}{field.name.title()}")
        parts[field.name] = part, Field(default, description=about)
    config = ConfigDict(extra="forbid", strict=True, **settings)
    return create_model(name, __doc__=declared.__doc__, __config__=config, **parts)


def _request_type(hint: Any, bounds: Bounds | None, name: str) -> Any:
    """The type of a field of a request."""
    if hint is str:
        return Text
    if is_dataclass(hint):
        return _dataclass_model(cast("type", hint), name)
    arguments = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        members = [_request_type(*_without_about(member), name) for member in arguments]
        return Union[tuple(members)]  # noqa: UP007 (of types that are known only here)
    if get_origin(hint) is list:
        items = list[_request_type(*_without_about(arguments[0]), name)]
        return Annotated[items, Field(min_length=bounds.least, max_length=bounds.most)] if bounds else items
    return Annotated[hint, Field(ge=bounds.least, le=bounds.most)] if bounds else hint


def _result_type(hint: Any, name: str) -> Any:
    """The type of a result, or of a field of one."""
    if get_origin(hint) is list:
        return list[_result_type(get_args(hint)[0], name)]
    if not is_typeddict(hint):
        return hint
    parts: dict[str, Any] = {}
    for key, declared in get_type_hints(hint, include_extras=True).items():
        is_optional = get_origin(declared) is NotRequired
        inner, about, _ = _unpacked(get_args(declared)[0] if is_optional else declared)
        value = _result_type(inner, f"{name}{key.title()}")
        if is_optional:
            parts[key] = value | None, Field(None, description=about)
        else:
            parts[key] = value, Field(description=about)
    return create_model(name, **parts)


def _unpacked(hint: Any) -> tuple[Any, str | None, Bounds | None]:
    """A type, what it is about, and its bounds."""
    if get_origin(hint) is not Annotated:
        return hint, None, None
    plain, *more = get_args(hint)
    about = next((each for each in more if isinstance(each, str)), None)
    return plain, about, next((each for each in more if isinstance(each, Bounds)), None)


def _without_about(hint: Any) -> tuple[Any, Bounds | None]:
    plain, _, bounds = _unpacked(hint)
    return plain, bounds
