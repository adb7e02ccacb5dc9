"""After a kill the same command resumes, and the output has the same bytes as that of one run."""

import json
import os
import random
import signal
import time
import tracemalloc
from contextlib import suppress

import pytest
import torch

from albert.checkpoints.model_directory import save_model_directory
from albert.cli.main import run
from albert.inference.abilities import Ability
from albert.inference.files import batches_of, opened_input
from albert.model.albert import AlbertForSequenceClassification
from albert.runtime.errors import WriteFailed
from albert.tasks.reading.rows import records_of
from albert.text.readers import Record

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


@pytest.mark.parametrize(("ending", "most_kills"), [("jsonl", 3), ("csv", 1), ("parquet", 1)])
def test_killed_run_resumes_to_the_same_bytes(fork_server, model, rows, tmp_path, ending, most_kills):
    command = ["predict", str(model), "--input", str(rows), *EXACT, "--output"]
    expected, killed = tmp_path / f"expected.{ending}", tmp_path / f"killed.{ending}"
    assert fork_server.start([*command, str(expected)]).finish() == 0
    answers = 100 * ROWS  # bytes; a little less than they are
    rng, kills = random.Random(ending), 0
    for _ in range(most_kills):
        process = fork_server.start([*command, str(killed)])
        target = rng.uniform(0, 0.9) * answers
        while not killed.exists() and size(tmp_path / f"killed.{ending}.partial" / "answers.jsonl") < target:
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

    def patch(number, action, patches=monkeypatch):
        batches = []

        def patched(*arguments):
            batches.append(arguments)
            if len(batches) == number:
                action()
            return answers(*arguments)

        patches.setattr(Ability, "answers", patched)
        return batches

    return patch


def disk_full():
    raise WriteFailed("disk", "full")


def test_sigterm_keeps_the_answers_and_the_same_command_resumes(model, rows, expected, tmp_path, at_batch, capsys):
    command = ["predict", str(model), "--input", str(rows), *EXACT, "--output"]
    output = tmp_path / "stopped.jsonl"
    batches = at_batch(3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert run([*command, str(output)]) == 143
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == f"albert: error: {output}: stopped by SIGTERM after saving; run the same command to continue"
    assert not output.exists()
    assert run([*command, str(output)]) == 0
    assert len(batches) == BATCHES  # no batch was predicted twice
    assert output.read_bytes() == expected.read_bytes()
    assert not (tmp_path / "stopped.jsonl.partial").exists()


@pytest.fixture(scope="module")
def expected(model, rows, tmp_path_factory):
    """The output of one run."""
    output = tmp_path_factory.mktemp("expected") / "expected.jsonl"
    assert run(["predict", str(model), "--input", str(rows), "--output", str(output), *EXACT]) == 0
    return output


@pytest.fixture
def partial(model, rows, tmp_path, at_batch):
    """An output that stopped after three batches: the arguments of its command, and its path."""
    (tmp_path / "in.jsonl").write_bytes(rows.read_bytes())
    command = ["predict", str(model), "--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    at_batch(4, disk_full)
    assert run([*command, *EXACT]) == 74
    assert (tmp_path / "out.jsonl.partial" / "answers.jsonl").stat().st_size > 0
    return command, tmp_path / "out.jsonl"


def ids(output):
    return [json.loads(line)["id"] for line in output.read_text().splitlines()]


def test_other_input_model_or_settings_are_refused(partial, tmp_path, config, tokenizer_directory, refused):
    command, output = partial
    other = tmp_path / "other"
    torch.manual_seed(1)  # the first model may have the seed that each test sets
    save_model_directory(other, AlbertForSequenceClassification(config, 3), tokenizer_directory)
    refused([*command, *EXACT, "--depth", "1"], 73, output, "depth 2, now 1")
    refused([*command, "--precision", "bf16"], 73, output, "precision fp32, now bf16")
    refused(["predict", other, *command[2:], *EXACT], 73, output, "model")
    with open(tmp_path / "in.jsonl", "a") as file:
        file.write('{"id": 9, "text": "One more."}\n')
    refused([*command, *EXACT], 73, output, "input")
    assert not output.exists()
    assert run([*command, *EXACT, "--replace"]) == 0
    assert ids(output) == [*range(ROWS), 9]


@pytest.mark.parametrize(
    ("damage", "predicted_again"),
    [
        (lambda content: content + b'{"label": "x', 2),
        (lambda content: content + bytes(5000), 2),
        (lambda content: b"".join(content.splitlines(True)[:300]), BATCHES - 1),
        (lambda content: content.replace(b"\n{", b"\n{{", 1), BATCHES),
        (lambda content: content[:100], BATCHES),
        (lambda content: b"", BATCHES),
    ],
    ids=["a cut line", "zeros of a lost cache", "a cut batch", "no JSON", "a cut first line", "empty"],
)
def test_what_is_incomplete_is_predicted_again(partial, expected, tmp_path, at_batch, damage, predicted_again):
    command, output = partial
    path = tmp_path / "out.jsonl.partial" / "answers.jsonl"
    path.write_bytes(damage(path.read_bytes()))
    batches = at_batch(0, disk_full)
    assert run([*command, *EXACT]) == 0
    assert len(batches) == predicted_again
    assert not path.parent.exists()
    assert output.read_bytes() == expected.read_bytes()


@pytest.mark.parametrize("earlier", [True, False], ids=["earlier version", "damaged"])
def test_what_cannot_be_recognised_is_refused(partial, tmp_path, earlier, refused):
    command, output = partial
    path = tmp_path / "out.jsonl.partial" / "answers.jsonl"
    if earlier:
        path.rename(path.with_name("rows"))
        path.with_name("journal.jsonl").write_text('{"event": "begun", "made_of": {}}\n')
    else:
        path.write_bytes(b"{" + path.read_bytes())
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    refused([*command, *EXACT], 73, output, "--replace")
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before and not output.exists()
    assert run([*command, *EXACT, "--replace"]) == 0
    assert ids(output) == list(range(ROWS)) and not path.parent.exists()


def test_vectors_resume_to_the_same_bytes(model, rows, tmp_path, at_batch):
    command = ["predict", str(model), "--input", str(rows), "--task", "embed", *EXACT, "--output"]
    for ending in ("npy", "jsonl", "parquet"):
        expected, stopped = tmp_path / f"expected.{ending}", tmp_path / f"stopped.{ending}"
        assert run([*command, str(expected)]) == 0
        with pytest.MonkeyPatch.context() as patch:
            at_batch(3, disk_full, patch)
            assert run([*command, str(stopped)]) == 74
        assert run([*command, str(stopped)]) == 0
        assert stopped.read_bytes() == expected.read_bytes()


def test_memory_does_not_grow_with_the_file(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(f"line number {n} of a file that does not fit{' at all' * 50}\n" for n in range(40_000)))
    tracemalloc.start()
    with opened_input(str(path)) as file:
        count = sum(len(batch) for batch in batches_of(records_of(file)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 40_000
    assert peak < 8_000_000 < path.stat().st_size


def test_long_rows_make_short_batches():
    rows = [Record(str(n), {"text": "x" * (400_000 if n % 2 else 10)}) for n in range(20)]
    sizes = [len(batch) for batch in batches_of(iter(rows))]
    assert sum(sizes) == 20 and max(sizes) == 6
    assert sizes[1:] == [len(batch) for batch in batches_of(iter(rows[sizes[0] :]))]
