"""Killed at any moment, the same command goes on, and the output is what it would have been: whole, or not there."""

import json
import os
import random
import re
import signal
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from albert.checkpoints.model_directory import save_model_directory
from albert.cli.commands import predict_main as main
from albert.inference import files
from albert.inference.abilities import Ability
from albert.inference.files import batches_of, opened_input
from albert.model.albert import AlbertForSequenceClassification
from albert.model.config import AlbertConfig
from albert.runtime.errors import CannotCreate, WriteFailed
from albert.text.readers import Record, read_records

ROWS = 1100
ENDINGS = ("jsonl", "csv", "parquet")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, config: AlbertConfig, tokenizer_directory: Path) -> Path:
    path = tmp_path_factory.mktemp("model") / "classifier"
    save_model_directory(path, AlbertForSequenceClassification(config, 3), tokenizer_directory)
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "in.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        for n in range(ROWS):
            file.write(json.dumps({"id": n, "text": f"The cät saw {'it ' * (n % 20)}."}) + "\n")
    return path


@pytest.mark.parametrize("ending", ENDINGS)
def test_killed_anywhere_it_ends_with_the_same_bytes(
    fork_server: Any, model: Path, rows: Path, tmp_path: Path, ending: str
) -> None:
    words = ["predict", str(model), "--input", str(rows), "--precision", "fp32", "--output"]
    whole, killed = tmp_path / f"whole.{ending}", tmp_path / f"killed.{ending}"
    assert fork_server.start([*words, str(whole)]).finish() == 0
    rng, kills = random.Random(ending), 0
    for _ in range(3):
        process = fork_server.start([*words, str(killed)])
        target = rng.uniform(0, 0.9) * whole.stat().st_size
        while not killed.exists() and _size(tmp_path / f"killed.{ending}.partial" / "rows") < target:
            time.sleep(0.001)
        kills += process.kill()
        if killed.exists():
            break
    if not killed.exists():
        assert fork_server.start([*words, str(killed)]).finish() == 0
    assert kills
    assert killed.read_bytes() == whole.read_bytes()


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return -1


