"""Documents that come again are left out: all of them, nothing else, and the same ones whoever looks."""

import contextlib
import itertools
import json
import pkgutil
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    DroppedDuplicates,
    Fingerprints,
    drop_duplicates,
    find_duplicates,
    minhash_signatures,
    shingle_hashes,
    split_words,
    text_hash,
)
from albert.text.executors import KEPT_NAME, ExecutorOptions, PreparationSettings, UnitJob, plan_units, read_unit
from albert.text.prepare import estimate_preparation, merge_corpora, prepare
from albert.text.readers import CorpusReport
from albert.text.shards import DUPLICATES_NAME, TokenCorpus

pytest.importorskip("rensa", reason="the extra `duplicates` is not installed")


def content(directory):
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def texts_of(count, seed):
    """Documents of 100 to 300 words out of 5,000, that have hardly a run in common."""
    numbers = random.Random(seed)
    words = ["".join(numbers.choices("abcdefghijklmnopqrstuvwxyz", k=numbers.randint(2, 9))) for _ in range(5000)]
    return [" ".join(numbers.choices(words, k=numbers.randint(100, 300))) + "." for _ in range(count)]


def changed(text, share, seed=0):
    """The text with a share of its words, next to each other, replaced: of n runs about share * n become others."""
    words = text.split()
    count = round(share * len(words))
    start = random.Random(seed).randrange(len(words) - count)
    return " ".join([*words[:start], *(f"other{i}" for i in range(count)), *words[start + count :]])


@pytest.fixture(scope="module")
def planted():
    """A corpus of texts, and for what comes again: its number, and that of what stays."""
    texts = texts_of(120, 1)
    equal, near = {}, {}
    numbers = random.Random(2)
    for original in numbers.sample(range(120), 12):
        equal[len(texts)] = original
        texts.append("  " + texts[original].replace(" ", numbers.choice([" ", "\n", " \t"])))
    for original in numbers.sample(range(120), 12):
        near[len(texts)] = original
        texts.append(changed(texts[original].upper(), 0.03, original) + " !")
    for original in numbers.sample(range(120), 12):  # half of it is the same: these stay
        texts.append(changed(texts[original], 0.5, original))
    return texts, equal, near


