"""Preparation of a corpus: bytes, counts, held-out documents, commands and worker processes."""

import csv
import errno
import gzip
import io
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import openpyxl
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal
from tests.text.helpers import directory_content, preparation_command, write_jsonl

import albert
from albert.cli.main import run
from albert.runtime.errors import CannotCreate, DamagedData, InvalidConfiguration, MissingInput, OutOfResources
from albert.runtime.files import new_directory
from albert.runtime.json_files import save_json
from albert.runtime.manifest import verify_directory
from albert.text import prepare as prepare_module
from albert.text import shards
from albert.text.executors import PreparationSettings, map_in_order
from albert.text.prepare import held_out_key, is_held_out, prepare
from albert.text.sentences import split_sentences
from albert.text.shards import TokenCorpus, read_description, token_type

SETTINGS = PreparationSettings(held_out=0.2, shard_bytes=10_000)


def read_documents(corpus: TokenCorpus) -> list[list[list[int]]]:
    starts = corpus.sentence_starts
    return [
        [corpus.read(int(starts[i]), int(starts[i + 1])).tolist() for i in range(first, last)]
        for first, last in zip(corpus.document_starts[:-1], corpus.document_starts[1:], strict=True)
    ]


def read_tokens(directory, split="train"):
    corpus = TokenCorpus.open(directory, split)
    return corpus.read(0, corpus.n_tokens).tolist()


def encode_documents(texts, tokenizer):
    return [[tokenizer.encode(sentence) for sentence in split_sentences(text)] for text in texts]


@pytest.fixture(scope="module")
def corpus_file(documents, tmp_path_factory):
    return write_jsonl(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", documents)


@pytest.fixture(scope="module")
def prepared(corpus_file, tokenizer, tmp_path_factory):
    output = tmp_path_factory.mktemp("prepared") / "data"
    prepare([corpus_file], tokenizer, output, SETTINGS, workers=1)
    return output


@pytest.fixture
def copy(prepared, tmp_path):
    return Path(shutil.copytree(prepared, tmp_path / "data"))


def test_tokens_are_those_of_the_sentences(prepared, documents, tokenizer):
    held_out = [text for text in documents if is_held_out(held_out_key(text, 0), 0.2)]
    train = [text for text in documents if text not in held_out]
    for split, texts in (("train", train), ("held_out", held_out)):
        corpus = TokenCorpus.open(prepared, split)
        assert read_documents(corpus) == encode_documents(texts, tokenizer)
        assert corpus.n_documents == len(texts) > 0
        assert corpus.sentence_starts[-1] == corpus.n_tokens
        assert corpus.document_starts[-1] == corpus.n_sentences
        assert corpus.tokenizer().fingerprint == corpus.tokenizer_fingerprint == tokenizer.fingerprint
        assert corpus.vocab_size == tokenizer.vocab_size


def test_ids_of_the_corpus_are_those_of_the_reference_in_ties(tmp_path):
    """The reference encodes a whole sentence; word by word the same pieces of 53,000 come in another order."""
    sentence = "Out of this quantity a little over 53,000 tons came to the United Kingdom."
    tokenizer = albert.load("small").tokenizer
    prepare([write_jsonl(tmp_path / "texts.jsonl", [sentence] * 2)], tokenizer, tmp_path / "corpus", workers=1)
    library = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    expected = library.encode(sentence.lower())
    assert read_tokens(tmp_path / "corpus") == 2 * expected != 2 * tokenizer.encode(sentence)


def test_corpus_of_another_tokenizer_is_refused(copy):
    path = copy / "corpus.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_fingerprint": "v2:" + "0" * 64}))
    with refusal(DamagedData, "tokenizer"):
        TokenCorpus.open(copy, verify=False)


def test_split_does_not_depend_on_order_or_workers(documents, tokenizer, tmp_path):
    shuffled = documents.copy()
    random.Random(3).shuffle(shuffled)
    splits = []
    for name, texts, workers in (("a", documents, 1), ("b", shuffled, 2)):
        path = write_jsonl(tmp_path / f"{name}.jsonl", texts)
        prepare([path], tokenizer, tmp_path / name, SETTINGS, workers=workers)
        splits.append(sorted(read_documents(TokenCorpus.open(tmp_path / name, "held_out"))))
    assert splits[0] == splits[1]


