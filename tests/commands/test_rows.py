"""Rows in memory, bad input, results in notebooks, and your own training loop."""

import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.commands.conftest import files_of, make_reviews

import albert
from albert.checkpoints.model_directory import save_model_directory
from albert.commands.rows_in_memory import rows_as_json_lines
from albert.model.albert import AlbertForPreTraining
from albert.recipes.architecture import EncoderConfig
from albert.runtime.errors import DamagedData
from albert.text.sentencepiece import train_tokenizer

TABLE = {"text": "review", "label": "stars", "device": "cpu", "steps": 3, "evaluate_every": 1, "max_length": 32}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """An untrained model, and its tokenizer."""
    directory = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer([row["review"] for row in make_reviews()], vocab_size=50)
    (directory / "tokenizer").mkdir()
    tokenizer.save(directory / "tokenizer")
    shape = {"embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = EncoderConfig(vocab_size=50, intermediate_size=64, max_position_embeddings=64, **shape)
    torch.manual_seed(0)
    save_model_directory(directory / "model", AlbertForPreTraining(config), directory / "tokenizer")
    return directory / "model"


def inner_frames(error: BaseException) -> list[str]:
    """The modules of the package in a traceback."""
    paths = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    return [path.name for path in paths if path.parents[1] == Path(albert.__file__).parent]


def test_null_is_the_empty_text_in_every_format(model, tmp_path, capsys):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("openpyxl")
    rows = make_reviews()
    rows[3]["review"] = None
    frame = pandas.DataFrame(rows)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    inputs = {path.suffix[1:]: path for path in sorted(tmp_path.iterdir())} | {"frame": frame}
    weights = set()
    scores = set()
    for name, table in inputs.items():
        albert.finetune(train=table, model=model, output=tmp_path / name, **TABLE)
        weights.add(files_of(tmp_path / name)["model/model.safetensors"])
        result = albert.evaluate(model=str(tmp_path / "csv"), dev=table)
        scores.add(result.scores["accuracy"])
        assert result.report["counts"]["rows_without_text"] == 1
    assert len(weights) == len(scores) == 1
    rows[4]["stars"] = None
    with pytest.raises(DamagedData, match="empty label"):
        albert.finetune(train=rows, model=model, output=tmp_path / "unlabelled", **TABLE)


def test_what_a_result_holds_is_printed_without_its_rows(model, tmp_path):
    rows = make_reviews()
    rows += [{"review": "", "stars": rows[0]["stars"]}] * 3
    seen = albert.finetune(train=rows, model=model, text="review", label="stars")
    reading = repr(seen.reading)
    assert reading == str(seen.reading) and "left out (no text)" in reading and "because: " in reading
    assert reading.splitlines()[2].split() == ["rows", *(f"{each.rows}" for each in seen.reading.statistics.values())]
    result = albert.finetune(train=rows, model=model, output=tmp_path / "run", **TABLE)
    evaluated = albert.evaluate(model=str(tmp_path / "run"), dev=rows)
    for each in (seen, seen.reading, seen.reading.read.raw, result, evaluated):
        shown = repr(each)
        assert len(shown) < 9_000 and not any(row["review"] in shown for row in rows if row["review"])


def test_rows_in_memory_give_the_weights_of_a_file(model, reviews, tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = make_reviews()
    inputs = {"file": reviews, "dicts": rows, "frame": pandas.DataFrame(rows), "generator": (row for row in rows)}
    results = {
        name: albert.finetune(train=rows_or_file, model=model, output=tmp_path / name, **TABLE)
        for name, rows_or_file in inputs.items()
    }
    weights = {files_of(tmp_path / name)["model/model.safetensors"] for name in inputs}
    assert len(weights) == 1
    assert all(result.scores == results["file"].scores for result in results.values())
    assert albert.evaluate(model=results["dicts"].model).scores == results["file"].scores  # on the saved rows
    again = albert.finetune(train=rows, model=model, output=tmp_path / "dicts", **TABLE)
    assert again.already_complete
    assert len(list((tmp_path / "dicts" / "data").iterdir())) == 1
    other = albert.evaluate(model=results["file"].model, dev=rows[:10])
    assert len(other.predictions) == 10
    notebook, accuracy = results["dicts"]._repr_html_(), results["dicts"].scores["accuracy"]
    assert notebook.count("<svg") == 1 and "majority baseline" in notebook and f"{accuracy:.2f}" in notebook
    assert "majority baseline" in repr(results["dicts"]) and str(results["dicts"].model) in repr(results["dicts"])


def test_missing_values_and_numpy_values_become_json():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a", None], "stars": [5, 4], "when": pandas.to_datetime(["2020-01-02"] * 2)})
    when = '"when": "2020-01-02 00:00:00"}\n'
    lines = f'{{"text": "a", "stars": 5, {when}{{"text": null, "stars": 4, {when}'
    assert rows_as_json_lines(frame, "train") == lines
    with pytest.raises(albert.AlbertError):
        rows_as_json_lines(frame.rename(columns={"stars": "text"}), "train")
    rows = [{"text": "a", "tags": np.array(["b", "c"]), "score": np.float32(0.5), "none": np.float32("nan")}]
    assert rows_as_json_lines(rows, "train") == '{"text": "a", "tags": ["b", "c"], "score": 0.5, "none": null}\n'


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"trian": "a.csv"}, "albert.finetune: trian: unknown keyword; did you mean train=...?"),
        ({"text": "revew"}, "train: has no column 'revew'; did you mean 'review'?"),
        ({"epochs": 2}, "steps and epochs: say the same thing twice; give one of them"),
        ({"steps": "three"}, "albert.finetune: steps: is 'three', a whole number is expected"),
        ({"select": "worst"}, "albert.finetune: select: 'worst' is not a choice; known: last, best"),
        ({"train": []}, "train: has no rows"),
        (
            {"train": [{"review": "a"}, {"review": "b", "more": {1}}]},
            "train:2: column 'more' cannot be written as JSON (set is neither text, number, truth value nor list); "
            "drop the column if it is not used",
        ),
        ({"train": [{"more": [np.nan]}]}, "train:1: column 'more' cannot be written as JSON (Out of range float"),
        ({"train": [{"review": "a\ud83d"}]}, "train:1: column 'review' cannot be written as JSON ('utf-8' codec"),
        ({"train": "absent.csv"}, "absent.csv: No such file or directory"),
        ({"train": 5}, "train: is 5, not rows; give a file, a data frame, or a list of dicts"),
        ({"train": np.array(["a", "b"])}, "train: is an object of type ndarray, not rows; give a file, a data frame"),
        ({"train": iter(["a film"])}, "train:1: is 'a film', not a row with its columns; give a data frame, or a list"),
        ({"train": {"review": ["a"]}}, "train: is one dict, rows are a list of dicts; give a file, a data frame"),
        ({"device": "gpu"}, "albert.finetune: device: 'gpu' is not a choice; did you mean 'cuda'?"),
        (
            {"model": ...},
            "albert.finetune: model: is missing; it is a model directory, a run that made one, a Hub id, or ",
        ),
    ],
)
def test_bad_input_is_one_line_with_keywords_and_leaves_no_files(changed, message, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keywords = {"train": make_reviews(), "model": model, "output": "run", **TABLE, **changed}
    with pytest.raises(albert.AlbertError) as caught:
        albert.finetune(**keywords)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
    assert inner_frames(caught.value) == ["errors.py"]
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: albert.load(model).classify("a"), "has no trained head to classify texts"),
        (lambda model: albert.load(model).fill_mask("a"), "text: has no [MASK] to fill"),
        (lambda model: albert.load(model).embed("a"), "texts: is one text, a list of them is expected"),
    ],
)
def test_errors_of_a_loaded_model_are_one_line_without_inner_frames(call, message, model):
    with pytest.raises(albert.AlbertError) as caught:
        call(model)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert inner_frames(caught.value) == ["errors.py"]


