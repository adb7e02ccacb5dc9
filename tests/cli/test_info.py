"""`albert info`: exact figures of presets and directories, two side by side, damage found, tables that fit."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from albert.cli.info import bytes_from, resolve
from albert.cli.main import run
from albert.model.config import PRESETS
from albert.model.cost import count_training_memory
from albert.runtime.errors import Unavailable


@pytest.fixture
def info(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs the command; with --json, what it says, else the text."""

    def call(*arguments: object) -> Any:
        capsys.readouterr()
        assert run(["info", *map(str, arguments)]) == 0
        shown = capsys.readouterr().out
        return json.loads(shown) if "--json" in arguments else shown

    return call


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs the command; the exit code and the one line that it says."""

    def call(*arguments: object) -> tuple[int, str]:
        code = run(["info", *map(str, arguments)])
        said = capsys.readouterr()
        assert said.out == "" and said.err.count("\n") == 1
        return code, said.err

    return call


@pytest.fixture
def base_directory(tmp_path: Path) -> Path:
    """A directory of the shape of albert-base, with the configuration that the Hub has for version 1; no weights."""
    place = tmp_path / "base"
    place.mkdir()
    config = replace(PRESETS["albert-base-v1"], hidden_act="gelu")
    values = {name: value for name, value in vars(config).items() if name not in ("sharing", "embedding_projection")}
    (place / "config.json").write_text(json.dumps({"model_type": "albert", **values}))
    return place


@pytest.mark.parametrize(("name", "parameters"), [("albert-base", 11_683_584), ("bert-large", 334_607_360)])
def test_a_preset_is_told_exactly(name: str, parameters: int, info) -> None:
    assert f"{parameters:,}" in info(name) and "gelu_new" in info(name)
    told = info(name, "--json", "--max-length", 128)
    assert told["kind"] == "preset" and told["parameters"]["model"] == parameters
    assert told["configuration"]["hidden_size"] == PRESETS[name].hidden_size
    assert told["sequence_length"] == 128


def test_a_preset_shows_what_is_published_and_why_it_differs(info) -> None:
    shown = info("albert-xxlarge-v2")
    assert "235M" in shown and "no counting of this configuration gives it" in shown
    assert "also albert-xxlarge-v2" in shown
    assert "108,490,752  without the pooler" in info("BERT_base")


def test_alone_it_tells_the_machine_and_the_presets(info) -> None:
    shown = info()
    assert "torch" in shown and all(f"{name} " in shown for name in PRESETS) and "albert-base-v2" in shown
    told = info("--json")
    assert told["machine"]["torch"] == torch.__version__
    assert told["presets"]["albert-large"]["parameters"] == 17_683_968
    assert told["other_names"]["albert-base-v2"] == "albert-base"


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
def test_nothing_is_wider_than_the_terminal(width: int, arguments: list[str], info, terminal) -> None:
    terminal(width)
    lines = info(*arguments).splitlines()
    assert 60 < max(map(len, lines)) <= width
    assert not [line for line in lines if line.endswith(" ")]


def test_two_presets_are_set_side_by_side_and_claims_are_checked(info) -> None:
    shown = info("albert-base-v2", "--compare", "bert-base")
    assert "1 : 9.34" in shown and "-89.3%" in shown and "holds" in shown and "82.9 % fewer" in shown
    told = info("bert-large", "--compare", "albert-xxlarge", "--json")
    assert told["kind"] == "comparison" and told["one"]["name"] == "bert-large"
    assert [(claim["figure"], claim["holds"]) for claim in told["claims"]] == [
        ("33.5 % fewer", True),
        ("66.5 % of it", True),
        ("7.54 times as many", False),
    ]


def test_a_directory_is_told_whole(scene, info) -> None:
    told = info(scene.pretrained, "--json")
    model, tokenizer = told["model"], told["model"]["tokenizer"]
    assert told["kind"] == "model" and model["architecture"] == "AlbertForPreTraining" and model["verified"]
    assert model["parameters"] == told["parameters"]["pretraining"]
    assert model["weight_bytes"] == (scene.pretrained / "model.safetensors").stat().st_size
    assert not any(model["tensors"].values())
    assert tokenizer["belongs"] and tokenizer["pieces"] == 180
    shown = info(scene.pretrained)
    for words in ("order", "every file matches", "of no preset", tokenizer["fingerprint"], "the one it was made with"):
        assert words in shown


def test_a_classifier_names_its_labels(scene, info) -> None:
    assert "a label for each sequence (2: negative, positive)" in info(scene.classifier)
    assert info(scene.classifier, "--json")["model"]["labels"] == ["negative", "positive"]


def test_a_run_is_told_as_the_model_in_it(scene, info) -> None:
    told = info(scene.run, "--json")
    assert told["model"]["directory"] == str(scene.run / "model")
    assert told["model"]["other_keys"]["sentence_objective"] == "sop"


def test_a_head_that_is_random_is_said(scene, info, tmp_path: Path) -> None:
    content = json.loads((scene.pretrained / "config.json").read_text()) | {
        "architectures": ["AlbertForQuestionAnswering"]
    }
    (tmp_path / "config.json").write_text(json.dumps(content))
    (tmp_path / "model.safetensors").write_bytes((scene.pretrained / "model.safetensors").read_bytes())
    told = info(tmp_path, "--json")["model"]
    assert told["tensors"]["newly_initialised"] == ["qa_outputs.weight", "qa_outputs.bias"]
    assert "predictions.bias" in told["tensors"]["unexpected"] and not told["verified"] and told["tokenizer"] is None
    shown = info(tmp_path)
    assert "2: qa_outputs.weight, qa_outputs.bias" in shown and "none: unverified" in shown
    assert "the directory contains no vocabulary" in shown


def test_another_tokenizer_is_noticed(scene, info, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((scene.pretrained / name).read_bytes())
    foreign = scene.other_corpus / "spiece.model"
    (tmp_path / "spiece.model").write_bytes(foreign.read_bytes())
    assert info(tmp_path, "--json")["model"]["tokenizer"]["belongs"] is False
    assert "NOT the one it was made with" in info(tmp_path)


def test_damage_is_found(scene, refused, tmp_path: Path) -> None:
    for file in scene.pretrained.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "README.md").write_text("other")
    code, said = refused(tmp_path)
    assert code == 65 and "README.md" in said


def test_a_directory_of_a_presets_shape_says_so_and_what_differs(base_directory: Path, info) -> None:
    told = info(base_directory, "--compare", "bert-base", "--json")
    assert told["one"]["preset"] == "albert-base-v1"
    assert told["one"]["differs_from_preset"] == {"hidden_act": ["gelu", "gelu_new"]}
    assert [size["stated"] for size in told["one"]["published"]] == ["12M"]
    assert [claim["stated"] for claim in told["claims"]] == ["80 %", "90 %", "89 %", "fewer"]


def test_a_corpus_is_told_with_its_tokenizer(scene, info) -> None:
    told = info(scene.corpus, "--json")
    assert told["kind"] == "corpus" and told["verified"] and told["tokenizer"]["belongs"]
    assert told["corpus"]["counts"]["train"]["tokens"] > 0 and told["corpus"]["sources"] == 40
    shown = info(scene.corpus)
    assert "held_out" in shown and told["tokenizer"]["fingerprint"] in shown
    assert f"{told['corpus']['counts']['train']['tokens']:,}" in shown


def test_a_tokenizer_alone_is_told_too(scene, info) -> None:
    told = info(scene.tokenizer, "--json")
    assert told["kind"] == "tokenizer" and told["tokenizer"]["pieces"] == 180
    assert "SentencePiece" in info(scene.tokenizer)


def test_measuring_says_how_and_gives_both_rates(scene, info) -> None:
    arguments = (scene.pretrained, "--measure", "--max-length", 8, "--batch-size", 2, "--precision", "fp32")
    shown = info(*arguments, "--device", "cpu")
    assert "CPU, fp32" in shown and "2 × 8 tokens" in shown and "training step" in shown
    told = info(*arguments, "--device", "cpu", "--json")["measured"]
    assert told["threads"] == torch.get_num_threads() and told["results"][str(scene.pretrained)]["training_seconds"] > 0


def test_two_models_are_measured_in_one_run(scene, info) -> None:
    told = info(scene.pretrained, "--compare", scene.classifier, "--measure", "--batch-size", 1, "--json")
    assert set(told["measured"]["results"]) == {str(scene.pretrained), str(scene.classifier)}
    assert told["measured"]["results"][str(scene.pretrained)]["sequence_length"] == 64


def test_a_plan_tells_parts_and_the_largest_batch_with_and_without_checkpointing(info) -> None:
    asked = ("albert-large", "--memory", "--batch-size", 4, "--max-length", 128, "--precision", "bf16")
    told = info(*asked, "--device", "cpu", "--memory-limit", "8GB", "--json")["memory_plan"]
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
    assert {name: told[name]["peak"] for name in expected} == {name: some.peak for name, some in expected.items()}
    assert told["limit"] == 8_000_000_000 and told["largest_batch"] < told["largest_batch_checkpointed"]
    shown = info(*asked, "--memory-limit", "8GB")
    assert "A training step of 4 × 128 tokens" in shown and "24 layers" in shown
    assert re.search(rf"largest micro-batch in 8.00 GB +{told['largest_batch']:,} ", shown)


def test_a_plan_for_a_gpu_needs_none(info, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    told = info("albert-xxlarge", "--memory", "--device", "cuda", "--optimizer", "adamw", "--json")["memory_plan"]
    assert (told["device"], told["precision"], told["optimizer"]) == ("cuda", "bf16", "adamw")
    assert told["limit"] is None and told["largest_batch"] is None and told["all_kept"]["update"] == 0
    assert "largest micro-batch" not in info("albert-xxlarge", "--memory", "--device", "cuda")


@pytest.mark.parametrize(
    ("size", "number"), [("24GB", 24 * 10**9), ("1.5 GiB", 3 * 2**29), ("800mb", 800 * 10**6), ("2TB", 2 * 10**12)]
)
def test_sizes_are_read_as_they_are_written(size: str, number: int) -> None:
    assert bytes_from("--memory-limit", size) == number


def test_a_self_check_shows_every_setting(scene, info) -> None:
    told = info(scene.pretrained, "--self-check", "--json")["self_check"]
    settings = {(setting["hidden_act"], setting["num_attention_heads"]) for setting in told["settings"]}
    assert {("gelu", 2), ("gelu_new", 2), ("gelu_new", 16)} <= settings and told["verdict"]
    shown = info(scene.pretrained, "--self-check")
    assert "gelu_new (stated)" in shown and f"{told['masked_tokens']} masked tokens" in shown


def test_what_lies_here_goes_before_a_preset(scene, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve("albert-base").kind == "preset"
    Path("albert-base").symlink_to(scene.pretrained)
    found = resolve("albert-base")
    assert found.kind == "model" and found.config is not None and found.config.vocab_size == 180


def test_a_misspelt_preset_is_corrected(refused) -> None:
    with pytest.raises(Unavailable, match="is not a preset; .*did you mean 'albert-base'"):
        resolve("albert-bse")
    code, said = refused("albert-bse")
    assert code == 69 and "did you mean" in said
    code, said = refused("xyz")
    assert code == 69 and "`albert info` lists the presets" in said
