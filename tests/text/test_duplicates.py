"""Duplicates: all of them are dropped, nothing else, and the same ones by any number of workers."""

import contextlib
import itertools
import pkgutil
import random
import shutil
import subprocess
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal
from tests.text.helpers import directory_content, preparation_command, write_jsonl

from albert.cli.main import run
from albert.runtime.errors import CannotCreate, DamagedData
from albert.runtime.manifest import verify_directory
from albert.text.corpus import find_corpus_files
from albert.text.duplicates import (
    BANDS_NAME,
    EXACT_DUPLICATE,
    KEYS_NAME,
    NEAR_DUPLICATE,
    SIGNATURES_NAME,
    Fingerprints,
    find_duplicates,
    minhash_signatures,
    shingle_hashes,
    split_words,
    text_hash,
)
from albert.text.executors import KEPT_NAME, PreparationSettings, UnitJob, read_unit
from albert.text.prepare import prepare
from albert.text.readers import CorpusReport
from albert.text.shards import TokenCorpus

pytest.importorskip("rensa", reason="the extra `duplicates` is not installed")


def make_texts(count, seed):
    """Texts of 100 to 300 words out of 5,000, which have hardly a run of words in common."""
    numbers = random.Random(seed)
    words = ["".join(numbers.choices("abcdefghijklmnopqrstuvwxyz", k=numbers.randint(2, 9))) for _ in range(5000)]
    return [" ".join(numbers.choices(words, k=numbers.randint(100, 300))) + "." for _ in range(count)]


def replace_words(text, share, seed=0):
    """Replace a share of consecutive words, and so about the same share of the runs."""
    words = text.split()
    count = round(share * len(words))
    start = random.Random(seed).randrange(len(words) - count)
    return " ".join([*words[:start], *(f"other{i}" for i in range(count)), *words[start + count :]])


@pytest.fixture(scope="module")
def planted():
    """Texts, and for exact and for near duplicates the numbers of copy and original."""
    texts = make_texts(120, 1)
    exact, near = {}, {}
    numbers = random.Random(2)
    for original in numbers.sample(range(120), 12):
        exact[len(texts)] = original
        texts.append("  " + texts[original].replace(" ", numbers.choice([" ", "\n", " \t"])))
    for original in numbers.sample(range(120), 12):
        near[len(texts)] = original
        texts.append(replace_words(texts[original].upper(), 0.03, original) + " !")
    for original in numbers.sample(range(120), 12):  # only half of it is the same: no duplicates
        texts.append(replace_words(texts[original], 0.5, original))
    return texts, exact, near


@pytest.fixture(scope="module")
def folder(planted, tmp_path_factory):
    """The texts in twelve files of 13."""
    folder = tmp_path_factory.mktemp("planted") / "corpus"
    folder.mkdir()
    for number in range(12):
        write_jsonl(folder / f"{number:02d}.jsonl", planted[0][number * 13 : number * 13 + 13])
    return folder


def settings(duplicates):
    return PreparationSettings(held_out=0.0, shard_bytes=16_000, unit_bytes=15_000, duplicates=duplicates)


@pytest.fixture(scope="module")
def prepared(folder, tokenizer, tmp_path_factory):
    """For each kind of deduplication the corpus and the report."""
    directory = tmp_path_factory.mktemp("prepared")
    return {
        kind: (directory / kind, prepare([folder], tokenizer, directory / kind, settings(kind), workers=1))
        for kind in ("keep", "exact", "near")
    }


@pytest.mark.parametrize("kind", ["exact", "near"])
def test_duplicates_are_dropped_and_counted(planted, prepared, tokenizer, kind):
    texts, exact, near = planted
    directory, report = prepared[kind]
    expected = {EXACT_DUPLICATE: exact} | ({NEAR_DUPLICATE: near} if kind == "near" else {})
    dropped = set(itertools.chain.from_iterable(expected.values()))
    corpus = TokenCorpus.open(directory)
    kept = [text for number, text in enumerate(texts) if number not in dropped]
    assert corpus.read(0, corpus.n_tokens).tolist() == [n for text in kept for n in tokenizer.encode(text)]
    sizes = {reason: sum(len(texts[number]) for number in numbers) for reason, numbers in expected.items()}
    assert report.dropped == {reason: len(numbers) for reason, numbers in expected.items()}
    assert report.dropped_bytes == sizes
    assert report.documents_in == len(texts) == report.splits["train"].documents + len(dropped)
    assert report.bytes_in == sum(map(len, texts)) == report.splits["train"].bytes + sum(sizes.values())
    assert corpus.description.documents_dropped == report.dropped
    assert corpus.description.bytes_dropped == report.dropped_bytes
    assert ("rensa" in corpus.description.versions) == (kind == "near")
    verify_directory(directory)


