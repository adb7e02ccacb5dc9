"""`albert info`: figures of presets and directories, comparisons, damage, width of tables."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.conftest import SHAPE

from albert.checkpoints.model_directory import save_model_directory
from albert.cli.main import run
from albert.commands.info import bytes_of_size
from albert.commands.info_descriptions import resolve
from albert.model.albert import AlbertForTokenClassification
from albert.model.cost import count_training_memory
from albert.recipes.architecture import PRESETS, EncoderConfig
from albert.runtime.devices import precision_advice


@pytest.fixture
def info(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs the command and returns its output, with --json as an object."""

    def call(*arguments: object) -> Any:
        capsys.readouterr()
        assert run(["info", *map(str, arguments)]) == 0
        output = capsys.readouterr().out
        return json.loads(output) if "--json" in arguments else output

    return call


@pytest.fixture
def base_directory(tmp_path: Path) -> Path:
    """A directory with the configuration of albert-base version 1 on the Hub, without weights."""
    config = replace(PRESETS["albert-base-v1"], hidden_act="gelu")
    values = {name: value for name, value in vars(config).items() if name not in ("sharing", "embedding_projection")}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "albert", **values}))
    return tmp_path


@pytest.mark.parametrize(("name", "parameters"), [("albert-base", 11_683_584), ("bert-large", 334_607_360)])
def test_figures_of_a_preset_are_exact(name: str, parameters: int, info) -> None:
    assert f"{parameters:,}" in info(name) and "gelu_new" in info(name)
    report = info(name, "--json", "--max-length", 128)
    assert report["kind"] == "preset" and report["parameters"]["model"] == parameters
    assert report["configuration"]["hidden_size"] == PRESETS[name].hidden_size
    assert report["sequence_length"] == 128


def test_a_preset_shows_published_figures_and_why_they_differ(info) -> None:
    output = info("albert-xxlarge-v2")
    assert "235M" in output and "no counting of this configuration gives it" in output
    assert "also albert-xxlarge-v2" in output
    assert "108,490,752  without the pooler" in info("BERT_base")


def test_without_a_name_it_describes_the_machine_and_the_presets(info) -> None:
    output = info()
    assert "torch" in output and all(f"{name} " in output for name in PRESETS) and "albert-base-v2" in output
    report = info("--json")
    assert report["machine"]["torch"] == torch.__version__
    advice = precision_advice(torch.device("cpu"))
    assert report["machine"]["answers"] == ("in fp32" if advice is None else f"in fp32; faster: {advice}")
    assert report["presets"]["albert-large"]["parameters"] == 17_683_968
    assert report["other_names"]["albert-base-v2"] == "albert-base"


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["albert-base-E768-shared-attention"],
        ["bert-xlarge"],
        ["albert-xxlarge", "--compare", "bert-large"],
        ["albert-base", "--memory", "--device", "cpu", "--memory-limit", "8GB"],
    ],
    ids=" ".join,
)
def test_no_line_is_wider_than_the_terminal(width: int, arguments: list[str], info, terminal) -> None:
    terminal(width)
    lines = info(*arguments).splitlines()
    assert 60 < max(map(len, lines)) <= width
    assert not [line for line in lines if line.endswith(" ")]


def test_two_presets_are_compared(info) -> None:
    output = info("albert-base-v2", "--compare", "bert-base")
    assert "1 : 9.34" in output and "-89.3%" in output
    report = info("bert-large", "--compare", "albert-xxlarge", "--json")
    assert report["kind"] == "comparison" and report["one"]["name"] == "bert-large"


def test_a_model_directory_is_described(scene, info) -> None:
    report = info(scene.pretrained, "--json")
    model, tokenizer = report["model"], report["model"]["tokenizer"]
    assert report["kind"] == "model" and model["architecture"] == "AlbertForPreTraining" and model["verified"]
    assert model["parameters"] == report["parameters"]["pretraining"]
    assert model["weight_bytes"] == (scene.pretrained / "model.safetensors").stat().st_size
    assert not any(model["tensors"].values())
    assert tokenizer["belongs"] and tokenizer["pieces"] == 180
    output = info(scene.pretrained)
    for words in ("order", "every file matches", "of no preset", tokenizer["fingerprint"], "made with it  yes"):
        assert words in output


