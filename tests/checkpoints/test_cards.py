"""Every card names a reader that gives the model's own scores: its example is run with the library that it names, and
compared with albert. For every head, family and command that writes a model."""

import json
import random
import re
import shlex
from dataclasses import replace

import numpy as np
import onnx
import pytest
import tokenizers
import torch
import transformers
import yaml
from safetensors.torch import load_file, save_file

import albert
from albert.checkpoints.config_json import read_config
from albert.checkpoints.sentence_transformers import SentenceVectors, sentence_vectors_of, write_sentence_vectors
from albert.cli.main import run
from albert.text.huggingface import SPECIAL_PIECES
from albert.text.wordpiece import wordpiece_tokenizer

WORDS = ["the", "letter", "was", "written", "by", "ada", "who", "wrote", "it", "nobody", "somebody", "a", "storm", ".",
         "capital", "of", "france", "is", "?", "at", "sea", "and", "high", "waves"]  # fmt: skip
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
TITLES = {
    "albert": "Albert",
    "bert": "Bert",
    "distilbert": "DistilBert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "electra": "Electra",
}
SIZES = {
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "initializer_range": 0.5,
}
DISTIL = {"n_layers": 2, "n_heads": 2, "dim": 16, "hidden_dim": 24, "initializer_range": 0.5}
CONFIGS = {
    "Albert": SIZES | {"embedding_size": 8, "max_position_embeddings": 64},
    "Bert": SIZES | {"max_position_embeddings": 64},
    "DistilBert": DISTIL | {"max_position_embeddings": 64},
    "Roberta": SIZES | {"max_position_embeddings": 66, "type_vocab_size": 1},
    "XLMRoberta": SIZES | {"max_position_embeddings": 66, "type_vocab_size": 1},
    "Electra": SIZES | {"embedding_size": 8, "max_position_embeddings": 64},
}
HEADS = {
    "one label": ("ForSequenceClassification", {"num_labels": 3, "problem_type": "single_label_classification"}),
    "several labels": ("ForSequenceClassification", {"num_labels": 3, "problem_type": "multi_label_classification"}),
    "a number": ("ForSequenceClassification", {"num_labels": 1, "problem_type": "regression"}),
    "a cross-encoder": ("ForSequenceClassification", {"num_labels": 1}),
    "tags": ("ForTokenClassification", {"num_labels": 3}),
    "options": ("ForMultipleChoice", {}),
    "a span": ("ForQuestionAnswering", {}),
    "masks": ("ForMaskedLM", {}),
    "vectors": ("Model", {}),
}
CASES = [(family, head) for family in TITLES for head in HEADS]
LONG = "the storm at sea and high waves . " * 40


