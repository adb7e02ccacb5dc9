"""`examples/near_duplicates.py`: near copies are gone from its output, which `albert prepare` reads."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.text.helpers import make_texts, write_jsonl

from albert.cli.main import run
from albert.text.corpus import read_corpus
from albert.text.shards import TokenCorpus

SCRIPT = Path(__file__).parents[2] / "examples" / "near_duplicates.py"


def replace_words(text, share, seed):
    """Replace a share of consecutive words, and so about the same share of the runs of words."""
    words = text.split()
    count = round(share * len(words))
    start = random.Random(seed).randrange(len(words) - count)
    others = " ".join(make_texts(2, seed=100 + seed)).split()
    return " ".join([*words[:start], *others[:count], *words[start + count :]])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """JSON lines and text: 30 originals, near copies of 10 of them, and 10 that are half the same as others."""
    folder = tmp_path_factory.mktemp("near") / "my_text"
    folder.mkdir()
    originals = make_texts(30, seed=1)
    copies = [replace_words(text.upper(), 0.03, number) + " !" for number, text in enumerate(originals[:10])]
    others = [replace_words(text, 0.5, number) for number, text in enumerate(originals[10:20])]
    write_jsonl(folder / "a.jsonl", [*originals[:15], *others])
    write_jsonl(folder / "b.jsonl", [*copies[:5], *originals[15:]])
    for number, text in enumerate(copies[5:]):
        (folder / f"c{number}.txt").write_text(text)
    return folder, originals, copies, others


def test_near_copies_are_gone_and_the_rest_is_prepared(corpus, tokenizer_directory, tmp_path):
    pytest.importorskip("datatrove", reason="the extra `corpus` is not installed")
    folder, originals, copies, others = corpus
    output = tmp_path / "unique"
    command = [sys.executable, str(SCRIPT), str(folder), str(output)]
    subprocess.run(command, check=True, capture_output=True)
    kept = list(read_corpus([output]))
    assert len(kept) == len(set(kept)) == 40
    assert {*originals[10:], *others} <= set(kept)
    for original, copy in zip(originals[:10], copies, strict=True):
        assert (original in kept) != (copy in kept)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["unique"]
    again = subprocess.run(command, capture_output=True, text=True)
    assert (again.returncode, again.stderr) == (1, f"{output}: exists already\n")
    arguments = ["--tokenizer", str(tokenizer_directory), "--output", str(tmp_path / "data"), "--held-out", "0"]
    assert run(["prepare", str(output), *arguments, "--workers", "1"]) == 0
    assert TokenCorpus.open(tmp_path / "data").n_documents == 40