@pytest.fixture(scope="module")
def folder(planted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted") / "corpus"
    folder.mkdir()
    for number in range(12):
        lines = [json.dumps({"text": text}) + "\n" for text in planted[0][number * 13 : number * 13 + 13]]
        (folder / f"{number:02d}.jsonl").write_text("".join(lines))
    assert number * 13 + 13 >= len(planted[0])
    return folder


def settings(duplicates, **others):
    return PreparationSettings(held_out=0.0, shard_bytes=16_000, unit_bytes=15_000, duplicates=duplicates, **others)


@pytest.fixture(scope="module")
def prepared(folder, tokenizer, tmp_path_factory):
    """The corpus and the report, for exact and near duplicates."""
    place = tmp_path_factory.mktemp("prepared")
    return {
        kind: (place / kind, prepare([folder], tokenizer, place / kind, settings(kind), workers=1))
        for kind in ("keep", "exact", "near")
    }


def expected_tokens(texts, left_out, tokenizer):
    return [n for number, text in enumerate(texts) if number not in left_out for n in tokenizer.encode(text)]


@pytest.mark.parametrize("kind", ["exact", "near"])
def test_what_comes_again_is_left_out_and_nothing_else(planted, prepared, tokenizer, kind):
    texts, equal, near = planted
    left_out = equal if kind == "exact" else equal | near
    corpus = TokenCorpus.open(prepared[kind][0])
    assert corpus.read(0, corpus.n_tokens).tolist() == expected_tokens(texts, left_out, tokenizer)
    verify_directory(prepared[kind][0])


@pytest.mark.parametrize("kind", ["exact", "near"])
def test_counts_add_up(planted, prepared, kind):
    texts, equal, near = planted
    directory, report = prepared[kind]
    expected = {EXACT_DUPLICATE: equal} | ({NEAR_DUPLICATE: near} if kind == "near" else {})
    sizes = {reason: sum(len(texts[number]) for number in numbers) for reason, numbers in expected.items()}
    assert report.documents_dropped == {reason: len(numbers) for reason, numbers in expected.items()}
    assert report.bytes_dropped == sizes
    assert report.documents_in == len(texts) == report.splits["train"].documents + sum(map(len, expected.values()))
    assert report.bytes_in == sum(map(len, texts)) == report.splits["train"].bytes + sum(sizes.values())
    description = TokenCorpus.open(directory).description
    assert description.documents_dropped == report.documents_dropped
    assert description.bytes_dropped == report.bytes_dropped
    assert ("rensa" in description.versions) == (kind == "near")


def test_what_was_left_out_can_be_looked_at(planted, prepared, folder):
    texts, equal, near = planted
    directory, report = prepared["near"]
    lines = [json.loads(line) for line in (directory / DUPLICATES_NAME).read_text().splitlines()]
    assert len(lines) == report.duplicates_shown == len(equal) + len(near)
    places = [f"{number // 13:02d}.jsonl:{number % 13 + 1}" for number in range(len(texts))]
    pairs = {(line["left_out"], line["stays"]) for line in lines}
    assert pairs == {(places[number], places[other]) for number, other in (equal | near).items()}
    similarities = [line["similarity"] for line in lines]
    assert similarities == sorted(similarities)
    assert (similarities[0] >= 0.8, similarities[-1]) == (True, 1.0)
    begins = {line["left_out"]: line["left_out_begins"] for line in lines}
    assert all(" ".join(texts[number].split()).startswith(begins[places[number]]) for number in equal)
    assert not (prepared["keep"][0] / DUPLICATES_NAME).exists()


@pytest.mark.parametrize("workers", [2, 4])
def test_the_same_ones_are_left_out_whoever_looks(prepared, folder, tokenizer, tmp_path, workers):
    """With 2 workers whole units are shared out, with 4 there are too few of them."""
    prepare([folder], tokenizer, tmp_path / "data", settings("near"), workers=workers)
    assert content(tmp_path / "data") == content(prepared["near"][0])


def test_a_cluster_looks_for_them_too(prepared, folder, tokenizer, tmp_path):
    pytest.importorskip("datatrove", reason="the extra `corpus` is not installed")
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(tmp_path / "tokenizer")
    (tmp_path / "prepare_it.py").write_text(
        "from pathlib import Path\n"
        "from albert.text.prepare import prepare\n"
        "from albert.text.tokenizer_loading import load_tokenizer\n"
        "from albert.text.executors import PreparationSettings\n"
        f"settings = PreparationSettings(**{vars(settings('near'))})\n"
        "if __name__ == '__main__':\n"
        f"    tokenizer = load_tokenizer(Path({str(tmp_path / 'tokenizer')!r}))\n"
        f"    output = Path({str(tmp_path / 'data')!r})\n"
        f"    prepare([Path({str(folder)!r})], tokenizer, output, settings, workers=2, engine='datatrove')\n"
    )
    subprocess.run([sys.executable, str(tmp_path / "prepare_it.py")], check=True, capture_output=True)
    assert content(tmp_path / "data") == content(prepared["near"][0])


class Stopped(Exception):
    pass


@pytest.mark.parametrize("stage", ["albert.text.duplicates.FINGERPRINTING", "albert.text.prepare.ENCODING"])
def test_a_stopped_search_goes_on_to_the_same_bytes(prepared, folder, tokenizer, tmp_path, monkeypatch, stage):
    """Stopped at every fourth batch until it comes to its end; nothing is done twice."""
    done = []

    def until_the_fourth(batch):
        done.append(batch.name)
        if len(done) % 4 == 0:
            raise Stopped
        return whole.work(batch)

    whole = pkgutil.resolve_name(stage.replace(".F", ":F").replace(".E", ":E"))
    monkeypatch.setattr(stage, replace(whole, work=until_the_fourth))
    while not (tmp_path / "data").exists():
        with contextlib.suppress(Stopped):
            prepare([folder], tokenizer, tmp_path / "data", settings("near"), workers=1)
    finished = [name for number, name in enumerate(done, start=1) if number % 4]
    assert len(finished) == len(set(finished)) > 8
    assert content(tmp_path / "data") == content(prepared["near"][0])


def test_a_file_that_changes_after_a_stop_is_looked_at_again(folder, tokenizer, tmp_path, monkeypatch):
    """The first file is emptied of what others repeat, so that these stay."""
    shutil.copytree(folder, tmp_path / "corpus")
    monkeypatch.setattr("albert.text.prepare.assemble", lambda *_: (_ for _ in ()).throw(Stopped))
    with pytest.raises(Stopped):
        prepare([tmp_path / "corpus"], tokenizer, tmp_path / "data", settings("near"), workers=1)
    monkeypatch.undo()
    changed_file = tmp_path / "corpus" / "00.jsonl"
    changed_file.write_text(json.dumps({"text": "Nothing that others say."}) + "\n")
    prepare([tmp_path / "corpus"], tokenizer, tmp_path / "data", settings("near"), workers=1)
    prepare([tmp_path / "corpus"], tokenizer, tmp_path / "at once", settings("near"), workers=1)
    assert content(tmp_path / "data") == content(tmp_path / "at once")


def test_signatures_of_two_versions_are_not_compared(folder, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("albert.text.prepare.assemble", lambda *_: (_ for _ in ()).throw(Stopped))
    with pytest.raises(Stopped):
        prepare([folder], tokenizer, tmp_path / "data", settings("near"), workers=1)
    monkeypatch.setattr("albert.text.prepare.version", lambda name: "9.9" if name == "rensa" else version(name))
    with pytest.raises(CannotCreate, match=r"rensa .* \(now 9\.9\)"):
        prepare([folder], tokenizer, tmp_path / "data", settings("near"), workers=1)


def test_other_documents_than_those_that_were_compared_are_refused(folder, tokenizer, tmp_path):
    unit = plan_units(find_corpus_files([folder])[0], 15_000)[0]
    job = UnitJob(unit, settings("exact"), tokenizer, tmp_path, dropped="some")
    (tmp_path / "fingerprints").mkdir()
    for count in (1, 10_000):
        np.save(tmp_path / KEPT_NAME.format(job.name), np.ones(count, dtype=bool))
        with pytest.raises(DamagedData, match="when duplicates were searched"):
            list(read_unit(job, CorpusReport()))


def test_merged_corpora_show_what_each_left_out(prepared, tmp_path):
    directory = prepared["near"][0]
    merge_corpora([directory, prepared["keep"][0], directory], tmp_path / "both")
    assert (tmp_path / "both" / DUPLICATES_NAME).read_bytes() == 2 * (directory / DUPLICATES_NAME).read_bytes()
    verify_directory(tmp_path / "both")


def test_a_link_in_a_chain_stays_unless_it_is_like_one_that_stays(tokenizer, tmp_path):
    """b is like a, and c like b, but not like a: b goes, and nothing that stays is like c."""
    a = texts_of(1, 5)[0]
    words = a.split()
    b = " ".join([*(f"x{i}" for i in range(round(0.08 * len(words)))), *words[round(0.08 * len(words)) :]])
    c = " ".join([*b.split()[: -round(0.08 * len(words))], *(f"y{i}" for i in range(round(0.08 * len(words))))])
    similar = minhash_signatures([a, b, c])
    assert (similar[0] == similar[1]).mean() >= 0.8 <= (similar[1] == similar[2]).mean()
    assert (similar[0] == similar[2]).mean() < 0.8
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in (a, b, c)))
    prepare([tmp_path / "a.jsonl"], tokenizer, tmp_path / "data", settings("near"), workers=1)
    corpus = TokenCorpus.open(tmp_path / "data")
    assert corpus.read(0, corpus.n_tokens).tolist() == tokenizer.encode(a) + tokenizer.encode(c)


