"""A server computes in the precision that was chosen for its model, and its replies are that model's answers."""

import pytest
from tests.inference.server.test_answers import REQUESTS
from tests.inference.test_precisions import AWAY

import albert


def numbers(reply) -> list[float]:
    """All scores and coordinates of a reply; those of ranked answers in the order of what they belong to."""
    if isinstance(reply, float):
        return [reply]
    if isinstance(reply, dict):
        return [number for key in sorted(reply) for number in numbers(reply[key])]
    if not isinstance(reply, list):
        return []

    def place(item):
        keys = ("label", "index", "token", "start", "end")
        return [str(item[key]) for key in keys if key in item] if isinstance(item, dict) else []

    return [number for item in sorted(reply, key=place) for number in numbers(item)]


# The best few tokens or spans of random weights may be others in another precision, so these have no scores to compare.
NEAR = [address for address in REQUESTS if address not in ("/answer", "/fill-mask", "/layers")]


@pytest.mark.parametrize("address", NEAR)
def test_replies_in_a_chosen_precision_are_near_those_in_fp32(address, model_paths, predictors, serve, chosen):
    kind, body = REQUESTS[address]
    server = serve(albert.load(model_paths(kind), "cpu", precision=chosen))
    assert server.request("GET", "/model").json["precision"] == chosen
    near, exact = (numbers(each.post(address, body).json["results"]) for each in (server, serve(predictors(kind))))
    assert near == pytest.approx(exact, abs=AWAY[chosen] * max(1.0, *map(abs, exact))) and near != exact


@pytest.mark.parametrize("address", ["/answer", "/fill-mask", "/layers"])
def test_other_requests_are_answered_in_a_chosen_precision(address, model_paths, serve, chosen):
    kind, body = REQUESTS[address]
    server = serve(albert.load(model_paths(kind), "cpu", precision=chosen))
    reply = server.post(address, body)
    assert reply.status == 200 and server.request("GET", "/model").json["precision"] == chosen
    again = server.post(address, body)
    assert numbers(again.json) == pytest.approx(numbers(reply.json), abs=1e-6)


def test_a_served_text_has_the_answer_of_python_in_the_chosen_precision(model_paths, serve, chosen):
    model = albert.load(model_paths("classify"), "cpu", precision=chosen)
    (served,) = serve(model).post("/classify", {"texts": ["the ship"]}).json["results"]
    assert numbers(served) == pytest.approx(numbers([dict(answer) for answer in model.classify("the ship")]), abs=1e-6)
