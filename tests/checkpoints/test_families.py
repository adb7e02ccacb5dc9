"""BERT, DistilBERT, RoBERTa, XLM-R, CamemBERT and ELECTRA: their files, and what is refused; numbers in test_parity."""

import json
from dataclasses import replace

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.parity import FAMILIES, HEADS, IDS, TYPES, assert_same, make, ours, theirs

import albert
from albert.checkpoints.config_json import read_config
from albert.checkpoints.huggingface import kind_of
from albert.checkpoints.model_directory import open_model, save_model_directory
from albert.cli.main import run
from albert.model.albert import AlbertForPreTraining, AlbertForSequenceClassification
from albert.model.packing import pack


def test_old_names_missing_prefixes_and_buffers(tmp_path):
    model = make("Bert", "Model")
    model.save_pretrained(tmp_path)
    expected = theirs(model, "Model")
    tensors = load_file(tmp_path / "model.safetensors")
    old = {}
    for name, tensor in tensors.items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        old[f"bert.{name}"] = tensor
    old["bert.embeddings.position_ids"] = torch.arange(32)[None]
    save_file(old, tmp_path / "model.safetensors", {"format": "pt"})
    assert_same(ours(tmp_path)[0], expected)


def test_shards(tmp_path):
    model = make("DistilBert", "ForMaskedLM")
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    assert_same(ours(tmp_path)[0], theirs(model, "ForMaskedLM"))


def test_pickles_are_refused_with_the_remedy(tmp_path, refused):
    model = make("Bert", "Model")
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    refused(lambda: albert.open_model(tmp_path), 66, tmp_path, "save_pretrained")


@pytest.mark.parametrize(
    ("kind", "name"), [("mpnet", "MPNet"), ("deberta-v2", "DeBERTa"), ("modernbert", "ModernBERT"), ("t5", "T5"),
                       ("nomic_bert", "Nomic"), ("whisper", "'whisper'")]
)  # fmt: skip
def test_other_families_are_refused_by_name(kind, name, tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    assert run(["info", str(tmp_path)]) != 0
    message = capsys.readouterr().err
    assert name in message and message.count("\n") == 1


def test_weights_of_another_family_are_refused(tmp_path):
    make("Bert", "Model").save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(content | {"model_type": "roberta"}))
    with pytest.raises(albert.AlbertError) as refusal:
        albert.open_model(tmp_path)
    assert refusal.value.exit_code in (65, 78)


@pytest.mark.parametrize("family", ["Bert", "DistilBert", "Roberta", "Electra"])
@pytest.mark.parametrize("objective", ["sop", "nsp", "none"])
def test_pretraining_models_keep_their_sentence_head(family, objective, tmp_path):
    make(family, "Model").save_pretrained(tmp_path / "theirs")
    config, _ = read_config(tmp_path / "theirs")
    model = AlbertForPreTraining(config).eval()
    save_model_directory(tmp_path / "saved", model, None, extra={"sentence_objective": objective})
    opened = open_model(tmp_path / "saved", "pretraining")
    assert opened.config == config
    assert opened.extra["sentence_objective"] == objective
    packed = pack(IDS, TYPES)
    for actual, expected in zip(opened.model(packed, torch.arange(5)), model(packed, torch.arange(5)), strict=True):
        assert torch.equal(actual, expected) or objective == "none"
    assert kind_of(opened.extra) == ("masked_lm" if objective == "none" else "pretraining")
    class_of_file = json.loads((tmp_path / "saved" / "config.json").read_text())["architectures"]
    is_native = family == "Bert" and objective == "nsp"
    assert class_of_file == [family + ("ForPreTraining" if is_native else "ForMaskedLM")]
    head = getattr(transformers, class_of_file[0])
    _, info = head.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not info["missing_keys"]


