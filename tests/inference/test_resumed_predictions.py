"""After a kill the same command resumes, and the output has the same bytes as that of one run."""

import json
import os
import random
import re
import signal
import time
import tracemalloc
from contextlib import suppress

import pytest
import torch

from albert.checkpoints.model_directory import save_model_directory
from albert.cli.commands import predict_main
from albert.cli.main import run
from albert.inference import files
from albert.inference.abilities import Ability
from albert.inference.files import batches_of, opened_input
from albert.model.albert import AlbertForSequenceClassification
from albert.runtime.errors import CannotCreate, WriteFailed
from albert.text.readers import Record, read_records

ROWS = 1100
BATCHES = -(-ROWS // 256)
EXACT = ["--precision", "fp32"]


@pytest.fixture(scope="module")
def model(tmp_path_factory, config, tokenizer_directory):
    path = tmp_path_factory.mktemp("model") / "classifier"
    save_model_directory(path, AlbertForSequenceClassification(config, 3), tokenizer_directory)
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "in.jsonl"
    lines = (json.dumps({"id": n, "text": f"The cät saw {'it ' * (n % 20)}."}) + "\n" for n in range(ROWS))
    path.write_text("".join(lines))
    return path


def size(path):
    with suppress(OSError):
        return path.stat().st_size
    return -1


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_killed_run_resumes_to_the_same_bytes(fork_server, model, rows, tmp_path, ending):
    command = ["predict", str(model), "--input", str(rows), *EXACT, "--output"]
    expected, killed = tmp_path / f"expected.{ending}", tmp_path / f"killed.{ending}"
    assert fork_server.start([*command, str(expected)]).finish() == 0
    rng, kills = random.Random(ending), 0
    for _ in range(3):
        process = fork_server.start([*command, str(killed)])
        target = rng.uniform(0, 0.9) * expected.stat().st_size
        while not killed.exists() and size(tmp_path / f"killed.{ending}.partial" / "rows") < target:
            time.sleep(0.001)
        kills += process.kill()
        if killed.exists():
            break
    if not killed.exists():
        assert fork_server.start([*command, str(killed)]).finish() == 0
    assert kills
    assert killed.read_bytes() == expected.read_bytes()


@pytest.fixture
def at_batch(monkeypatch):
    """Do something before the batch of this number; returns the list of batches, which grows."""
    answers = Ability.answers

    def patch(number, action):
        batches = []

        def patched(*arguments):
            batches.append(arguments)
            if len(batches) == number:
                action()
            return answers(*arguments)

        monkeypatch.setattr(Ability, "answers", patched)
        return batches

    return patch


def disk_full():
    raise WriteFailed("disk", "full")


def test_sigterm_commits_and_the_same_command_resumes(model, rows, tmp_path, at_batch, capsys):
    command = ["predict", str(model), "--input", str(rows), *EXACT, "--output"]
    assert run([*command, str(tmp_path / "expected.jsonl")]) == 0
    output = tmp_path / "stopped.jsonl"
    batches = at_batch(3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert run([*command, str(output)]) == 143
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == f"albert: error: {output}: stopped by SIGTERM after saving; run the same command to go on"
    assert not output.exists()
    assert run([*command, str(output)]) == 0
    assert len(batches) == BATCHES  # no batch was predicted twice
    assert output.read_bytes() == (tmp_path / "expected.jsonl").read_bytes()
    assert not (tmp_path / "stopped.jsonl.partial").exists()


@pytest.fixture
def partial(model, rows, tmp_path, monkeypatch, at_batch):
    """An output that stopped after three committed batches: the arguments of its command, and its path."""
    (tmp_path / "in.jsonl").write_bytes(rows.read_bytes())
    command = [str(model), "--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    monkeypatch.setattr(files, "COMMIT_SECONDS", 0.0)
    at_batch(4, disk_full)
    with pytest.raises(WriteFailed):
        predict_main([*command, *EXACT])
    assert (tmp_path / "out.jsonl.partial" / "rows").stat().st_size > 0
    return command, tmp_path / "out.jsonl"


def ids(output):
    return [json.loads(line)["id"] for line in output.read_text().splitlines()]


def test_other_input_model_or_settings_are_refused(partial, tmp_path, config, tokenizer_directory):
    command, output = partial
    other = tmp_path / "other"
    torch.manual_seed(1)  # the first model may have the seed that each test sets
    save_model_directory(other, AlbertForSequenceClassification(config, 3), tokenizer_directory)
    refused = r"was begun with other settings: "
    for arguments, message in (
        ([*command, *EXACT, "--depth", "1"], f"{refused}depth 2, now 1; use those, or start over"),
        ([*command, "--precision", "bf16"], "precision fp32, now bf16"),
        ([str(other), *command[1:], *EXACT], f"{refused}model "),
    ):
        with pytest.raises(CannotCreate, match=message):
            predict_main(arguments)
    with open(tmp_path / "in.jsonl", "a") as file:
        file.write('{"id": 9, "text": "One more."}\n')
    with pytest.raises(CannotCreate, match=f"{refused}input "):
        predict_main([*command, *EXACT])
    assert not output.exists()
    predict_main([*command, *EXACT, "--replace"])
    assert ids(output) == [*range(ROWS), 9]


def test_uncommitted_rows_are_written_again(partial):
    command, output = partial
    directory = output.with_name("out.jsonl.partial")
    for name, content in (("rows", b'{"id": 512, "te'), ("journal.jsonl", b'{"event": "reac')):
        with open(directory / name, "ab") as file:
            file.write(content)
    predict_main([*command, *EXACT])
    assert ids(output) == list(range(ROWS))


def change_digit(rows):
    """Change a digit of the first committed rows."""
    content = rows.read_bytes()
    rows.write_bytes(content.replace(b"1", b"7", 1))


@pytest.mark.parametrize(
    ("name", "damage", "warning"),
    [
        ("rows", change_digit, "rows: damaged (wrong checksum)"),
        ("rows", lambda path: path.unlink(), "rows: damaged (wrong checksum)"),
        ("journal.jsonl", lambda text: '"rows": 769'.join(text.rsplit('"rows": 768', 1)), "rows: damaged (wrong"),
        ("journal.jsonl", lambda text: text.replace("\n{", "\n{{", 1), "journal.jsonl:2: is not JSON"),
        ("journal.jsonl", lambda text: re.sub(r', "sum": [^,}]+', "", text), "without checksums"),
    ],
    ids=["a row", "no rows", "a number", "no JSON", "earlier version"],
)
def test_all_rows_are_predicted_again_after_damage_and_resumed(
    partial, tmp_path, at_batch, capsys, name, damage, warning
):
    command, output = partial
    path = tmp_path / "out.jsonl.partial" / name
    if name == "rows":
        damage(path)
    else:
        path.write_text(damage(path.read_text()))
    at_batch(3, disk_full)
    with pytest.raises(WriteFailed):
        predict_main([*command, *EXACT])
    errors = capsys.readouterr().err
    assert errors.count("albert: note: ") == 1 and warning in errors and "predicting every row again" in errors
    batches = at_batch(0, disk_full)
    predict_main([*command, *EXACT])
    assert "damaged" not in capsys.readouterr().err and len(batches) == BATCHES - 2
    assert ids(output) == list(range(ROWS))


def test_memory_does_not_grow_with_the_file(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(f"line number {n} of a file that does not fit\n" for n in range(36_000)))
    tracemalloc.start()
    with opened_input(str(path)) as file:
        count = sum(len(batch) for batch in batches_of(read_records(file, "text")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 36_000
    assert peak < 1_500_000 < path.stat().st_size


def test_long_rows_make_short_batches():
    rows = [Record(str(n), {"text": "x" * (400_000 if n % 2 else 10)}) for n in range(20)]
    sizes = [len(batch) for batch in batches_of(iter(rows))]
    assert sum(sizes) == 20 and max(sizes) == 6
    assert sizes[1:] == [len(batch) for batch in batches_of(iter(rows[sizes[0] :]))]
