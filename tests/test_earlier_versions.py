"""Corpora and runs that earlier versions made with what was removed since (`tests/earlier`): they open."""

import shutil
from pathlib import Path

import pytest

from albert.cli.main import run
from albert.runtime.json_files import read_journal, read_json_object, save_json

EARLIER = Path(__file__).parent / "earlier"
TINY = (
    "--hidden-size 8 --embedding-size 8 --num-attention-heads 1 --intermediate-size 16 --num-hidden-layers 1 "
    "--max-position-embeddings 32 --max-length 32 --batch-size 4 --micro-batch-size 4 --steps 6 --warmup-steps 1 "
    "--log-every 1 --keep-checkpoints 1 --precision fp32 --evaluation-sequences 4 --device cpu --anneal steps"
)
"""The options of all runs in `tests/earlier`, which ended after one step, by --max-tokens 1."""


@pytest.fixture
def earlier(tmp_path):
    """A copy of a directory in `tests/earlier`."""

    def copy(name):
        shutil.copytree(EARLIER / name, tmp_path / name)
        return tmp_path / name

    return copy


def pretrain(corpus, output, *options):
    return run(["pretrain", "small", "--data", str(corpus), "--output", str(output), *TINY.split(), *options])


def test_a_merged_corpus_to_which_text_was_appended_opens(earlier, tmp_path, capsys):
    corpus = earlier("merged-corpus")
    for command in (["verify"], ["info"], ["show", "--max-length", "32"]):
        assert run([command[0], str(corpus), *command[1:]]) == 0
    assert "24 train documents" in capsys.readouterr().out
    assert pretrain(corpus, tmp_path / "run", "--max-tokens", "1") == 0


def test_a_run_with_spike_detection_goes_on_without_it(earlier, capsys):
    corpus = earlier("corpus")
    run_path = earlier("spikes-run")
    assert pretrain(corpus, run_path, "--on-divergence", "skip") == 0
    captured = capsys.readouterr()
    assert "continues without spike_deviations 20.0" in captured.err
    assert read_journal(run_path / "journal.jsonl")[-1]["step"] == 6
    assert "spike_deviations" not in read_json_object(run_path / "recipe.json")
    assert run(["verify", str(run_path)]) == 0
    assert run(["plot", str(run_path), "--output", str(run_path / "curves.png")]) == 0


def test_a_recipe_file_with_spike_detection_is_refused_and_without_it_works(earlier, tmp_path, capsys):
    recipe = earlier("spikes-run") / "recipe.json"
    arguments = [
        "pretrain",
        "--recipe",
        str(recipe),
        "--data",
        str(earlier("corpus")),
        "--output",
        str(tmp_path / "run"),
    ]
    assert run(arguments) == 78
    assert "spike_deviations: was removed" in capsys.readouterr().err
    save_json(recipe, read_json_object(recipe) | {"spike_deviations": None})
    assert run([*arguments, "--device", "cpu"]) == 0


def test_the_run_of_a_removed_objective_is_not_resumed_and_its_model_opens(earlier, tmp_path, capsys):
    corpus = earlier("corpus")
    run_path = earlier("sop-reference-run")
    assert pretrain(corpus, run_path) == 78
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "'sop-reference' is not a choice; it was removed" in error
    for command in (["info"], ["plot", "--output", str(tmp_path / "curves.png")], ["verify"]):
        assert run([command[0], str(run_path / "model" if command == ["verify"] else run_path), *command[1:]]) == 0
    assert run(["predict", str(run_path), "--order", "The cat sat.", "The dog ran."]) == 0
    assert run(["evaluate", "pretraining", "--model", str(run_path), "--data", str(corpus), "--max-length", "32"]) == 0
    options = ["--init", str(run_path), "--data", str(corpus), "--output", str(tmp_path / "further"), "--device", "cpu"]
    assert run(["pretrain", "continue", *options, "--steps", "1", "--warmup-steps", "0", "--batch-size", "4"]) == 0


def test_corpora_and_runs_with_the_preprocessing_of_the_original_code_open(earlier, tmp_path, capsys):
    corpus = earlier("reference-corpus")
    run_path = earlier("reference-run")
    assert pretrain(corpus, run_path) == 0
    error = capsys.readouterr().err
    assert error.count("the preprocessing of the original code was removed") == 1
    assert read_journal(run_path / "journal.jsonl")[-1]["step"] == 6
    shutil.rmtree(run_path)
    run_path = earlier("reference-run")
    for arguments in (
        ["verify", corpus],
        ["info", corpus],
        ["info", run_path],
        ["show", corpus, "--max-length", "32"],
        ["predict", run_path, "--fill-mask", "The cat [MASK]."],
        ["evaluate", "pretraining", "--model", run_path, "--data", corpus, "--max-length", "32"],
        ["tokenizer", "convert", run_path / "model", "--output", tmp_path / "tokenizer"],
    ):
        assert run(list(map(str, arguments))) == 0, arguments
    capsys.readouterr()
    assert run(["tokenizer", "encode", "--tokenizer", str(tmp_path / "tokenizer"), "The cat"]) == 0
    assert "note" not in capsys.readouterr().err