@pytest.mark.parametrize("family", FAMILIES)
def test_conversion_keeps_every_head(family, tmp_path, capsys):
    """`albert convert` reads the head from the tensors, writes the same family, and prints the class that it writes."""
    for head in HEADS if family == "Bert" else ("ForMaskedLM", "ForSequenceClassification"):
        model = make(family, head)
        model.save_pretrained(tmp_path / head)
        output = tmp_path / f"{head}-converted"
        assert run(["convert", str(tmp_path / head), "--output", str(output), "--without-tokenizer"]) == 0
        again, info = type(model).from_pretrained(output, output_loading_info=True, dtype=torch.float64)
        assert not any(info.values()), head
        assert_same(theirs(again.eval(), head), theirs(model, head))
        assert f" {_written_class(output)}: V " in capsys.readouterr().out


def test_conversion_prints_the_class_of_a_head_that_transformers_does_not_know(tmp_path, capsys, refused):
    make("Bert", "Model").save_pretrained(tmp_path / "theirs")
    config = replace(read_config(tmp_path / "theirs")[0], head_pooling="mean")
    source, output = tmp_path / "source", tmp_path / "converted"
    save_model_directory(source, AlbertForSequenceClassification(config, 2), None)
    assert run(["convert", str(source), "--output", str(output), "--without-tokenizer"]) == 0
    assert _written_class(output) == "BertForPooledSequenceClassification"
    assert " BertForPooledSequenceClassification: V " in capsys.readouterr().out
    labels = ["--output", tmp_path / "labelled", "--without-tokenizer", "--labels", "a", "b"]
    refused(["convert", tmp_path / "theirs", *labels], 2, "holds BertModel, which has no classes")


def _written_class(directory):
    return json.loads((directory / "config.json").read_text())["architectures"][0]


@pytest.mark.parametrize(
    ("files", "subject", "names"),
    [
        ({"modules.json": [{"type": "a.StaticEmbedding", "path": ""}]}, "modules.json", "StaticEmbedding"),
        ({"modules.json": [{"type": "a.Router", "path": ""}], "tokenizer.json": {}}, "modules.json", "Router"),
        ({"adapter_config.json": {"base_model_name_or_path": "bert-base-uncased"}}, "", "bert-base-uncased"),
        ({"model.gguf": {}}, "", "GGUF"),
    ],
)
def test_models_of_another_kind_are_refused_by_name(files, subject, names, tmp_path, capsys):
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    for command in (["info", str(tmp_path)], ["predict", str(tmp_path), "--fill-mask", "a [MASK]"]):
        assert run(command) != 0
        message = capsys.readouterr().err
        assert str(tmp_path / subject) in message and names in message and message.count("\n") == 1


def test_a_model_with_code_of_its_own_is_refused(tmp_path, refused):
    make("Bert", "Model").save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    code = {"AutoConfig": "configuration.Other", "AutoModel": "modeling.OtherModel"}
    (tmp_path / "config.json").write_text(json.dumps(content | {"auto_map": code}))
    refused(lambda: albert.open_model(tmp_path), 78, "auto_map")
    (tmp_path / "config.json").write_text(json.dumps(content | {"auto_map": {"AutoTokenizer": ["a.B", None]}}))
    assert read_config(tmp_path)[0].family == "bert"


def test_the_conversion_of_a_pickle_keeps_the_head_and_the_modules(tmp_path, refused):
    model = make("Bert", "ForSequenceClassification")
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    refused(
        lambda: open_model(tmp_path, "classification"), 66, tmp_path, "BertForSequenceClassification.from_pretrained("
    )
    modules = [{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "1_Pooling"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    refused(lambda: open_model(tmp_path, "classification"), 66, tmp_path, "SentenceTransformer(")


def test_a_discriminator_and_wide_embeddings_of_electra_open(tmp_path):
    model = make("Electra", "ForPreTraining", embedding_size=16)
    model.save_pretrained(tmp_path)
    actual, opened = ours(tmp_path)
    assert_same(actual, theirs(model.electra, "Model"))
    assert opened.loading_report.not_used == "tensors of the file that are not used here: discriminator_predictions (4)"
