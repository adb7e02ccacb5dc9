"""Texts and a small vocabulary, made here. `albert` is imported late: the hook on annotations comes first."""

import random

import pytest

SYLLABLES = [
    "ba", "ce", "di", "fo", "gu", "ha", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wu", "ing", "er", "tion",
]  # fmt: skip
SPECIAL_SENTENCES = [
    'He said: "It costs £3.50 (or €4,000), in 2010, not in 1999,"',
    "A state-of-the-art café – naïve, perhaps – opened at 12,5 o'clock.",
    "Don't panic, she wrote; the year 2010, like 2011, was fine.",
]


def make_sentence(numbers: random.Random, words: list[str]) -> str:
    sentence = " ".join(numbers.choices(words, k=numbers.randint(4, 14)))
    return sentence.capitalize() + numbers.choice(".?!")


def make_documents(count: int, seed: int = 0) -> list[str]:
    numbers = random.Random(seed)
    words = ["".join(numbers.choices(SYLLABLES, k=numbers.randint(1, 4))) for _ in range(600)]
    documents = []
    for _ in range(count):
        paragraphs = []
        for _ in range(numbers.randint(1, 4)):
            sentences = [make_sentence(numbers, words) for _ in range(numbers.randint(1, 6))]
            paragraphs.append(" ".join([*sentences, numbers.choice(SPECIAL_SENTENCES)]))
        documents.append("\n".join(paragraphs))
    return documents


@pytest.fixture(scope="session")
def documents() -> list[str]:
    return make_documents(150)


@pytest.fixture(scope="session")
def tokenizer(documents):
    from albert.text.sentencepiece import train_tokenizer

    return train_tokenizer(documents, vocab_size=300)


@pytest.fixture(scope="session")
def tokenizer_directory(tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save(directory)
    return directory


WORDPIECES = [
    *["[unused1]", "[PAD]", "hello", "un", "##aff", "##able", "[CLS]", "[unused2]", "mask", "[SEP]", "cls", "cafe"],
    *["##é", "é", "ß", "σ", "##σ", "ς", "##ς", "ο", "##δ", "##ο", "i", "##i", "##\u0307", "ΟΔ", "##ΟΣ", "\u2028"],
    *(f"{mark}{letter}" for letter in "abcdefghklmnoprstuvwxyzABCMSK0123456789" for mark in ("", "##")),
    *(f"{mark}{letter}" for letter in "中国人文語한글가\u1100\u1161あがガか" for mark in ("", "##")),
    *".,!?'\"`[]<>#-▁“”‘’…·，。！“”、（）：£€$½²①™👩❤ह",
]


@pytest.fixture(scope="session")
def wordpiece():
    from albert.text.wordpiece import wordpiece_tokenizer

    return wordpiece_tokenizer([*dict.fromkeys(WORDPIECES), "[MASK]", "[UNK]", "##x中"])
