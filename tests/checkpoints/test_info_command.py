"""`albert info` tells exact figures of presets and directories, and finds damage."""

import json
from pathlib import Path

import pytest

from albert.checkpoints.model_directory import save_model_directory
from albert.cli import main as table
from albert.cli.info import describe, main
from albert.experiments.sample_corpus import load_chapters
from albert.model.albert import AlbertForPreTraining
from albert.model.config import AlbertConfig
from albert.model.presets import PRESETS
from albert.runtime.errors import DamagedData, Unavailable
from albert.text.sentencepiece_tokenizer import train_tokenizer


@pytest.mark.parametrize(("name", "parameters"), [("albert-base", 11_683_584), ("bert-large", 334_607_360)])
def test_a_preset_is_told_exactly(name: str, parameters: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 0
    shown = capsys.readouterr().out
    assert f"{parameters:,}" in shown and "gelu_new" in shown
    assert main([name, "--json", "--sequence-length", "128"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["parameters"]["model"] == parameters
    assert facts["configuration"]["hidden_size"] == PRESETS[name].hidden_size
    assert "FLOPs per token, at 128 tokens" in facts


def test_alone_it_tells_the_machine_and_the_presets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert "torch" in shown and all(name in shown for name in PRESETS)


def test_a_directory_is_told_whole(tmp_path: Path, config: AlbertConfig, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = train_tokenizer([load_chapters()[0].text[:20_000]], vocab_size=200)
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(tmp_path / "tokenizer")
    wide = AlbertForPreTraining(AlbertConfig(**{**vars(config), "vocab_size": 200}))
    save_model_directory(tmp_path / "m", wide, tmp_path / "tokenizer", extra={"sentence_objective": "sop"})
    facts = describe(str(tmp_path / "m"))
    assert facts["model"]["manifest"] == "every file matches"
    assert facts["model"]["parameters in memory"] == facts["parameters"]["pretraining"]
    assert facts["model"]["bytes of weights"] == (tmp_path / "m" / "model.safetensors").stat().st_size
    assert facts["tokenizer"]["fingerprint"] == tokenizer.fingerprint
    assert facts["other keys"]["sentence_objective"] == "sop"
    assert facts["tensors"]["missing"] == []
    assert main([str(tmp_path / "m")]) == 0
    assert tokenizer.fingerprint[:40] in capsys.readouterr().out  # the rest is on the next line
    (tmp_path / "m" / "README.md").write_text("other")
    with pytest.raises(DamagedData):
        describe(str(tmp_path / "m"))


def test_a_directory_without_manifest_or_tokenizer_says_so(directory: Path) -> None:
    facts = describe(str(directory))
    assert facts["model"]["manifest"] == "none: unverified"
    assert "spiece.model" in facts["tokenizer"]["none"]


def test_a_misspelt_preset_is_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Unavailable, match="is no preset; .*did you mean 'albert-base'"):
        describe("albert-bse")
    assert table.run(["info", "albert-bse"]) == 69
    assert capsys.readouterr().err.count("\n") == 1
