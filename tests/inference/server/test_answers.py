"""Replies equal the predictor's results, for every client its own, and follow the OpenAPI document."""

import io
import json
import shutil
from dataclasses import dataclass
from typing import ClassVar, TypedDict

import numpy as np
import pytest
from tests.inference.server.running_servers import in_background, wait_until

import albert
from albert.inference.files import FilePrediction, opened_input, predict_file
from albert.inference.server import batching
from albert.inference.server.openapi import reply_model
from albert.tasks.examples import asked, text_features
from albert.tasks.pipeline import RowPipeline, Texts, text_of
from albert.tasks.pipelines import PIPELINES, endpoints

PASSAGE = "the captain of the ship saw a storm , and the sailor saw an island in the sea ."
REQUESTS = {
    "/classify": ("classify", {"texts": ["the ship", "a storm at sea"]}),
    "/score": ("score", {"texts": ["the ship"], "pairs": ["a boat"]}),
    "/answer": ("answer", {"questions": [{"question": "who saw?", "context": PASSAGE}], "top_k": 2}),
    "/tag": ("tag", {"texts": [PASSAGE]}),
    "/choose": ("choose", {"questions": [{"context": PASSAGE, "options": ["a ship", "a storm"], "question": "what?"}]}),
    "/fill-mask": ("pretrain", {"texts": ["the [MASK] saw a [MASK]"], "top_k": 3}),
    "/order": ("pretrain", {"pairs": [["the ship", "a storm"]]}),
    "/embed": ("pretrain", {"texts": ["the ship"], "normalize": True}),
    "/layers": ("pretrain", {"text": "the [MASK] saw", "pair": "a storm"}),
}


@pytest.mark.parametrize("address", REQUESTS)
def test_reply_follows_the_document(address, predictors, serve):
    kind, body = REQUESTS[address]
    server = serve(predictors(kind))
    reply = server.post(address, body)
    assert reply.status == 200, reply.body
    assert reply_model(endpoints()[address[1:]]).model_validate(reply.json, extra="forbid")
    assert "model;dur=" in reply.headers["server-timing"]
    document = server.request("GET", "/openapi.json").json
    paths = document["paths"]
    assert address in paths
    assert set(paths) & set(REQUESTS) == set(server.request("GET", "/model").json["addresses"])
    described = {name.removesuffix("Request").lower() for name in document["components"]["schemas"]}
    names = {each: each[1:].replace("-", "") for each in REQUESTS}
    assert {each for each, name in names.items() if name in described} == set(paths) & set(REQUESTS)


def test_an_empty_option_is_refused_by_name(predictors, serve):
    server = serve(predictors("choose"))
    question = {"context": PASSAGE, "options": ["a ship", ""]}
    reply = server.post("/choose", {"questions": [question | {"options": ["a", "b"]}, question]})
    assert reply.status == 422
    assert reply.json["error"] == "questions[1].options: one of them is empty; leave it out"


def test_the_document_speaks_of_this_model(predictors, serve, tmp_path):
    def document_of(server):
        return server.request("GET", "/openapi.json").json

    def layers_example(document):
        (example,) = document["components"]["schemas"]["LayersRequest"]["examples"]
        return example

    filling = document_of(serve(predictors("pretrain")))
    assert "[MASK]" in layers_example(filling)["text"]
    assert "ALBERT" not in filling["info"]["description"]
    shutil.copytree(predictors("classify").directory, tmp_path / "model")
    server = serve(albert.load(tmp_path / "model", precision="fp32"))
    assert "[MASK]" not in layers_example(document_of(server))["text"]
    rows = {"examples": [{"text": "the ship", "pair": "a storm"}]}
    (tmp_path / "model" / "examples.json").write_text(json.dumps(rows))
    classifying = document_of(server)
    assert layers_example(classifying) == rows["examples"][0]
    texts = {"texts": ["the ship"], "pairs": ["a storm"]}
    assert classifying["components"]["schemas"]["ClassifyRequest"]["examples"] == [texts]
    for address in ("/classify", "/layers", "/model", "/healthz"):
        (operation,) = classifying["paths"][address].values()
        assert "421" in operation["responses"], address


def scores_of(ranked):
    return {entry["label"]: entry["score"] for entry in ranked}