def test_held_out_documents_follow_share_and_seed():
    texts = [f"This is text {number}." for number in range(4000)]
    chosen = [{text for text in texts if is_held_out(held_out_key(text, seed), 0.25)} for seed in (0, 1)]
    assert all(900 < len(side) < 1100 for side in chosen)
    assert chosen[0] != chosen[1]
    assert {text for text in texts if is_held_out(held_out_key(text, 0), 0.1)} < chosen[0]


def test_counts_add_up(documents, tokenizer, tmp_path):
    texts = [*documents[:40], "", " \n ", "\u0301", "\u200b"]
    report = prepare([write_jsonl(tmp_path / "a.jsonl", texts)], tokenizer, tmp_path / "data", SETTINGS, workers=1)
    used = sum(counts.documents for counts in report.splits.values())
    assert report.dropped == {"empty": 2, "no tokens": 2}
    assert report.documents_in == used + 4 == len(texts)
    used_bytes = sum(counts.bytes for counts in report.splits.values())
    assert report.bytes_in == used_bytes + report.dropped_bytes.total() == sum(len(t.encode()) for t in texts)
    for split, counts in report.splits.items():
        corpus = TokenCorpus.open(tmp_path / "data", split)
        expected = (counts.documents, counts.sentences, counts.tokens)
        assert (corpus.n_documents, corpus.n_sentences, corpus.n_tokens) == expected
        assert counts.unknown_tokens == int((corpus.read(0, corpus.n_tokens) == tokenizer.unk_id).sum())
        assert corpus.description.counts[split] == counts


def test_the_smallest_type_that_fits_is_used():
    assert [token_type(size).name for size in (300, 65_535, 65_536, 65_537, 10**6)] == ["uint16"] * 3 + ["uint32"] * 2


def test_existing_output_is_refused_unless_replaced(copy, corpus_file, tokenizer):
    before = directory_content(copy)
    (copy.parent / ".data.unfinished.tmp-0123abcd" / "train").mkdir(parents=True)  # left by a kill at the very end
    with refusal(CannotCreate):
        prepare([corpus_file], tokenizer, copy, SETTINGS, workers=1)
    assert [path.name for path in copy.parent.iterdir()] == ["data"]
    assert directory_content(copy) == before
    prepare([corpus_file], tokenizer, copy, SETTINGS, workers=1, replace=True)
    assert directory_content(copy) == before


@pytest.mark.parametrize("workers", [1, 2])
def test_finished_shards_survive_an_invalid_line(documents, tokenizer, tmp_path, workers):
    path = write_jsonl(tmp_path / "a.jsonl", documents)
    valid, settings = path.read_text(), PreparationSettings(shard_bytes=20_000)
    prepare([path], tokenizer, tmp_path / "at once", settings, workers=1)
    path.write_text(valid + "broken\n")
    with refusal(DamagedData, "a.jsonl:151"):
        prepare([path], tokenizer, tmp_path / "data", settings, workers=workers)
    assert {p.name for p in tmp_path.iterdir()} == {"a.jsonl", "at once", "data.unfinished"}
    with refusal(CannotCreate, "shard_bytes", 20000, 30000):
        prepare([path], tokenizer, tmp_path / "data", PreparationSettings(shard_bytes=30_000), workers=1)
    path.write_text(valid)
    report = prepare([path], tokenizer, tmp_path / "data", settings, workers=workers)
    assert report.shards_found >= 2
    assert directory_content(tmp_path / "data") == directory_content(tmp_path / "at once")
    assert {p.name for p in tmp_path.iterdir()} == {"a.jsonl", "at once", "data"}


