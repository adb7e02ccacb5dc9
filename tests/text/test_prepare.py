"""Preparing a corpus: bytes, counts, estimates, copies and worker processes."""

import errno
import json
import multiprocessing
import os
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.cli.main import run
from albert.runtime.errors import CannotCreate, DamagedData, InvalidConfiguration, MissingInput, OutOfResources
from albert.runtime.files import make_directory, new_directory
from albert.text import prepare as preparation_estimate
from albert.text import shards
from albert.text.corpus import find_corpus_files
from albert.text.executors import PreparationSettings, held_out_key, is_held_out, map_in_order
from albert.text.prepare import estimate_preparation, prepare
from albert.text.sentences import split_sentences
from albert.text.shards import TokenCorpus, token_type
from albert.text.tokenizer import byte_fingerprint

# --------------------------------------------------------------------------------------------------------------------
# Preparation: the same bytes whatever the workers, a split that nothing moves, counts that add up.


def write_corpus(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def content(directory: Path) -> dict[str, bytes]:
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def documents_of(corpus: TokenCorpus) -> list[list[list[int]]]:
    starts = corpus.sentence_starts
    return [
        [corpus.read(int(starts[i]), int(starts[i + 1])).tolist() for i in range(first, last)]
        for first, last in zip(corpus.document_starts[:-1], corpus.document_starts[1:], strict=True)
    ]


@pytest.fixture(scope="module")
def corpus_file(documents, tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", documents)


@pytest.fixture(scope="module")
def prepared(corpus_file, tokenizer, tmp_path_factory):
    output = tmp_path_factory.mktemp("prepared") / "data"
    report = prepare(
        [corpus_file], tokenizer, output, workers=1, settings=PreparationSettings(held_out=0.2, shard_bytes=10_000)
    )
    return output, report


def test_tokens_are_those_of_the_sentences(prepared, documents, tokenizer):
    directory, _ = prepared
    expected = {"train": [], "held_out": []}
    for text in documents:
        sentences = [tokenizer.encode(sentence) for sentence in split_sentences(text)]
        expected["held_out" if is_held_out(held_out_key(text, 0), 0.2) else "train"].append(sentences)
    for split in ("train", "held_out"):
        corpus = TokenCorpus.open(directory, split)
        assert documents_of(corpus) == expected[split]
        assert corpus.n_documents == len(expected[split]) > 0
        assert corpus.sentence_starts[-1] == corpus.n_tokens
        assert corpus.document_starts[-1] == corpus.n_sentences
        assert corpus.tokenizer().fingerprint == corpus.tokenizer_fingerprint == tokenizer.fingerprint
        assert corpus.vocab_size == tokenizer.vocab_size


def test_a_corpus_with_a_fingerprint_of_before_opens(prepared, tokenizer, tmp_path):
    shutil.copytree(prepared[0], tmp_path / "data")
    path = tmp_path / "data" / "corpus.json"
    for recorded, opens in [(byte_fingerprint(tokenizer.model, True, False), True), ("0" * 64, False)]:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_fingerprint": recorded}))
        if opens:
            corpus = TokenCorpus.open(tmp_path / "data", verify=False)
            assert corpus.tokenizer_fingerprint == tokenizer.fingerprint
        else:
            with pytest.raises(DamagedData, match="tokenizer files are not those"):
                TokenCorpus.open(tmp_path / "data", verify=False)


def test_split_does_not_depend_on_order_or_workers(documents, tokenizer, tmp_path):
    shuffled = documents.copy()
    random.Random(3).shuffle(shuffled)
    splits = []
    for name, texts, workers in (("a", documents, 1), ("b", shuffled, 2)):
        path = write_corpus(tmp_path / f"{name}.jsonl", texts)
        prepare(
            [path],
            tokenizer,
            tmp_path / name,
            workers=workers,
            settings=PreparationSettings(held_out=0.3, shard_bytes=20_000),
        )
        splits.append(sorted(documents_of(TokenCorpus.open(tmp_path / name, "held_out"))))
    assert splits[0] == splits[1]


def test_equal_texts_land_on_one_side(documents, tokenizer, tmp_path):
    path = write_corpus(tmp_path / "twice.jsonl", documents + documents)
    prepare([path], tokenizer, tmp_path / "data", PreparationSettings(held_out=0.3), workers=1)
    sides = [
        {str(d) for d in documents_of(TokenCorpus.open(tmp_path / "data", split))} for split in ("train", "held_out")
    ]
    assert not sides[0] & sides[1]


def test_the_held_out_share_and_seed_are_respected():
    texts = [f"This is text {number}." for number in range(4000)]
    chosen = [{text for text in texts if is_held_out(held_out_key(text, seed), 0.25)} for seed in (0, 1)]
    assert all(900 < len(side) < 1100 for side in chosen)
    assert chosen[0] != chosen[1]
    assert {text for text in texts if is_held_out(held_out_key(text, 0), 0.1)} < chosen[0]


def test_reading_across_shards_gives_every_token(prepared):
    corpus = TokenCorpus.open(prepared[0])
    everything = corpus.read(0, corpus.n_tokens)
    assert len(everything) == corpus.n_tokens
    assert everything.dtype == np.int64
    numbers = np.random.default_rng(0)
    for start, stop in np.sort(numbers.integers(0, corpus.n_tokens + 1, (200, 2)), axis=1).tolist():
        assert (corpus.read(start, stop) == everything[start:stop]).all()
    for start, stop in ((-1, 2), (5, 4), (0, corpus.n_tokens + 1)):
        with pytest.raises(IndexError):
            corpus.read(start, stop)


def test_counts_add_up(documents, tokenizer, tmp_path):
    texts = [*documents[:40], "", " \n ", "\u0301", "\u200b"]
    report = prepare(
        [write_corpus(tmp_path / "a.jsonl", texts)],
        tokenizer,
        tmp_path / "data",
        workers=1,
        settings=PreparationSettings(held_out=0.2),
    )
    kept = sum(counts.documents for counts in report.splits.values())
    assert report.documents_dropped == {"empty": 2, "no tokens": 2}
    assert report.documents_in == kept + 4 == len(texts)
    kept_bytes = sum(counts.bytes for counts in report.splits.values())
    assert report.bytes_in == kept_bytes + sum(report.bytes_dropped.values()) == sum(len(t.encode()) for t in texts)
    for split, counts in report.splits.items():
        corpus = TokenCorpus.open(tmp_path / "data", split)
        assert (corpus.n_documents, corpus.n_sentences, corpus.n_tokens) == (
            counts.documents,
            counts.sentences,
            counts.tokens,
        )
        unknown = int((corpus.read(0, corpus.n_tokens) == tokenizer.unk_id).sum())
        assert counts.unknown_tokens == unknown
        assert corpus.description.counts[split] == counts


def test_the_smallest_type_that_fits_is_used():
    assert [token_type(size).name for size in (300, 65_535, 65_536, 65_537, 10**6)] == ["uint16"] * 3 + ["uint32"] * 2


def test_an_existing_output_is_refused_unless_replaced(prepared, corpus_file, tokenizer):
    directory, _ = prepared
    before = content(directory)
    with pytest.raises(CannotCreate, match="exists already"):
        prepare([corpus_file], tokenizer, directory, PreparationSettings(held_out=0.2), workers=1)
    assert content(directory) == before
    prepare(
        [corpus_file],
        tokenizer,
        directory,
        workers=1,
        replace=True,
        settings=PreparationSettings(held_out=0.2, shard_bytes=10_000),
    )
    assert content(directory) == before


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_line_loses_no_finished_shard(documents, tokenizer, tmp_path, workers):
    path = write_corpus(tmp_path / "a.jsonl", documents)
    good = path.read_text()
    settings = PreparationSettings(shard_bytes=20_000)
    prepare([path], tokenizer, tmp_path / "at once", settings, workers=1)
    path.write_text(good + "broken\n")
    with pytest.raises(DamagedData, match=r"a\.jsonl:151: is not JSON"):
        prepare([path], tokenizer, tmp_path / "data", settings, workers=workers)
    assert {p.name for p in tmp_path.iterdir()} == {"a.jsonl", "at once", "data.unfinished"}
    path.write_text(good)
    report = prepare([path], tokenizer, tmp_path / "data", settings, workers=workers)
    assert report.shards_found >= 2
    assert content(tmp_path / "data") == content(tmp_path / "at once")
    assert {p.name for p in tmp_path.iterdir()} == {"a.jsonl", "at once", "data"}


@pytest.mark.parametrize("kept", [True, False])
def test_a_full_disk_names_the_file_and_what_is_kept(documents, tokenizer, tmp_path, monkeypatch, capsys, kept):
    """With a shard finished before, the work stays; else nothing does, and nothing is said of it."""
    path, output = write_corpus(tmp_path / "a.jsonl", documents), tmp_path / "data"
    make_directory(tmp_path / "tokenizer")
    tokenizer.save(tmp_path / "tokenizer")
    replace, full = os.replace, "00000-00001" if kept else "00000-00000"

    def fills_up(source, target):
        if Path(target).name.startswith(full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", fills_up)
    words = ["prepare", path, "--tokenizer", tmp_path / "tokenizer", "--output", output, "--workers", "1"]
    code = run([*map(str, words), "--shard-megabytes", "0.02"])
    said, work = capsys.readouterr().err, tmp_path / "data.unfinished"
    named = re.search(re.escape(f"{work}/train/{full}.") + r"\w+\.bin: No space left on device; (.*)\n$", said)
    assert code == 74 and named, said
    assert work.exists() == kept
    assert named[1] == (
        f"free space and run the same command, which resumes from {work}"
        if kept
        else "free space or choose another disk"
    )


def test_what_a_kill_after_the_last_moment_left_goes_with_the_next_command(corpus_file, tokenizer, tmp_path):
    """The corpus was whole, the work that it was made of half removed."""
    prepare([corpus_file], tokenizer, tmp_path / "data", workers=1)
    (tmp_path / ".data.unfinished.tmp-0123abcd" / "train").mkdir(parents=True)
    with pytest.raises(CannotCreate, match="exists already"):
        prepare([corpus_file], tokenizer, tmp_path / "data", workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_unfinished_work_of_other_settings_is_not_mixed_in(documents, tokenizer, tmp_path):
    path = write_corpus(tmp_path / "a.jsonl", documents)
    path.write_text(path.read_text() + "broken\n")
    with pytest.raises(DamagedData):
        prepare([path], tokenizer, tmp_path / "data", PreparationSettings(shard_bytes=20_000), workers=1)
    with pytest.raises(CannotCreate, match="shard_bytes 20000 .now 30000."):
        prepare([path], tokenizer, tmp_path / "data", PreparationSettings(shard_bytes=30_000), workers=1)


@pytest.mark.parametrize("values", [{"held_out": 1.0}, {"held_out": -0.1}, {"shard_bytes": 0}])
def test_impossible_settings_are_refused(corpus_file, tokenizer, tmp_path, values):
    with pytest.raises(InvalidConfiguration, match="out of range"):
        prepare([corpus_file], tokenizer, tmp_path / "data", PreparationSettings(**values), workers=1)


def test_a_corpus_without_a_token_is_refused(tokenizer, tmp_path):
    path = write_corpus(tmp_path / "a.jsonl", ["\u0301"])
    with pytest.raises(MissingInput, match="not one token"):
        prepare([path], tokenizer, tmp_path / "data", workers=1)
    assert not (tmp_path / "data").exists()


def test_a_split_without_documents_is_missing(corpus_file, tokenizer, tmp_path):
    prepare([corpus_file], tokenizer, tmp_path / "data", PreparationSettings(held_out=0.0), workers=1)
    with pytest.raises(MissingInput, match="holds no held_out documents"):
        TokenCorpus.open(tmp_path / "data", "held_out")


@pytest.fixture
def copy_of_prepared(corpus_file, tokenizer, tmp_path):
    prepare([corpus_file], tokenizer, tmp_path / "data", PreparationSettings(held_out=0.2), workers=1)
    return tmp_path / "data"


@pytest.mark.parametrize(
    "name",
    [
        "corpus.json",
        "spiece.model",
        "train/00000-00000.tokens.bin",
        "train/00000-00000.sentences.npy",
        "held_out/00000-00000.documents.npy",
    ],
)
def test_a_changed_byte_is_found(copy_of_prepared, name):
    path = copy_of_prepared / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(DamagedData, match=path.name):
        TokenCorpus.open(copy_of_prepared)


@pytest.mark.parametrize(
    "name", ["train/00000-00000.tokens.bin", "train/00000-00000.sentences.npy", "train/00000-00000.documents.npy"]
)
def test_a_cut_file_is_found_even_without_hashes(copy_of_prepared, name):
    path = copy_of_prepared / name
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(DamagedData, match=path.name):
        TokenCorpus.open(copy_of_prepared, verify=False)


def test_a_foreign_tokenizer_is_found_even_without_hashes(copy_of_prepared):
    foreign = copy_of_prepared.parent / "foreign"
    with new_directory(foreign) as directory:  # whole by its manifest
        shutil.copytree(copy_of_prepared, directory, dirs_exist_ok=True)
        (directory / "MANIFEST.json").unlink()
        config = directory / "tokenizer_config.json"
        config.write_text(config.read_text().replace('"keep_accents": false', '"keep_accents": true'))
    with pytest.raises(DamagedData, match="tokenizer files are not those"):
        TokenCorpus.open(foreign, verify=False)


FEW = ["One stood here. Two came by. Three went on.", "Four sat down. Five got up.", "Six spoke. Seven heard it."]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("shard_bytes", [10, 10_000])
def test_of_few_documents_the_one_with_the_lowest_key_is_held_out(tokenizer, tmp_path, workers, shard_bytes):
    path = write_corpus(tmp_path / "raw.jsonl", FEW)
    settings = PreparationSettings(shard_bytes=shard_bytes)
    assert not any(is_held_out(held_out_key(text, 0), settings.held_out) for text in FEW)
    report = prepare([path], tokenizer, tmp_path / "data", settings, workers=workers)
    assert report.held_out_fallback == "document"
    chosen = min(FEW, key=lambda text: held_out_key(text, 0))
    for split, texts in (("held_out", [chosen]), ("train", [text for text in FEW if text != chosen])):
        expected = [[tokenizer.encode(s) for s in split_sentences(text)] for text in texts]
        assert documents_of(TokenCorpus.open(tmp_path / "data", split)) == expected
    counts = report.splits
    assert (counts["train"].documents, counts["held_out"].documents) == (2, 1)
    assert counts["train"].bytes + counts["held_out"].bytes == report.bytes_in
    again = prepare([path], tokenizer, tmp_path / "none", PreparationSettings(held_out=0.0), workers=1)
    assert again.splits["held_out"].documents == 0 and not again.held_out_fallback


def test_of_a_single_document_the_last_sentences_are_held_out(tokenizer, tmp_path):
    text = " ".join(f"Sentence number {word} stands here." for word in ("one", "two", "three", "four", "five"))
    path = write_corpus(tmp_path / "raw.jsonl", [text])
    report = prepare([path], tokenizer, tmp_path / "data", PreparationSettings(), workers=1)
    assert report.held_out_fallback == "sentences" and report.documents_in == 1
    sentences = [tokenizer.encode(sentence) for sentence in split_sentences(text)]
    assert documents_of(TokenCorpus.open(tmp_path / "data", "train")) == [sentences[:3]]
    assert documents_of(TokenCorpus.open(tmp_path / "data", "held_out")) == [sentences[3:]]
    splits = report.splits.values()
    assert sum(split.bytes for split in splits) == report.bytes_in
    assert sum(split.sentences for split in splits) == 5
    report = prepare([path], tokenizer, tmp_path / "half", PreparationSettings(held_out=0.9), workers=1)
    assert report.splits["train"].sentences in (0, 3)


@pytest.mark.parametrize("texts", [["A single sentence."], ["Equal texts. Are one."] * 3])
def test_what_cannot_be_divided_is_for_training(tokenizer, tmp_path, texts):
    report = prepare([write_corpus(tmp_path / "raw.jsonl", texts)], tokenizer, tmp_path / "data", workers=1)
    assert report.splits["train"].documents == len(texts) and not report.held_out_fallback


def test_a_corpus_that_holds_something_out_is_added_to_as_it_comes(tokenizer, tmp_path):
    prepare([write_corpus(tmp_path / "raw.jsonl", FEW)], tokenizer, tmp_path / "data", workers=1)
    more = write_corpus(tmp_path / "more.jsonl", ["Eight is more. Nine is enough.", "Ten left. Eleven stayed."])
    report = prepare([more], tokenizer, tmp_path / "data", workers=1, append=True)
    assert report.splits["train"].documents == 2 and not report.held_out_fallback


def test_the_command_says_what_is_held_out_of_few_documents(tokenizer, tmp_path, capsys):
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(tmp_path / "tokenizer")
    for name, texts, said in (
        ("few", FEW, "one document is held out; --held-out 0 holds out nothing"),
        ("one", FEW[:1], "the last sentences of the only document are; --held-out 0"),
        ("single", ["One sentence."], "nothing is held out: the share is 0, or there is a single sentence"),
    ):
        path = write_corpus(tmp_path / f"{name}.jsonl", texts)
        flags = ["--tokenizer", str(tmp_path / "tokenizer"), "--output", str(tmp_path / name), "--workers", "1"]
        assert run(["prepare", str(path), *flags]) == 0
        assert said in " ".join(capsys.readouterr().out.split())


# --------------------------------------------------------------------------------------------------------------------
# A plan tells what preparation will find, and writes nothing.


@pytest.fixture
def folder(documents, tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(6):
        lines = (json.dumps({"text": text}) + "\n" for text in documents[number::6])
        (folder / f"{number}.jsonl").write_text("".join(lines))
    return folder


def test_a_corpus_within_the_sample_is_told_exactly(folder, tokenizer, tmp_path):
    estimate = estimate_preparation(find_corpus_files([folder])[0], tokenizer, PreparationSettings(), 1)
    report = prepare([folder], tokenizer, tmp_path / "data", workers=1)
    assert estimate.files == 6
    assert round(estimate.documents) == report.documents_in
    assert round(estimate.text_bytes) == report.bytes_in
    assert round(estimate.tokens) == sum(counts.tokens for counts in report.splits.values())
    assert round(estimate.sentences) == sum(counts.sentences for counts in report.splits.values())
    written = sum(p.stat().st_size for split in ("train", "held_out") for p in (tmp_path / "data" / split).iterdir())
    assert estimate.output_bytes == pytest.approx(written, rel=0.05)  # the headers of the arrays


def test_a_larger_corpus_is_told_from_its_files_beginnings(folder, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(preparation_estimate, "SAMPLE_BYTES", 60_000)
    estimate = estimate_preparation(find_corpus_files([folder])[0], tokenizer, PreparationSettings(), 1)
    report = prepare([folder], tokenizer, tmp_path / "data", workers=1)
    assert estimate.sample_bytes < report.bytes_in
    assert estimate.tokens == pytest.approx(sum(c.tokens for c in report.splits.values()), rel=0.5)


def test_the_plan_is_a_flag_and_writes_nothing(folder, tokenizer, tmp_path, capsys):
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(tmp_path / "tokenizer")
    words = [str(folder), "--tokenizer", str(tmp_path / "tokenizer"), "--output", str(tmp_path / "data"), "--plan"]
    assert run(["prepare", *words]) == 0
    printed = capsys.readouterr().out
    assert "nothing is written" in printed
    assert "epochs" in printed
    assert {p.name for p in tmp_path.iterdir()} == {"corpus", "tokenizer"}


def test_a_sample_without_text_is_refused(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text(" \n")
    with pytest.raises(MissingInput, match="no text"):
        estimate_preparation(find_corpus_files([tmp_path])[0], tokenizer, PreparationSettings(), 1)


# --------------------------------------------------------------------------------------------------------------------
# Many runs of tokens at once, wherever shards end, whatever is mapped.


@pytest.fixture(scope="module")
def corpus(documents, tokenizer, tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    (place / "raw").mkdir()
    for number, text in enumerate(documents[:60]):
        (place / "raw" / f"{number:03d}.txt").write_text(text, encoding="utf-8")
    prepare([place / "raw"], tokenizer, place / "data", PreparationSettings(held_out=0.0, shard_bytes=5_000), workers=1)
    return TokenCorpus.open(place / "data")


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20))
def test_runs_are_copied_to_their_places(corpus, bounds):
    assert corpus.n_shards > 4
    everything = corpus.read(0, corpus.n_tokens)
    starts, ends = np.sort(np.array(bounds) * corpus.n_tokens, axis=1).astype(np.int64).T
    lengths = ends - starts
    places = np.cumsum(lengths + 1) - lengths
    out = np.full(int((lengths + 1).sum()) + 1, -1)
    corpus.copy_runs(out, places, starts, lengths)
    expected = np.full_like(out, -1)
    for place, start, end in zip(places, starts, ends, strict=True):
        expected[place : place + end - start] = everything[start:end]
    assert (out == expected).all()


def test_no_more_shards_are_mapped_than_allowed(corpus, monkeypatch):
    monkeypatch.setattr(shards, "OPEN_SHARDS", 2)
    everything = corpus.read(0, corpus.n_tokens)
    assert len(corpus._mapped) <= max(2, corpus.n_shards)
    fresh = TokenCorpus.open(corpus.directory)
    for place in np.linspace(0, corpus.n_tokens - 5, 40).astype(int).tolist():
        assert (fresh.read(place, place + 5) == everything[place : place + 5]).all()
        assert len(fresh._mapped) <= 2


# --------------------------------------------------------------------------------------------------------------------
# Processes: results in order, and a killed one is said so.


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_jobs(workers):
    assert list(map_in_order(abs, range(-9, 0), workers)) == list(range(9, 0, -1))
    assert list(map_in_order(abs, [], workers)) == []


def test_jobs_are_drawn_only_as_results_are_taken():
    drawn = []
    results = map_in_order(abs, (drawn.append(number) or number for number in range(100)), 2)
    next(results)
    assert len(drawn) <= 4
    results.close()
    assert multiprocessing.active_children() == []


def test_a_killed_process_is_named():
    with pytest.raises(OutOfResources, match="worker process: was killed"):
        list(map_in_order(os._exit, range(3), 2))


def test_what_fails_in_a_process_fails_here():
    with pytest.raises(ValueError, match="invalid literal"):
        list(map_in_order(int, ["1", "2", "x", "4"], 2))
    assert multiprocessing.active_children() == []