def write_fingerprints(directory, keys, signatures, bands):
    """As `fingerprint` writes them, three documents a batch."""
    (directory / "fingerprints").mkdir(exist_ok=True)
    batches = []
    for number, start in enumerate(range(0, len(keys), 3)):
        batches.append(Fingerprints(f"00000-{number:05d}", "", len(keys[start : start + 3]), {}))
        np.save(directory / KEYS_NAME.format(batches[-1].name), keys[start : start + 3])
        np.save(directory / BANDS_NAME.format(batches[-1].name), bands[:, start : start + 3])
        np.save(directory / SIGNATURES_NAME.format(batches[-1].name), signatures[start : start + 3])
    return batches


@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.integers(1, 8))
def test_whatever_is_left_out_is_like_an_earlier_one_that_stays(tmp_path_factory, seed, count, kinds):
    """Documents of few kinds, so that everything happens: equal keys, chains, bands that agree by chance."""
    numbers = np.random.default_rng(seed)
    keys = np.column_stack([numbers.integers(0, kinds * 4, (count, 1)).repeat(2, axis=1), np.ones(count)])
    prototypes = numbers.integers(0, 3, (kinds, 10))
    signatures = prototypes[numbers.integers(0, kinds, count)]
    signatures[numbers.random(signatures.shape) < 0.12] = 7
    bands = signatures.reshape(count, 5, 2).astype(np.uint32)
    place = tmp_path_factory.mktemp("fingerprints")
    arrays = keys.astype(np.uint64), signatures.astype(np.uint16), (bands[..., 0] * 8 + bands[..., 1]).T
    batches = write_fingerprints(place, *arrays)
    for near in (False, True):
        found = find_duplicates(batches, place, near)
        for number, other in enumerate(found.representative.tolist()):
            key = keys[number, 0]
            equals = np.flatnonzero(keys[:number, 0] == key)
            assert found.equal[number] == (len(equals) > 0)
            alike = float((signatures[number] == signatures[other]).mean())
            if number == other:
                assert len(equals) == 0
            else:
                assert other < number and found.representative[other] == other
                assert near or other == equals[0]
                assert alike >= 0.8 or found.equal[number]


