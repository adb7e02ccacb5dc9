"""What is cut is said in Python: by a count in the result, or by one note a call where the result is a number."""

import pytest
from sklearn.base import clone

import albert

LONG = "the old captain saw the sea " * 30
TEXTS = ["the sea", LONG, "a ship", LONG]
MESSAGE = "at most 64 tokens are read"


@pytest.fixture
def embedding(model_paths):
    return albert.AlbertEmbedding(str(model_paths("classify")))


CALLS = {
    "embed": lambda load: load("answer").embed(TEXTS),
    "weighted": lambda load: load("answer").embed(TEXTS, "weighted", True),
    "score": lambda load: load("score").score_batch(TEXTS),
    "pack": lambda load: albert.pack(load("classify").tokenizer, TEXTS, max_length=64),
}


@pytest.mark.parametrize("name", CALLS)
def test_one_note_a_call_counts_the_texts(predictors, caplog, name):
    CALLS[name](predictors)
    (note,) = caplog.messages
    _, cut = predictors("answer").embed_counted(TEXTS)
    assert note.startswith(f"albert: note: 2 of 4 texts were cut ({sum(cut):,} tokens): {MESSAGE}; ")
    assert len(caplog.messages) == 1 and "\n" not in note


def test_one_text_of_a_pair_counts_once(predictors, caplog):
    predictors("score").score("the sea", LONG)
    (note,) = caplog.messages
    assert note.startswith("albert: note: 1 of 1 texts was cut")


def test_the_transformer_of_scikit_learn_says_it_at_every_call(embedding, caplog):
    embedding.fit(TEXTS)
    assert not caplog.messages
    for number in (1, 2):
        clone(embedding).transform(TEXTS)
        assert len(caplog.messages) == number and "2 of 4 texts were cut" in caplog.messages[-1]


def test_nothing_is_said_where_nothing_is_cut_or_the_result_counts(predictors, caplog):
    predictors("answer").embed(TEXTS[::2])
    predictors("score").score_batch([])
    vectors, cut = predictors("answer").embed_counted(TEXTS)
    assert len(vectors) == 4 and [bool(tokens) for tokens in cut] == [False, True, False, True]
    counted = [entries[0].get("tokens_cut", 0) for entries in predictors("score").classify_batch(TEXTS)]
    assert counted == cut
    predictors("classify").classify_batch(TEXTS)
    assert predictors("pretrain").order("the sea", LONG)["tokens_cut"] > 0
    assert predictors("choose").choose(LONG, ["the sea", "a ship"])[0]["tokens_cut"] > 0
    assert predictors("answer").answer(LONG, "the sea")["tokens_cut"] > 0
    assert len(predictors("tag").tag(LONG)) == 180  # read in windows
    assert not caplog.messages
