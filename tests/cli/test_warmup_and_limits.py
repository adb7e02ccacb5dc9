"""What `albert pretrain` does by itself with few steps, short budgets, small corpora and odd rates, and says so."""

import pytest

import albert
from albert.cli.main import run
from albert.runtime.json_files import read_journal, read_json_object
from albert.runtime.progress import Bar

TINY = {
    "architecture": {
        "hidden_size": 8,
        "embedding_size": 8,
        "num_attention_heads": 1,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
    },
    "max_length": 32,
    "batch_size": 4,
    "micro_batch_size": 4,
    "log_every": 1,
    "evaluation_sequences": 4,
    "device": "cpu",
}
OPTIONS = ["--device", "cpu"]
OPTIONS += [f"{name}={value}" for name, value in TINY.items() if not isinstance(value, dict | str)]
OPTIONS += [f"architecture.{name}={value}" for name, value in TINY["architecture"].items()]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """About a thousand tokens."""
    folder = tmp_path_factory.mktemp("small")
    words = ["the", "cat", "dog", "sat", "ran", "on", "a", "mat", "sun", "rose", "fell"]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, "."]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    texts = [{"text": f"The {one} sat on a {two}. The {two} ran. A {one} rose."} for one in words for two in words]
    return albert.prepare(texts, tokenizer=folder / "vocab.txt", output=folder / "corpus", held_out=0.2, workers=1)


def learning_rates(path):
    return [record["learning_rate"] for record in read_journal(path / "journal.jsonl") if record["event"] == "train"]


def test_few_steps_shorten_the_warmup_at_both_doors(corpus, tmp_path, capsys):
    command = ["pretrain", "small", "--data", str(corpus.output), "--output", str(tmp_path / "a"), *OPTIONS]
    assert run([*command, "steps=40"]) == 0
    error = capsys.readouterr().err
    assert "the warm-up takes 1 of 40 steps, the recipe has 400 of 20,000" in error
    assert "training tokens are few" in error
    schedule = read_json_object(tmp_path / "a" / "recipe.json")["schedule"]
    assert (schedule["total_steps"], schedule["warmup_steps"]) == (40, 1)
    assert learning_rates(tmp_path / "a")[0] == max(learning_rates(tmp_path / "a"))
    assert (tmp_path / "a" / "curves.png").read_bytes().startswith(b"\x89PNG")
    albert.pretrain("small", data=corpus.output, output=tmp_path / "b", steps=40, **TINY)
    assert learning_rates(tmp_path / "b") == learning_rates(tmp_path / "a")
    assert (tmp_path / "b" / "curves.png").exists()
    # The setting that differs from the finished run is named.
    assert run([*command, "steps=40", "seed=3"]) == 73
    assert "holds a finished run with other settings: seed (0, now 3)" in capsys.readouterr().err


def test_a_warmup_that_is_given_stays_and_an_older_run_keeps_its_own(corpus, tmp_path, capsys):
    command = ["pretrain", "small", "--data", str(corpus.output), "--output", str(tmp_path / "run"), *OPTIONS]
    command += ["steps=6", "max_tokens=1"]
    assert run([*command, "schedule.warmup_steps=5"]) == 0
    assert "warm-up takes" not in capsys.readouterr().err
    assert run(command) == 0, "the run's own warm-up is taken"
    assert read_json_object(tmp_path / "run" / "recipe.json")["schedule"]["warmup_steps"] == 5


def test_the_warmup_fits_into_the_budget_and_that_is_said(corpus, tmp_path, capsys):
    command = ["pretrain", "small", "--data", str(corpus.output), *OPTIONS, "max_tokens=4000"]
    assert run([*command, "--output", str(tmp_path / "budget")]) == 0
    assert "the warm-up ends after" in capsys.readouterr().err
    rates = learning_rates(tmp_path / "budget")
    assert max(rates) == pytest.approx(2e-3)
    assert rates.index(max(rates)) <= 0.2 * len(rates)
    assert rates[-1] < 0.2 * max(rates)
    assert run([*command, "--output", str(tmp_path / "steps"), "schedule.anneal=steps"]) == 0
    assert "the run ended in its warm-up of 400 steps; schedule.anneal=budget" in capsys.readouterr().err


def test_an_implausible_rate_is_refused_at_both_doors(corpus, tmp_path, refused):
    command = ["pretrain", "small", "--data", str(corpus.output), "--output", str(tmp_path / "run"), *OPTIONS]
    refused([*command, "learning_rate=5"], 78, "learning_rate: is 5")
    by_python = {**TINY, "data": corpus.output, "output": tmp_path / "run", "learning_rate": 5}
    refused(lambda: albert.pretrain("small", **by_python), 78, "learning_rate: is 5")
    assert not (tmp_path / "run").exists()


def test_a_negative_seed_is_refused(corpus, tmp_path, refused):
    command = ["pretrain", "small", "--data", str(corpus.output), "--output", str(tmp_path / "run"), *OPTIONS]
    refused([*command, "seed=-1"], 78, "seed: is -1")
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_refused_does_not_say_that_it_is_resumed(corpus, tmp_path, capsys):
    command = ["pretrain", "small", "--data", str(corpus.output), "--output", str(tmp_path / "run")]
    command += [*OPTIONS, "steps=3"]
    assert run(command) == 0
    capsys.readouterr()
    assert run([*command, "seed=3"]) == 73
    shown = capsys.readouterr()
    assert "resuming" not in shown.out and "seed (0, now 3)" in shown.err
    (tmp_path / "run/results.json").unlink()
    assert run(command) == 0
    assert "resuming" in capsys.readouterr().out


def test_an_existing_output_names_replace(corpus, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("The cat sat. The dog ran.")
    tokenizer = str(corpus.output / "vocab.txt")
    command = ["prepare", str(text), "--tokenizer", tokenizer, "--output", str(tmp_path / "corpus"), "--workers", "1"]
    assert run(command) == 0
    assert "training tokens are few" in capsys.readouterr().out
    assert run(command) == 73
    assert "--replace" in capsys.readouterr().err
    convert = ["tokenizer", "convert", tokenizer, "--output", str(tmp_path / "corpus")]
    assert run(convert) == 73
    assert "--replace" in capsys.readouterr().err


def test_progress_never_passes_its_end():
    bar = Bar("Reading", 10, "MB", 0)
    bar.advance(12)
    assert "12/12 MB" in bar._line(bar._start + 1)
    bar.expect(5)
    assert "12/12 MB" in bar._line(bar._start + 1)