def test_labels_runs_and_tokenizers_are_described(scene, info) -> None:
    assert "a label for each sequence (2: negative, positive)" in info(scene.classifier)
    assert info(scene.classifier, "--json")["model"]["labels"] == ["negative", "positive"]
    model = info(scene.run, "--json")["model"]
    assert model["directory"] == str(scene.run / "model") and model["other_keys"]["sentence_objective"] == "sop"
    report = info(scene.tokenizer, "--json")
    assert report["kind"] == "tokenizer" and report["tokenizer"]["pieces"] == 180
    assert "SentencePiece" in info(scene.tokenizer)


def test_a_classifier_is_described_with_its_own_head(scene, info) -> None:
    output = info(scene.classifier)
    assert "a masked token" not in output
    assert "masked-token head" not in output and "sentence-order head" not in output and "both heads" not in output
    model = info(scene.classifier, "--json")["model"]
    hidden = SHAPE["hidden_size"]
    assert model["head_parameters"] == {"its head": 2 * hidden + 2}
    assert re.search(rf"its head +{2 * hidden + 2} ", output)
    assert re.search(rf"with its head +{model['parameters']:,} ", output)
    assert "model with pooler" in output


def test_a_pre_trained_model_is_described_with_both_heads(scene, info) -> None:
    output = info(scene.pretrained)
    for words in ("a masked token", "masked-token head", "sentence-order head", "with both heads", "model with pooler"):
        assert words in output


def test_a_head_without_a_pooler_is_counted_without_one(scene, info, tmp_path: Path) -> None:
    config = EncoderConfig(vocab_size=180, **{**SHAPE, "embedding_size": SHAPE["hidden_size"]})
    directory = tmp_path / "model"
    save_model_directory(directory, AlbertForTokenClassification(config, 3), scene.tokenizer)
    output = info(directory)
    assert "without pooler" in output and "model with pooler" not in output and "with its head" in output
    assert re.search(r"in the file but not needed +none", output)


