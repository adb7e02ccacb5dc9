"""After a stop the same command continues JSON lines and CSV, and the output has the same bytes as that of one run."""

import json
import os
import signal
import tracemalloc

import pytest
import torch

from albert.checkpoints.model_directory import save_model_directory
from albert.cli.main import run
from albert.inference import partial_output
from albert.inference.files import FilePrediction, batches_of, opened_input
from albert.model.albert import AlbertForSequenceClassification
from albert.runtime.errors import WriteFailed
from albert.runtime.files import lock_file
from albert.tables.records import Record
from albert.tables.rows import records_of

ROWS = 1100
BATCHES = -(-ROWS // 256)


@pytest.fixture(scope="module")
def model(tmp_path_factory, config, tokenizer_directory):
    path = tmp_path_factory.mktemp("model") / "classifier"
    save_model_directory(path, AlbertForSequenceClassification(config, 3), tokenizer_directory)
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "in.jsonl"
    lines = (json.dumps({"id": n, "text": f"The cät saw {'it ' * (n % 90)}."}) + "\n" for n in range(ROWS))
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def unbroken(model, rows, tmp_path_factory):
    """The output of one run, by the ending of its name; and what it printed is kept beside it."""
    folder = tmp_path_factory.mktemp("expected")
    for ending in ("jsonl", "csv"):
        assert run(["predict", str(model), "--input", str(rows), "--output", str(folder / f"o.{ending}")]) == 0
    return lambda ending: (folder / f"o.{ending}").read_bytes()


@pytest.fixture
def patched(monkeypatch):
    """Do something before the batch of this number; returns the list of batches, which grows. Every batch is saved."""
    answers = FilePrediction.answers
    monkeypatch.setattr(partial_output, "SAVE_SECONDS", 0.0)

    def patch(number, action, patches=monkeypatch):
        batches = []

        def before(*arguments):
            batches.append(arguments)
            if len(batches) == number:
                action()
            return answers(*arguments)

        patches.setattr(FilePrediction, "answers", before)
        return batches

    return patch


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def disk_full():
    raise WriteFailed("disk", "full")


def killed(command, prepare):
    """Run a command in a process of its own that is killed where `prepare` says."""
    process = os.fork()
    if not process:
        try:
            prepare()
            run([str(word) for word in command])
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(process, 0)[1]) == signal.SIGKILL


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
@pytest.mark.parametrize("places", [(1,), (2, 1, 3), (5,)], ids=str)
def test_a_killed_run_continues_to_the_same_bytes(model, rows, unbroken, tmp_path, patched, ending, places):
    output = tmp_path / f"out.{ending}"
    command = ["predict", model, "--input", rows, "--output", output]
    done = 0
    for place in places:
        killed(command, lambda place=place: patched(place, die))
        done += place - 1
        assert not output.exists() and (tmp_path / f"out.{ending}.partial").exists()
    batches = patched(0, die)
    assert run([str(word) for word in command]) == 0
    assert len(batches) == BATCHES - done  # what was saved is not predicted twice
    assert output.read_bytes() == unbroken(ending)
    assert [path.name for path in tmp_path.iterdir()] == [output.name]


@pytest.mark.parametrize("name", ["save_json", "os.replace", "sync_directory"])
def test_a_kill_while_saving_leaves_a_complete_output_or_none(model, rows, unbroken, tmp_path, patched, name):
    """`save_json` before the third time, the others when the output gets its name."""
    output = tmp_path / "out.jsonl"
    command = ["predict", model, "--input", rows, "--output", output]

    def prepare():
        patched(0, die)
        save = partial_output.save_json
        saved = []

        def dying(*arguments):
            saved.append(arguments)
            if name == "save_json" and len(saved) == 5:
                die()
            save(*arguments)
            if name != "save_json" and arguments[1]["rows"] == ROWS:
                target = partial_output.os if name == "os.replace" else partial_output
                setattr(target, name.removeprefix("os."), lambda *arguments: die())

        partial_output.save_json = dying

    killed(command, prepare)
    if output.exists():
        assert output.read_bytes() == unbroken("jsonl")
        command.append("--replace")
    assert run([str(word) for word in command]) == 0
    assert output.read_bytes() == unbroken("jsonl") and not (tmp_path / "out.jsonl.partial.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_keeps_the_rows_and_the_same_command_continues(
    model, rows, unbroken, tmp_path, patched, capsys, number, monkeypatch
):
    output = tmp_path / "stopped.jsonl"
    command = ["predict", str(model), "--input", str(rows), "--output", str(output)]
    batches = patched(3, lambda: os.kill(os.getpid(), number))
    monkeypatch.setattr(partial_output, "SAVE_SECONDS", 1e9)
    assert run(command) == 128 + number
    error = capsys.readouterr().err.splitlines()[-1]
    name = signal.Signals(number).name
    assert error == f"albert: error: {output}: stopped by {name} after saving; run the same command to continue"
    assert not output.exists()
    assert run(command) == 0
    assert len(batches) == BATCHES  # no batch was predicted twice
    assert output.read_bytes() == unbroken("jsonl")


