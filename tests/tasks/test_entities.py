"""Tags become entities as conlleval and seqeval read them, valid or not, and only exact entities count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.tasks.metrics import (
    Entity,
    baseline_scores,
    continues_nothing,
    entities_of,
    entity_scores,
    run_scores,
    runs_of,
    tag_metrics,
    tag_scheme,
    word_scores,
)
from albert.tasks.submission import DECLARED
from albert.tasks.task import Tags, Task, TaskRecipe, Words

TYPES = ("PER", "LOC", "a-b")
IOB2 = ("O", *(f"{prefix}-{kind}" for prefix in "BI" for kind in TYPES))
IOBES = (*IOB2, *(f"{prefix}-{kind}" for prefix in "ES" for kind in TYPES))
SENTENCES = st.lists(st.lists(st.sampled_from(IOBES), max_size=12), min_size=1, max_size=6)
LAID_OUT = st.lists(st.tuples(st.sampled_from([*TYPES, "O"]), st.integers(1, 4)), max_size=6)


def written(spans, scheme):
    """Tags of spans laid end to end."""
    tags = []
    for kind, length in spans:
        first, inside, last, only = {"IOB2": "BIIB", "IOBES": "BIES", "BILOU": "BILU"}[scheme]
        prefixes = [only] if length == 1 else [first, *[inside] * (length - 2), last]
        tags += ["O"] * length if kind == "O" else [f"{prefix}-{kind}" for prefix in prefixes]
    return tags


def placed(spans):
    found, start = [], 0
    for kind, length in spans:
        if kind != "O":
            found.append(Entity(kind, start, start + length))
        start += length
    return found


@given(LAID_OUT, st.sampled_from(["IOB2", "IOBES", "BILOU"]))
def test_valid_tags_give_back_the_entities_that_they_were_written_from(spans, scheme):
    assert entities_of(written(spans, scheme)) == placed(spans)
    assert continues_nothing(written(spans, scheme)) == 0


@pytest.mark.parametrize(
    ("tags", "entities", "contradictions"),
    [
        ("I-PER I-PER O", [("PER", 0, 2)], 1),
        ("O I-PER B-PER", [("PER", 1, 2), ("PER", 2, 3)], 1),
        ("B-PER I-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3)], 1),
        ("B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)], 0),
        ("B-PER O I-PER", [("PER", 0, 1), ("PER", 2, 3)], 1),
        ("E-LOC I-LOC", [("LOC", 0, 1), ("LOC", 1, 2)], 2),
        ("S-LOC E-LOC O", [("LOC", 0, 1), ("LOC", 1, 2)], 1),
        ("B-LOC I-LOC", [("LOC", 0, 2)], 0),
        ("B I O I", [("", 0, 2), ("", 3, 4)], 1),
        ("", [], 0),
    ],
)
def test_contradictions_are_read_and_nothing_is_thrown_away(tags, entities, contradictions):
    """As conlleval (the official script of CoNLL-2003) and seqeval read them."""
    assert entities_of(tags.split()) == [Entity(*each) for each in entities]
    assert continues_nothing(tags.split()) == contradictions


@given(st.lists(st.sampled_from(IOBES), max_size=15))
def test_every_word_that_is_not_outside_is_in_one_entity_of_its_type(tags):
    kinds = [None] * len(tags)
    for entity in entities_of(tags):
        for place in range(entity.start, entity.end):
            assert kinds[place] is None
            kinds[place] = entity.type
    assert kinds == [None if tag == "O" else tag.partition("-")[2] for tag in tags]


def test_the_labels_tell_the_scheme_and_the_scheme_the_metrics():
    assert tag_scheme(IOB2) == tag_scheme(("I-PER", "O")) == tag_scheme(("B", "I", "O")) == "IOB2"
    assert tag_scheme(IOBES) == tag_scheme(("B-X", "I-X", "L-X", "U-X", "O")) == "IOBES"
    assert tag_scheme(("NOUN", "VERB", "B-side")) == tag_scheme(("PER", "O")) == tag_scheme(("S", "O")) == "plain"
    assert tag_metrics(IOB2) == (entity_scores,)
    assert tag_metrics(("PER", "O")) == (run_scores,)
    assert tag_metrics(("NOUN", "VERB")) == (word_scores,)


def test_only_exact_entities_count():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    predicted = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "I-LOC"]]
    scores = entity_scores(gold, predicted)
    assert scores["entity_precision"] == scores["entity_recall"] == scores["entity_f1"] == pytest.approx(100 / 3)
    assert (scores["entity_f1_PER"], scores["entity_f1_LOC"]) == (pytest.approx(200 / 3), 0.0)
    assert scores["tag_accuracy"] == pytest.approx(400 / 6)
    assert entity_scores([["O"]], [["O"]])["entity_f1"] == 0.0
    assert entity_scores([[]], [[]])["tag_accuracy"] is None


def test_an_entity_ends_with_its_sentence():
    halves, whole = entity_scores([["B-X"], ["I-X"]], [["B-X"], ["I-X"]]), [["B-X", "I-X"]]
    assert halves["entity_recall"] == 100.0
    assert [len(entities_of(tags)) for tags in (["B-X"], ["I-X"], *whole)] == [1, 1, 1]


def test_plain_tags_are_runs_or_words():
    assert runs_of(["PER", "PER", "O", "LOC", "PER"]) == [("PER", 0, 2), ("LOC", 3, 4), ("PER", 4, 5)]
    assert run_scores([["PER", "O"]], [["PER", "PER"]])["entity_f1"] == 0.0
    scores = word_scores([["NOUN", "VERB"], ["NOUN"]], [["NOUN", "NOUN"], ["NOUN"]])
    assert scores == {"tag_accuracy": pytest.approx(200 / 3), "tag_macro_f1": pytest.approx(40.0)}


@given(SENTENCES, st.randoms(use_true_random=False))
def test_another_order_of_labels_or_sentences_gives_the_same_score(gold, randomness):
    predicted = [[randomness.choice(IOBES) if randomness.random() < 0.3 else tag for tag in tags] for tags in gold]
    order = list(range(len(gold)))
    randomness.shuffle(order)
    expected = entity_scores(gold, predicted)
    assert entity_scores([gold[i] for i in order], [predicted[i] for i in order]) == expected
    labels = list(IOBES)
    randomness.shuffle(labels)
    constant = [baseline_scores(tagging(labels), [tuple(tags) for tags in gold]) for labels in (list(IOBES), labels)]
    assert constant[0] == constant[1]
    assert set(constant[0]) == set(expected)


def tagging(labels):
    recipe = TaskRecipe(learning_rate=1e-3, batch_size=8, epochs=1.0)
    source = DECLARED["sst-2"].source
    return Task(
        name="t",
        source=source,
        inputs=Words("words"),
        target=Tags(tuple(labels), "tags"),
        metrics=(entity_scores,),
        recipe=recipe,
    )


def test_the_constant_answer_is_the_commonest_tag():
    gold = [("O", "O", "B-PER"), ("O",), ()]
    assert baseline_scores(tagging(IOB2), gold) == {
        "entity_f1": 0.0,
        "entity_precision": 0.0,
        "entity_recall": 0.0,
        "tag_accuracy": 75.0,
    }