@pytest.mark.parametrize("kept", [True, False])
def test_full_disk_names_the_file_and_what_is_kept(
    corpus_file, tokenizer_directory, tmp_path, monkeypatch, capsys, kept
):
    """Unfinished work is kept if it has a finished shard."""
    replace, full = os.replace, "00000-00001" if kept else "00000-00000"

    def fill_disk(source, target):
        if Path(target).name.startswith(full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", fill_disk)
    args = ["prepare", corpus_file, "--tokenizer", tokenizer_directory, "--output", tmp_path / "data", "--workers", "1"]
    code = run([*map(str, args), "--shard-megabytes", "0.02"])
    message, work = capsys.readouterr().err, tmp_path / "data.unfinished"
    match = re.search(re.escape(f"{work}/train/{full}.") + r"\w+\.bin: No space left on device; (.*)\n$", message)
    assert code == 74 and match, message
    assert work.exists() == kept
    resume = f"free space and run the same command, which resumes from {work}"
    assert match[1] == (resume if kept else "free space or choose another disk")


@pytest.mark.parametrize("values", [{"held_out": 1.0}, {"held_out": -0.1}, {"shard_bytes": 0}])
def test_settings_out_of_range_are_refused(corpus_file, tokenizer, tmp_path, values):
    with refusal(InvalidConfiguration):
        prepare([corpus_file], tokenizer, tmp_path / "data", PreparationSettings(**values), workers=1)


def test_corpus_without_tokens_is_refused(tokenizer, tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", ["\u0301"])
    with refusal(MissingInput, "1 dropped"):
        prepare([path], tokenizer, tmp_path / "data", workers=1)
    assert not (tmp_path / "data").exists()


# ---- opening a prepared corpus -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tokens.bin", "sentences.npy", "documents.npy"])
def test_a_cut_file_is_found_even_without_hashes(copy, name):
    path = copy / "train" / f"00000-00000.{name}"
    path.write_bytes(path.read_bytes()[:-2])
    with refusal(DamagedData, path.name):
        TokenCorpus.open(copy, verify=False)


def test_a_foreign_tokenizer_is_found_even_without_hashes(prepared, tmp_path):
    with new_directory(tmp_path / "foreign") as directory:  # with a valid manifest
        shutil.copytree(prepared, directory, dirs_exist_ok=True)
        (directory / "MANIFEST.json").unlink()
        config = directory / "tokenizer_config.json"
        config.write_text(config.read_text().replace('"keep_accents": false', '"keep_accents": true'))
    with refusal(DamagedData, "tokenizer"):
        TokenCorpus.open(tmp_path / "foreign", verify=False)


@pytest.fixture(scope="module")
def corpus(documents, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    (directory / "raw").mkdir()
    for number, text in enumerate(documents[:60]):
        (directory / "raw" / f"{number:03d}.txt").write_text(text, encoding="utf-8")
    settings = PreparationSettings(held_out=0.0, shard_bytes=5_000)
    prepare([directory / "raw"], tokenizer, directory / "data", settings, workers=1)
    return TokenCorpus.open(directory / "data")


def test_empty_split_is_refused(corpus):
    with refusal(MissingInput, "held_out"):
        TokenCorpus.open(corpus.directory, "held_out")


def test_read_crosses_shards_and_checks_bounds(corpus):
    tokens = corpus.read(0, corpus.n_tokens)
    assert len(tokens) == corpus.n_tokens
    assert tokens.dtype == np.int64
    numbers = np.random.default_rng(0)
    for start, stop in np.sort(numbers.integers(0, corpus.n_tokens + 1, (200, 2)), axis=1).tolist():
        assert (corpus.read(start, stop) == tokens[start:stop]).all()
    for start, stop in ((-1, 2), (5, 4), (0, corpus.n_tokens + 1)):
        with pytest.raises(IndexError):
            corpus.read(start, stop)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20))
def test_runs_are_copied_to_their_places(corpus, bounds):
    assert corpus.n_shards > 4
    tokens = corpus.read(0, corpus.n_tokens)
    starts, ends = np.sort(np.array(bounds) * corpus.n_tokens, axis=1).astype(np.int64).T
    lengths = ends - starts
    places = np.cumsum(lengths + 1) - lengths
    out = np.full(int((lengths + 1).sum()) + 1, -1)
    corpus.copy_runs(out, places, starts, lengths)
    expected = np.full_like(out, -1)
    for place, start, end in zip(places, starts, ends, strict=True):
        expected[place : place + end - start] = tokens[start:end]
    assert (out == expected).all()


def test_no_more_shards_are_mapped_than_allowed(corpus, monkeypatch):
    monkeypatch.setattr(shards, "OPEN_SHARDS", 2)
    tokens = corpus.read(0, corpus.n_tokens)
    fresh = TokenCorpus.open(corpus.directory)
    for start in np.linspace(0, corpus.n_tokens - 5, 40).astype(int).tolist():
        assert (fresh.read(start, start + 5) == tokens[start : start + 5]).all()
        assert len(fresh._mapped) <= 2


# ---- small corpora -------------------------------------------------------------------------------------------------

FEW = ["One stood here. Two came by. Three went on.", "Four sat down. Five got up.", "Six spoke. Seven heard it."]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("shard_bytes", [10, 10_000])
def test_document_with_the_lowest_key_is_held_out_of_few(tokenizer, tmp_path, workers, shard_bytes):
    path = write_jsonl(tmp_path / "raw.jsonl", FEW)
    settings = PreparationSettings(shard_bytes=shard_bytes)
    assert not any(is_held_out(held_out_key(text, 0), settings.held_out) for text in FEW)
    report = prepare([path], tokenizer, tmp_path / "data", settings, workers=workers)
    assert report.held_out_fallback == "document"
    lowest = min(FEW, key=lambda text: held_out_key(text, 0))
    for split, texts in (("held_out", [lowest]), ("train", [text for text in FEW if text != lowest])):
        corpus = TokenCorpus.open(tmp_path / "data", split)
        assert read_documents(corpus) == encode_documents(texts, tokenizer)
        assert report.splits[split].documents == len(texts)
    assert sum(counts.bytes for counts in report.splits.values()) == report.bytes_in
    none = prepare([path], tokenizer, tmp_path / "none", PreparationSettings(held_out=0.0), workers=1)
    assert none.splits["held_out"].documents == 0 and not none.held_out_fallback


def test_interrupted_choice_of_the_held_out_document_resumes(tokenizer, tmp_path, monkeypatch):
    path, settings = write_jsonl(tmp_path / "raw.jsonl", [*FEW, *FEW]), PreparationSettings(shard_bytes=10)
    prepare([path], tokenizer, tmp_path / "whole", settings, workers=1)

    def save_and_stop(path, value):
        save_json(path, value)
        if path.parent.name == "results":  # a shard that was encoded again
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(prepare_module, "save_json", save_and_stop)
        prepare([path], tokenizer, tmp_path / "data", settings, workers=1)
    assert prepare([path], tokenizer, tmp_path / "data", settings, workers=1).held_out_fallback == "document"
    assert directory_content(tmp_path / "data") == directory_content(tmp_path / "whole")


def test_share_that_leaves_nothing_for_training_is_refused(tokenizer, tmp_path):
    path = write_jsonl(tmp_path / "raw.jsonl", FEW)
    with refusal(InvalidConfiguration, "held_out", "0.999999"):
        prepare([path], tokenizer, tmp_path / "data", PreparationSettings(held_out=0.999999), workers=1)
    assert sorted(tmp_path.iterdir()) == [path]


def test_script_prepares_with_several_processes_without_a_guard(tokenizer_directory, tmp_path):
    """The processes do not run the script, which would prepare again in each."""
    paths = write_jsonl(tmp_path / "raw.jsonl", FEW), tokenizer_directory, tmp_path / "data"
    corpus, tokenizer, output = map(str, paths)
    call = f"albert.prepare({corpus!r}, tokenizer={tokenizer!r}, output={output!r}, workers=2, shard_megabytes=1e-5)"
    (tmp_path / "script.py").write_text(f"import albert\n{call}\nprint('done', __file__)\n")
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == f"done {tmp_path / 'script.py'}"


def test_last_sentences_of_a_single_document_are_held_out(tokenizer, tmp_path):
    text = " ".join(f"Sentence number {word} stands here." for word in ("one", "two", "three", "four", "five"))
    path = write_jsonl(tmp_path / "raw.jsonl", [text])
    report = prepare([path], tokenizer, tmp_path / "data", PreparationSettings(), workers=1)
    assert report.held_out_fallback == "sentences" and report.documents_in == 1
    (sentences,) = encode_documents([text], tokenizer)
    assert read_documents(TokenCorpus.open(tmp_path / "data", "train")) == [sentences[:3]]
    assert read_documents(TokenCorpus.open(tmp_path / "data", "held_out")) == [sentences[3:]]
    assert sum(counts.bytes for counts in report.splits.values()) == report.bytes_in
    report = prepare([path], tokenizer, tmp_path / "half", PreparationSettings(held_out=0.999999), workers=1)
    assert report.splits["train"].sentences == 3 and report.held_out_fallback == "sentences"


@pytest.mark.parametrize("texts", [["A single sentence."], ["Equal texts. Are one."] * 3])
def test_text_that_cannot_be_divided_is_for_training(tokenizer, tmp_path, texts):
    report = prepare([write_jsonl(tmp_path / "raw.jsonl", texts)], tokenizer, tmp_path / "data", workers=1)
    assert report.splits["train"].documents == len(texts) and not report.held_out_fallback


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (FEW, "one document is held out; a larger --held-out or another --seed selects more, --held-out 0 holds"),
        (FEW[:1], "the last sentences of the only document are held out; --held-out 0"),
        (["One sentence."], "nothing is held out: the share is 0, all documents are equal"),
    ],
)
def test_command_prints_what_is_held_out_of_few(tokenizer_directory, tmp_path, capsys, texts, message):
    path = write_jsonl(tmp_path / "raw.jsonl", texts)
    flags = ["--tokenizer", str(tokenizer_directory), "--output", str(tmp_path / "data"), "--workers", "1"]
    assert run(["prepare", str(path), *flags]) == 0
    assert message in " ".join(capsys.readouterr().out.split())


