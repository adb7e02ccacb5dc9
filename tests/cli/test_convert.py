"""`albert convert`: TensorFlow checkpoints and Hugging Face models to model directories."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from albert.cli.main import run

HERE = Path(__file__).resolve().parents[1] / "checkpoints" / "tensorflow"
SIZES = {"hidden_size": 16, "embedding_size": 8, "intermediate_size": 32, "num_attention_heads": 2}
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(0x4E00 + n) for n in range(35))]


@pytest.fixture
def release(tmp_path) -> Path:
    """The files of a release: checkpoint, configuration, SentencePiece model."""
    from albert.text.sentencepiece import train_tokenizer

    folder = tmp_path / "albert_base"
    shutil.copytree(HERE / "shared", folder)
    (folder / "expected.npz").unlink()
    tokenizer = train_tokenizer(["It was a day. It was another day, they report."] * 20, vocab_size=30)
    (tmp_path / "vocabulary").mkdir()
    tokenizer.save(tmp_path / "vocabulary")
    shutil.copy(tmp_path / "vocabulary" / "spiece.model", folder / "30k-clean.model")
    return folder


def convert(capsys, *arguments: object) -> str:
    """The output of the command, on one line."""
    assert run(["convert", *map(str, arguments)]) == 0
    return re.sub(r"[\s│]+", " ", capsys.readouterr().out)


def test_a_release_becomes_a_model_that_predicts(release, tmp_path, capsys):
    output = tmp_path / "out"
    report = convert(capsys, release, "--output", output)
    assert "AlbertForPreTraining: V 60, E 8, H 16, L 3, A 2, F 32, gelu_new" in report
    assert '"gelu" is the tanh form in the reference' in report and "gap_size" in report
    assert "30 pieces, lower case, accents dropped" in report and "parameters 3,526" in report
    assert f"next: albert predict {output} --fill-mask" in report
    assert run(["predict", str(output), "--fill-mask", "It was a [MASK]."]) == 0
    assert run(["info", str(output), "--verify"]) == 0


@pytest.mark.parametrize("name", ["pretrained", "classifier"])
def test_a_hugging_face_directory_keeps_tensors_tokenizer_and_labels(name, scene, tmp_path, capsys):
    source, output = getattr(scene, name), tmp_path / "out"
    convert(capsys, source, "--output", output)
    for file in ("model.safetensors", "spiece.model", "tokenizer.json", "README.md"):
        assert (output / file).read_bytes() == (source / file).read_bytes()
    configs = [json.loads((path / "config.json").read_text()) for path in (output, source)]
    assert configs[0] == configs[1]


def test_a_masked_language_model_keeps_the_pooler_for_fine_tuning(scene, tmp_path, capsys):
    """Published models have it, although AlbertForMaskedLM does not use it."""
    source, output = tmp_path / "source", tmp_path / "out"
    shutil.copytree(scene.pretrained, source)
    (source / "MANIFEST.json").unlink()
    (source / "README.md").write_bytes("modèle".encode("latin-1"))
    tensors = load_file(source / "model.safetensors")
    save_file({n: t for n, t in tensors.items() if not n.startswith("sop")}, source / "model.safetensors")
    assert "AlbertForMaskedLM" in convert(capsys, source, "--output", output)
    assert json.loads((output / "config.json").read_text())["architectures"] == ["AlbertForMaskedLM"]
    assert "albert.pooler.weight" in load_file(output / "model.safetensors")
    assert (output / "README.md").read_text("utf-8") == "mod\ufffdle"


def test_a_next_sentence_model_is_copied(scene, tmp_path, capsys):
    from albert.checkpoints.model_directory import open_model, save_model_directory

    opened = open_model(scene.pretrained, "pretraining")
    source, output = tmp_path / "source", tmp_path / "out"
    save_model_directory(source, opened.model, scene.tokenizer, extra={"sentence_objective": "nsp"})
    convert(capsys, source, "--output", output)
    assert (output / "model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()


def test_a_pair_classifier_keeps_its_class(tmp_path, capsys):
    from albert.checkpoints.model_directory import write_model
    from albert.model.albert import AlbertForPairClassification
    from albert.recipes.architecture import EncoderConfig

    (source := tmp_path / "source").mkdir()
    write_model(
        source, AlbertForPairClassification(EncoderConfig(vocab_size=40, num_hidden_layers=2, **SIZES), 3), None
    )
    convert(capsys, source, "--output", tmp_path / "out", "--without-tokenizer", "--labels", "a", "b", "c")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == ["AlbertForPairClassification"] and config["id2label"] == dict(
        zip("012", "abc", strict=True)
    )


def test_of_several_vocabularies_one_must_be_named(release, tmp_path, refused, capsys):
    shutil.copy(release / "30k-clean.model", release / "other.model")
    refused(["convert", release, "--output", tmp_path / "out"], 66, release, "--tokenizer")
    report = convert(capsys, release, "--output", tmp_path / "out", "--tokenizer", release / "other.model")
    assert "other.model: 30 pieces" in report


def test_a_chinese_vocabulary_is_converted(tmp_path, capsys):
    folder, output = tmp_path / "albert_base_zh", tmp_path / "out"
    shutil.copytree(HERE / "unfactorised", folder)
    (folder / "vocab_chinese.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    report = convert(capsys, folder, "--output", output)
    assert "relu" in report and "40 pieces" in report and "the identity is written" in report
    config = json.loads((output / "config.json").read_text())
    assert (config["pad_token_id"], config["bos_token_id"], config["eos_token_id"]) == (0, 2, 3)
    assert (output / "vocab.txt").is_file()


@pytest.mark.parametrize(("flag", "lower", "accents"), [("--keep-case", False, False), ("--keep-accents", True, True)])
def test_flags_set_the_case_and_accents_of_a_vocabulary(release, tmp_path, refused, capsys, flag, lower, accents):
    output = tmp_path / "out"
    convert(capsys, release, "--output", output, flag)
    report = json.loads((output / "tokenizer_config.json").read_text())
    assert (report["do_lower_case"], report["keep_accents"]) == (lower, accents)
    again = ["convert", output, "--output", tmp_path / "again", flag]
    refused(again, 2, f"{flag}: ", "tokenizer_config.json")


def test_flags_set_what_the_weights_do_not_show(release, tmp_path, capsys):
    output = tmp_path / "out"
    convert(
        capsys, release, "--output", output, "--hidden-act", "gelu", "--num-attention-heads", "4",
        "--num-hidden-layers", "5", "--dtype", "bfloat16",
    )  # fmt: skip
    config = json.loads((output / "config.json").read_text())
    assert (config["hidden_act"], config["num_attention_heads"], config["num_hidden_layers"]) == ("gelu", 4, 5)
    assert config["dtype"] == "bfloat16"
    assert {tensor.dtype for tensor in load_file(output / "model.safetensors").values()} == {torch.bfloat16}


def test_labels_name_the_outputs_of_a_classifier(tmp_path, refused, capsys):
    labels = ("contradiction", "entailment", "neutral")
    source = HERE / "classifier"
    convert(capsys, source, "--output", tmp_path / "out", "--without-tokenizer", "--labels", *labels)
    named = json.loads((tmp_path / "out" / "config.json").read_text())["id2label"]
    assert tuple(named.values()) == labels
    others = ["--output", tmp_path / "no", "--without-tokenizer", "--labels", "a", "b"]
    refused(["convert", source, *others], 78, "id2label")
    refused(["convert", HERE / "shared", *others], 2, "--labels", "AlbertForPreTraining")
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("kind", "architecture"),
    [("regression", "AlbertForSequenceClassification"), ("multiple_choice", "AlbertForMultipleChoice")],
)
def test_one_output_selects_the_kind_of_head(one_output, tmp_path, refused, capsys, kind, architecture):
    output = tmp_path / "out"
    refused(["convert", one_output, "--output", output, "--without-tokenizer"], 78, "--one-output")
    convert(capsys, one_output, "--output", output, "--without-tokenizer", "--one-output", kind)
    config = json.loads((output / "config.json").read_text())
    assert config["architectures"] == [architecture]
    assert config.get("problem_type") == ("regression" if kind == "regression" else None)


@pytest.fixture
def one_output(tmp_path) -> Path:
    """The classifier of three classes, reduced to its first output."""
    from tests.checkpoints import tensorflow_writer as writer

    from albert.checkpoints.tensor_bundle import TensorBundle

    folder = tmp_path / "one_output"
    folder.mkdir()
    shutil.copy(HERE / "classifier" / "albert_config.json", folder)
    bundle = TensorBundle(HERE / "classifier" / "model.ckpt-best")
    tensors = {name: bundle.read(name) for name in bundle.entries if "adam" not in name}
    cut = {name: t[:1] if name in ("output_weights", "output_bias") else t for name, t in tensors.items()}
    writer.write_bundle(folder / "model.ckpt-8", cut)
    return folder


def test_dropped_and_unconverted_tensors_are_counted(tmp_path, capsys):
    report = convert(capsys, HERE / "classifier", "--output", tmp_path / "a", "--without-tokenizer")
    assert "55 that are not part of the model" in report
    report = convert(capsys, HERE / "squad_v2", "--output", tmp_path / "b", "--without-tokenizer")
    assert "11: belongs to the joint head of SQuAD 2.0" in report and "AlbertModel" in report
    assert not any(name.startswith("albert.") for name in load_file(tmp_path / "b" / "model.safetensors"))


def damage(folder: Path, name: str, index: int) -> None:
    content = bytearray((folder / name).read_bytes())
    content[index] ^= 1
    (folder / name).write_bytes(content)


def test_bad_input_leaves_nothing(release, scene, tmp_path, refused):
    output, data = tmp_path / "out", "model.ckpt-best.data-00000-of-00001"

    def refuses(code: int, subject: object, *arguments: object) -> None:
        refused(["convert", *arguments, "--output", output], code, subject)
        assert not output.exists() and not list(tmp_path.glob(".out*"))

    refuses(66, "nowhere.ckpt: ", tmp_path / "nowhere.ckpt")
    refuses(69, "nobody/nothing", "nobody/nothing")
    refuses(65, "first format", HERE / "formats" / "version_1")
    refuses(66, "holds 3 checkpoints", HERE / "formats")
    refuses(65, "two_shards", HERE / "formats" / "two_shards")
    refuses(66, "--without-tokenizer", HERE / "shared")
    refuses(2, "--without-tokenizer: contradicts --tokenizer", release, "--tokenizer", release, "--without-tokenizer")
    refuses(65, scene.tokenizer, release, "--tokenizer", scene.tokenizer)
    refuses(66, f"{release}@main", f"{release}@main")
    refuses(2, "--config: ", scene.pretrained, "--config", release)
    refuses(78, "5 heads", release, "--num-attention-heads", "5")
    damage(release, data, 700)
    refuses(65, f"{data}: the checksum of ", release)
    (release / data).write_bytes((release / data).read_bytes()[:-4])
    refuses(65, f"{data}: has 14,100 bytes", release)
    damage(release, "model.ckpt-best.index", 30)
    refuses(65, "model.ckpt-best.index: the checksum of ", release)
    for name in ("release.tar.gz", "release.TGZ", "release.zip", "release.7z"):
        (tmp_path / name).touch()
        refuses(66, "unpack it", tmp_path / name)
    output.mkdir()
    refused(["convert", HERE / "shared", "--output", output], 73, output, "--replace")


def test_a_foreign_tokenizer_is_refused(scene, tmp_path, refused):
    arguments = [scene.pretrained, "--tokenizer", scene.other_corpus, "--output", tmp_path / "out"]
    refused(["convert", *arguments], 65, "tokenizer")