def test_bytes_do_not_depend_on_workers(prepared, folder, tokenizer, tmp_path):
    prepare([folder], tokenizer, tmp_path / "data", settings("near"), workers=3)
    assert directory_content(tmp_path / "data") == directory_content(prepared["near"][0])


def test_bytes_do_not_depend_on_the_engine(prepared, folder, tokenizer_directory, tmp_path):
    pytest.importorskip("datatrove", reason="the extra `corpus` is not installed")
    command = preparation_command(folder, tokenizer_directory, tmp_path / "data", settings("near"))
    subprocess.run([*command, "2", "datatrove"], check=True, capture_output=True)
    assert directory_content(tmp_path / "data") == directory_content(prepared["near"][0])


class Stopped(Exception):
    pass


@pytest.mark.parametrize("stage", ["albert.text.duplicates.FINGERPRINTING", "albert.text.prepare.ENCODING"])
def test_stopped_search_resumes_to_the_same_bytes(prepared, folder, tokenizer, tmp_path, monkeypatch, stage):
    """Stopped at every fourth batch until it is finished; no batch is processed twice."""
    processed = []

    def stop_at_every_fourth(batch):
        processed.append(batch.name)
        if len(processed) % 4 == 0:
            raise Stopped
        return original.work(batch)

    original = pkgutil.resolve_name(":".join(stage.rsplit(".", 1)))
    monkeypatch.setattr(stage, replace(original, work=stop_at_every_fourth))
    while not (tmp_path / "data").exists():
        with contextlib.suppress(Stopped):
            prepare([folder], tokenizer, tmp_path / "data", settings("near"), workers=1)
    finished = [name for number, name in enumerate(processed, start=1) if number % 4]
    assert len(finished) == len(set(finished)) > 8
    assert directory_content(tmp_path / "data") == directory_content(prepared["near"][0])


def test_stopped_search_notices_changed_files_and_versions(folder, tokenizer, tmp_path, monkeypatch):
    corpus, output = tmp_path / "corpus", tmp_path / "data"
    shutil.copytree(folder, corpus)
    with monkeypatch.context() as patched:
        patched.setattr("albert.text.prepare._assemble", lambda *_: (_ for _ in ()).throw(Stopped))
        with pytest.raises(Stopped):
            prepare([corpus], tokenizer, output, settings("near"), workers=1)
        patched.setattr("albert.text.prepare.version", lambda name: "9.9" if name == "rensa" else version(name))
        with refusal(CannotCreate, "rensa", "9.9"):
            prepare([corpus], tokenizer, output, settings("near"), workers=1)
    write_jsonl(corpus / "00.jsonl", ["The originals of some duplicates are gone."])
    prepare([corpus], tokenizer, output, settings("near"), workers=1)
    prepare([corpus], tokenizer, tmp_path / "at once", settings("near"), workers=1)
    assert directory_content(output) == directory_content(tmp_path / "at once")


@pytest.mark.parametrize("count", [1, 10_000])
def test_number_of_documents_must_not_change(folder, tokenizer, tmp_path, count):
    job = UnitJob(0, tuple(find_corpus_files([folder])[0][:1]), settings("exact"), tokenizer, tmp_path, dropped="some")
    (tmp_path / "fingerprints").mkdir()
    np.save(tmp_path / KEPT_NAME.format(job.name), np.ones(count, dtype=bool))
    with refusal(DamagedData, "duplicates"):
        list(read_unit(job, CorpusReport()))


def test_document_similar_only_to_a_dropped_one_is_kept(tokenizer, tmp_path):
    """b is similar to a, and c to b, but not to a: only b is dropped."""
    a = make_texts(1, 5)[0].split()
    count = round(0.08 * len(a))
    b = [*(f"x{i}" for i in range(count)), *a[count:]]
    c = [*b[:-count], *(f"y{i}" for i in range(count))]
    a, b, c = map(" ".join, (a, b, c))
    signatures = minhash_signatures([a, b, c])
    assert (signatures[0] == signatures[1]).mean() >= 0.8 <= (signatures[1] == signatures[2]).mean()
    assert (signatures[0] == signatures[2]).mean() < 0.8
    path = write_jsonl(tmp_path / "a.jsonl", (a, b, c))
    prepare([path], tokenizer, tmp_path / "data", settings("near"), workers=1)
    corpus = TokenCorpus.open(tmp_path / "data")
    assert corpus.read(0, corpus.n_tokens).tolist() == tokenizer.encode(a) + tokenizer.encode(c)


