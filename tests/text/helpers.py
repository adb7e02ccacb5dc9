"""Texts that are hard to tokenize, checks of offsets, and helpers for corpora."""

import json
import random
import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from hypothesis import strategies as st

WRITING = {
    "accents, composed and not": "é e\u0301 ñ Å A\u030a ế e\u0302\u0301 ç \u0327c",
    "case that grows or folds": "İstanbul ıI ẞ ß ŉ ΣΊΣΥΦΟΣ ΟΔΟΣ ςσ ǆ Ǆ",
    "compatibility": "½ ⅓ ㎏ ㍿ ﷺ ﬁ ﬄ １２３ Ⅷ ² ™ … …… ℡ Ａ，５０００，",
    "control and format": "a\x00b\x10c\x7f \x85 \u00ad \u200b\u200d\u200e\u202e\u2066\ufeff\ufffd\x1c\x1f",
    "private use and unassigned": "\ue000 x\uf8ffy \U000f0000 \u0378 \U0001faff",
    "half surrogates": "\ud800 a\udfffb \udc00\ud83d",
    "blanks": " \u00a0 \u2003 \u3000 \u2028 \u2029 \u1680 \t\n\r\x0b\x0c \u180e \u2060",
    "emoji": "👩\u200d👩\u200d👧\u200d👦 👩🏽 🇨🇭 ❤\ufe0f 1\ufe0f\u20e3 🏴\U000e0067\U000e007f",
    "zalgo": "z" + "\u0300\u0315\u0489\u0316" * 12 + "a\u034f\u0336l",
    "hebrew and arabic": "שָׁלוֹם עולם مَرْحَبًا بِكُمْ \u200fab\u200e ﷽ لا",
    "south asian": "हिंदी क्‍ष नमस्ते বাংলা தமிழ் ไทย ที่ ລາວ ខ្មែរ མཛོད",
    "east asian": "中文 語 \uf900 \U0002b820 \U0002f800 がガ か\u3099 ｶﾞ ㈱ 가각 \u1100\u1161\u11a8 ㄱ 한글",
    "quotes": "`` '' ``x'' ``` '''' ' \" “ ” ‘ ’ « 「",
    "marks of the tokenizers": "▁ ▁a a▁ ##a # ## [ ] < > ▅",
    "literal special tokens": "[MASK] [CLS][SEP] [PAD] [UNK] <unk> <pad> [mask] [MASK]ed",
    "digits and commas": "2010, 4,000, 5000,000 92000, ٣, 1,a ,1 ½, ²,",
}
ALPHABET = sorted({character for text in WRITING.values() for character in text})
WORDS = [*(word for text in WRITING.values() for word in text.split(" ")), *WRITING.values(), "unaffable", "Hello"]
texts = st.one_of(
    st.text(alphabet=st.sampled_from(ALPHABET), max_size=40),
    st.text(alphabet=st.characters(), max_size=40),
    st.lists(st.sampled_from(WORDS), max_size=10).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=6).map("".join),
)


def check_offsets(tokenizer, text):
    """Check that offsets are ordered slices of the text, with all characters that the tokenizer does not drop."""
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    assert len(ids) == len(offsets)
    covered = [False] * len(text)
    for number, (start, end) in zip(ids, offsets, strict=True):
        assert 0 <= start <= end <= len(text)
        surface = text[start:end]
        assert surface == surface.strip()
        assert number == tokenizer.unk_id or number not in tokenizer.special_ids
        letters = tokenizer.piece(number).replace("▁", "").removeprefix("##")
        if number != tokenizer.unk_id:
            assert folded(letters) in folded(tokenizer.normalize(surface))
            assert surface or not letters
        covered[start:end] = [True] * (end - start)
    for side in (0, 1):
        bounds = [pair[side] for pair in offsets]
        assert bounds == sorted(bounds)
    for index, character in enumerate(text):
        if not covered[index]:
            assert is_dropped(tokenizer, text, index, covered), (index, character)
    check_spans(text, offsets, covered)


def folded(text):
    """Return the visible letters, decomposed and case-folded."""
    parts = unicodedata.normalize("NFKD", text).casefold().replace("▁", "")
    return "".join(c for c in parts if unicodedata.category(c)[0] not in "CZ" and unicodedata.category(c) != "Mn")


def check_spans(text, offsets, covered):
    """Check that the tokens that touch a span of covered characters cover all of it."""
    indices = [index for index, is_covered in enumerate(covered) if is_covered]
    for first, last in [*zip(indices, indices, strict=True), *zip(indices, indices[3:], strict=False)]:
        touched = [pair for pair in offsets if pair[0] <= last and pair[1] > first]
        assert touched[0][0] <= first
        assert touched[-1][1] >= last + 1


def is_dropped(tokenizer, text, index, covered):
    """Return whether a character has no token: a blank, a control character, an accent with no letter before it."""
    character = text[index]
    if unicodedata.category(character)[0] == "M" and index and covered[index - 1]:
        return False
    return tokenizer.encode(f"x{character}y") in (tokenizer.encode("xy"), tokenizer.encode("x y"))


def make_texts(count: int, seed: int) -> list[str]:
    """Texts of 100 to 300 words out of 5,000, which have hardly a run of words in common."""
    numbers = random.Random(seed)
    words = ["".join(numbers.choices("abcdefghijklmnopqrstuvwxyz", k=numbers.randint(2, 9))) for _ in range(5000)]
    return [" ".join(numbers.choices(words, k=numbers.randint(100, 300))) + "." for _ in range(count)]


def write_jsonl(path: Path, texts: Iterable[str | None]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def directory_content(directory: Path) -> dict[str, bytes]:
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


PREPARE = """
import json, sys
from pathlib import Path
from albert.text.executors import PreparationSettings
from albert.text.prepare import prepare
from albert.text.tokenizer_loading import load_tokenizer
if __name__ == "__main__":
    folder, tokenizer, output, settings, workers, engine = sys.argv[1:]
    settings, tokenizer = PreparationSettings(**json.loads(settings)), load_tokenizer(Path(tokenizer))
    prepare([Path(folder)], tokenizer, Path(output), settings, workers=int(workers), engine=engine)
"""


def preparation_command(folder: Path, tokenizer: Path, output: Path, settings: object) -> list[str]:
    """The command of a process that prepares a corpus; workers and engine are to be appended."""
    script = output.parent / "prepare_it.py"
    script.write_text(PREPARE)
    return [sys.executable, *map(str, (script, folder, tokenizer, output)), json.dumps(vars(settings))]


def stand_in_for_hub(monkeypatch, datasets, folder: Path, configurations: Iterable[str]) -> list[tuple]:
    """Put a folder in the place of every data set of the Hub; return the list of requests, which grows.

    Each configuration is a folder in it, with the files of the split `train`."""
    from albert.text import arrow_files

    card = "---\nconfigs:\n"
    for name in configurations:
        card += f"- config_name: {name}\n  data_files:\n  - split: train\n    path: {name}/*\n"
    (folder / "README.md").write_text(card + "---\n")
    requests = []
    load = datasets.load_dataset_builder

    class Commit:
        sha = "0123abc"

    class Hub:
        def dataset_info(self, name, revision=None):
            requests.append((name, revision))
            return Commit()

    def load_from_folder(name, config, revision):
        requests.append((name, config, revision))
        return load(str(folder), config)

    monkeypatch.setattr(arrow_files, "HfApi", Hub)
    monkeypatch.setattr(datasets, "load_dataset_builder", load_from_folder)
    return requests