def save_tokenizer(family, path, tokenizer):
    """A tokenizer of the kind that the family has."""
    if family == "albert":
        tokenizer.save(path)
        return
    if family in ("bert", "distilbert", "electra"):
        wordpiece_tokenizer([*SPECIAL_PIECES, *WORDS]).save(path)
        return
    corpus = [" ".join(random.Random(number).choices(WORDS, k=12)) for number in range(100)]
    if family == "roberta":
        bpe = tokenizers.ByteLevelBPETokenizer()
        bpe.train_from_iterator(corpus, vocab_size=400, special_tokens=SPECIALS, show_progress=False)
        result = tokenizers.Tokenizer.from_str(bpe.to_str())
        result.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True, special=True)])
        result.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
        class_name = "RobertaTokenizer"
    else:
        result = tokenizers.Tokenizer(tokenizers.models.Unigram())
        result.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
        result.decoder = tokenizers.decoders.Metaspace()
        mask = tokenizers.AddedToken("<mask>", lstrip=True, special=True)
        options = {"special_tokens": [*SPECIALS[:-1], mask], "unk_token": "<unk>", "show_progress": False}
        result.train_from_iterator(corpus, tokenizers.trainers.UnigramTrainer(vocab_size=200, **options))
        template = {"single": "<s> $A </s>", "pair": "<s> $A </s> </s> $B </s>"}
        ends = [("<s>", 0), ("</s>", 2)]
        result.post_processor = tokenizers.processors.TemplateProcessing(**template, special_tokens=ends)
        class_name = "TokenizersBackend"
    result.save(str(path / "tokenizer.json"))
    named = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
    config = {"tokenizer_class": class_name, **{f"{name}_token": piece for name, piece in named.items()}}
    (path / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.fixture(scope="session")
def make(tokenizer, tmp_path_factory):
    """A directory as transformers writes it, with a tokenizer of its family."""

    def make(family, head):
        path = tmp_path_factory.mktemp("theirs")
        save_tokenizer(family, path, tokenizer)
        torch.manual_seed(5)
        title = TITLES[family]
        class_name, changes = HEADS[head]
        size = len(transformers.AutoTokenizer.from_pretrained(path))
        config = getattr(transformers, f"{title}Config")(**CONFIGS[title], vocab_size=size, **changes)
        model = getattr(transformers, title + class_name)(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        model.save_pretrained(path)
        return path

    return make


# ---- Reading a card ------------------------------------------------------------------------------------------------


def header_of(path):
    return yaml.safe_load((path / "README.md").read_text().split("---")[1])


def code_of(path):
    (code,) = re.findall(r"```python\n(.*?)```", (path / "README.md").read_text(), re.DOTALL)
    return code


def printed_by(path, monkeypatch, code=None):
    """What the card's example prints, as objects; the library in its header is the one that it imports."""
    code = code or code_of(path)
    library = header_of(path)["library_name"].replace("-", "_")
    imported = re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE)
    assert {"onnx": "onnxruntime"}.get(library, library) in imported, code
    assert ("albert" in imported) == (library == "albert"), code
    if library == "sentence_transformers":
        pytest.importorskip(library, reason="needs the package: pip install --no-deps sentence-transformers==6.2.0")
    rows = []
    exec(
        compile(code.replace("path/to/this/directory", str(path)), "card", "exec"), {"print": lambda *a: rows.append(a)}
    )
    return rows


def close(actual, expected):
    np.testing.assert_allclose(np.asarray(actual, np.float64), np.asarray(expected, np.float64), atol=2e-5)


def check_scores(path, rows, model):
    """The scores that the example printed are albert's, for the same input."""
    code = code_of(path)
    task = header_of(path)["pipeline_tag"]

    def literal(pattern):
        match = re.search(pattern, code)
        assert match is not None, code
        return json.loads(match[1])

    if task in ("text-classification", "text-ranking"):
        found = rows[0][0]
        texts = inputs_of(code)
        if task == "text-ranking":
            close(found, [model.score(*texts)])
            return
        found = found if isinstance(found, list) else [found]
        found = found[0] if isinstance(found[0], list) else found
        expected = {row["label"]: row["score"] for row in model.classify(*texts)}
        assert [each["label"] for each in found] == list(expected)
        close([each["score"] for each in found], list(expected.values()))
    elif task == "token-classification":
        expected = model.tag_sentences([literal(r'words = (".*")').split()])[0]
        assert [row[:2] for row in rows] == [(each["word"], each["entity"]) for each in expected]
        close([row[2] for row in rows], [each["score"] for each in expected])
    elif task == "question-answering":
        expected = model.answer(literal(r'question = (".*")'), literal(r'context = (".*")'))
        assert rows[0][0] == expected["answer"]
        close(rows[0][1], expected["score"])
    elif task == "multiple-choice":
        context = literal(r'tokenizer\(\[(".*?")\]')
        options = literal(r"options = (\[.*\])")
        expected = model.choose(context, options)
        assert rows[0][0] == expected[0]["option"]
        close(rows[0][1], [each["score"] for each in sorted(expected, key=lambda each: each["index"])])
    elif task == "fill-mask":
        expected = model.fill_mask(literal(r'fill\((".*?")\)'))
        assert [row[0].strip() for row in rows] == [each["token_str"].strip() for each in expected]
        close([row[1] for row in rows], [each["score"] for each in expected])
    elif task == "feature-extraction":
        close(rows[0][0], model.embed([literal(r'tokenizer\((".*?"), trunc')])[0])
    else:
        assert task == "sentence-similarity"
        close(rows[0][0], model.embed(literal(r"encode\((\[.*\])\)")))


def inputs_of(code):
    """The texts of an example of classification."""
    match = re.search(r'(?:classify|score)\((".*?"|\{.*?\})', code) or re.search(r"predict\(\[\((.*)\)\]\)", code)
    assert match is not None, code
    value = json.loads(match[1] if match[1][0] in "{" else f"[{match[1]}]")
    return list(value.values()) if isinstance(value, dict) else value


def check_card(path, monkeypatch, library=None):
    header = header_of(path)
    if library is not None:
        assert header["library_name"] == library
    rows = printed_by(path, monkeypatch)
    assert rows
    if header["library_name"] != "albert":
        check_scores(path, rows, albert.load(path, precision="fp32"))


# ---- convert: every head of every family ---------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "head"), CASES)
def test_a_converted_model_is_read_by_the_library_that_its_card_names(make, family, head, tmp_path, monkeypatch):
    path = tmp_path / "converted"
    assert run(["convert", str(make(family, head)), "--output", str(path)]) == 0
    check_card(path, monkeypatch, "transformers")


def test_a_source_keeps_its_card_and_one_without_a_tokenizer_gets_its_own(make, tmp_path, monkeypatch):
    source = make("bert", "one label")
    (source / "README.md").write_text("---\nlicense: mit\nlanguage: [en, de]\nbase_model: someone/base\n---\n\nMine.\n")
    assert run(["convert", str(source), "--output", str(tmp_path / "copy")]) == 0
    assert "Mine." in (tmp_path / "copy" / "README.md").read_text()
    bare = tmp_path / "bare"
    assert run(["convert", str(source), "--output", str(bare), "--without-tokenizer"]) == 0
    header = header_of(bare)
    stated = {"license": "mit", "language": ["en", "de"], "base_model": "someone/base"}
    assert {key: header[key] for key in stated} == stated
    assert printed_by(bare, monkeypatch)


@pytest.mark.parametrize("head", ["one label", "vectors"])
def test_a_converted_model_cuts_texts_where_the_source_does(make, head, tmp_path, monkeypatch):
    source = make("bert", head)
    settings = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 9}))
    assert run(["convert", str(source), "--output", str(tmp_path / "copy")]) == 0
    before, after = (albert.load(path, precision="fp32") for path in (source, tmp_path / "copy"))
    assert before.max_length == after.max_length == before.embedding_length == after.embedding_length == 9
    if head == "vectors":
        close(after.embed([LONG]), before.embed([LONG]))
    else:
        assert after.classify(LONG) == before.classify(LONG)
        assert "max_length=9" in code_of(tmp_path / "copy")


