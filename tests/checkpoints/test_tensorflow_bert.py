"""Checkpoints of google-research/bert convert to BERT's directories, with the numbers of transformers."""

import json

import pytest
import torch
import transformers

from albert.cli.main import run
from albert.runtime.errors import DamagedData, MissingInput
from albert.text.huggingface import SPECIAL_PIECES

SIZES = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
}
NAMES = {
    "encoder.layer.": "encoder/layer_",
    "LayerNorm.weight": "LayerNorm/gamma",
    "LayerNorm.bias": "LayerNorm/beta",
    "cls.predictions.bias": "cls/predictions/output_bias",
    "cls.seq_relationship.": "cls/seq_relationship/output_",
    "qa_outputs.": "cls/squad/output_",
    "embeddings.weight": "embeddings",
}


def variables(model):
    """The tensors of a model of transformers under the names, and in the layout, of Google's code."""
    result = {}
    for name, tensor in model.state_dict().items():
        if name.startswith("cls.predictions.decoder"):
            continue
        is_kernel = name.endswith(".weight") and tensor.ndim == 2 and "embeddings" not in name
        is_output = name.startswith(("cls.seq_relationship", "classifier", "qa_outputs"))
        if name.startswith("classifier."):
            name = name.replace("classifier.", "output_")
        for old, new in NAMES.items():
            name = name.replace(old, new)
        name = name.replace("output_weight", "output_weights")
        if not is_output:
            name = name.replace(".weight", ".kernel")
        result[name.replace(".", "/")] = (tensor.t() if is_kernel and not is_output else tensor).contiguous()
    return result


@pytest.mark.parametrize("head", ["ForPreTraining", "ForSequenceClassification", "ForQuestionAnswering", "Model"])
def test_conversion(head, writer, tmp_path):
    torch.manual_seed(0)
    config = transformers.BertConfig(**SIZES, initializer_range=0.5, num_labels=3)
    if head == "ForQuestionAnswering":
        config.num_labels = 2
    model = getattr(transformers, "Bert" + head)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    tensors = variables(model)
    if head == "Model":
        tensors = {f"bert/{name}": tensor for name, tensor in tensors.items()}
    tensors |= {"bert/pooler/dense/bias/adam_m": torch.zeros(8), "global_step": torch.tensor(7)}
    writer.write_bundle(tmp_path / "bert_model.ckpt", tensors)
    (tmp_path / "bert_config.json").write_text(json.dumps(SIZES | {"hidden_act": "gelu"}))
    pieces = [*SPECIAL_PIECES, *"abcdefghijklmno"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    output = tmp_path / "converted"
    assert run(["convert", str(tmp_path), "--output", str(output)]) == 0
    again, info = type(model).from_pretrained(output, output_loading_info=True)
    assert not any(info.values())
    ids = torch.tensor([[2, 6, 7, 8, 3, 9, 3]])
    inputs = {"input_ids": ids, "token_type_ids": (torch.arange(7) > 4).long()[None]}
    with torch.no_grad():
        expected, actual = model(**inputs), again.eval()(**inputs)
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=0, atol=1e-5)
    assert transformers.AutoTokenizer.from_pretrained(output)("a b")["input_ids"] == [2, 5, 6, 3]


def test_a_missing_layer_and_a_missing_configuration_are_named(writer, tmp_path, capsys):
    config = transformers.BertConfig(**SIZES)
    tensors = variables(transformers.BertForPreTraining(config))
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIAL_PIECES))
    writer.write_bundle(tmp_path / "bert_model.ckpt", tensors)
    assert run(["convert", str(tmp_path), "--output", str(tmp_path / "out")]) == MissingInput.exit_code
    assert "--num-attention-heads" in capsys.readouterr().err
    cut = {name: tensor for name, tensor in tensors.items() if "layer_0" not in name}
    writer.write_bundle(tmp_path / "bert_model.ckpt", cut)
    (tmp_path / "bert_config.json").write_text(json.dumps(SIZES | {"hidden_act": "gelu"}))
    assert run(["convert", str(tmp_path), "--output", str(tmp_path / "out")]) == DamagedData.exit_code
