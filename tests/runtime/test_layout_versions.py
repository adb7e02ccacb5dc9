"""Every file that albert writes to read it again states the version of its layout; another version is refused by its
number."""

import json
import shutil

import pytest

import albert
from albert.checkpoints.hub import find_model
from albert.cli.main import run
from albert.runtime.files import write_text
from albert.runtime.json_files import read_json_object
from albert.runtime.manifest import (
    MANIFEST_NAME,
    FileSum,
    file_hash,
    files_below,
    manifest_bytes,
    verify_directory,
)

OPTIONS = (
    "architecture.hidden_size=16 architecture.embedding_size=8 architecture.num_attention_heads=2 "
    "architecture.intermediate_size=16 architecture.num_hidden_layers=1 architecture.max_position_embeddings=32 "
    "max_length=32 batch_size=4 micro_batch_size=4 steps=6 schedule.warmup_steps=1 evaluation_sequences=4 "
    "--device cpu precision=fp32"
)
PRETRAIN = ["pretrain", "quickstart", *OPTIONS.split()]


@pytest.fixture(scope="module")
def made(tokenizer_directory, tmp_path_factory):
    """A corpus, an unfinished run of pre-training and a finished one of fine-tuning, and a quantised model."""
    root = tmp_path_factory.mktemp("made")
    text = root / "text.txt"
    text.write_text("".join(f"The cat saw the dog {n} times. It ran away.\n\n" for n in range(200)))
    albert.prepare(text, tokenizer=tokenizer_directory, output=root / "corpus", held_out=0.2)
    corpus, unfinished = str(root / "corpus"), str(root / "pretrained")
    assert run([*PRETRAIN, "--data", corpus, "--output", unfinished, "max_tokens=1"]) == 0
    rows = "".join(f"film {n} was {word},{word}\n" for n, word in enumerate(("good", "bad") * 8))
    (root / "films.csv").write_text("text,label\n" + rows)
    table = str(root / "films.csv")
    command = ["finetune", "--train", table, "--dev", table, "--model", "tiny", "--device", "cpu"]
    assert run([*command, "--output", str(root / "finetuned"), "steps=1"]) == 0
    assert run(["quantize", "tiny", "--output", str(root / "int8")]) == 0
    return root


RESUME = [*PRETRAIN, "--data", "{root}/corpus", "--output", "{root}/pretrained"]
AGAIN = [
    *("finetune", "--train", "{root}/films.csv", "--dev", "{root}/films.csv", "--model", "tiny"),
    *("--device", "cpu", "--output", "{root}/finetuned", "steps=1"),
]


@pytest.mark.parametrize("stated", [2, None])
@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("corpus/corpus.json", ["info", "{root}/corpus"]),
        ("corpus/MANIFEST.json", ["info", "{root}/corpus", "--verify"]),
        ("pretrained/recipe.json", RESUME),
        ("pretrained/inputs.json", RESUME),
        ("pretrained/checkpoints/step-00000001/training_state.json", RESUME),
        ("finetuned/recipe.json", AGAIN),
        ("finetuned/results.json", AGAIN),
        ("int8/config.json", ["predict", "{root}/int8", "--fill-mask", "A [MASK]."]),
    ],
)
def test_another_version_is_refused_by_its_number(file, command, stated, made, tmp_path, refused):
    root = shutil.copytree(made, tmp_path / "root")
    path = root / file
    content = read_json_object(path)
    holder = content["albert_quantization"] if file == "int8/config.json" else content
    assert holder["layout"] == 1
    holder["layout"] = stated
    write_text(path, json.dumps(content))
    if path.name != MANIFEST_NAME:
        (path.parent / MANIFEST_NAME).unlink(missing_ok=True)
    if file.startswith("pretrained/checkpoints"):  # a checkpoint without a manifest is damaged
        checkpoint_manifest(path.parent)
    before = {each: each.read_bytes() for each in path.parent.rglob("*") if each.is_file()}
    words = [word.format(root=root) for word in command]
    line = refused(words, 65, path.name, "this version of albert reads 1")
    assert ("has layout version 2" if stated else "states no layout version") in line
    assert {each: each.read_bytes() for each in path.parent.rglob("*") if each.is_file()} == before


def checkpoint_manifest(directory):
    """Write the manifest of a directory as it is now."""
    names = [name for name in files_below(directory) if name != MANIFEST_NAME]
    listed = {name: FileSum((directory / name).stat().st_size, file_hash(directory / name)) for name in sorted(names)}
    (directory / MANIFEST_NAME).write_bytes(manifest_bytes(listed))


def test_the_task_of_a_run_is_a_task_file(made, tmp_path, refused):
    task = read_json_object(made / "finetuned/task.json")
    assert task["layout"] == 1
    file = tmp_path / "task.json"
    show = ["finetune", str(file), "--model", "tiny"]
    for stated, accepted in ((1, True), (2, False)):
        file.write_text(json.dumps(task | {"layout": stated}))
        if accepted:
            assert run(show) == 0
        else:
            refused(show, 65, "task.json", "has layout version 2")


def test_the_recipe_of_a_run_is_a_recipe_file(made, tmp_path, refused):
    recipe = read_json_object(made / "pretrained/recipe.json")
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(recipe))
    assert run(["info", "--recipe", str(file)]) == 0
    file.write_text(json.dumps(recipe | {"layout": 3}))
    refused(["info", "--recipe", str(file)], 65, "recipe.json", "has layout version 3")


def test_models_of_the_package_state_it():
    for name in ("tiny", "small", "small-vectors"):
        path = find_model(name)
        assert read_json_object(path / MANIFEST_NAME)["layout"] == 1
        verify_directory(path)
