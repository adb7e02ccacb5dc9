"""A model with a WordPiece vocabulary, from text to predictions; foreign tokenizers are refused."""

import random
import shutil

import numpy as np
import pytest
import torch
import transformers
from tests.cli.conftest import TINY

from albert.checkpoints.model_directory import open_model
from albert.cli.main import run
from albert.inference.predictor import Predictor
from albert.model.packing import pack
from albert.pretraining.sampling import PretrainingSamples
from albert.recipes.pretraining import MaskingRecipe, SequenceRecipe
from albert.runtime.files import new_directory
from albert.tasks.examples import text_sequences
from albert.text.shards import TokenCorpus
from albert.text.tokenizer_loading import load_tokenizer
from albert.text.wordpiece import wordpiece_tokenizer

IDEOGRAPHS = (
    "中国人大在有这上来到时地为子你说生年着就那和要出也得里后自以会家可下而过天去能对小多然于心学么之都好看起发当没成只如事把还用第样道想作种开美总从无情己面最女但现"
    "前些所同日手又行意动方期它头经长儿回位分爱老因很给名法间斯知世什两次使身者被高已亲其进此话常与活正感"
)
PIECES = [
    *["[unused1]", "[PAD]", *(f"[unused{n}]" for n in range(2, 60)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    *IDEOGRAPHS,
    *(mark + letter for letter in "abcdefghijklmnopqrstuvwxyz0123456789" for mark in ("", "##")),
    *"，。！？：.,!?[]",
]
MASK = 63


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with a vocabulary, text, a prepared corpus and a run, made by commands."""
    root = tmp_path_factory.mktemp("chinese")
    numbers = random.Random(0)

    def sentence():
        words = ["".join(numbers.choices(IDEOGRAPHS, k=2)) for _ in range(numbers.randint(2, 9))]
        words.insert(1, numbers.choice(["GPU", "café", "2020", ""]))
        return "".join(words) + numbers.choice("。！？")

    for name in ("vocabulary", "text"):
        (root / name).mkdir()
    (root / "vocabulary" / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    for number in range(30):
        text = "".join(sentence() for _ in range(numbers.randint(4, 10)))
        (root / "text" / f"{number:02d}.txt").write_text(text, encoding="utf-8")
    prepare = ["prepare", str(root / "text"), "--tokenizer", str(root / "vocabulary"), "--language", "zh"]
    assert run([*prepare, "--output", str(root / "corpus"), "--held-out", "0.2", "--workers", "1"]) == 0
    pretrain = ["pretrain", "quickstart", "--data", str(root / "corpus"), "--output", str(root / "run")]
    assert run([*pretrain, *TINY]) == 0
    return root


@pytest.fixture
def foreign(tmp_path):
    """A copy of a directory with a valid manifest and two pieces of the vocabulary swapped."""

    def copy(source):
        with new_directory(tmp_path / source.name) as directory:
            shutil.copytree(source, directory, dirs_exist_ok=True)
            (directory / "MANIFEST.json").unlink()
            wordpiece_tokenizer(swapped(PIECES)).save(directory)
        return tmp_path / source.name

    return copy


def swapped(pieces):
    """The pieces with two of them swapped."""
    first = pieces.index("中")
    return [*pieces[:first], pieces[first + 1], pieces[first], *pieces[first + 2 :]]


def test_whole_words_are_masked_and_no_special_pieces(root):
    corpus = TokenCorpus.open(root / "corpus", "train")
    tokenizer = corpus.tokenizer()
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.mask_id) == (1, 60, MASK)
    samples = PretrainingSamples(corpus, SequenceRecipe(max_length=32), MaskingRecipe(), seed=0)
    starts = tokenizer.word_starts()
    continuations = 0
    for number in range(60):
        sample = samples.sample(number)
        ids = sample.token_ids.copy()
        ids[sample.masked_positions] = sample.masked_labels
        assert ids[0] == tokenizer.cls_id
        assert (np.flatnonzero(ids == tokenizer.sep_id) == np.flatnonzero(np.diff([*sample.token_type_ids, 2]))).all()
        assert not set(sample.masked_labels.tolist()) & set(tokenizer.special_ids)
        assert len(sample.masked_positions) >= 1
        masked = set(sample.masked_positions.tolist())
        for i in range(2, len(ids)):
            if not starts[ids[i]] and ids[i - 1] not in tokenizer.special_ids:
                assert (i in masked) == (i - 1 in masked)
                continuations += 1
    assert continuations > 20


def test_masks_are_filled_as_by_transformers(root, capsys):
    model = root / "run" / "model"
    text = "中国人[MASK]在GPU上。"
    filled = Predictor.open(model, precision="fp32").fill_mask(text, top_k=3)
    ids = text_sequences([(text,)], load_tokenizer(model), 64, masked=True)[0].token_ids(0)
    masked = torch.from_numpy(np.flatnonzero(ids == MASK))
    logits = open_model(model, "pretraining").model(pack([ids], [np.zeros_like(ids)]), masked).masked_tokens
    theirs = transformers.pipeline("fill-mask", model=str(model), device="cpu")(text, top_k=3)
    for ours, expected in zip(filled, theirs, strict=True):
        assert (ours["token"], ours["sequence"]) == (expected["token"], expected["sequence"])
        assert ours["score"] == pytest.approx(expected["score"], abs=1e-6)
    assert filled[0]["token"] == int(logits[0].argmax())
    assert run(["predict", str(model), "--fill-mask", text]) == 0
    assert "中 国 人" in capsys.readouterr().out


def test_the_model_is_fine_tuned_and_predicts(root, tmp_path):
    pairs = enumerate(zip(IDEOGRAPHS[:16], IDEOGRAPHS[16:32], strict=True))
    rows = "".join(f"{first}{second}人,{'是' if n % 2 else '否'}\n" for n, (first, second) in pairs)
    for name in ("train", "dev"):
        (tmp_path / f"{name}.csv").write_text("text,label\n" + rows, encoding="utf-8")
    arguments = ["--train", str(tmp_path / "train.csv"), "--dev", str(tmp_path / "dev.csv"), "--text", "text"]
    arguments += ["--label", "label", "--model", str(root / "run"), "--output", str(tmp_path / "task")]
    assert run(["finetune", *arguments, "epochs=1", "--device", "cpu"]) == 0
    answer = Predictor.open(tmp_path / "task").classify("中国人")
    assert {entry["label"] for entry in answer} == {"是", "否"}


def refused(capsys, *arguments):
    code = run([str(argument) for argument in arguments])
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    return code, error


@pytest.mark.parametrize(
    ("source", "command", "message"),
    [
        ("corpus", "pretrain quickstart --data {copy} --output {out}", "its tokenizer files are not those it was made"),
        ("run/model", "predict {copy} --fill-mask 中[MASK]", "tokenizer.json: has fingerprint"),
        (
            "run/model",
            "finetune --train {table} --dev {table} --text text --label label --model {copy} --output {out}",
            "tokenizer.json: has fingerprint",
        ),
    ],
)
def test_a_foreign_tokenizer_is_refused(source, command, message, foreign, root, tmp_path, capsys):
    (tmp_path / "t.csv").write_text("text,label\n中,1\n国,0\n", encoding="utf-8")
    paths = {"copy": foreign(root / source), "out": tmp_path / "out", "table": tmp_path / "t.csv"}
    code, error = refused(capsys, *(word.format(**paths) for word in command.split()))
    assert (code, message in error) == (65, True), error
    assert not (tmp_path / "out").exists()