def write_fingerprints(directory, keys, signatures, bands):
    """As `fingerprint_batch` writes them, three documents per batch."""
    (directory / "fingerprints").mkdir(exist_ok=True)
    batches = []
    for number, start in enumerate(range(0, len(keys), 3)):
        batches.append(Fingerprints(f"00000-{number:05d}", "", len(keys[start : start + 3]), {}))
        np.save(directory / KEYS_NAME.format(batches[-1].name), keys[start : start + 3])
        np.save(directory / BANDS_NAME.format(batches[-1].name), bands[:, start : start + 3])
        np.save(directory / SIGNATURES_NAME.format(batches[-1].name), signatures[start : start + 3])
    return batches


@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.integers(1, 8))
def test_dropped_documents_are_similar_to_earlier_kept_ones(tmp_path_factory, seed, count, kinds):
    """Random documents of few kinds, with equal keys, chains, and bands that agree by chance."""
    numbers = np.random.default_rng(seed)
    keys = np.column_stack([numbers.integers(0, kinds * 4, (count, 1)).repeat(2, axis=1), np.ones(count)])
    prototypes = numbers.integers(0, 3, (kinds, 10))
    signatures = prototypes[numbers.integers(0, kinds, count)]
    signatures[numbers.random(signatures.shape) < 0.12] = 7
    bands = signatures.reshape(count, 5, 2).astype(np.uint32)
    directory = tmp_path_factory.mktemp("fingerprints")
    arrays = keys.astype(np.uint64), signatures.astype(np.uint16), (bands[..., 0] * 8 + bands[..., 1]).T
    batches = write_fingerprints(directory, *arrays)
    for near in (False, True):
        representative, exact, _ = find_duplicates(batches, directory, near)
        for number, other in enumerate(representative.tolist()):
            equal = np.flatnonzero(keys[:number, 0] == keys[number, 0])
            assert exact[number] == (len(equal) > 0)
            if number == other:
                assert len(equal) == 0
            else:
                assert other < number and representative[other] == other
                assert near or other == equal[0]
                similarity = float((signatures[number] == signatures[other]).mean())
                assert similarity >= 0.8 or exact[number]


@given(st.text(st.characters(codec="utf-8")))
def test_words_of_ascii_text_do_not_depend_on_other_text(text):
    ascii_text = text.encode("ascii", "replace").decode()
    words = split_words(ascii_text)
    assert words == split_words(ascii_text + "é")[: len(words)] or ascii_text[-1].isalnum() or ascii_text[-1] == "_"
    assert split_words(text + " é") == [*split_words(text), "é".encode()] or not text.isascii()


def test_every_ideograph_is_a_word():
    assert [word.decode() for word in split_words("ABC中国人, Ünder_1!")] == ["abc", "中", "国", "人", "ünder_1"]


@pytest.mark.parametrize("share", [0.02, 0.2, 0.6])
def test_signatures_estimate_the_similarity(share):
    errors = []
    for number, text in enumerate(make_texts(100, 3)):
        other = replace_words(text, share, number)
        first, second = (set(shingle_hashes(t).tolist()) for t in (text, other))
        exact = len(first & second) / len(first | second)
        signatures = minhash_signatures([text, other])
        errors.append(((signatures[0] == signatures[1]).mean() - exact) / np.sqrt(exact * (1 - exact) / 128))
    assert abs(np.mean(errors)) < 0.4  # four standard errors of a mean of 100
    assert np.std(errors) < 1.3


def test_text_hash_ignores_only_white_space():
    assert text_hash(" a  b\n\tc\u2003") == text_hash("a b c")
    assert len({text_hash(text) for text in ("a b c", "A b c", "á b c", "a b, c", "ab c")}) == 5


def test_texts_without_words_are_similar_only_if_equal():
    signatures = minhash_signatures(["***", "* * *", "", "***", "…"])
    similar = (signatures[:, None] == signatures[None]).mean(axis=2) > 0.8
    assert similar.tolist() == [[a == b for b in (0, 1, 2, 0, 4)] for a in (0, 1, 2, 0, 4)]


def test_command_prints_what_it_dropped(folder, tokenizer_directory, tmp_path, capsys):
    args = ["prepare", str(folder), "--tokenizer", str(tokenizer_directory), "--output", str(tmp_path / "data")]
    assert run([*args, "--duplicates", "near", "--workers", "1"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "12 documents dropped: duplicate of an earlier document" in output
    assert "12 documents dropped: nearly a duplicate of an earlier document" in output