# ---- units, processes and engines ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(documents, tmp_path_factory):
    """Twelve files; some hold no text."""
    folder = tmp_path_factory.mktemp("many") / "corpus"
    folder.mkdir()
    for number in range(12):
        write_jsonl(folder / f"{number:02d}.jsonl", documents[number::12] if number % 5 else [""])
    return folder


UNITS = PreparationSettings(held_out=0.2, shard_bytes=3_000, unit_bytes=12_000)


@pytest.fixture(scope="module")
def at_once(folder, tokenizer, tmp_path_factory):
    output = tmp_path_factory.mktemp("prepared") / "data"
    prepare([folder], tokenizer, output, UNITS, workers=1)
    return directory_content(output)


@pytest.mark.parametrize("workers", [2, 8])
def test_bytes_do_not_depend_on_workers(folder, at_once, tokenizer, tmp_path, workers):
    """Two workers process units; for eight there are too few, so they process batches."""
    prepare([folder], tokenizer, tmp_path / "data", UNITS, workers=workers)
    assert directory_content(tmp_path / "data") == at_once


@pytest.mark.parametrize("workers", ["1", "2"])
def test_killed_preparation_resumes_to_the_same_bytes(folder, tokenizer_directory, at_once, tmp_path, workers):
    """All processes are killed twice, each time after two more shards."""
    output, results = tmp_path / "data", tmp_path / "data.unfinished" / "results"
    command = [*preparation_command(folder, tokenizer_directory, output, UNITS), workers, "processes"]
    kills = 0
    while not output.exists() and kills < 2:
        before = len(list(results.glob("*"))) if results.is_dir() else 0
        process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
        while process.poll() is None and not output.exists():
            if results.is_dir() and len(list(results.glob("*"))) > before + 2:
                os.killpg(process.pid, signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.002)
        process.wait()
    if not output.exists():
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    assert kills >= 1
    assert directory_content(output) == at_once
    verify_directory(output)
    assert not (tmp_path / "data.unfinished").exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_map_in_order_keeps_the_order(workers):
    assert list(map_in_order(abs, range(-9, 0), workers)) == list(range(9, 0, -1))
    assert list(map_in_order(abs, [], workers)) == []


