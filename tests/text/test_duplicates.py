"""Duplicates: all equal documents are dropped, nothing else, and the same ones by any number of workers."""

import contextlib
import pkgutil
import random
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal
from tests.text.helpers import directory_content, make_texts, preparation_command, write_jsonl

from albert.cli.main import run
from albert.runtime.errors import DamagedData
from albert.runtime.manifest import verify_directory
from albert.text.corpus import find_corpus_files
from albert.text.duplicates import DUPLICATE, KEYS_NAME, Fingerprints, find_duplicates, text_hash
from albert.text.executors import KEPT_NAME, PreparationSettings, UnitJob, read_unit
from albert.text.prepare import prepare
from albert.text.readers import CorpusReport
from albert.text.shards import TokenCorpus


@pytest.fixture(scope="module")
def planted():
    """Texts, and the numbers of those that are copies; others differ from an original by a letter."""
    texts = make_texts(120, 1)
    copies = []
    numbers = random.Random(2)
    for original in numbers.sample(range(120), 24):
        copies.append(len(texts))
        texts.append("  " + texts[original].replace(" ", numbers.choice([" ", "\n", " \t"])))
    for original in numbers.sample(range(120), 12):
        texts.append(texts[original].capitalize())
    return texts, copies


@pytest.fixture(scope="module")
def folder(planted, tmp_path_factory):
    """The texts in twelve files of 13."""
    folder = tmp_path_factory.mktemp("planted") / "corpus"
    folder.mkdir()
    for number in range(12):
        write_jsonl(folder / f"{number:02d}.jsonl", planted[0][number * 13 : number * 13 + 13])
    return folder


SETTINGS = PreparationSettings(held_out=0.0, shard_bytes=16_000, unit_bytes=15_000, duplicates="exact")


@pytest.fixture(scope="module")
def prepared(folder, tokenizer, tmp_path_factory):
    """The corpus and the report."""
    directory = tmp_path_factory.mktemp("prepared") / "data"
    return directory, prepare([folder], tokenizer, directory, SETTINGS, workers=1)


def test_duplicates_are_dropped_and_counted(planted, prepared, tokenizer):
    texts, copies = planted
    directory, report = prepared
    corpus = TokenCorpus.open(directory)
    kept = [text for number, text in enumerate(texts) if number not in copies]
    assert corpus.read(0, corpus.n_tokens).tolist() == [n for text in kept for n in tokenizer.encode(text)]
    size = sum(len(texts[number]) for number in copies)
    assert report.dropped == {DUPLICATE: len(copies)}
    assert report.dropped_bytes == {DUPLICATE: size}
    assert report.documents_in == len(texts) == report.splits["train"].documents + len(copies)
    assert report.bytes_in == sum(map(len, texts)) == report.splits["train"].bytes + size
    assert corpus.description.documents_dropped == report.dropped
    assert corpus.description.bytes_dropped == report.dropped_bytes
    verify_directory(directory)


def test_duplicates_are_kept_by_default(planted, folder, tokenizer, tmp_path):
    report = prepare([folder], tokenizer, tmp_path / "data", replace(SETTINGS, duplicates="keep"), workers=1)
    assert report.splits["train"].documents == report.documents_in == len(planted[0])
    assert report.dropped == {}


def test_bytes_do_not_depend_on_workers(prepared, folder, tokenizer, tmp_path):
    prepare([folder], tokenizer, tmp_path / "data", SETTINGS, workers=3)
    assert directory_content(tmp_path / "data") == directory_content(prepared[0])


def test_bytes_do_not_depend_on_the_engine(prepared, folder, tokenizer_directory, tmp_path):
    pytest.importorskip("datatrove", reason="the extra `corpus` is not installed")
    command = preparation_command(folder, tokenizer_directory, tmp_path / "data", SETTINGS)
    subprocess.run([*command, "2", "datatrove"], check=True, capture_output=True)
    assert directory_content(tmp_path / "data") == directory_content(prepared[0])


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
            prepare([folder], tokenizer, tmp_path / "data", SETTINGS, workers=1)
    finished = [name for number, name in enumerate(processed, start=1) if number % 4]
    assert len(finished) == len(set(finished)) > 8
    assert directory_content(tmp_path / "data") == directory_content(prepared[0])


def test_stopped_search_notices_changed_files(folder, tokenizer, tmp_path, monkeypatch):
    corpus, output = tmp_path / "corpus", tmp_path / "data"
    shutil.copytree(folder, corpus)
    with monkeypatch.context() as patched:
        patched.setattr("albert.text.prepare._assemble", lambda *_: (_ for _ in ()).throw(Stopped))
        with pytest.raises(Stopped):
            prepare([corpus], tokenizer, output, SETTINGS, workers=1)
    write_jsonl(corpus / "00.jsonl", ["The originals of some duplicates are gone."])
    prepare([corpus], tokenizer, output, SETTINGS, workers=1)
    prepare([corpus], tokenizer, tmp_path / "at once", SETTINGS, workers=1)
    assert directory_content(output) == directory_content(tmp_path / "at once")


@pytest.mark.parametrize("count", [1, 10_000])
def test_number_of_documents_must_not_change(folder, tokenizer, tmp_path, count):
    job = UnitJob(0, tuple(find_corpus_files([folder])[0][:1]), SETTINGS, tokenizer, tmp_path, dropped="some")
    (tmp_path / "fingerprints").mkdir()
    np.save(tmp_path / KEPT_NAME.format(job.name), np.ones(count, dtype=bool))
    with refusal(DamagedData, "duplicates"):
        list(read_unit(job, CorpusReport()))


@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.integers(1, 8))
def test_the_first_of_equal_hashes_is_kept(tmp_path_factory, seed, count, kinds):
    numbers = np.random.default_rng(seed)
    hashes = numbers.integers(0, kinds, (count, 2))
    keys = np.column_stack([hashes, numbers.integers(0, 100, count)]).astype(np.uint64)
    directory = tmp_path_factory.mktemp("fingerprints")
    (directory / "fingerprints").mkdir()
    batches = []
    for number, start in enumerate(range(0, count, 3)):
        batches.append(Fingerprints(f"00000-{number:05d}", "", len(keys[start : start + 3]), {}))
        np.save(directory / KEYS_NAME.format(batches[-1].name), keys[start : start + 3])
    kept, sizes = find_duplicates(batches, directory)
    pairs = [tuple(pair) for pair in hashes.tolist()]
    assert kept.tolist() == [pair not in pairs[:number] for number, pair in enumerate(pairs)]
    assert sizes.tolist() == keys[:, 2].tolist()


def test_text_hash_ignores_only_white_space():
    assert text_hash(" a  b\n\tc\u2003") == text_hash("a b c")
    assert len({text_hash(text) for text in ("a b c", "A b c", "á b c", "a b, c", "ab c")}) == 5


def test_command_prints_what_it_dropped(folder, tokenizer_directory, tmp_path, capsys):
    args = ["prepare", str(folder), "--tokenizer", str(tokenizer_directory), "--output", str(tmp_path / "data")]
    assert run([*args, "--duplicates", "exact", "--workers", "1"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "24 documents dropped: duplicate of an earlier document" in output
