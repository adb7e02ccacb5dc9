"""SQuAD's scores equal those of the official scripts on random and degenerate predictions.

With `SQUAD_SCRIPTS` set to a folder with `evaluate-v1.1.py` and `evaluate-v2.0.py` (rajpurkar/SQuAD-explorer), the
scripts are run. Without it, their saved scores are compared, from `official_squad_scores.json`
(`SQUAD_SCRIPTS=… python tests/tasks/test_official_scores.py` writes it).
"""

import json
import os
import random
import runpy
from pathlib import Path

import pytest

from albert.tasks.answers import OpenAnswer, open_question_scores, span_exact_match, span_f1

SAVED = Path(__file__).with_name("official_squad_scores.json")
WORDS = (
    "", "the", "a", "The", "an ", "ship", "Ship,", "ships", "sea", "the sea", "1,000", "1000", "...", "!", "é", "É",
    "“sea”", "naïve", "\u00a0", "  old  ship ", "ship ship sea", "sea ship", "U.S.", "US", "theatre", "a-b", "—", "\t",
)  # fmt: skip
NO_ANSWER = (-3.5, -0.5, 0.0, 0.0, 0.25, 1.0, 7.0)
DRAWS = 2000
SAVED_DRAWS = 60


def drawn(seed, may_be_absent):
    """A data set in the official layout, predicted answers, no-answer scores, and a threshold."""
    generator = random.Random(f"{seed} {may_be_absent}")
    questions, texts, no_answer = [], {}, {}
    for number in range(generator.randint(1, 9)):
        gold = [{"text": phrase(generator)} for _ in range(generator.randint(0 if may_be_absent else 1, 3))]
        name = str(number)
        questions.append({"id": name, "answers": gold})
        right = gold and generator.random() < 0.4
        texts[name] = generator.choice(gold)["text"] if right else phrase(generator)
        no_answer[name] = generator.choice(NO_ANSWER)
    return [{"paragraphs": [{"qas": questions}]}], texts, no_answer, generator.choice(NO_ANSWER)


def phrase(generator):
    return " ".join(generator.choice(WORDS) for _ in range(generator.randint(0, 3)))


def ours_1(dataset, texts):
    gold, names = gold_of(dataset)
    predicted = [texts[name] for name in names]
    return {"exact_match": span_exact_match(gold, predicted), "f1": span_f1(gold, predicted)}


def ours_2(dataset, texts, no_answer, threshold):
    gold, names = gold_of(dataset)
    predicted = [OpenAnswer(texts[name], no_answer[name], no_answer[name] <= threshold) for name in names]
    return {name: value for name, value in open_question_scores(gold, predicted).items() if value is not None}


def gold_of(dataset):
    questions = dataset[0]["paragraphs"][0]["qas"]
    return [[answer["text"] for answer in q["answers"]] for q in questions], [q["id"] for q in questions]


def theirs_2(script, dataset, texts, no_answer, threshold):
    """The steps of the official script's `main`."""
    has_answer = script["make_qid_to_has_ans"](dataset)
    raw = script["get_raw_scores"](dataset, texts)
    decided = [script["apply_no_ans_threshold"](scores, no_answer, has_answer, threshold) for scores in raw]
    found = dict(script["make_eval_dict"](*decided))
    for prefix, wanted in (("HasAns", True), ("NoAns", False)):
        members = [name for name, has in has_answer.items() if has == wanted]
        if members:
            script["merge_eval"](found, script["make_eval_dict"](*decided, qid_list=members), prefix)
    script["find_all_best_thresh"](found, texts, *raw, no_answer, has_answer)
    return {name: value for name, value in found.items() if not name.endswith("total")}


def scripts():
    folder = os.environ.get("SQUAD_SCRIPTS")
    if folder is None:
        pytest.skip("needs the official scripts (set SQUAD_SCRIPTS to their folder)")
    return [runpy.run_path(str(Path(folder) / f"evaluate-v{version}.py")) for version in ("1.1", "2.0")]


def theirs(both, seed):
    first, second = both
    dataset, texts, _, _ = drawn(seed, may_be_absent=False)
    return first["evaluate"](dataset, texts), theirs_2(second, *drawn(seed, may_be_absent=True))


def ours(seed):
    dataset, texts, _, _ = drawn(seed, may_be_absent=False)
    return ours_1(dataset, texts), ours_2(*drawn(seed, may_be_absent=True))


def test_scores_equal_the_official_scripts():
    both = scripts()
    for seed in range(DRAWS):
        assert ours(seed) == theirs(both, seed), seed


def test_scores_equal_saved_official_scores():
    saved = json.loads(SAVED.read_text(encoding="utf-8"))
    assert len(saved) == SAVED_DRAWS
    for seed, official in enumerate(saved):
        for found, expected in zip(ours(seed), official, strict=True):
            assert found == pytest.approx(expected, abs=1e-12)  # sums are more exact in Python 3.12 than in 3.11


if __name__ == "__main__":
    written = [theirs(scripts(), seed) for seed in range(SAVED_DRAWS)]
    SAVED.write_text(json.dumps(written) + "\n", encoding="utf-8")