def test_the_counts_are_those_of_all_rows(model, tmp_path, patched, capsys):
    lines = (json.dumps({"text": "word " * (200 if n % 300 == 0 else 2)}) + "\n" for n in range(ROWS))
    (tmp_path / "in.jsonl").write_text("".join(lines))
    command = ["predict", str(model), "--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    patched(3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert run(command) == 143 and run(command) == 0
    printed = capsys.readouterr().err
    assert (
        f"out.jsonl: {ROWS:,} rows, continued after row 768" in printed and f"4 of {ROWS:,} texts were cut" in printed
    )


@pytest.fixture
def partial(model, rows, tmp_path, patched):
    """An output that stopped after three batches: the arguments of its command, and its path."""
    (tmp_path / "in.jsonl").write_bytes(rows.read_bytes())
    command = ["predict", str(model), "--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    patched(4, disk_full)
    assert run(command) == 74
    patched(0, disk_full)
    return command, tmp_path / "out.jsonl"


def ids(output):
    return [json.loads(line)["id"] for line in output.read_text().splitlines()]


def test_another_input_model_or_command_is_refused(partial, tmp_path, config, tokenizer_directory, refused):
    command, output = partial
    other = tmp_path / "other"
    torch.manual_seed(1)  # the first model may have the seed that each test sets
    save_model_directory(other, AlbertForSequenceClassification(config, 3), tokenizer_directory)
    before = (tmp_path / "out.jsonl.partial").read_bytes()
    refused([*command, "--depth", "1"], 73, f"{output}.partial: was begun with depth not set, now 1; repeat the")
    refused([*command, "--precision", "bf16"], 73, output, "precision not set, now bf16", "in fp32 on cpu, now in bf16")
    refused([*command, "--prefix", "p_"], 73, output, "prefix not set, now p_")
    refused(["predict", other, *command[2:]], 73, output, "was begun with another model")
    with open(tmp_path / "in.jsonl", "a") as file:
        file.write('{"id": 9, "text": "One more."}\n')
    refused(command, 73, output, "was begun with another input", "--replace")
    assert not output.exists() and (tmp_path / "out.jsonl.partial").read_bytes() == before
    assert run([*command, "--replace"]) == 0
    assert ids(output) == [*range(ROWS), 9]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path, state: state.unlink(),
        lambda path, state: state.write_text('{"layout": 1, '),
        lambda path, state: state.write_text('{"layout": 0}'),
    ],
    ids=["alone", "damaged", "another layout"],
)
def test_what_cannot_be_recognised_is_refused(partial, tmp_path, damage, refused):
    command, output = partial
    path, state = tmp_path / "out.jsonl.partial", tmp_path / "out.jsonl.partial.json"
    damage(path, state)
    before = path.read_bytes()
    refused(command, 73, f"{output}.partial", "--replace")
    assert path.read_bytes() == before and not output.exists()
    assert run([*command, "--replace"]) == 0
    assert ids(output) == list(range(ROWS)) and not path.exists() and not state.exists()


@pytest.mark.parametrize(("bytes", "predicted_again"), [(+700, 2), (-1, BATCHES), (None, BATCHES)])
def test_rows_beyond_what_was_saved_are_cut_and_fewer_begin_anew(
    partial, unbroken, tmp_path, patched, bytes, predicted_again
):
    command, output = partial
    path = tmp_path / "out.jsonl.partial"
    saved = json.loads(path.with_name(f"{path.name}.json").read_text())["bytes"]
    content = path.read_bytes()[:saved]
    path.write_bytes(b"" if bytes is None else content[:bytes] if bytes < 0 else content + b"x" * bytes)
    batches = patched(0, disk_full)
    assert run(command) == 0
    assert len(batches) == predicted_again
    assert output.read_bytes() == unbroken("jsonl")


def test_two_commands_do_not_write_one_output(partial, tmp_path, refused):
    command, output = partial
    lock = lock_file(tmp_path / "out.jsonl.partial")
    refused(command, 73, f"{output}.partial", "another process or thread is working in this output")
    lock.release()
    assert run(command) == 0


def test_a_link_is_followed_and_a_device_refused(model, rows, unbroken, tmp_path, refused):
    (tmp_path / "real").mkdir()
    (tmp_path / "out.jsonl").symlink_to(tmp_path / "real" / "rows.jsonl")
    (tmp_path / "device.jsonl").symlink_to("/dev/null")
    command = ["predict", str(model), "--input", str(rows), "--replace", "--output"]
    assert run([*command, str(tmp_path / "out.jsonl")]) == 0
    assert (tmp_path / "out.jsonl").is_symlink() and (tmp_path / "real/rows.jsonl").read_bytes() == unbroken("jsonl")
    refused([*command, tmp_path / "device.jsonl"], 73, "device.jsonl", "is not a regular file")


@pytest.mark.parametrize("ending", ["npy", "parquet"])
def test_other_formats_begin_anew(model, rows, tmp_path, patched, ending):
    command = ["predict", str(model), "--input", str(rows), "--task", "embed", "--output"]
    expected, stopped = tmp_path / f"expected.{ending}", tmp_path / f"stopped.{ending}"
    assert run([*command, str(expected)]) == 0
    killed([*command, stopped], lambda: patched(3, die))
    assert not stopped.exists()
    batches = patched(0, die)
    assert run([*command, str(stopped)]) == 0
    assert len(batches) == BATCHES and stopped.read_bytes() == expected.read_bytes()


def test_vectors_continue_to_the_same_bytes(model, rows, tmp_path, patched):
    command = ["predict", str(model), "--input", str(rows), "--task", "embed", "--output"]
    assert run([*command, str(tmp_path / "expected.jsonl")]) == 0
    with pytest.MonkeyPatch.context() as patches:
        patched(3, disk_full, patches)
        assert run([*command, str(tmp_path / "stopped.jsonl")]) == 74
    assert run([*command, str(tmp_path / "stopped.jsonl")]) == 0
    assert (tmp_path / "stopped.jsonl").read_bytes() == (tmp_path / "expected.jsonl").read_bytes()


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
