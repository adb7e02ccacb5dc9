"""`albert pretrain`, from text to a model that transformers opens."""

import dataclasses
import json
import re
import shlex

import pytest

from albert.cli.main import run
from albert.commands.pretrain import recipe_before_changes
from albert.commands.sample import load_chapters
from albert.pretraining.evaluation import EVALUATION_SEED, HeldOutSamples
from albert.pretraining.sampling import samples_of
from albert.recipes.pretraining import PretrainingRecipe
from albert.runtime.json_files import load_versioned, read_journal
from albert.text.shards import TokenCorpus

TINY = shlex.split(
    "architecture.hidden_size=32 architecture.embedding_size=16 architecture.num_hidden_layers=2 "
    "architecture.intermediate_size=64 "
    "max_length=48 batch_size=8 micro_batch_size=4 steps=30 schedule.warmup_steps=5 "
    "evaluation_sequences=40 evaluate_every=15 learning_rate=0.02 precision=fp32 --device cpu"
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus prepared by commands."""
    directory = tmp_path_factory.mktemp("prepared")
    (directory / "text").mkdir()
    text = "\n".join(chapter.text for chapter in load_chapters())
    assert len(text) > 60_000
    for number in range(40):
        part = text[number * 1500 : (number + 1) * 1500]
        (directory / "text" / f"{number:02d}.txt").write_text(part, encoding="utf-8")
    paths = {name: str(directory / name) for name in ("text", "tokenizer", "corpus")}
    assert run(["tokenizer", "train", paths["text"], "--output", paths["tokenizer"], "--vocab-size", "400"]) == 0
    words = [paths["text"], "--tokenizer", paths["tokenizer"], "--output", paths["corpus"]]
    assert run(["prepare", *words, "--held-out", "0.2", "--workers", "1"]) == 0
    return directory / "corpus"


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """The directory of a run of thirty updates."""
    output = tmp_path_factory.mktemp("runs") / "tiny"
    assert run(["pretrain", "quickstart", "--data", str(corpus), "--output", str(output), *TINY]) == 0
    return output


def test_a_run_writes_model_journal_curves_and_recipe(finished):
    assert {entry.name for entry in finished.iterdir()} >= {"recipe.json", "journal.jsonl", "tensorboard", "model"}
    records = read_journal(finished / "journal.jsonl")
    train = [record for record in records if record["event"] == "train"]
    evaluations = [record for record in records if record["event"] == "evaluation"]
    assert train[-1]["step"] == evaluations[-1]["step"] == 30
    assert evaluations[-1]["masked_tokens_loss"] < evaluations[0]["masked_tokens_loss"]
    assert evaluations[-1]["masked_tokens_loss"] < 5.99  # a uniform guess among 400 pieces has 5.99
    card = (finished / "model" / "README.md").read_text(encoding="utf-8")
    assert "# tiny" in card and "masked-token accuracy, held out" in card
    assert (
        "albert evaluate pretraining --model MODEL... --data CORPUS --max-ngram 3 --max-length 48 --sequences" in card
    )


def test_the_suggested_command_has_a_held_out_sentence(finished, corpus, capsys):
    assert run(["pretrain", "quickstart", "--data", str(corpus), "--output", str(finished), *TINY]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next: albert ")]
    words = shlex.split(line)[2:]
    before, masked, after = words[-1].partition(" [MASK] ")
    held_out = TokenCorpus.open(corpus, "held_out")
    text = held_out.tokenizer().decode(held_out.read(0, held_out.n_tokens).tolist())
    assert masked and before in text and after in text
    assert run(words) == 0 and json.dumps(words[-1]) in (finished / "model" / "README.md").read_text(encoding="utf-8")


def test_evaluate_pretraining_gives_the_figures_of_the_run(finished, corpus, tmp_path, capsys):
    results = tmp_path / "results.json"
    command = ["evaluate", "pretraining", "--model", str(finished), "--data", str(corpus)]
    assert run([*command, "--sequences", "40", "--precision", "fp32", "--results", str(results)]) == 0
    assert "MLM" in capsys.readouterr().out
    (report,) = json.loads(results.read_text(encoding="utf-8"))["models"]
    last = [record for record in read_journal(finished / "journal.jsonl") if record["event"] == "evaluation"][-1]
    for kind in ("accuracy", "loss", "baseline"):
        assert last[f"sentence_order_{kind}"] == pytest.approx(report["scores"]["sentence_order"][kind], rel=1e-5)


def test_evaluate_says_how_its_masked_tokens_differ_from_those_of_a_run(finished, corpus, tmp_path, capsys):
    """A run scores masked tokens in its segment pairs, `evaluate` those in unchanged texts."""
    results = tmp_path / "results.json"
    command = ["evaluate", "pretraining", "--model", str(finished), "--data", str(corpus), "--sequences", "40"]
    capsys.readouterr()
    assert run([*command, "--results", str(results)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "a run and its card count those of its own segment pairs" in printed
    (report,) = json.loads(results.read_text(encoding="utf-8"))["models"]
    held_out = [TokenCorpus.open(corpus, "held_out")]
    recipe = load_versioned(PretrainingRecipe, finished / "recipe.json")
    last = [record for record in read_journal(finished / "journal.jsonl") if record["event"] == "evaluation"][-1]

    def baseline(objective):
        sequences = dataclasses.replace(recipe.sequences, objective=objective)
        samples = samples_of(dataclasses.replace(recipe, sequences=sequences), held_out, EVALUATION_SEED)
        return HeldOutSamples(samples, 40).baselines()["masked_tokens_baseline"]

    assert baseline("sop") == last["masked_tokens_baseline"]
    assert baseline("none") == report["scores"]["masked_tokens"]["baseline"] != baseline("sop")


@pytest.mark.parametrize(
    ("recipe", "given", "expected"),
    [
        ("small", {"batch_size": 16}, 16),
        ("FILE", {}, 16),
        ("small", {"batch_size": 16, "micro_batch_size": 8}, 8),
        ("small", {}, 32),
    ],
)
def test_a_micro_batch_is_no_larger_than_the_batch(recipe, given, expected, tmp_path):
    (tmp_path / "recipe.toml").write_text('base = "small"\nbatch_size = 16\n')
    found, _ = recipe_before_changes(recipe.replace("FILE", str(tmp_path / "recipe.toml")), given, None, None)
    assert given.get("micro_batch_size", found.micro_batch_size) == expected


def test_next_sentence_prediction_refuses_a_single_document(corpus, tmp_path, capsys):
    (tmp_path / "one.txt").write_text("It was one day. And it was another one. Then it was night.", encoding="utf-8")
    words = [str(tmp_path / "one.txt"), "--tokenizer", str(corpus), "--output", str(tmp_path / "alone")]
    assert run(["prepare", *words, "--held-out", "0", "--workers", "1"]) == 0
    capsys.readouterr()
    words = ["--data", str(tmp_path / "alone"), "--output", str(tmp_path / "out"), "sequences.objective=nsp"]
    assert run(["pretrain", "quickstart", *words, *TINY]) == 78
    error = capsys.readouterr().err
    assert '"nsp" needs at least two train documents' in error and error.count("\n") == 1
    assert not list(tmp_path.glob("out*"))


def test_scale_batch_explains_the_learning_rate(corpus, tmp_path, capsys):
    shape = [*("architecture.hidden_size=32", "architecture.embedding_size=16", "architecture.num_attention_heads=2")]
    shape += [*("architecture.intermediate_size=64", "architecture.num_hidden_layers=2", "max_length=32")]
    words = ["scale_batch=16", "max_tokens=500", *shape, "precision=fp32", "--device", "cpu"]
    words += ["evaluation_sequences=8", "max_rollbacks=2"]
    assert run(["pretrain", "base", "--data", str(corpus), "--output", str(tmp_path / "run"), *words]) == 0
    shown = capsys.readouterr().out
    assert "learning rate 0.00176 x sqrt(16/4096) = 0.00011" in shown
    assert "125,000 steps see 2,000,000 sequences, 0.00391 times as many as before" in shown
    assert "as many need steps=32000000" in shown
    assert re.search(r"stopped after \d+ tokens at step \d of 125,000", shown)
    recipe = load_versioned(PretrainingRecipe, tmp_path / "run" / "recipe.json")
    assert (recipe.batch_size, recipe.max_tokens) == (16, 500)
    assert recipe.optimizer.learning_rate == pytest.approx(0.00011)
