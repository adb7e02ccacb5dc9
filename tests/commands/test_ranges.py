"""A number that is out of range is refused in one line with the key as it was typed, at both doors alike."""

import re

import pytest

import albert

TABLE = ("--train", "reviews.csv", "--text", "review", "--label", "stars", "--model", "tiny", "--output", "run")
PAIRS = ("--train", "pairs.csv", "--text", "a", "--pair", "b", "--model", "tiny", "--output", "run")
PRETRAIN = ("small", "--data", "corpus", "--output", "run")
OF_FINETUNE = {
    "epochs=0": "epochs: is 0, a number above 0 is needed",
    "epochs=-0.5": "epochs: is -0.5, a number above 0 is needed",
    "steps=-1": "steps: is -1, at least 1 is needed",
    "batch_size=0": "batch_size: is 0, at least 1 is needed",
    "max_length=1": "max_length: is 1, at least 8 is needed",
    "max_length=513": "max_length: is 513, the model has 512 positions",
    "learning_rate=0": "learning_rate: is 0, a number above 0 is needed",
    "learning_rate=2": "learning_rate: is 2, no model learns at a rate above 1",
    "warmup_share=1": "warmup_share: is 1, a share from 0 to below 1 is needed",
    "weight_decay=-1": "weight_decay: is -1, at least 0 is needed",
    "encoder_dropout=2": "encoder_dropout: is 2, a share from 0 to below 1 is needed",
    "head_dropout=1.5": "head_dropout: is 1.5, a share from 0 to below 1 is needed",
    "patience=0": "patience: is 0, at least 1 is needed",
    "micro_batch_tokens=0": "micro_batch_tokens: is 0, at least 1 is needed",
    "max_train_examples=0": "max_train_examples: is 0, at least 1 is needed",
    "evaluate_every=0": "evaluate_every: is 0, at least 1 is needed",
    "checkpoint_every=-5": "checkpoint_every: is -5, at least 1 is needed",
    "seed=-1": "seed: is -1, at least 0 is needed",
    "workers=-1": "workers: is -1, at least 0 is needed",
    "page_examples=-1": "page_examples: is -1, at least 0 is needed",
    "threshold=2": "threshold: is 2, a share above 0 and below 1 is needed",
    "depth=0": "depth: is 0, the model has 4 layers; choose one from 1 to 32",
    "depth=1000": "depth: is 1000, the model has 4 layers; choose one from 1 to 32",
    "architecture.num_hidden_groups=0": "architecture.num_hidden_groups: is 0, at least 1 is needed",
    "architecture.num_attention_heads=7": "architecture.num_attention_heads: 7 heads do not divide hidden_size 128",
    "architecture.max_position_embeddings=0": "architecture.max_position_embeddings: is 0, at least 1 is needed",
}
OF_VECTORS = {
    "epochs=0": "epochs: is 0, a number above 0 is needed",
    "batch_size=0": "batch_size: is 0, at least 1 is needed",
    "max_length=1": "max_length: is 1, at least 8 is needed",
    "max_length=1000": "max_length: is 1000, the model has 512 positions",
    "learning_rate=0": "learning_rate: is 0, a number above 0 is needed",
    "temperature=0": "temperature: is 0, a number above 0 is needed",
    "depth=0": "depth: is 0, the model has 4 layers; choose one from 1 to 32",
    "depth=1000": "depth: is 1000, the model has 4 layers; choose one from 1 to 32",
    "--dev 0": "--dev: is 0; give a share above 0 and below 1, or a file",
}
OF_PRETRAIN = {
    "steps=0": "steps: is 0, at least 1 is needed",
    "batch_size=0": "batch_size: is 0, at least 1 is needed",
    "max_length=1": "max_length: is 1, at least 5 is needed",
    "learning_rate=0": "learning_rate: is 0, a finite number above 0 is needed",
    "optimizer.beta1=1": "optimizer.beta1: is 1, a share from 0 to below 1 is needed",
    "masking.share=1": "masking.share: is 1, a share above 0 and below 1 is needed",
    "sequences.short_probability=1.5": "sequences.short_probability: is 1.5, a share from 0 to 1 is needed",
    "schedule.warmup_steps=-1": "schedule.warmup_steps: is -1, a number from 0 to the",
    "schedule.decay_share=0": "schedule.decay_share: is 0, a share above 0 and up to 1 is needed",
    "architecture.num_hidden_layers=0": "architecture.num_hidden_layers: is 0, at least 1 is needed",
    "architecture.num_hidden_layers=5000": "architecture.num_hidden_layers: gives 5000 layers, the limit is",
    "architecture.hidden_dropout_prob=2": "architecture.hidden_dropout_prob: is 2, a share from 0 to below 1 is needed",
    "clip_norm=0": "clip_norm: is 0, a finite number above 0 is needed",
    "checkpoint_minutes=0": "checkpoint_minutes: is 0, a finite number above 0 is needed",
}
CASES = [
    *(("finetune", albert.finetune, TABLE, word, line) for word, line in OF_FINETUNE.items()),
    *(("finetune-vectors", albert.finetune_vectors, PAIRS, word, line) for word, line in OF_VECTORS.items()),
    *(("pretrain", albert.pretrain, PRETRAIN, word, line) for word, line in OF_PRETRAIN.items()),
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    text = "".join(f"The captain of ship {number} saw a storm. It came from the west.\n\n" for number in range(200))
    (folder / "text.txt").write_text(text)
    albert.prepare(folder / "text.txt", tokenizer="models/tiny", output=folder / "corpus")
    return folder / "corpus"


def keywords_of(words, function) -> dict:
    """The keyword arguments that stand for the words of a command; keys of groups are dicts."""
    keywords: dict = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, value = (word.removeprefix("--"), rest.pop(0)) if word.startswith("--") else word.split("=")
        number = re.fullmatch(r"-?\d+(\.\d+)?", value)
        plain = value if number is None else float(value) if "." in value else int(value)
        group, _, field = name.rpartition(".")
        keywords |= {group: {field: plain}} if group else {name: plain}
    return keywords


@pytest.mark.parametrize(("command", "function", "usual", "word", "line"), CASES)
def test_a_number_out_of_range_is_refused_by_its_key(
    command, function, usual, word, line, reviews, corpus, tmp_path, monkeypatch, refused
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").symlink_to(corpus)
    (tmp_path / "pairs.csv").write_text("a,b\n" + "".join(f"ship {number},storm {number}\n" for number in range(40)))
    said = refused([command, *usual, *word.split()], 2 if word.startswith("--") else 78)
    assert said.startswith(f"albert: error: {line}")
    recipe = [usual[0]] if command == "pretrain" else []
    given = keywords_of([*usual[len(recipe) :], *word.split()], function)
    with pytest.raises(albert.AlbertError) as caught:
        function(*recipe, **given)
    subject, _, why = line.partition(": ")
    group, _, field = subject.removeprefix("--").rpartition(".")
    in_python = f'{group}={{"{field}": ...}}' if group else field
    assert str(caught.value).startswith(f"{in_python}: {why}")
    assert not (tmp_path / "run").exists()
