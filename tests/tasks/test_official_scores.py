"""SQuAD's scores are those of the official scripts, to the last bit, on drawn and degenerate predictions.

The scripts stay where they are published (rajpurkar/SQuAD-explorer): with `SQUAD_SCRIPTS` set to a folder that holds
`evaluate-v1.1.py` and `evaluate-v2.0.py` they are run beside ours. Without them, ours are held against what they gave,
kept in `official_squad_scores.json` (`SQUAD_SCRIPTS=… python tests/tasks/test_official_scores.py` writes it anew).
"""

import json
import os
import random
import runpy
from pathlib import Path

import pytest

from albert.tasks.answers import OpenAnswer, open_question_scores, span_exact_match, span_f1

KEPT = Path(__file__).with_name("official_squad_scores.json")
WORDS = (
    "", "the", "a", "The", "an ", "ship", "Ship,", "ships", "sea", "the sea", "1,000", "1000", "...", "!", "é", "É",
    "“sea”", "naïve", "\u00a0", "  old  ship ", "ship ship sea", "sea ship", "U.S.", "US", "theatre", "a-b", "—", "\t",
)  # fmt: skip
AGAINST = (-3.5, -0.5, 0.0, 0.0, 0.25, 1.0, 7.0)
DRAWS = 2000
KEPT_DRAWS = 60


def drawn(seed, may_be_absent):
    """A data set in the official layout, an answer to each question, what speaks against it, and a threshold."""
    generator = random.Random(f"{seed} {may_be_absent}")
    questions, texts, against = [], {}, {}
    for number in range(generator.randint(1, 9)):
        gold = [{"text": phrase(generator)} for _ in range(generator.randint(0 if may_be_absent else 1, 3))]
        name = str(number)
        questions.append({"id": name, "answers": gold})
        right = gold and generator.random() < 0.4
        texts[name] = generator.choice(gold)["text"] if right else phrase(generator)
        against[name] = generator.choice(AGAINST)
    return [{"paragraphs": [{"qas": questions}]}], texts, against, generator.choice(AGAINST)


def phrase(generator):
    return " ".join(generator.choice(WORDS) for _ in range(generator.randint(0, 3)))


def ours_1(dataset, texts):
    gold, names = gold_of(dataset)
    said = [texts[name] for name in names]
    return {"exact_match": span_exact_match(gold, said), "f1": span_f1(gold, said)}


def ours_2(dataset, texts, against, threshold):
    gold, names = gold_of(dataset)
    said = [OpenAnswer(texts[name], against[name], against[name] <= threshold) for name in names]
    return {name: value for name, value in open_question_scores(gold, said).items() if value is not None}


def gold_of(dataset):
    questions = dataset[0]["paragraphs"][0]["qas"]
    return [[answer["text"] for answer in each["answers"]] for each in questions], [each["id"] for each in questions]


def theirs_2(script, dataset, texts, against, threshold):
    """What the official script's `main` does with its functions."""
    has_answer = script["make_qid_to_has_ans"](dataset)
    raw = script["get_raw_scores"](dataset, texts)
    decided = [script["apply_no_ans_threshold"](scores, against, has_answer, threshold) for scores in raw]
    found = dict(script["make_eval_dict"](*decided))
    for prefix, wanted in (("HasAns", True), ("NoAns", False)):
        members = [name for name, has in has_answer.items() if has == wanted]
        if members:
            script["merge_eval"](found, script["make_eval_dict"](*decided, qid_list=members), prefix)
    script["find_all_best_thresh"](found, texts, *raw, against, has_answer)
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
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    assert len(kept) == KEPT_DRAWS
    for seed, (first, second) in enumerate(kept):
        found = ours(seed)
        assert found[0] == pytest.approx(first, abs=1e-12)  # Python 3.12 adds numbers up more exactly than 3.11
        assert found[1] == pytest.approx(second, abs=1e-12)


def test_order_of_questions_does_not_matter():
    for seed in range(50):
        dataset, texts, against, threshold = drawn(seed, may_be_absent=True)
        turned = [{"paragraphs": [{"qas": dataset[0]["paragraphs"][0]["qas"][::-1]}]}]
        one, two = (ours_2(each, texts, against, threshold) for each in (dataset, turned))
        decided = [name for name in one if "best" not in name]  # of questions as unlikely the script takes one by one
        assert [one[name] for name in decided] == pytest.approx([two[name] for name in decided])


if __name__ == "__main__":
    written = [theirs(scripts(), seed) for seed in range(KEPT_DRAWS)]
    KEPT.write_text(json.dumps(written) + "\n", encoding="utf-8")