def test_stopped_it_says_so_and_goes_on(
    model: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from albert.cli.main import run

    words = ["predict", str(model), "--input", str(rows), "--precision", "fp32", "--output"]
    assert run([*words, str(tmp_path / "whole.jsonl")]) == 0
    answered = Ability.answers
    batches = 0

    def stopped_at_third(*arguments: Any) -> Any:
        nonlocal batches
        batches += 1
        if batches == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return answered(*arguments)

    monkeypatch.setattr(Ability, "answers", stopped_at_third)
    output = tmp_path / "stopped.jsonl"
    assert run([*words, str(output)]) == 143
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"albert: error: {output}: stopped by SIGTERM after saving; run the same command to go on"
    assert not output.exists()
    monkeypatch.setattr(files, "COMMIT_SECONDS", 0.0)
    assert run([*words, str(output)]) == 0
    assert batches == -(-ROWS // 256)  # no batch was answered twice
    assert output.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert not (tmp_path / "stopped.jsonl.partial").exists()


@pytest.fixture
def begun(model: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Path]:
    """An unfinished output: the arguments of its command, and its path."""
    (tmp_path / "in.jsonl").write_bytes(rows.read_bytes())
    words = [str(model), "--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    answered = Ability.answers
    batches = iter(range(3))

    def failing_at_fourth(*arguments: Any) -> Any:
        if next(batches, None) is None:
            raise WriteFailed("disk", "full")
        return answered(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Ability, "answers", failing_at_fourth)
        patched.setattr(files, "COMMIT_SECONDS", 0.0)
        with pytest.raises(WriteFailed):
            main([*words, "--precision", "fp32"])
    assert (tmp_path / "out.jsonl.partial" / "rows").stat().st_size > 0
    return words, tmp_path / "out.jsonl"


def test_another_input_model_or_setting_is_refused_with_what_differs(
    begun: tuple[list[str], Path], model: Path, tmp_path: Path, config: AlbertConfig, tokenizer_directory: Path
) -> None:
    words, output = begun
    with pytest.raises(CannotCreate, match=r"was begun with other settings: depth 2, now 1; use those, or start over"):
        main([*words, "--precision", "fp32", "--depth", "1"])
    with pytest.raises(CannotCreate, match="precision fp32, now bf16"):
        main([*words, "--precision", "bf16"])
    other = tmp_path / "other"
    torch.manual_seed(1)  # the first one may have been drawn after the seed that each test sets
    save_model_directory(other, AlbertForSequenceClassification(config, 3), tokenizer_directory)
    with pytest.raises(CannotCreate, match="other settings: model "):
        main([str(other), *words[1:], "--precision", "fp32"])
    with open(tmp_path / "in.jsonl", "a") as file:
        file.write('{"id": 9, "text": "One more."}\n')
    with pytest.raises(CannotCreate, match="other settings: input "):
        main([*words, "--precision", "fp32"])
    assert not output.exists()
    main([*words, "--precision", "fp32", "--replace"])
    assert json.loads(output.read_text().splitlines()[-1])["id"] == 9


def test_rows_that_were_not_noted_are_written_anew(begun: tuple[list[str], Path]) -> None:
    words, output = begun
    partial = output.with_name("out.jsonl.partial")
    with open(partial / "rows", "ab") as file:
        file.write(b'{"id": 512, "te')
    with open(partial / "journal.jsonl", "ab") as file:
        file.write(b'{"event": "reac')
    main([*words, "--precision", "fp32"])
    assert [json.loads(line)["id"] for line in output.read_text().splitlines()] == list(range(ROWS))


def _change_digit(path: Path, start: int) -> None:
    """Change the first digit from this byte on."""
    content = bytearray(path.read_bytes())
    place = next(n for n in range(start, len(content)) if chr(content[n]).isdigit())
    content[place] = ord("7") if content[place] != ord("7") else ord("3")
    path.write_bytes(content)


def test_a_changed_digit_in_the_rows_is_found_and_they_are_predicted_anew(
    begun: tuple[list[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, output = begun
    rows = tmp_path / "out.jsonl.partial" / "rows"
    events = [json.loads(line) for line in (rows.parent / "journal.jsonl").read_text().splitlines()]
    ends = [event["bytes"] for event in events if event["event"] == "reached"]
    assert len(ends) == 3
    _change_digit(rows, ends[0] + 10)
    main([*words, "--precision", "fp32"])
    said = capsys.readouterr().err
    assert f"albert: note: {rows}: damaged (wrong checksum); predicting again from row 257 on" in said
    damaged = output.read_bytes()
    main([*words, "--precision", "fp32", "--replace"])
    assert damaged == output.read_bytes()


def test_what_was_made_anew_after_damage_is_gone_on_with(
    begun: tuple[list[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, _ = begun
    _change_digit(tmp_path / "out.jsonl.partial" / "rows", 0)
    monkeypatch.setattr(files, "COMMIT_SECONDS", 0.0)
    answered, batches = Ability.answers, iter(range(2))

    def failing_at_third(*arguments: Any) -> Any:
        if next(batches, None) is None:
            raise WriteFailed("disk", "full")
        return answered(*arguments)

    with monkeypatch.context() as patched, pytest.raises(WriteFailed):
        patched.setattr(Ability, "answers", failing_at_third)
        main([*words, "--precision", "fp32"])
    assert "predicting again from row 1 on" in capsys.readouterr().err
    left = iter(range(-(-ROWS // 256) - 2))
    monkeypatch.setattr(Ability, "answers", lambda *a: (next(left), answered(*a))[1])
    main([*words, "--precision", "fp32"])  # the two batches of before are kept
    assert "damaged" not in capsys.readouterr().err and next(left, None) is None


@pytest.mark.parametrize(
    ("damage", "warning"),
    [
        (lambda text: '"rows": 769'.join(text.rsplit('"rows": 768', 1)), "predicting again from row 513 on"),
        (lambda text: text.replace("\n{", "\n{{", 1), "journal.jsonl:2: is not JSON; predicting every row again"),
        (lambda text: re.sub(r', "sum": [^,}]+', "", text), "without checksums; predicting every row again"),
    ],
)
def test_rows_after_a_damaged_line_of_the_journal_are_predicted_anew(
    begun: tuple[list[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], damage, warning
) -> None:
    words, output = begun
    journal = tmp_path / "out.jsonl.partial" / "journal.jsonl"
    journal.write_text(damage(journal.read_text()))
    main([*words, "--precision", "fp32"])
    errors = capsys.readouterr().err
    assert errors.count("albert: note: ") == 1 and warning in errors
    assert [json.loads(row)["id"] for row in output.read_text().splitlines()] == list(range(ROWS))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    with open(tmp_path / "in.txt", "w") as file:
        for n in range(36_000):
            file.write(f"line number {n} of a file that does not fit\n")
    tracemalloc.start()
    with opened_input(str(tmp_path / "in.txt")) as file:
        count = sum(len(batch) for batch in batches_of(read_records(file, "text")))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 36_000
    assert most < 1_500_000 < (tmp_path / "in.txt").stat().st_size


def test_long_rows_make_short_batches() -> None:

    rows = [Record(str(n), {"text": "x" * (400_000 if n % 2 else 10)}) for n in range(20)]
    sizes = [len(batch) for batch in batches_of(iter(rows))]
    assert sum(sizes) == 20 and max(sizes) == 6
    assert sizes[1:] == [len(batch) for batch in batches_of(iter(rows[sizes[0] :]))]