def test_map_in_order_draws_jobs_lazily():
    drawn = []
    results = map_in_order(abs, (drawn.append(number) or number for number in range(100)), 2)
    next(results)
    assert len(drawn) <= 4
    results.close()
    assert multiprocessing.active_children() == []


def test_map_in_order_raises_errors_of_workers():
    with refusal(OutOfResources, "worker process"):
        list(map_in_order(os._exit, range(3), 2))
    with pytest.raises(ValueError, match="invalid literal"):
        list(map_in_order(int, ["1", "2", "x", "4"], 2))
    assert multiprocessing.active_children() == []


# ---- commands over mixed corpora -----------------------------------------------------------------------------------

OPTIONS = ["--text-field", "body", "--documents", "blank-line", "--bad-utf8", "skip"]


@pytest.fixture
def mixed(documents, tmp_path):
    """A text file, JSON lines, a table and a Parquet file: forty documents, and two that are dropped."""
    pa = pytest.importorskip("pyarrow", reason="needs the extra [data]: pyarrow")
    pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra [data]: pyarrow")
    folder = tmp_path / "my corpus"
    folder.mkdir()
    (folder / "a.txt").write_bytes("\n\n".join(documents[:10]).encode() + b"\n\ncaf\xe9")
    lines = [json.dumps({"body": text}) + "\n" for text in [*documents[10:20], None]]
    (folder / "b.ndjson").write_text("".join(lines))
    with open(folder / "c.csv", "w", newline="") as file:
        csv.writer(file).writerows([("id", "body"), *enumerate(documents[20:30])])
    pq.write_table(pa.table({"body": documents[30:40]}), folder / "d.parquet")
    return folder