WRONG = {
    "albert.open_model(model, 'clasification')": "albert.open_model: kind: 'clasification' is not a choice",
    "albert.open_model(model, 'classification', '2')": "num_labels: is '2', a new head has 1 to",
    "albert.open_model(model, knd='encoder')": "albert.open_model: knd: unknown keyword; did you mean 'kind'?",
    "albert.open_model(5)": "model: is 5, a path or a name is expected; give a model directory, a run, or a Hub id",
    "albert.load(model, precison='fp32')": "albert.load: precison: unknown keyword; did you mean 'precision'?",
    "albert.load()": "albert.load: missing a required argument: 'path_or_id'",
    "albert.load(model, 'cpu', 'fp32')": "albert.load: too many positional arguments",
    "albert.load(None)": "model: is None (null), a path or a name is expected; give a model directory, a run, or a Hub",
    "albert.load(5)": "model: is 5, a path or a name is expected; give a model directory, a run, or a Hub id",
    "albert.load(loaded)": "model: is an object of type Predictor, a path or a name is expected",
    "albert.load('')": "model: is empty; give a model directory, a run, or a Hub id",
    "albert.AlbertEmbedding(5).fit(['a'])": "model: is 5, a path or a name is expected",
    "albert.AlbertEmbedding().fit_transform(['a'])": "model: is empty; give a model directory",
    "albert.AlbertEmbedding(model, poolin='cls')": "albert.AlbertEmbedding: poolin: unknown keyword; did you mean",
    "albert.tokenizer.load(5)": "albert.tokenizer.load: path: is 5, a path is expected",
    "albert.load(model, precision='fp8')": "precision: 'fp8' is not a choice; known: auto, fp32, bf16, int8",
    "albert.load(model, depth='1')": "depth: is '1', the model has",
    "albert.load(model, depth=1.0)": "depth: is 1.0, the model has",
    "loaded.fill_mask('[MASK]', '5')": "top_k: is '5', a whole number of at least 1 is needed",
    "loaded.fill_mask('[MASK]', 2.5)": "top_k: is 2.5, a whole number of at least 1 is needed",
    "loaded.fill_mask('[MASK]', topk=5)": "fill_mask: topk: unknown keyword; did you mean 'top_k'?",
    "loaded.choose_batch(None, [['a', 'b']])": "contexts: is None (null), a list of texts is expected",
    "loaded.choose_batch(['a'], iter([['a', 'b']]))": "options: is an object of type list_iterator, a list of lists",
    "loaded.tag_sentences(None)": "sentences: is None (null), a list of lists of texts is expected",
    "loaded.embed({'a': 1})": "texts: is a table of keys {...}, a list of texts is expected",
    "albert.pack(model, ['a'])": "albert.pack: tokenizer: is '",
    "albert.pack(loaded.tokenizer, [1])": "albert.pack: texts, number 1: is 1, a text is expected",
}


