"""Whoever prepares a corpus, and however often it is killed, the bytes are the same."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from albert.runtime.manifest import verify_directory
from albert.text.corpus import find_corpus_files
from albert.text.executors import PreparationSettings, plan_units
from albert.text.prepare import prepare

SETTINGS = PreparationSettings(held_out=0.2, shard_bytes=3_000, unit_bytes=12_000)


def content(directory):
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def folder(documents, tmp_path_factory):
    """Twelve files; some hold no text."""
    folder = tmp_path_factory.mktemp("many") / "corpus"
    folder.mkdir()
    for number in range(12):
        texts = documents[number::12] if number % 5 else [""]
        (folder / f"{number:02d}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return folder


@pytest.fixture(scope="module")
def at_once(folder, tokenizer, tmp_path_factory):
    output = tmp_path_factory.mktemp("prepared") / "data"
    prepare([folder], tokenizer, output, SETTINGS, workers=1)
    return content(output)


def test_units_hold_every_file_once_in_order(tmp_path):
    numbers = random.Random(0)
    for number in range(80):
        (tmp_path / f"{number:02d}.txt").write_bytes(b"x" * numbers.choice([0, 1, 5, 30, 200]))
    files = find_corpus_files([tmp_path]).files
    units = plan_units(files, 100)
    assert [file for unit in units for file in unit.files] == files
    assert [unit.number for unit in units] == list(range(len(units)))
    assert all(unit.size >= 100 for unit in units[:-1])


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_units_and_shards_can_be_shared_out(folder, at_once, tokenizer, tmp_path, workers):
    """With 1 and 2 workers whole units are shared out, with 8 there are too few of them."""
    prepare([folder], tokenizer, tmp_path / "data", SETTINGS, workers=workers)
    assert content(tmp_path / "data") == at_once


COMMAND = """
import sys
from pathlib import Path
from albert.text.prepare import prepare
from albert.text.executors import PreparationSettings
from albert.text.tokenizer_loading import load_tokenizer
if __name__ == "__main__":
    settings = PreparationSettings(held_out=0.2, shard_bytes=3_000, unit_bytes=12_000)
    folder, tokenizer, output, workers, engine = sys.argv[1:]
    tokenizer = load_tokenizer(Path(tokenizer))
    prepare([Path(folder)], tokenizer, Path(output), settings, workers=int(workers), engine=engine)
"""


@pytest.fixture
def command(folder, tokenizer, tmp_path):
    """The words of a process that prepares into tmp_path/data, but for workers and engine."""
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(tmp_path / "tokenizer")
    (tmp_path / "prepare_it.py").write_text(COMMAND)
    script = tmp_path / "prepare_it.py"
    return [sys.executable, str(script), str(folder), str(tmp_path / "tokenizer"), str(tmp_path / "data")]


def test_datatrove_gives_the_same_bytes(command, at_once, tmp_path):
    pytest.importorskip("datatrove", reason="the extra `corpus` is not installed")
    subprocess.run([*command, "2", "datatrove"], check=True, capture_output=True)
    assert content(tmp_path / "data") == at_once


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_killed_preparation_goes_on_to_the_same_bytes(command, at_once, tmp_path, workers):
    """Killed with all its processes whenever two more shards are finished, until it comes to its end."""
    output, results = tmp_path / "data", tmp_path / "data.unfinished" / "results"
    kills = 0
    while not output.exists() and kills < 2:
        before = len(list(results.glob("*"))) if results.is_dir() else 0
        process = subprocess.Popen([*command, workers, "processes"], start_new_session=True, stderr=subprocess.DEVNULL)
        while process.poll() is None and not output.exists():
            if results.is_dir() and len(list(results.glob("*"))) > before + 2:
                os.killpg(process.pid, signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.002)
        process.wait()
    if not output.exists():
        subprocess.run([*command, workers, "processes"], check=True, stderr=subprocess.DEVNULL)
    assert kills >= 1
    assert content(output) == at_once
    verify_directory(output)
    assert not (tmp_path / "data.unfinished").exists()
