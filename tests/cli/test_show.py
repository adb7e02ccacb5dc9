"""`albert show`: training samples as text, and counts."""

import re

import pytest
from tests.cli.conftest import make_documents

from albert.cli.main import run
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.text.executors import PreparationSettings
from albert.text.prepare import prepare
from albert.text.sentencepiece import train_tokenizer
from albert.text.shards import TokenCorpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("show")
    documents = make_documents(60)
    (directory / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    settings = PreparationSettings(held_out=0.1, documents="blank-line")
    tokenizer = train_tokenizer(documents, vocab_size=190)
    prepare([directory / "text.txt"], tokenizer, directory / "corpus", settings, workers=1)
    return directory / "corpus"


def shown(capsys, *arguments):
    assert run(["show", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_shown_samples_are_those_of_a_run(corpus, capsys):
    out = shown(capsys, corpus, "--number", "20", "--first", "3", "--epoch", "1", "--seed", "7", "--max-length", "64",
                "--count", "0")  # fmt: skip
    opened = TokenCorpus.open(corpus, verify=False)
    samples = PretrainingSamples(opened, SequenceRecipe(max_length=64), MaskingRecipe(), 7)
    tokenizer = opened.tokenizer()
    parts = re.split(r"^sample ([\d,]+) ─+$", out, flags=re.MULTILINE)
    assert len(parts) == 1 + 2 * 20
    for number, text in zip(parts[1::2], parts[2::2], strict=True):
        sample = samples.sample(int(number.replace(",", "")))
        assert samples.per_epoch + 3 <= int(number.replace(",", "")) < samples.per_epoch + 23
        plain = " ".join(text.split())
        assert plain.startswith(f"{len(sample.token_ids)} tokens, {len(sample.masked_labels)} masked")
        labels = {0: "label 0: in order", 1: "label 1: swapped", -100: "no order label"}
        assert labels[sample.order_label] in plain
        body = " ".join(line.strip() for line in text.splitlines() if line.startswith("      "))
        seen = re.sub(r"\{([^{}]*) → ([^{}]*)\}", r"\1", body).replace(" ¦", "")
        ids = sample.token_ids.copy()
        ids[sample.masked_positions] = sample.masked_labels
        assert seen.replace(" ", "") == tokenizer.decode(ids.tolist()).replace(" ", "")
        holes = re.findall(r"\{[^{}]* → ([^{}]*)\}", body)
        masks = sum(int(times or 1) for hole in holes for times in re.findall(r"\[MASK\](?:×(\d+))?", hole))
        assert masks == int((sample.token_ids == tokenizer.mask_id).sum())


def test_lines_have_at_most_100_columns_without_colour(corpus, capsys, terminal):
    terminal(140)
    out = shown(capsys, corpus, "--max-length", "128")
    assert max(map(len, out.splitlines()[1:])) <= 100  # the first line names the corpus
    assert "\x1b" not in out


@pytest.mark.parametrize("objective", ["sop", "nsp", "none"])
def test_options_of_a_recipe_change_the_samples(corpus, capsys, objective):
    out = shown(capsys, corpus, "--objective", objective, "--max-length", "96", "--unit", "token", "--max-ngram", "1",
                "--replacement", "span", "--max-predictions", "2", "--no-favor-shorter", "--number", "30")  # fmt: skip
    labels = {
        "sop": "label 1: swapped",
        "nsp": "label 1: the second is from elsewhere",
        "none": "no order label",
    }
    plain = " ".join(out.split())
    assert labels[objective] in plain
    assert "draws of n = 1" in plain and "draws of n = 2" not in plain


def test_counts_are_shown_beside_their_expectations(corpus, capsys):
    out = shown(capsys, corpus, "--number", "0", "--count", "50", "--max-length", "64")
    assert "50 samples, counted" in out and "sample 0" not in out
    assert re.search(r"padding, of all tokens computed +0\.0000 +0\.0000 +exact", out)