@pytest.mark.parametrize(("family", "separator"), [("albert", "[SEP]"), ("bert", "[SEP]"), ("roberta", "</s>")])
def test_a_card_names_the_texts_for_which_the_library_gives_other_scores(make, family, separator, tmp_path):
    path = tmp_path / "converted"
    assert run(["convert", str(make(family, "one label")), "--output", str(path)]) == 0
    assert f"a special token such as `{separator}`: it reads them as text" in (path / "README.md").read_text()
    classify = transformers.pipeline("text-classification", model=str(path), top_k=None)
    model = albert.load(path, precision="fp32")
    for text, is_same in (("the letter was", True), (f"the letter {separator} was", False)):
        theirs = {row["label"]: row["score"] for row in classify([text])[0]}
        ours = {row["label"]: row["score"] for row in model.classify(text)}
        assert all(abs(theirs[label] - ours[label]) < 2e-5 for label in ours) == is_same
    assert run(["export", "onnx", str(path), "--output", str(tmp_path / "onnx")]) == 0
    assert "special tokens such as [SEP]" in (tmp_path / "onnx" / "README.md").read_text()
    assert run(["quantize", str(path), "--output", str(tmp_path / "int8")]) == 0
    assert "special token" not in (tmp_path / "int8" / "README.md").read_text()


@pytest.mark.parametrize(("family", "says"), [("bert", True), ("distilbert", False)])
def test_a_card_of_vectors_says_that_nothing_reads_a_pooler_that_is_reported(make, family, says, tmp_path):
    path = tmp_path / "vectors"
    assert run(["export", "sentence-transformers", str(make(family, "masks")), "--output", str(path)]) == 0
    _, info = transformers.AutoModel.from_pretrained(path, output_loading_info=True)
    assert any("pooler" in name for name in info["missing_keys"]) == says
    assert ("pooler as missing and newly initialised" in (path / "README.md").read_text()) == says


# ---- quantize and export: every head of every family ----------------------------------------------------------------


@pytest.mark.parametrize(("family", "head"), CASES)
def test_a_quantized_model_is_read_by_albert(make, family, head, tmp_path, monkeypatch):
    path = tmp_path / "int8"
    assert run(["quantize", str(make(family, head)), "--output", str(path)]) == 0
    check_card(path, monkeypatch, "albert")


