"""A checkpoint is found however people have it; several without a choice, and other formats, are refused by name."""

import shutil
from pathlib import Path

import pytest

from albert.checkpoints.tensorflow import find_checkpoint, holds_tensorflow
from albert.runtime.errors import DamagedData, MissingInput

DATA = ".data-00000-of-00001"


@pytest.fixture
def place(tmp_path):
    """Make empty files, by names; what they hold does not matter here."""

    def make(*names: str) -> Path:
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(b"")
        return tmp_path

    return make


def test_a_release(place):
    here = place(
        "model.ckpt-best.index", "model.ckpt-best.meta", f"model.ckpt-best{DATA}", "albert_config.json",
        "30k-clean.model", "30k-clean.vocab", "._model.ckpt-best.index",
    )  # fmt: skip
    found = find_checkpoint(here)
    assert found.prefix == here / "model.ckpt-best"
    assert found.config == here / "albert_config.json" and found.tokenizer == here / "30k-clean.model"


def test_the_directory_around_a_release(place):
    here = place("albert_base/model.ckpt-best.index", "albert_base/albert_config.json", "albert_base/vocab_chinese.txt")
    found = find_checkpoint(here)
    assert found.prefix == here / "albert_base" / "model.ckpt-best"
    assert found.config == here / "albert_base" / "albert_config.json"
    assert found.tokenizer == here / "albert_base" / "vocab_chinese.txt"


def test_a_module_of_tf_hub(place):
    here = place("saved_model.pb", "variables/variables.index", "assets/albert_config.json", "assets/30k-clean.model")
    for asked in (here, here / "variables", here / "variables" / "variables"):
        found = find_checkpoint(asked)
        assert found.prefix == here / "variables" / "variables"
        assert found.config == here / "assets" / "albert_config.json"
        assert found.tokenizer == here / "assets" / "30k-clean.model"


@pytest.mark.parametrize("name", ["model.ckpt-7", "model.ckpt-7.index", "model.ckpt-7.meta", f"model.ckpt-7{DATA}"])
def test_one_of_several_by_its_prefix_or_any_of_its_files(place, name):
    here = place("model.ckpt-7.index", "model.ckpt-7.meta", f"model.ckpt-7{DATA}", "model.ckpt-9.index")
    assert find_checkpoint(here / name).prefix == here / "model.ckpt-7"


def test_the_newest_of_a_run_is_the_one_that_the_state_file_names(place):
    here = place("model.ckpt-7.index", "model.ckpt-900.index", "model.ckpt-80.index")
    for said in (
        "model.ckpt-80",
        "/another/machine/run/model.ckpt-80",
        "../../model.ckpt-80",
        "C:\\run\\model.ckpt-80",
    ):
        state = f'model_checkpoint_path: "{said}"\nall_model_checkpoint_paths: "model.ckpt-7"\n'
        (here / "checkpoint").write_text(state)
        found = find_checkpoint(here)
        assert found.prefix == here / "model.ckpt-80" and found.steps == 3


@pytest.mark.parametrize("state", [None, "", 'model_checkpoint_path: "model.ckpt-lost"', "\xff\xfe"])
def test_several_without_a_choice_are_listed(place, state):
    here = place("model.ckpt-7.index", "model.ckpt-9.index")
    if state is not None:
        (here / "checkpoint").write_text(state, encoding="latin-1")
    with pytest.raises(MissingInput, match=r"holds 2 checkpoints: model.ckpt-7, model.ckpt-9; name one of them"):
        find_checkpoint(here)


def test_several_configurations_or_vocabularies_are_listed(place):
    here = place("model.index", "albert_config_a.json", "albert_config_b.json")
    with pytest.raises(MissingInput, match="2 configurations: albert_config_a.json, .*choose with --config"):
        find_checkpoint(here)
    assert find_checkpoint(here, config=here / "albert_config_a.json").config == here / "albert_config_a.json"
    place("a.model", "b.model")
    with pytest.raises(MissingInput, match="2 vocabularies: a.model, b.model; choose with --tokenizer"):
        find_checkpoint(here, config=here / "albert_config_a.json")


def test_nothing_there(place):
    here = place("readme.txt")
    assert not holds_tensorflow(here) and not holds_tensorflow(here / "nowhere")
    with pytest.raises(MissingInput, match="holds no TensorFlow checkpoint"):
        find_checkpoint(here)
    with pytest.raises(MissingInput, match=r"nowhere.index: no such file"):
        find_checkpoint(here / "nowhere")
    with pytest.raises(MissingInput, match="is not part of a TensorFlow checkpoint"):
        find_checkpoint(here / "readme.txt")


def test_the_first_format_is_recognised_with_a_remedy(checkpoints, tmp_path):
    directory = shutil.copytree(checkpoints / "formats" / "version_1", tmp_path / "old")
    for path in (directory, directory / "model.ckpt-best"):
        assert holds_tensorflow(path)
        with pytest.raises(DamagedData, match=r"first format.*Saver\(\).save"):
            find_checkpoint(path)


def test_keras_files_are_recognised(place):
    here = place("model.h5")
    (here / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\n and more")
    for path in (here, here / "model.h5"):
        with pytest.raises(DamagedData, match="HDF5 file of Keras"):
            find_checkpoint(path)