def test_a_random_head_is_reported(scene, info, tmp_path: Path) -> None:
    config = json.loads((scene.pretrained / "config.json").read_text())
    config["architectures"] = ["AlbertForQuestionAnswering"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((scene.pretrained / "model.safetensors").read_bytes())
    model = info(tmp_path, "--json")["model"]
    assert model["tensors"]["newly_initialised"] == ["qa_outputs.weight", "qa_outputs.bias"]
    assert "predictions.bias" in model["tensors"]["unexpected"] and not model["verified"] and not model["tokenizer"]
    output = info(tmp_path)
    assert "2: qa_outputs.weight, qa_outputs.bias" in output and "none: unverified" in output
    assert "the directory contains no vocabulary" in output


def test_another_tokenizer_is_reported(scene, info, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((scene.pretrained / name).read_bytes())
    foreign = scene.other_corpus / "spiece.model"
    (tmp_path / "spiece.model").write_bytes(foreign.read_bytes())
    assert info(tmp_path, "--json")["model"]["tokenizer"]["belongs"] is False
    assert "made with it  NO, with another one" in info(tmp_path)


def test_the_preset_of_a_directory_and_differences_are_named(base_directory: Path, info) -> None:
    report = info(base_directory, "--compare", "bert-base", "--json")
    assert report["one"]["preset"] == "albert-base-v1"
    assert report["one"]["differs_from_preset"] == {"hidden_act": ["gelu", "gelu_new"]}
    assert [size["stated"] for size in report["one"]["published"]] == ["12M"]


def test_a_corpus_is_described_with_its_tokenizer(scene, info) -> None:
    report = info(scene.corpus, "--json")
    assert report["kind"] == "corpus" and report["verified"] and report["tokenizer"]["belongs"]
    assert report["corpus"]["counts"]["train"]["tokens"] > 0 and report["corpus"]["sources"] == 40
    output = info(scene.corpus)
    assert "held_out" in output and report["tokenizer"]["fingerprint"] in output
    assert f"{report['corpus']['counts']['train']['tokens']:,}" in output


def test_a_measurement_has_both_rates_and_its_settings(scene, info) -> None:
    arguments = (scene.pretrained, "--measure", "--max-length", 8, "--batch-size", 2, "--precision", "fp32")
    output = info(*arguments, "--device", "cpu")
    assert "CPU, fp32" in output and "2 × 8 tokens" in output and "training step" in output
    measured = info(*arguments, "--device", "cpu", "--json")["measured"]
    assert measured["threads"] == torch.get_num_threads()
    assert measured["results"][str(scene.pretrained)]["training_seconds"] > 0


def test_memory_is_planned_with_and_without_checkpointing(info) -> None:
    arguments = ("albert-large", "--memory", "--batch-size", 4, "--max-length", 128, "--precision", "bf16")
    report = info(*arguments, "--device", "cpu", "--memory-limit", "8GB", "--json")["memory_plan"]
    expected = {
        name: count_training_memory(
            PRESETS["albert-large"],
            batch_size=4,
            sequence_length=128,
            precision="bf16",
            activation_checkpointing=name == "checkpointed",
        )
        for name in ("all_kept", "checkpointed")
    }
    assert {name: report[name]["peak"] for name in expected} == {name: memory.peak for name, memory in expected.items()}
    assert report["limit"] == 8_000_000_000 and report["largest_batch"] < report["largest_batch_checkpointed"]
    output = info(*arguments, "--memory-limit", "8GB")
    assert "A training step of 4 × 128 tokens" in output and "24 layers" in output
    assert re.search(rf"largest micro-batch in 8.00 GB +{report['largest_batch']:,} ", output)


def test_a_plan_for_a_gpu_needs_no_gpu(info, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = info("albert-xxlarge", "--memory", "--device", "cuda", "--json")["memory_plan"]
    assert (report["device"], report["precision"]) == ("cuda", "bf16")
    assert report["limit"] is None and report["largest_batch"] is None and report["all_kept"]["update"] == 0
    assert "largest micro-batch" not in info("albert-xxlarge", "--memory", "--device", "cuda")


@pytest.mark.parametrize(
    ("size", "number"), [("24GB", 24 * 10**9), ("1.5 GiB", 3 * 2**29), ("800mb", 800 * 10**6), ("2TB", 2 * 10**12)]
)
def test_sizes_with_units_are_read(size: str, number: int) -> None:
    assert bytes_of_size("--memory-limit", size) == number


def test_a_self_check_scores_every_setting(scene, info) -> None:
    report = info(scene.pretrained, "--self-check", "--json")["self_check"]
    settings = {(setting["hidden_act"], setting["num_attention_heads"]) for setting in report["settings"]}
    assert {("gelu", 2), ("gelu_new", 2), ("gelu_new", 16)} <= settings and report["verdict"]
    output = info(scene.pretrained, "--self-check")
    assert "gelu_new (stated)" in output and f"{report['masked_tokens']} masked tokens" in output


def test_a_local_directory_takes_precedence_over_a_preset(scene, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve("albert-base").kind == "preset"
    Path("albert-base").symlink_to(scene.pretrained)
    found = resolve("albert-base")
    assert found.kind == "model" and found.config is not None and found.config.vocab_size == 180


@pytest.mark.parametrize(
    ("name", "groups", "sharing"),
    [
        ("albert-base", "1", "all"),
        ("bert-base", None, "none"),
        ("small-vectors", None, "none"),
        ("small", "4", "all layers of a group, which is one layer: none are shared"),
        ("albert-base-shared-attention", None, "attention"),
    ],
)
def test_groups_of_layers_are_shown_where_they_say_what_is_shared(name, groups, sharing, capsys):
    assert run(["info", name]) == 0
    lines = [line.split(None, 1) for line in capsys.readouterr().out.splitlines()]
    values = {line[0]: line[1] for line in lines if len(line) == 2}
    assert (values.get("num_hidden_groups"), values["sharing"]) == (groups, sharing)