def test_results_equal_those_of_the_predictor(predictors, serve):
    predictor = predictors("pretrain")
    server = serve(predictor)
    text = "the [MASK] saw a ship"
    (result,) = server.post("/fill-mask", {"texts": [text], "top_k": 3}).json["results"]
    for actual, expected in zip(result[0], predictor.fill_mask(text, 3), strict=True):
        assert actual["token"] == expected["token"] and actual["score"] == pytest.approx(expected["score"], abs=1e-6)
    vectors = [each["vector"] for each in server.post("/embed", {"texts": ["a", text]}).json["results"]]
    assert np.allclose(vectors, predictor.embed(["a", text]), atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "address", "full", "empty"),
    [
        ("classify", "/classify", {"texts": ["the ship"]}, {"texts": [" \n"]}),
        ("score", "/score", {"texts": [""], "pairs": ["a boat"]}, {"texts": [""], "pairs": [" "]}),
        ("pretrain", "/order", {"pairs": [["the ship", ""]]}, {"pairs": [["", " "]]}),
        ("pretrain", "/embed", {"texts": ["the ship"]}, {"texts": [""]}),
    ],
)
def test_the_result_of_an_empty_text_says_so(kind, address, full, empty, predictors, serve):
    server = serve(predictors(kind))
    for body, expected in ((full, None), (empty, True)):
        reply = server.post(address, body)
        assert reply_model(endpoints()[address[1:]]).model_validate(reply.json, extra="forbid")
        (result,) = reply.json["results"]
        for entry in result if isinstance(result, list) else [result]:
            assert entry.get("empty") is expected


SINGLE = "the model was trained on single texts; leave out the second text"
PAIRS = "the model was trained on pairs of texts; give the second text"


@pytest.mark.parametrize(("task", "reads_pairs"), [("sst-2", False), ("mrpc", True), ("unknown", None)])
@pytest.mark.parametrize("labels", [1, 2])
def test_a_second_text_that_was_not_in_training_and_a_missing_one_are_refused(task, labels, reads_pairs, saved, serve):
    server = serve(albert.load(saved("classification", labels, finetuning={"task": task}), "cpu", precision="fp32"))
    assert server.request("GET", "/model").json["pairs"] is reads_pairs
    of_texts = "/score" if labels == 1 else "/classify"
    for address, single, second, plural in (
        (of_texts, {"texts": ["a"]}, ["b"], "s"),
        ("/layers", {"text": "a"}, "b", ""),
    ):
        name = f"pair{plural}"
        for body in (single, {**single, name: None}):
            reply = server.post(address, body)
            why = f"{name}: {PAIRS}{' of each' if plural else ''}"
            assert reply.status == (422 if reads_pairs else 200)
            assert not reads_pairs or reply.json == {"error": why}
        reply = server.post(address, {**single, name: second})
        assert reply.status == (422 if reads_pairs is False else 200)
        assert reads_pairs is not False or reply.json == {"error": f"{name}: {SINGLE}{plural}"}
    schemas = server.request("GET", "/openapi.json").json["components"]["schemas"]
    for address in (of_texts, "/layers"):
        (example,) = schemas[f"{address[1:].title()}Request"]["examples"]
        assert server.post(address, example).status == 200


def test_text_that_the_vocabulary_does_not_know_is_answered_without_a_terminal(classifier, serve, monkeypatch):
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("the terminal was closed")

    server = serve(classifier)
    monkeypatch.setattr("sys.stderr", Closed())
    assert server.post("/classify", {"texts": ["海" * 20]}).status == 200


def test_text_that_the_vocabulary_does_not_know_is_said_once(classifier, serve, capsys):
    server = serve(classifier)
    assert server.post("/classify", {"texts": ["the ship"]}).status == 200
    assert "unknown" not in capsys.readouterr().err
    for _ in range(2):
        assert server.post("/classify", {"texts": ["中文字的句子，很长的句子"]}).status == 200
    assert capsys.readouterr().err.count("are unknown to the vocabulary") == 1