@pytest.mark.parametrize("workers", ["1", "2"])
def test_every_source_is_counted(mixed, documents, tokenizer_directory, tmp_path, workers, capsys):
    args = [str(mixed), "--tokenizer", str(tokenizer_directory), "--output", str(tmp_path / "data"), *OPTIONS]
    assert run(["prepare", *args, "--workers", workers, "--held-out", "0.3"]) == 0
    output = capsys.readouterr().out
    assert "1 document dropped: not UTF-8" in output and "1 document dropped: null" in output
    description = read_description(tmp_path / "data")
    assert [(source.name, source.documents_in, source.documents_used) for source in description.sources] == [
        ("a.txt", 11, 10),
        ("b.ndjson", 11, 10),
        ("c.csv", 10, 10),
        ("d.parquet", 10, 10),
    ]
    assert description.documents_dropped == {"not UTF-8": 1, "null": 1}
    assert sum(counts.documents for counts in description.counts.values()) == 40
    assert description.bytes_in == sum(source.bytes_in for source in description.sources)
    size = sum(len(text.encode()) for text in documents[:40]) + 10  # line feeds before the blank lines of a.txt
    assert sum(counts.bytes for counts in description.counts.values()) == size


def test_tokenizer_train_takes_the_same_options_and_prints_the_next_command(mixed, tmp_path, capsys):
    args = ["tokenizer", "train", str(mixed), "--output", str(tmp_path / "words"), "--vocab-size", "300", *OPTIONS]
    assert run([*args, "--sentences-as-lines"]) == 0
    output = capsys.readouterr().out
    assert "1 document dropped: not UTF-8" in output
    flags = "--text-field body --documents blank-line --sentences-as-lines --bad-utf8 skip"
    assert f"next: albert prepare '{mixed}' {flags} --tokenizer" in output


def test_an_invalid_language_is_refused_by_both_commands(mixed, tokenizer_directory, tmp_path):
    prepare = ["prepare", "--tokenizer", str(tokenizer_directory)]
    for command in (["tokenizer", "train"], prepare):
        assert run([*command, str(mixed), "--output", str(tmp_path / "data"), "--language", "english"]) == 78
    assert [path.name for path in tmp_path.iterdir()] == [mixed.name]