READ_ALIKE = {(family, head) for family in ("bert", "roberta", "electra") for head in ("masks", "tags", "a span")}
"""What an ONNX file of these families has is the same as of another one's."""


@pytest.mark.parametrize(("family", "head"), [case for case in CASES if case not in READ_ALIKE])
def test_the_card_of_an_onnx_file_gives_the_numbers_of_the_model(make, family, head, tmp_path, monkeypatch):
    source = make(family, head)
    assert run(["export", "onnx", str(source), "--output", str(tmp_path / "onnx")]) == 0
    rows = printed_by(tmp_path / "onnx", monkeypatch)
    code = code_of(tmp_path / "onnx")
    model = albert.load(source, precision="fp32")

    def literals(pattern):
        found = re.search(pattern, code, re.MULTILINE)
        assert found is not None, code
        return json.loads(f"[{found[1]}]")

    match head:
        case "vectors":
            close(rows[0][0], model.embed(*literals(r"texts = (.*)")))
            return
        case "tags":
            expected = model.tag_sentences([literals(r"words = (.*)\.split")[0].split()])[0]
            expected = [(each["word"], each["entity"], each["score"]) for each in expected]
        case "options":
            (context,) = literals(r"tokenizer\(\[(.*)\] \*")
            ranked = model.choose(context, *literals(r"options = (.*)"))
            assert rows[0][0] == ranked[0]["option"]
            close(rows[0][1], [each["score"] for each in sorted(ranked, key=lambda each: each["index"])])
            return
        case "a span":
            answer = model.answer(*literals(r"^question = (.*)$"), *literals(r"^context = (.*)$"))
            expected = [(answer["answer"], answer["score"])]
        case "masks":
            filled = model.fill_mask(*literals(r'tokenizer\((".*"), return'))
            expected = [(each["token_str"].strip(), each["score"]) for each in filled]
            rows = [(piece.strip(), score) for piece, score in rows]
        case _:
            expected = [
                (each["label"], each["score"]) for each in model.classify(*literals(r'tokenizer\((".*"), trunc'))
            ]
    assert [row[:-1] for row in rows] == [row[:-1] for row in expected]
    close([row[-1] for row in rows], [row[-1] for row in expected])


def test_cards_of_copies_have_the_first_row_of_the_models_examples(make, tmp_path, monkeypatch):
    source = make("albert", "one label")
    row = {"text": "the storm at sea", "pair": "high waves"}
    (source / "examples.json").write_text(json.dumps({"examples": [row, {"text": "a boat"}]}))
    for command in ("quantize", "export onnx", "export sentence-transformers"):
        path = tmp_path / command.replace(" ", "-")
        assert run([*command.split(), str(source), "--output", str(path)]) == 0
        assert json.dumps(row["text"]) in code_of(path) and json.dumps(row["pair"]) in code_of(path)
        if command != "export sentence-transformers":
            assert printed_by(path, monkeypatch)


# ---- sentence-transformers -------------------------------------------------------------------------------------------

VECTORS = {
    "mean": SentenceVectors(normalize=True, max_length=12),
    "cls": SentenceVectors(pooling="cls", max_length=9),
    "max": SentenceVectors(pooling="max", max_length=10, prompts={"query": "ada "}, default_prompt="query"),
    "lower": SentenceVectors(normalize=True, lower_case=True, max_length=20, truncate_dim=6),
}


@pytest.fixture
def encoder(make):
    """Returns a function: an encoder of a family with the files of sentence-transformers."""

    def encoder(family, vectors):
        path = make(family, "vectors")
        write_sentence_vectors(path, vectors, 16)
        return path

    return encoder


def vectors_of(path, texts):
    """By sentence-transformers."""
    library = pytest.importorskip(
        "sentence_transformers", reason="needs the package: pip install --no-deps sentence-transformers==6.2.0"
    )
    return library.SentenceTransformer(str(path)).encode(texts)


@pytest.mark.parametrize(
    ("family", "name"), [*(("bert", name) for name in VECTORS), ("albert", "mean"), ("roberta", "cls")]
)
def test_an_encoder_with_its_pooling_is_read_by_sentence_transformers(encoder, family, name, tmp_path, monkeypatch):
    source = encoder(family, VECTORS[name])
    for command in (["convert"], ["export", "sentence-transformers"]):
        path = tmp_path / command[-1]
        assert run([*command, str(source), "--output", str(path)]) == 0
        check_card(path, monkeypatch, "sentence-transformers")
        texts = ["The letter was written", LONG]
        close(vectors_of(path, texts), albert.load(path, precision="fp32").embed(texts))
    assert VECTORS[name].description in (tmp_path / "sentence-transformers" / "README.md").read_text()