def test_clients_share_batches_and_get_their_own_results(classifier, blocked, serve, monkeypatch):
    monkeypatch.setattr(batching, "BATCH_SECONDS", 1e6)  # the first batch is blocked, which looks slow
    server = serve(classifier)
    texts = [f"the {noun} number {i}" for i in range(10) for noun in ("ship", "storm")]
    with in_background(*(lambda text=text: server.post("/classify", {"texts": [text]}) for text in texts)) as replies:
        wait_until(lambda: blocked.batches)
        wait_until(lambda: server.metric("albert_queue_texts") == len(texts) - len(blocked.batches[0]))
        blocked.released.set()
    assert sorted(text for batch in blocked.batches for text in batch) == sorted(texts) and len(blocked.batches) == 2
    for text, reply in zip(texts, replies, strict=True):
        assert scores_of(reply.json["results"][0]) == pytest.approx(scores_of(classifier.classify(text)), abs=1e-5)
    reply = server.post("/classify", {"texts": ["the ship " * 200]})
    assert reply.json["results"][0][0]["tokens_cut"] > 100


def test_layers_end_in_the_result(classifier, predictors, serve):
    predictor = predictors("pretrain")
    (result,) = serve(predictor).post("/layers", {"text": "the [MASK] saw a ship"}).json["results"]
    (mask,) = result["masks"]
    expected = predictor.fill_mask("the [MASK] saw a ship", 1)[0]["score"]
    assert mask["layers"][-1][0]["score"] == pytest.approx(expected, abs=1e-5)
    assert len(mask["layers"]) == 3 and result["tokens"][mask["position"]] == "[MASK]"
    server = serve(classifier)
    (result,) = server.post("/layers", {"text": "a storm"}).json["results"]
    scores = dict(zip(result["labels"], result["label_scores"][-1], strict=True))
    assert scores == pytest.approx(scores_of(classifier.classify("a storm")), abs=1e-5) and result["masks"] == []
    (result,) = server.post("/layers", {"text": "the ship " * 50}).json["results"]
    assert len(result["tokens"]) == 64 and result["tokens_cut"] > 50


def test_layers_of_a_model_that_reads_the_texts_of_a_pair_separately(opened, serve):
    """Its head compares two means, so a layer's output for both texts together has no label."""
    reply = serve(opened("pair_classification", 2)).post("/layers", {"text": "the ship", "pair": "a storm"})
    assert reply.status == 200 and reply.json["results"][0]["labels"] == []


@dataclass(frozen=True)
class CountTokensRequest:
    """One text or many."""

    texts: Texts


class Tokens(TypedDict):
    tokens: int


class CountTokens(RowPipeline):
    name = "count-tokens"
    about = "How many tokens a text has."
    Request = CountTokensRequest
    request_example: ClassVar = {"texts": ["A storm at sea."]}
    Reply = Tokens
    about_reply = "For each text its tokens."

    @classmethod
    def of_head(cls, head):
        return cls()

    def read(self, record, fields):
        return asked(text_of(record, fields.text, "--text"))

    def examples(self, request):
        return [asked(text) for text in request.texts]

    def encode(self, examples, tokenizer, lengths):
        return text_features(examples, tokenizer, lengths.max_length)

    def decode(self, outputs, features):
        return features.sequences.lengths - 2

    def reply(self, example, decoded, cut):
        return {"tokens": int(decoded)}

    def cell_types(self):
        return {"tokens": int}


def test_one_name_adds_a_pipeline_to_files_server_document_and_page(predictors, serve, monkeypatch, tmp_path):
    for module in ("albert.tasks.pipelines", "albert.inference.abilities"):  # which know the list by its name
        monkeypatch.setattr(f"{module}.PIPELINES", [*PIPELINES, CountTokens])
    classifier = albert.load(predictors("classify").directory)
    tokens = len(classifier.tokenizer.encode("the ship"))
    (tmp_path / "in.txt").write_text("the ship\n")
    with opened_input(str(tmp_path / "in.txt")) as file:
        args = FilePrediction(file, tmp_path / "out.csv", classifier.pipeline(CountTokens.name))
        assert predict_file(classifier, args).rows == 1
    assert (tmp_path / "out.csv").read_text() == f"text,predicted_tokens\nthe ship,{tokens}\n"
    server = serve(classifier)
    assert server.post("/count-tokens", {"texts": ["the ship"]}).json == {"results": [{"tokens": tokens}]}
    assert server.post("/count-tokens", {"words": []}).status == 422
    paths = server.request("GET", "/openapi.json").json["paths"]
    assert paths["/count-tokens"]["post"]["description"] == "How many tokens a text has."
    assert "/count-tokens" in [tab["address"] for tab in server.request("GET", "/page/tasks.json").json]
