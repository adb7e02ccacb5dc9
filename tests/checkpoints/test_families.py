"""BERT, DistilBERT, RoBERTa, XLM-R, CamemBERT and ELECTRA: the numbers of transformers, in both directions."""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import albert
from albert.checkpoints.huggingface import kind_of
from albert.checkpoints.model_directory import open_model, read_config, save_model_directory, write_model
from albert.cli.main import run
from albert.model.albert import AlbertForPreTraining
from albert.model.packing import pack

SIZES = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "initializer_range": 0.5,
}
AFTER_PADDING = SIZES | {"max_position_embeddings": 34, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
DISTIL = {
    "vocab_size": 60,
    "dim": 16,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 24,
    "max_position_embeddings": 32,
    "initializer_range": 0.5,
}
FAMILIES = {
    "Albert": SIZES | {"embedding_size": 8},
    "Bert": SIZES,
    "DistilBert": DISTIL,
    "Roberta": AFTER_PADDING,
    "XLMRoberta": AFTER_PADDING,
    "Camembert": AFTER_PADDING,
    "Electra": SIZES | {"embedding_size": 8},
}
HEADS = (
    "Model",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
)
CASES = [(family, head) for family in ("Bert", "DistilBert", "Roberta", "Electra") for head in HEADS]
CASES += [("Bert", "ForPreTraining"), ("XLMRoberta", "ForMaskedLM"), ("Camembert", "ForMaskedLM")]
IDS = [np.arange(5, 37), np.array([7, 8, 9, 10, 3])]
TYPES = [np.repeat([0, 1], [10, 22]), np.array([0, 0, 1, 1, 1])]


def make(family, head, **changes):
    """A model of transformers with random weights, biases included."""
    torch.manual_seed(0)
    config = getattr(transformers, family + "Config")(**FAMILIES[family] | changes)
    model = getattr(transformers, family + head)(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def theirs(model, head, ids=IDS, types=TYPES):
    """The outputs of transformers, one sequence at a time."""
    outputs = []
    for own_ids, own_types in zip(ids, types, strict=True):
        inputs = {"input_ids": torch.tensor(own_ids)[None]}
        if getattr(model.config, "type_vocab_size", 1) > 1:
            inputs["token_type_ids"] = torch.tensor(own_types)[None]
        if head == "ForMultipleChoice":
            inputs = {name: value[None] for name, value in inputs.items()}
        with torch.no_grad():
            outputs.append(model(**inputs))
    match head:
        case "Model":
            return torch.cat([output.last_hidden_state[0] for output in outputs])
        case "ForQuestionAnswering":
            return torch.cat([torch.stack([output.start_logits[0], output.end_logits[0]], 1) for output in outputs])
        case "ForPreTraining":
            return torch.cat([output.prediction_logits[0] for output in outputs])
        case "ForMaskedLM" | "ForTokenClassification":
            return torch.cat([output.logits[0] for output in outputs])
        case "ForMultipleChoice":
            return torch.cat([output.logits[:, 0] for output in outputs])
    return torch.cat([output.logits for output in outputs])


def ours(directory, dtype=torch.float64, ids=IDS, types=TYPES):
    """Our outputs, in one packed batch, and the opened model."""
    opened = open_model(directory, kind_of(read_config(directory)[1]), dtype=dtype)
    packed = pack(ids, types)
    with torch.no_grad():
        masked = (torch.arange(packed.n_tokens),) if hasattr(opened.model, "predictions") else ()
        output = opened.model(packed, *masked)
    if hasattr(output, "masked_tokens"):
        output = output.masked_tokens
    return torch.stack(output, 1) if isinstance(output, tuple) else output, opened


@pytest.mark.parametrize(("family", "head"), CASES)
def test_numbers_are_those_of_transformers_in_both_directions(family, head, tmp_path):
    model = make(family, head)
    model.save_pretrained(tmp_path / "theirs")
    expected = theirs(model, head)
    actual, opened = ours(tmp_path / "theirs")
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12 * float(expected.abs().max()) + 1e-12)
    assert not [name for name in opened.loading_report.drawn if "pooler" not in name]
    assert opened.loading_report.unexpected == ()

    write_model(tmp_path / "ours", opened.model, None, extra=opened.extra)
    again, info = type(model).from_pretrained(tmp_path / "ours", output_loading_info=True, dtype=torch.float64)
    assert not any(info.values())
    assert again.config.model_type == model.config.model_type
    torch.testing.assert_close(theirs(again.eval(), head), expected, rtol=0, atol=1e-12)
    for name, tensor in model.state_dict().items():
        first = 2 if family in ("Roberta", "XLMRoberta", "Camembert") and "position_embeddings" in name else 0
        assert torch.equal(again.state_dict()[name][first:], tensor[first:]), name


@pytest.fixture(autouse=True)
def folders(tmp_path):
    (tmp_path / "ours").mkdir()


def test_single_precision_and_the_last_of_512_positions(tmp_path):
    model = make("Roberta", "Model", max_position_embeddings=514).float()
    model.save_pretrained(tmp_path)
    ids = [np.random.default_rng(0).integers(5, 60, 512)]
    actual, _ = ours(tmp_path, torch.float32, ids, [np.zeros(512, np.int64)])
    torch.testing.assert_close(actual, theirs(model, "Model", ids, ids), rtol=0, atol=3e-5)


@pytest.mark.parametrize("hidden_act", ["gelu_new", "relu", "gelu_pytorch_tanh", "gelu_fast"])
def test_activations(hidden_act, tmp_path):
    model = make("Bert", "ForMaskedLM", hidden_act=hidden_act, layer_norm_eps=1e-3)
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(ours(tmp_path)[0], theirs(model, "ForMaskedLM"), rtol=0, atol=1e-11)


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
    torch.testing.assert_close(ours(tmp_path)[0], expected, rtol=0, atol=1e-12)


def test_shards(tmp_path):
    model = make("DistilBert", "ForMaskedLM")
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    torch.testing.assert_close(ours(tmp_path)[0], theirs(model, "ForMaskedLM"), rtol=0, atol=1e-11)


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
def test_conversion_keeps_every_head(family, tmp_path):
    """`albert convert` reads the head from the tensors, and writes the same family."""
    for head in HEADS if family == "Bert" else ("ForMaskedLM", "ForSequenceClassification"):
        model = make(family, head)
        model.save_pretrained(tmp_path / head)
        output = tmp_path / f"{head}-converted"
        assert run(["convert", str(tmp_path / head), "--output", str(output), "--without-tokenizer"]) == 0
        again, info = type(model).from_pretrained(output, output_loading_info=True, dtype=torch.float64)
        assert not any(info.values()), head
        torch.testing.assert_close(theirs(again.eval(), head), theirs(model, head), rtol=0, atol=1e-12)


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
    torch.testing.assert_close(actual, theirs(model.electra, "Model"), rtol=0, atol=1e-11)
    assert opened.loading_report.not_used == "tensors of the file that are not used here: discriminator_predictions (4)"
