"""The card's front matter is YAML that the Hub accepts, and its examples run."""

import contextlib
import io
import re
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard as HubCard

from albert.checkpoints.card import ModelCard
from albert.checkpoints.model_directory import MODELS, Kind, save_model_directory
from albert.experiments.quickstart import load_chapters
from albert.model.config import AlbertConfig
from albert.text.sentencepiece import train_tokenizer

HOSTILE = 'no: "yes" | {x} \\ # --- \n---\nlicense: evil'


def test_everything_passed_in_is_shown() -> None:
    card = ModelCard(
        name="tiny",
        architecture="AlbertForPreTraining",
        description="A model for tests.",
        parameters={"embeddings": 1_234_567},
        recipe={
            "optimizer": {"kind": "lamb", "clamp": None},
            "batch_size": 4096,
            "learning_rate": 0.00012000000000000002,
            "max_tokens": None,
            "mixture": [],
            "favor_shorter": True,
            "layers": (1, 2),
        },
        data=["a corpus"],
        scores={"MLM accuracy": 0.54321},
        language=["en", "no"],
        tags=["albert", "sop"],
        license="apache-2.0",
        versions={"torch": "2.13"},
        limits=["knows little"],
    )
    text = card.render()
    for part in ("1,234,567", "4096", "| optimizer | kind lamb |", "a corpus", "0.5432", "2.13", "knows little"):
        assert part in text
    for row in ("| learning_rate | 0.00012 |", "| favor_shorter | yes |", "| layers | 1, 2 |"):
        assert row in text
    assert "max_tokens" not in text and "mixture" not in text and "clamp" not in text
    matter = yaml.safe_load(text.split("---")[1])
    assert matter == {
        "library_name": "transformers",
        "license": "apache-2.0",
        "language": ["en", "no"],
        "pipeline_tag": "fill-mask",
        "tags": ["albert", "sop"],
    }
    assert HubCard(text).data.license == "apache-2.0"


def test_hostile_values_break_neither_yaml_nor_tables() -> None:
    text = ModelCard(
        name=HOSTILE,
        architecture="AlbertModel",
        recipe={HOSTILE: HOSTILE},
        data=[HOSTILE],
        license=HOSTILE,
        language=[HOSTILE],
        tags=[HOSTILE],
    ).render()
    matter = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    assert matter is not None
    found = yaml.safe_load(matter.group(1))
    assert found["license"] == HOSTILE
    assert found["tags"] == ["albert", HOSTILE]
    assert found["library_name"] == "transformers"
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)


@pytest.mark.parametrize(
    ("kind", "objective"), [*((kind, "sop") for kind in MODELS), ("pretraining", "nsp"), ("pretraining", "none")]
)
def test_the_example_on_the_card_runs(kind: Kind, objective: str, tmp_path: Path) -> None:
    tokenizer = train_tokenizer([load_chapters()[0].text[:20_000]], vocab_size=200)
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(tmp_path / "tokenizer")
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
    )
    path = tmp_path / "model"
    labelled = kind in ("classification", "token_classification")
    model = MODELS[kind](config, 2) if labelled else MODELS[kind](config)
    save_model_directory(path, model, tmp_path / "tokenizer", extra={"sentence_objective": objective})
    (code,) = re.findall(r"```python\n(.*?)```", (path / "README.md").read_text(), re.DOTALL)
    assert "path/to/this/directory" in code
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code.replace("path/to/this/directory", str(path)), "card", "exec"), {})
    assert said.getvalue()
    assert (
        f"| all | {sum(parameter.numel() for parameter in model.parameters()):,} |" in (path / "README.md").read_text()
    )