@pytest.mark.parametrize("name", VECTORS)
def test_an_onnx_file_has_pooling_and_length_in_its_card_its_tokenizer_and_itself(encoder, name, tmp_path, monkeypatch):
    source = encoder("bert", VECTORS[name])
    assert run(["export", "onnx", str(source), "--output", str(tmp_path / "onnx")]) == 0
    code = code_of(tmp_path / "onnx")
    written = json.loads(re.findall(r"texts = (.*)", code)[0])
    own = VECTORS[name]
    model = albert.load(source, precision="fp32")
    before = own.prompts.get(own.default_prompt or "", "")
    assert all(text.startswith(before) for text in written)
    close(printed_by(tmp_path / "onnx", monkeypatch)[0][0], model.embed(written, prompt=""))
    code = code.replace(json.dumps(written), json.dumps([LONG, "storm"]))
    close(printed_by(tmp_path / "onnx", monkeypatch, code)[0][0], model.embed([LONG, "storm"], prompt=""))
    assert own.description in (tmp_path / "onnx" / "README.md").read_text()
    metadata = {each.key: each.value for each in onnx.load(tmp_path / "onnx" / "model.onnx").metadata_props}
    assert json.loads(metadata["vectors"])["pooling"] == own.pooling
    assert json.loads(metadata["vectors"])["max_length"] == own.max_length


def test_dense_modules_are_refused_by_onnx_and_kept_by_the_export(encoder, tmp_path, refused, monkeypatch):
    source = encoder("bert", SentenceVectors())
    add_dense(source)
    refused(["export", "onnx", source, "--output", tmp_path / "onnx"], 78, source, "Dense", "sentence-transformers")
    assert not (tmp_path / "onnx").exists()
    assert run(["export", "sentence-transformers", str(source), "--output", str(tmp_path / "copy")]) == 0
    check_card(tmp_path / "copy", monkeypatch, "sentence-transformers")


