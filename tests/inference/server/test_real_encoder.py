"""The server with all-MiniLM-L6-v2, where its package is installed: vectors as from Python, and bad requests."""

import numpy as np
import pytest
from tests.inference.server.running_servers import in_background

import albert

TEXTS = ["A storm at sea.", "Wind and high waves.", "A letter from a friend, who wrote at length about the weather."]


@pytest.fixture(scope="module")
def predictor(minilm):
    return albert.load(str(minilm), precision="fp32")


def test_vectors_of_clients_at_once_equal_those_of_python(predictor, serve):
    server = serve(predictor)
    expected = predictor.embed(TEXTS)
    with in_background(*(lambda text=text: server.post("/embed", {"texts": [text]}) for text in TEXTS * 3)) as replies:
        pass
    vectors = np.array([reply.json["results"][0]["vector"] for reply in replies])
    order = np.argmax(vectors @ expected.T, axis=1)
    assert sorted(order.tolist()) == sorted([0, 1, 2] * 3)
    np.testing.assert_allclose(vectors, expected[order], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)  # as modules.json says
    reply = server.post("/embed", {"texts": TEXTS, "pooling": "cls", "normalize": False})
    vectors = [each["vector"] for each in reply.json["results"]]
    np.testing.assert_allclose(vectors, predictor.embed(TEXTS, "cls", False), atol=1e-5)


@pytest.mark.parametrize(
    ("body", "subject"),
    [
        ({"texts": TEXTS, "prompt": "passage"}, "passage"),
        ({"texts": TEXTS, "prompt": 3}, "prompt"),
        ({"texts": TEXTS, "pooling": "lasttoken"}, "pooling"),
        ({"texts": TEXTS, "normalise": True}, "normalise"),
        ({"texts": "A storm at sea."}, "texts"),
        ({}, "texts"),
    ],
)
def test_a_request_that_the_model_cannot_answer_is_refused_in_one_line(predictor, serve, body, subject):
    reply = serve(predictor).post("/embed", body)
    assert reply.status in (400, 422)
    message = reply.json["error"]
    assert subject in str(message) and "\n" not in str(message)


def test_the_model_says_how_much_of_a_text_it_reads_and_that_it_embeds(predictor, serve):
    facts = serve(predictor).request("GET", "/model").json
    assert facts["max_length"] == predictor.embedding_length < predictor.config.max_position_embeddings
    assert facts["abilities"] == ["embed texts"] and predictor.abilities == ()


def test_a_head_that_the_model_lacks_is_named(predictor, serve):
    reply = serve(predictor).post("/classify", {"texts": TEXTS})
    assert reply.status == 422 and "embed" in str(reply.json)
