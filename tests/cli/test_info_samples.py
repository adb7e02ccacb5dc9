"""`albert info CORPUS --samples`: training samples as text."""

import re

import pytest
from tests.cli.conftest import make_documents

from albert.cli.main import run
from albert.pretraining.sampling import PretrainingSamples
from albert.recipes.pretraining import MaskingRecipe, SequenceRecipe
from albert.text.executors import PreparationSettings
from albert.text.prepare import prepare
from albert.text.sentencepiece import train_tokenizer
from albert.text.shards import TokenCorpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("samples")
    documents = make_documents(60)
    (directory / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    settings = PreparationSettings(held_out=0.1, documents="blank-line")
    tokenizer = train_tokenizer(documents, vocab_size=190)
    prepare([directory / "text.txt"], tokenizer, directory / "corpus", settings, workers=1)
    return directory / "corpus"


@pytest.fixture
def shown(corpus, tmp_path, capsys):
    """Prints samples of the corpus with a recipe file of these values; returns the output."""

    def call(recipe, *arguments):
        (tmp_path / "recipe.toml").write_text(recipe)
        arguments = ["--recipe", str(tmp_path / "recipe.toml"), *arguments]
        assert run(["info", str(corpus), *arguments]) == 0
        return capsys.readouterr().out

    return call


def test_shown_samples_are_those_of_a_run(corpus, shown):
    out = shown("seed = 3\nmax_length = 64", "--samples", "20", "--seed", "7")
    opened = TokenCorpus.open(corpus, verify=False)
    samples = PretrainingSamples(opened, SequenceRecipe(max_length=64), MaskingRecipe(), 7)
    tokenizer = opened.tokenizer()
    parts = re.split(r"^sample ([\d,]+) ─+$", out, flags=re.MULTILINE)
    assert parts[1::2] == [str(number) for number in range(20)]
    for number, text in zip(parts[1::2], parts[2::2], strict=True):
        sample = samples.sample(int(number))
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


def test_the_recipe_has_the_seed(shown):
    seven = shown("seed = 7\nmax_length = 64", "--samples", "2")
    assert seven == shown("seed = 3\nmax_length = 64", "--samples", "2", "--seed", "7")
    assert seven != shown("seed = 3\nmax_length = 64", "--samples", "2")


def test_samples_of_a_named_recipe_end_with_the_epoch(corpus, capsys):
    assert run(["info", str(corpus), "--samples", "100000"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert "recipe small, seed 0" in first
    per_epoch = int(re.search(r"([\d,]+) samples an epoch", first)[1].replace(",", ""))
    assert 20 < per_epoch == sum(line.startswith("sample ") for line in lines) < 1000


def test_lines_have_at_most_100_columns_without_colour(corpus, capsys, terminal):
    terminal(140)
    assert run(["info", str(corpus), "--samples", "3"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines()[1:])) <= 100  # the first line names the corpus
    assert "\x1b" not in out


@pytest.mark.parametrize("objective", ["sop", "nsp", "none"])
def test_the_recipe_changes_the_samples(shown, objective):
    sequences = f"max_length = 96\nsequences = {{ objective = '{objective}' }}"
    masking = "masking = { unit = 'token', max_ngram = 1, max_predictions = 2, replacement = 'span' }"
    out = shown(f"{sequences}\n{masking}", "--samples", "30")
    labels = {
        "sop": "label 1: swapped",
        "nsp": "label 1: the second is from elsewhere",
        "none": "no order label",
    }
    plain = " ".join(out.split())
    assert labels[objective] in plain
    assert {int(masked) for masked in re.findall(r"tokens, (\d+) masked", plain)} <= {1, 2}
