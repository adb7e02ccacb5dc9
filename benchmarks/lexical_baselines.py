"""Answers from a passage by counting words alone, for options and spans: nothing is learnt but how rare a word is.

Options: the sliding window of Richardson et al. 2013 (MCTest) with their distance, which is what the authors of RACE
compare with. Spans: the sentence that shares most with the question, weighted by rarity, and of the runs of words in it
that are neither in the question nor function words the one nearest to the question's words; "when" and "how many" want
digits, "who" and "where" a capital letter. What speaks for no answer is the share of the question that the sentence
lacks; the threshold is chosen on training questions.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from albert.tasks.examples import Example
from albert.text.sentences import split_sentences

WORD = re.compile(r"[$£€]?\w+(?:[.,'’–-]\w+)*%?")
QUESTION_WORDS = frozenset(
    {"who", "whom", "whose", "what", "which", "when", "where", "why", "how", "many", "much", "do", "does", "did"}
)
_WANTS_DIGITS = re.compile(r"\b(when|how (many|much|old|long|far|often)|(what|which) (year|date|day|century))\b")
_WANTS_A_NAME = re.compile(r"\b(who|whom|whose|where)\b")


def words_of(text: str) -> list[str]:
    """The words, in lower case."""
    return [word.lower() for word in WORD.findall(text)]


def choose_option(example: Example) -> int:
    """The option whose words and the question's stand together best in the passage (MCTest's SW+D)."""
    question, passage = example.texts
    place_of: dict[str, list[int]] = {}
    words = words_of(passage)
    for place, word in enumerate(words):
        place_of.setdefault(word, []).append(place)
    asked = set(words_of(question))
    scores = [
        _window(words, place_of, asked | set(words_of(option))) - _distance(place_of, len(words), asked, option)
        for option in example.options
    ]
    return int(np.argmax(scores))


def _window(words: Sequence[str], place_of: Mapping[str, Sequence[int]], wanted: set[str]) -> float:
    """The largest sum of log(1 + 1 / count) of wanted words over windows of as many words as are wanted."""
    weights = np.array([math.log(1 + 1 / len(place_of[word])) if word in wanted else 0.0 for word in words])
    sums = np.concatenate([np.zeros(1), np.cumsum(weights)])
    size = min(len(wanted), len(words))
    return float((sums[size:] - sums[: len(sums) - size]).max())


def _distance(place_of: Mapping[str, Sequence[int]], n_words: int, asked: set[str], option: str) -> float:
    """The smallest share of the passage between a word of the question and one of the option; 1 where there is none."""
    asked = {word for word in asked if word in place_of} - ENGLISH_STOP_WORDS
    offered = {word for word in words_of(option) if word in place_of} - asked - ENGLISH_STOP_WORDS
    if not asked or not offered or n_words < 2:
        return 1.0
    ours, theirs = (np.concatenate([place_of[word] for word in sorted(words)]) for words in (asked, offered))
    return float((np.abs(ours[:, None] - theirs[None]).min() + 1) / (n_words - 1))


def rarity(texts: Iterable[str]) -> Mapping[str, float]:
    """log(texts / texts with it) of every word; the key "" is that of a word in none of them."""
    texts = set(texts)
    counts = Counter(word for text in texts for word in set(words_of(text)))
    found = {word: math.log((1 + len(texts)) / count) for word, count in counts.items()}
    return {**found, "": math.log(1 + len(texts))}


def find_answer(example: Example, rare: Mapping[str, float]) -> tuple[str, float]:
    """A piece of the context, and how much speaks against it: the share of the question that its sentence lacks."""
    question, context = example.texts
    asked = {word: rare.get(word, rare[""]) for word in words_of(question) if word not in QUESTION_WORDS}
    total = math.fsum(asked.values()) or 1.0
    sentences = [(_shared(asked, each), each) for each in split_sentences(context)]
    best = max((found for found, _ in sentences), default=0.0)
    sentence = next((each for found, each in sentences if found == best), context)
    return _best_run(sentence, question.lower(), asked), 1.0 - best / total


def _shared(asked: Mapping[str, float], sentence: str) -> float:
    """The weight of the question's words in a sentence, exactly rounded: the order of a set is another in every run."""
    return math.fsum(asked.get(word, 0.0) for word in set(words_of(sentence)))


def _best_run(sentence: str, question: str, asked: Mapping[str, float]) -> str:
    """Of the runs of words that may be an answer the best; the whole sentence where there is none."""
    words = list(WORD.finditer(sentence))
    here = [(place, asked[low]) for place, word in enumerate(words) if (low := word[0].lower()) in asked]
    best, best_score = sentence, -math.inf
    for run in _runs(sentence, words, asked):
        text = sentence[words[run[0]].start() : words[run[-1]].end()]
        near = sum(weight / min(abs(place - run[0]), abs(place - run[-1])) for place, weight in here)
        score = near + 100.0 * _fits(text, question)
        if score > best_score:
            best, best_score = text, score
    return best


def _runs(sentence: str, words: Sequence[re.Match[str]], asked: Mapping[str, float]) -> list[list[int]]:
    """Places of neighbouring words that are no function words, not in the question, without marks between them."""
    runs: list[list[int]] = []
    for place, word in enumerate(words):
        lower = word[0].lower()
        if lower in asked or lower in ENGLISH_STOP_WORDS:
            continue
        joined = runs and runs[-1][-1] == place - 1 and sentence[words[place - 1].end() : word.start()].isspace()
        if joined:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _fits(text: str, question: str) -> bool:
    """Whether the answer is of the kind that the question asks for, where it says one."""
    if _WANTS_DIGITS.search(question):
        return any(character.isdigit() for character in text)
    return bool(_WANTS_A_NAME.search(question)) and text[0].isupper()