@given(st.text(st.characters(codec="utf-8")))
def test_words_are_the_same_whether_the_text_is_ascii_or_not(text):
    plain = text.encode("ascii", "replace").decode()
    assert (
        split_words(plain) == split_words(plain + "é")[: len(split_words(plain))]
        or plain[-1:].isalnum()
        or "_" in plain[-1:]
    )
    assert split_words(text + " é") == [*split_words(text), "é".encode()] or not text.isascii()


def test_an_ideograph_is_a_word():
    assert [word.decode() for word in split_words("ABC中国人, Ünder_1!")] == ["abc", "中", "国", "人", "ünder_1"]


@pytest.mark.parametrize("share", [0.02, 0.2, 0.6])
def test_signatures_estimate_how_much_two_texts_have_in_common(share):
    errors = []
    for number, text in enumerate(texts_of(100, 3)):
        other = changed(text, share, number)
        ones, others = (set(shingle_hashes(t).tolist()) for t in (text, other))
        exact = len(ones & others) / len(ones | others)
        signatures = minhash_signatures([text, other])
        errors.append(((signatures[0] == signatures[1]).mean() - exact) / np.sqrt(exact * (1 - exact) / 128))
    assert abs(np.mean(errors)) < 0.4  # four standard errors of a mean of 100
    assert np.std(errors) < 1.3


def test_case_and_accents_make_another_text_and_white_space_does_not():
    assert text_hash(" a  b\n\tc\u2003") == text_hash("a b c")
    assert len({text_hash(text) for text in ("a b c", "A b c", "á b c", "a b, c", "ab c")}) == 5


def test_documents_without_words_are_alike_to_their_equals_alone():
    signatures = minhash_signatures(["***", "* * *", "", "***", "…"])
    alike = (signatures[:, None] == signatures[None]).mean(axis=2) > 0.8
    assert alike.tolist() == [[a == b for b in (0, 1, 2, 0, 4)] for a in (0, 1, 2, 0, 4)]


def test_nothing_comes_again_where_there_is_nothing():
    assert drop_duplicates([], ExecutorOptions(1)) == ([], DroppedDuplicates())


def test_the_command_says_what_it_left_out(folder, tokenizer_directory, tmp_path, capsys):
    words = ["prepare", str(folder), "--tokenizer", str(tokenizer_directory), "--output", str(tmp_path / "data")]
    assert run([*words, "--duplicates", "near", "--workers", "1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "12 documents dropped: duplicate of an earlier document" in said
    assert "12 documents dropped: nearly a duplicate of an earlier document" in said
    assert f"{tmp_path / 'data' / DUPLICATES_NAME} names 24 of the duplicates" in said


def test_a_plan_knows_that_the_text_is_read_twice(folder, tokenizer, monkeypatch):
    """By a clock that moves on by a second whenever somebody looks."""
    clock = itertools.count()
    monkeypatch.setattr("albert.text.prepare.time.perf_counter", lambda: next(clock))
    files = find_corpus_files([folder])[0]
    once, twice = (estimate_preparation(files, tokenizer, settings(kind), 1).seconds for kind in ("keep", "near"))
    assert twice == 2 * once