def test_text_that_the_tokenizer_does_not_know_is_warned_of(tokenizer_directory, tmp_path, capsys):
    (tmp_path / "known.txt").write_text("The sailor saw a ship.\n\nThe storm was long.\n" * 20)
    (tmp_path / "unknown.txt").write_text("中文字的句子。很长的句子。\n\n" * 20, encoding="utf-8")
    for name, expected in (("known", 0), ("unknown", 1)):
        output = str(tmp_path / name)
        command = ["prepare", str(tmp_path / f"{name}.txt"), "--tokenizer", str(tokenizer_directory)]
        assert run([*command, "--output", output, "--workers", "1"]) == 0
        assert capsys.readouterr().out.count("are unknown to the tokenizer") == expected


def table(rows, delimiter, encoding="utf-8", before=""):
    lines = io.StringIO(newline="")
    csv.writer(lines, delimiter=delimiter).writerows(rows)
    return (before + lines.getvalue()).encode(encoding)


def test_a_table_is_read_as_finetune_reads_it(tokenizer_directory, tmp_path, capsys):
    texts = [f'The "old" ship, number {n}; it was déjà vu.\nIt sailed home' for n in range(40)]
    rows = [("id", "text"), *enumerate(texts)]
    objects = [{"id": n, "text": text} for n, text in enumerate(texts)]
    book = openpyxl.Workbook()
    assert book.active is not None
    for row in rows:
        book.active.append(row)
    sheet = io.BytesIO()
    book.save(sheet)
    files = {
        "comma.csv": (table(rows, ","), None),
        "semicolon.csv": (table(rows, ";"), "1 file: columns are separated by ';'"),
        "tab.csv": (table(rows, "\t"), "1 file: columns are separated by a tab"),
        "semicolon.tsv": (table(rows, ";"), "1 file: columns are separated by ';'"),
        "quotes.tsv": (table(rows, "\t"), None),
        "excel.csv": (table(rows, ";", before="sep=;\r\n"), "1 file: the first line says that ';' separates"),
        "windows.csv": (table(rows, ",", "cp1252"), "1 file: the text is not UTF-8: read as cp1252, such as 'déjà'"),
        "utf16.csv": (table(rows, ",", "utf-16"), "1 file: the text is UTF-16"),
        "packed.csv.gz": (gzip.compress(table(rows, ";")), "1 file: columns are separated by ';'"),
        "list.json": (json.dumps(objects).encode(), None),
        "sheet.xlsx": (sheet.getvalue(), None),
    }
    command = ["prepare", "--tokenizer", str(tokenizer_directory), "--workers", "1"]
    tokens = {}
    for name, (data, note) in files.items():
        (tmp_path / name).write_bytes(data)
        capsys.readouterr()
        output = tmp_path / name.replace(".", "-")
        assert run([*command, str(tmp_path / name), "--output", str(output)]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert not re.search("--(encoding|format|delimiter|columns)", said) and "1 file in" in said
        assert note is None or note in said
        tokens[name] = [path.read_bytes() for path in sorted(output.rglob("*.bin"))]
    assert tokens["comma.csv"] and all(each == tokens["comma.csv"] for each in tokens.values())


def test_a_table_that_prepare_cannot_read_names_what_to_write(tokenizer_directory, tmp_path, refused):
    (tmp_path / "two.csv").write_text("a,b;text\n1,2;x\n3,4;y\n")
    (tmp_path / "bad.csv").write_bytes(b"text,n\n" + "é,1\n".encode() * 9 + b"\xff\xfe \xff,1\n")
    for name, code in (("two.csv", 2), ("bad.csv", 65)):
        command = ["prepare", tmp_path / name, "--tokenizer", tokenizer_directory, "--output", tmp_path / "o"]
        said = refused(command, code, name)
        assert "save it in UTF-8 with commas, or as JSON lines" in said and "--" not in said
