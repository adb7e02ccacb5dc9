"""`albert finetune-vectors --teacher`: a student learns the vectors of a teacher."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.finetuning.conftest import PLAIN_WORDS
from tests.refusals import refusal

import albert
from albert.checkpoints.model_directory import save_model_directory
from albert.cli.main import run
from albert.finetuning import vectors
from albert.inference.predictor import Predictor
from albert.model.albert import AlbertForMaskedLM
from albert.runtime.json_files import read_json_object


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """300 different texts, one of them twice, and a row without text."""
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    draw = random.Random(0)
    rows = list(dict.fromkeys(" ".join(draw.sample(PLAIN_WORDS, draw.randint(2, 6))) for _ in range(320)))[:300]
    path.write_text("".join(json.dumps({"text": text, "source": "made"}) + "\n" for text in [*rows, rows[0], " "]))
    return path


@pytest.fixture(scope="module")
def teacher(config, tokenizer_directory, tmp_path_factory):
    """A wider model with three layers of its own and a head, which `embed` does not need."""
    torch.manual_seed(7)
    wide = replace(config, hidden_size=48, num_hidden_layers=3, num_hidden_groups=3, initializer_range=0.2)
    path = tmp_path_factory.mktemp("models") / "teacher"
    save_model_directory(path, AlbertForMaskedLM(wide), tokenizer_directory)
    return path


def command(texts, teacher, model, output, *more):
    names = ["--train", str(texts), "--teacher", str(teacher), "--model", str(model), "--output", str(output)]
    recipe = ["batch_size=32", "max_length=16", "--device", "cpu"]
    return ["finetune-vectors", *names, *recipe, *more]


def weights_of(run_directory):
    return (run_directory / "model/model.safetensors").read_bytes()


def test_a_narrower_student_learns_the_similarities_of_a_teacher(texts, teacher, pretrained, tmp_path, capsys):
    finetune = command(texts, teacher, pretrained, tmp_path / "run", "steps=80", "learning_rate=3e-3")
    assert run(finetune) == 0
    out = capsys.readouterr().out
    equal = "1 text left out, because an earlier one is equal"
    for line in ("1 row without text left out", equal, "80 steps over 270 of 270 texts"):
        assert line in out
    report = read_json_object(tmp_path / "run/results.json")
    before, after = report["before"], report["scores"]
    assert after["cosine_to_teacher"] > before["cosine_to_teacher"]
    assert after["similarity_correlation"] > before["similarity_correlation"] + 10
    # The vectors of the saved model, which has no map of its own, have the reported score.
    rows = [json.loads(line)["text"] for line in texts.read_text().splitlines()][:300]
    _, scored = vectors.hold_out_texts(vectors.Texts(rows, {}), 0.1, 0)
    of_teacher = albert.load(teacher, precision="fp32").embed(scored.texts, normalize=True)
    of_student = albert.load(tmp_path / "run", precision="fp32").embed(scored.texts)
    scores = vectors.vector_scores(of_student, of_student, of_teacher)
    assert scores["similarity_correlation"] == pytest.approx(after["similarity_correlation"], abs=0.1)
    assert "similarity_correlation" in (tmp_path / "run/model/README.md").read_text()
    # The same command finds the run complete; another teacher is refused.
    assert run(finetune) == 0
    assert "complete already" in capsys.readouterr().out
    assert run(command(texts, pretrained, pretrained, tmp_path / "run", "steps=80")) == 73


def test_python_resumes_to_the_bytes_of_the_command_and_computes_the_teacher_once(
    texts, teacher, pretrained, tmp_path, monkeypatch
):
    kept = tmp_path / "kept"
    assert run(command(texts, teacher, pretrained, tmp_path / "a", "steps=6", "--teacher-vectors", str(kept))) == 0
    assert list(kept.glob("*/*.npz"))

    def never(*_, **__):
        raise AssertionError("the teacher was run again")

    loss, calls = vectors.vector_loss, []

    def interrupting(*arguments):
        calls.append(arguments)
        if len(calls) > 4:
            raise KeyboardInterrupt
        return loss(*arguments)

    options = {"steps": 6, "batch_size": 32, "max_length": 16, "device": "cpu", "checkpoint_every": 2}
    options |= {"train": texts, "teacher": teacher, "teacher_vectors": kept, "model": pretrained}
    with monkeypatch.context() as patched:
        patched.setattr(Predictor, "embed_counted", never)
        with patched.context() as stopping, pytest.raises(KeyboardInterrupt):
            stopping.setattr(vectors, "vector_loss", interrupting)
            albert.finetune_vectors(output=tmp_path / "b", **options)
        assert not (tmp_path / "b/model").exists()
        result = albert.finetune_vectors(output=tmp_path / "b", **options)
    assert weights_of(tmp_path / "a") == weights_of(tmp_path / "b")
    assert result.scores.keys() == {"similarity_correlation", "cosine_to_teacher"}


def test_a_stopped_teacher_goes_on_with_the_texts_that_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(vectors, "BLOCK", 4)
    asked = []

    def embed(texts):
        asked.extend(texts)
        return np.array([[len(text), 1] for text in texts], np.float32), [int("silver" in text) for text in texts]

    teacher = vectors.VectorTeacher("teacher", "f" * 64, embed)
    texts = [f"the ship {word}" for word in PLAIN_WORDS]
    first, _ = vectors.teacher_vectors(teacher, texts[:6], tmp_path)
    assert asked == texts[:6]
    every, cut = vectors.teacher_vectors(teacher, texts[::-1], tmp_path)
    assert asked == [*texts[:6], *texts[:5:-1]]
    assert every.tolist() == [[len(text), 1] for text in texts[::-1]]
    assert first.tolist() == every[::-1][:6].tolist() and cut.sum() == 1
    vectors.teacher_vectors(replace(teacher, fingerprint="e" * 64), texts[:1], tmp_path)
    assert asked[-1] == texts[0] and len(asked) == len(texts) + 1  # of another teacher
    block = next(tmp_path.glob("f*/*.npz"))
    block.write_bytes(block.read_bytes()[:100])
    with refusal(albert.AlbertError, "vectors"):
        vectors.teacher_vectors(teacher, texts, tmp_path)


def test_a_student_may_begin_with_layers_of_its_teacher(texts, teacher, tmp_path, capsys):
    start = ["keep_layers=1,3"]
    assert run(command(texts, teacher, teacher, tmp_path / "run", "steps=4", *start)) == 0
    assert "layers 1, 3 of 3 are kept" in capsys.readouterr().out
    config = read_json_object(tmp_path / "run/model/config.json")
    assert (config["num_hidden_layers"], config["num_hidden_groups"]) == (2, 2)
    assert not (tmp_path / "run" / vectors.MAP_NAME).exists()  # equal widths: the teacher's own vectors
    kept = albert.load(tmp_path / "run", precision="fp32").embed(["the ship saw the island"])
    assert kept.shape == (1, 48)


def test_the_map_is_orthonormal_and_turned_to_the_student():
    draw = np.random.default_rng(0)
    teacher = draw.normal(size=(200, 6)).astype(np.float32)
    student = teacher @ np.linalg.qr(draw.normal(size=(6, 6)))[0].astype(np.float32)
    assert np.allclose(teacher @ vectors.fit_map(teacher, student), student, atol=1e-2)
    narrow = vectors.fit_map(teacher, draw.normal(size=(200, 4)).astype(np.float32))
    assert np.allclose(narrow.T @ narrow, np.eye(4), atol=1e-5)
    wide = vectors.fit_map(teacher, draw.normal(size=(200, 9)).astype(np.float32))
    assert np.allclose(wide @ wide.T, np.eye(6), atol=1e-5)


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        ("--teacher ABSENT", 66, "none: no such directory"),
        ("--teacher None --teacher-vectors kept", 2, "--teacher-vectors: requires --teacher"),
        ("--train None", 2, "--train: is missing"),
        ("--output None", 2, "--output: is missing"),
        ("--train absent.jsonl", 66, "absent.jsonl: "),
        ("--train EMPTY", 66, "EMPTY: has 0 different texts"),
        ("--train TWO", 2, "--text: is missing: the column of the texts must be named"),
        ("--text reply", 65, "has no column 'reply'"),
        ("--pair text", 2, "--pair: is about pairs of texts"),
        ("--label source", 2, "--label: unknown option"),
        ("--negative text", 2, "--negative: is about pairs of texts"),
        ("temperature=0.1", 2, "temperature: is about pairs of texts"),
        ("steps=2 epochs=1", 2, "steps and epochs: say the same thing twice"),
        ("--dev 0.999", 78, "too few"),
        ("--dev TRAIN", 66, "training texts: 0 are not in the development set"),
        ("--held-out 0.1", 2, "--held-out: unknown option; write --dev 0.1"),
        ("keep_layers=1,2", 78, "keep_layers: needs layers that share nothing"),
        ("--model TEACHER keep_layers=3,1", 78, "keep_layers: is 3 1, the model has the layers 1 to 3"),
        ("--model TEACHER keep_layers=1,4", 78, "keep_layers: is 1 4"),
        ("--model TEACHER keep_layers=1,2 depth=2", 78, "keep_layers: cannot be combined"),
        ("max_length=3", 78, "max_length"),
    ],
)
def test_bad_input(more, code, message, texts, teacher, pretrained, tmp_path, capsys):
    (tmp_path / "empty.jsonl").write_text('{"text": " "}\n{"text": ""}\n')
    (tmp_path / "two.jsonl").write_text('{"a": "x", "b": "y"}\n' * 3)
    names = {"EMPTY": tmp_path / "empty.jsonl", "TWO": tmp_path / "two.jsonl", "TRAIN": texts, "TEACHER": teacher}
    names["ABSENT"] = tmp_path / "none"
    arguments = command(texts, teacher, pretrained, tmp_path / "out", "steps=1")
    words = more.split()
    if words[1:2] == ["None"]:
        place = arguments.index(words[0])
        del arguments[place : place + 2]
        words = words[2:]
    assert run([*arguments, *(str(names.get(word, word)) for word in words)]) == code
    assert message.replace("EMPTY", str(names["EMPTY"])) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