def add_dense(path):
    """A Dense module from 16 to 10 dimensions after the pooling."""
    torch.manual_seed(1)
    (path / "2_Dense").mkdir()
    save_file(
        {"linear.weight": torch.randn(10, 16), "linear.bias": torch.randn(10)}, path / "2_Dense/model.safetensors"
    )
    settings = {"in_features": 16, "out_features": 10, "bias": True}
    settings["activation_function"] = "torch.nn.modules.activation.Tanh"
    (path / "2_Dense/config.json").write_text(json.dumps(settings))
    modules = json.loads((path / "modules.json").read_text())
    modules.append({"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    (path / "modules.json").write_text(json.dumps(modules))


def test_the_export_is_in_float32_whatever_the_model_is_in(encoder, tmp_path):
    """sentence-transformers computes in the type of the file."""
    source = encoder("bert", VECTORS["mean"])
    half = tmp_path / "half"
    assert run(["convert", str(source), "--output", str(half), "--dtype", "bfloat16"]) == 0
    assert run(["export", "sentence-transformers", str(half), "--output", str(tmp_path / "copy")]) == 0
    tensors = load_file(tmp_path / "copy" / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    assert json.loads((tmp_path / "copy" / "config.json").read_text())["dtype"] == "float32"
    close(albert.load(tmp_path / "copy").embed(["storm"]), albert.load(half, precision="fp32").embed(["storm"]))


@pytest.mark.parametrize("activation", ["Identity", "Sigmoid"])
@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_a_cross_encoder_is_read_by_sentence_transformers_unless_the_pipeline_gives_its_score(
    make, family, activation, tmp_path, monkeypatch, capsys
):
    source = make(family, "a cross-encoder")
    config = json.loads((source / "config.json").read_text())
    config["sentence_transformers"] = {"activation_fn": f"torch.nn.modules.activation.{activation}"}
    if activation == "Identity":
        config["sentence_transformers"] = {"activation_fn": "torch.nn.modules.linear.Identity"}
    (source / "config.json").write_text(json.dumps(config))
    assert run(["convert", str(source), "--output", str(tmp_path / "copy")]) == 0
    (following,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next: albert ")]
    assert run(shlex.split(following)[2:]) == 0  # what it proposes is not refused
    library = "sentence-transformers" if activation == "Identity" else "transformers"
    check_card(tmp_path / "copy", monkeypatch, library)


# ---- pretrain ------------------------------------------------------------------------------------------------------

SHORT = [
    *("batch_size=2", "evaluation_sequences=4", "steps=2"),
    *("schedule.warmup_steps=1", "--device", "cpu"),
]


@pytest.fixture
def continued(tmp_path, capsys):
    """Returns a function: the model of `pretrain continue --init MODEL`, and what the run notes."""

    def continued(model):
        documents = [" . ".join(text(10 * page + line) for line in range(8)) for page in range(30)]
        (tmp_path / "texts.txt").write_text("\n\n".join(documents))
        corpus = tmp_path / "corpus"
        command = ["prepare", str(tmp_path / "texts.txt"), "--tokenizer", str(model), "--output", str(corpus)]
        assert run(command) == 0
        capsys.readouterr()
        words = ["pretrain", "continue", "--init", str(model), "--data", str(corpus), "--output", str(tmp_path / "run")]
        assert run([*words, *SHORT]) == 0
        return tmp_path / "run" / "model", capsys.readouterr().err

    return continued


def carried_by(model):
    """What the files beside a model say, without the similarity, which is written as the default one."""
    vectors = sentence_vectors_of(read_config(model)[1])
    assert vectors is not None
    return replace(vectors, similarity=None)


@pytest.mark.parametrize(("family", "name"), [("bert", "mean"), ("electra", "max"), ("albert", "lower")])
def test_continued_pre_training_carries_pooling_length_and_prompts(
    encoder, continued, family, name, tmp_path, monkeypatch
):
    own = VECTORS[name]
    model, notes = continued(encoder(family, own))
    assert own.description in notes
    assert carried_by(model) == own
    vectors = albert.load(model, precision="fp32").embed([LONG, "storm"])
    if own.normalize and own.truncate_dim is None:
        close(np.linalg.norm(vectors, axis=1), [1, 1])
    check_card(model, monkeypatch, "transformers")
    assert own.description in (model / "README.md").read_text()
    assert own.description in (sorted((tmp_path / "run" / "checkpoints").iterdir())[0] / "README.md").read_text()
    close(vectors_of(model, [LONG, "storm"]), vectors)


def test_continued_pre_training_names_the_licence_of_its_base_and_no_language(make, continued):
    source = make("bert", "masks")
    (source / "README.md").write_text("---\nlicense: mit\nlanguage: en\n---\n", encoding="utf-8")
    model, _ = continued(source)
    header = header_of(model)
    assert header["license"] == "mit" and "language" not in header


def test_continued_pre_training_says_that_dense_modules_are_left_out(encoder, continued):
    source = encoder("bert", VECTORS["cls"])
    add_dense(source)
    model, notes = continued(source)
    (line,) = [line for line in notes.splitlines() if "Dense" in line]
    assert "16 to 10" in line and VECTORS["cls"].description in line
    assert carried_by(model) == VECTORS["cls"]
    assert not (model / "2_Dense").exists()


def test_a_pre_trained_model_without_them_has_none(make, continued, monkeypatch):
    model, notes = continued(make("bert", "masks"))
    assert not (model / "modules.json").exists() and "sentence-transformers" not in notes
    check_card(model, monkeypatch, "transformers")


# ---- finetune: every kind of task, on an encoder of each sort --------------------------------------------------------

TASKS = {
    "one label": ({"text": "text", "label": "label"}, lambda n: {"text": text(n), "label": "abc"[n % 3]}),
    "pairs": (
        {"text": "text", "pair": "pair", "label": "label"},
        lambda n: {"text": text(n), "pair": text(n + 1), "label": "ab"[n % 2]},
    ),
    "several labels": (
        {"text": "text", "label": "label"},
        lambda n: {"text": text(n), "label": [["a"], ["b", "c"], ["a", "c"]][n % 3]},
    ),
    "a number": ({"text": "text", "label": "label"}, lambda n: {"text": text(n), "label": n / 7}),
    "a number of pairs": (
        {"text": "text", "pair": "pair", "label": "label"},
        lambda n: {"text": text(n), "pair": text(n + 1), "label": n / 7},
    ),
    "tags": (
        {"words": "words", "tags": "tags"},
        lambda n: {"words": text(n).split(), "tags": ["B-X" if word == "ada" else "O" for word in text(n).split()]},
    ),
    "options": (
        {"text": "text", "options": "options", "label": "label"},
        lambda n: {"text": text(n), "options": [text(n + 1), text(n + 2)], "label": n % 2},
    ),
    "a span": (
        {"question": "question", "context": "context", "answer": "answer"},
        lambda n: {"question": "who wrote it ?", "context": f"{text(n)} by ada .", "answer": "ada"},
    ),
}


def text(number):
    words = random.Random(number).choices(WORDS, k=6)
    return " ".join([*words, "ada"])


LENGTHS = {"options": {"question_length": 16}, "a span": {"question_length": 16, "stride": 8}}


def finetuned(model, task, output, **settings):
    columns, row = TASKS[task]
    rows = [row(number) for number in range(40)]
    values = {"steps": 2, "batch_size": 4, "device": "cpu", "seed": 1, **LENGTHS.get(task, {}), **settings}
    albert.finetune(train=rows, model=str(model), output=output, **columns, **values)
    return output / "model"


ONLY_ALBERT = {"one label", "pairs", "several labels", "a number", "a number of pairs", "options"}
"""On an encoder with a pooling of its own."""


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("family", ["albert", "electra", "roberta", "sentence-transformers"])
def test_a_fine_tuned_model_is_read_by_the_library_that_its_card_names(
    make, encoder, family, task, tmp_path, monkeypatch, capsys
):
    has_pooling = family == "sentence-transformers"
    start = encoder("bert", VECTORS["mean"]) if has_pooling else make(family, "vectors")
    model = finetuned(start, task, tmp_path / "run")
    capsys.readouterr()
    marks_matches = family == "albert" and task in ("pairs", "a number of pairs", "options", "a span")
    library = "albert" if marks_matches or (has_pooling and task in ONLY_ALBERT) else "transformers"
    check_card(model, monkeypatch, library)
    header = header_of(model)
    (index,) = header["model-index"]
    results = json.loads((tmp_path / "run" / "results.json").read_text())["scores"]
    metrics = {each["type"]: each["value"] for each in index["results"][0]["metrics"]}
    assert set(metrics.values()) <= {float(f"{value:.4g}") for value in results.values() if value is not None}
    assert metrics
    if library == "albert":
        words = (model / "README.md").read_text()
        assert "transformers" in words and "from transformers" not in words
        for command in (["convert"], ["export", "sentence-transformers"])[: 1 + has_pooling]:
            copy = tmp_path / command[-1]
            assert run([*command, str(model), "--output", str(copy)]) == 0
            assert "newly initialised" not in capsys.readouterr().out
            check_card(copy, monkeypatch, "albert" if command == ["convert"] else "sentence-transformers")


@pytest.mark.parametrize("learned_from", ["pairs", "a teacher"])
@pytest.mark.parametrize("family", ["albert", "bert", "roberta", "sentence-transformers"])
def test_learned_vectors_are_read_by_the_library_that_their_card_names(
    make, encoder, family, learned_from, tmp_path, monkeypatch
):
    start = encoder("bert", VECTORS["cls"]) if family == "sentence-transformers" else make(family, "vectors")
    rows = [{"a": text(number), "b": text(number + 100)} for number in range(40)]
    columns = (
        {"text": "a", "pair": "b"} if learned_from == "pairs" else {"text": "a", "teacher": make("bert", "vectors")}
    )
    settings = {"steps": 2, "batch_size": 4, "device": "cpu", "max_length": 12}
    albert.finetune_vectors(train=rows, model=str(start), output=tmp_path / "run", **columns, **settings)
    model = tmp_path / "run" / "model"
    check_card(model, monkeypatch)
    for command in (["quantize"], ["convert"], ["export", "sentence-transformers"], ["export", "onnx"]):
        copy = tmp_path / command[-1]
        assert run([*command, str(model), "--output", str(copy)]) == 0
        if command[-1] != "onnx":
            check_card(copy, monkeypatch)
        else:
            assert printed_by(copy, monkeypatch)
    texts = ["The letter was written", LONG]
    close(vectors_of(tmp_path / "sentence-transformers", texts), albert.load(model, precision="fp32").embed(texts))


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_score_of_a_pair_is_that_of_cross_encoder(make, family, tmp_path):
    model = finetuned(make(family, "vectors"), "a number of pairs", tmp_path / "run")
    library = pytest.importorskip(
        "sentence_transformers", reason="needs the package: pip install --no-deps sentence-transformers==6.2.0"
    )
    pair = (text(1), text(2))
    close(library.CrossEncoder(str(model)).predict([pair])[0], albert.load(model, precision="fp32").score(*pair))


def test_sentence_transformers_gives_the_vectors_of_what_was_fine_tuned(encoder, tmp_path):
    model = finetuned(encoder("bert", VECTORS["mean"]), "one label", tmp_path / "run")
    close(vectors_of(model, ["storm", LONG]), albert.load(model, precision="fp32").embed(["storm", LONG]))


def test_transformers_has_no_head_for_a_pooling_of_its_own(encoder, tmp_path):
    """Why its card names albert: the head would be a random one."""
    model = finetuned(encoder("bert", VECTORS["mean"]), "one label", tmp_path / "run")
    kind = transformers.AutoModelForSequenceClassification
    _, info = kind.from_pretrained(model, output_loading_info=True)
    assert {"classifier.weight", "classifier.bias"} <= set(info["missing_keys"])


@pytest.mark.parametrize("task", ["pairs", "a number of pairs"])
def test_texts_encoded_separately_are_read_by_albert(make, task, tmp_path, monkeypatch):
    model = finetuned(make("bert", "vectors"), task, tmp_path / "run", encode_pairs="separately")
    check_card(model, monkeypatch, "albert")


def test_a_threshold_for_questions_without_an_answer_is_followed_by_albert_alone(make, tmp_path, monkeypatch):
    rows = [{**TASKS["a span"][1](n), "answer": "ada" if n % 2 else ""} for n in range(40)]
    columns = TASKS["a span"][0]
    settings = {
        "steps": 2,
        "batch_size": 4,
        "device": "cpu",
        "model": str(make("bert", "vectors")),
        **LENGTHS["a span"],
    }
    albert.finetune(train=rows, output=tmp_path / "run", **columns, **settings)
    check_card(tmp_path / "run" / "model", monkeypatch, "albert")


def test_the_base_and_its_licence_are_named_and_its_language_only_where_the_data_is_known(make, tmp_path):
    start = make("bert", "vectors")
    (start / "README.md").write_text("---\nlicense: mit\nlanguage: en\nbase_model: someone/base\n---\n")
    header = header_of(finetuned(start, "one label", tmp_path / "run"))
    stated = {"license": "mit", "base_model": "someone/base", "base_model_relation": "finetune"}
    assert {key: header[key] for key in stated} == stated
    assert "language" not in header
    assert header["metrics"] == ["accuracy", "f1"]
    named = [metric["name"] for metric in header["model-index"][0]["results"][0]["metrics"]]
    assert "macro_f1" in named
    rows = "".join(f"{text(number)}\t{number % 2}\n" for number in range(20))
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\n" + rows)
    settings = {"steps": 2, "batch_size": 4, "device": "cpu"}
    albert.finetune("sst-2", data=tmp_path, model=str(start), output=tmp_path / "declared", **settings)
    assert header_of(tmp_path / "declared" / "model")["language"] == "en"


PARAMETERS = {"one label": ("pooler", "model"), "tags": (), "options": ("pooler", "model"), "a span": ()}
LENGTH_SETTINGS = {
    "one label": (),
    "tags": (),
    "options": ("question_length",),
    "a span": ("question_length", "stride"),
}


@pytest.mark.parametrize("has_pooling", [False, True])
@pytest.mark.parametrize("task", PARAMETERS)
def test_a_card_counts_what_the_file_holds_and_lists_the_lengths_that_are_read(
    make, encoder, has_pooling, task, tmp_path
):
    start = encoder("bert", VECTORS["mean"]) if has_pooling else make("bert", "vectors")
    model = finetuned(start, task, tmp_path / "run")
    rows = dict(re.findall(r"^\| (.+) \| (.+) \|$", (model / "README.md").read_text(), re.MULTILINE))
    expected = () if has_pooling else PARAMETERS[task]
    assert tuple(name for name in ("pooler", "model") if name in rows) == expected
    counted = sum(int(rows[name].replace(",", "")) for name in (expected[1:] or ("encoder",)) + ("task head",))
    tensors = load_file(model / "model.safetensors")
    assert counted == sum(tensor.numel() for tensor in tensors.values())
    assert tuple(name for name in ("question_length", "stride") if name in rows) == LENGTH_SETTINGS[task]