def test_a_wrong_argument_is_one_line(model):
    """In a process without the type checks of the tests."""
    program = f"""
import sys, albert, numpy
model = {str(model)!r}
loaded = albert.load(model)
type(loaded).pipeline = lambda *names: None
texts = numpy.array(["a film", "b"])
assert albert.pack(loaded.tokenizer, texts, texts).lengths == albert.pack(loaded.tokenizer, [*texts], [*texts]).lengths
for call in {[*WRONG]!r}:
    try:
        eval(call)
    except albert.AlbertError as error:
        sys.excepthook(type(error), error, error.__traceback__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    errors = [line.split(": ", 1)[1] for line in done.stderr.splitlines() if line.startswith("albert.runtime.errors.")]
    for line, message in zip(errors, WRONG.values(), strict=True):
        assert line.startswith(message)


def test_tokenizer_and_corpus_are_made_from_texts_in_memory(tmp_path):
    texts = [{"text": f"{row['review']}. It is long."} for row in make_reviews()]
    trained = albert.tokenizer.train(texts, output=tmp_path / "tokenizer", vocab_size=45)
    assert albert.tokenizer.load(trained.output).fingerprint == trained.tokenizer.fingerprint
    with_null = [*texts, {"text": None}]
    prepared = albert.prepare(with_null, tokenizer=trained.output, output=tmp_path / "corpus", workers=1)
    assert prepared.report.documents_in == 41
    assert prepared.report.dropped == {"null": 1}
    assert "documents" in repr(prepared) and "<table>" in prepared._repr_html_()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "tokenizer"]


def test_your_own_training_loop_learns(model):
    rows = make_reviews(16)
    torch.manual_seed(0)
    network, tokenizer = albert.open_model(model, "classification", num_labels=2)
    batch = albert.pack(tokenizer, [row["review"] for row in rows], max_length=32)
    labels = torch.tensor([row["stars"] == "up" for row in rows]).long()
    optimizer = torch.optim.AdamW(network.train().parameters(), lr=3e-3)
    losses = []
    for _ in range(25):
        loss = torch.nn.functional.cross_entropy(network(batch), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    ids = batch.token_ids[: batch.lengths[0]].tolist()
    assert ids == [tokenizer.cls_id, *tokenizer.encode(rows[0]["review"])[:30], tokenizer.sep_id]


def test_pairs_are_packed_with_segments_and_cut(model):
    _, tokenizer = albert.open_model(model)
    batch = albert.pack(tokenizer, ["good film " * 9, "bad"], ["dull " * 3, "fine"], max_length=12)
    assert batch.lengths[0] == 12 and batch.lengths[1] < 12
    first = batch.token_type_ids[:12].tolist()
    assert first == sorted(first) and set(first) == {0, 1}
    for texts, pairs in (([], None), (["a"], ["b", "c"]), ("a", None)):
        with pytest.raises(albert.AlbertError):
            albert.pack(tokenizer, texts, pairs)
