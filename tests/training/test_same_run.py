"""What makes a run the same run: new, resumed, grown or finished; another one is refused with the difference."""

import pytest
from tests.refusals import refusal

from albert.runtime.errors import CannotCreate
from albert.runtime.json_files import read_versioned, save_versioned
from albert.training.run_folder import RunFolder
from albert.training.same_run import Described, Input, begun_run, same_run, save_run


class Call(Described):
    MAY_CHANGE = ("workers", "machine")
    GROWS = ("limits.minutes",)


RECORD = {"task": "a", "limits": {"minutes": 5, "steps": 10}, "workers": 1, "machine": {"device": "cpu"}}
INPUTS = {"corpus": Input("wiki", "0123456789"), "initial weights": Input("random weights", "")}


def described(inputs=INPUTS, **changes):
    return Call(record=RECORD | changes, inputs=inputs)


@pytest.fixture
def folder(tmp_path):
    """The folder of a run that was begun."""
    folder = RunFolder(tmp_path / "run")
    assert same_run(folder, described()) == "new"
    save_run(folder, described())
    return folder


def finish(folder):
    save_versioned(folder.results_path, {"scores": {}})


def test_a_run_is_resumed_until_its_results_are_written(folder):
    assert same_run(folder, described()) == "resumed"
    finish(folder)
    assert same_run(folder, described()) == "finished"


def test_a_run_that_keeps_its_checkpoints_writes_a_model_anew_that_is_gone(folder):
    class Kept(Call):
        KEEPS_CHECKPOINTS = True

    finish(folder)
    kept = Kept(record=RECORD, inputs=INPUTS)
    assert same_run(folder, kept) == "resumed"
    folder.model_path.mkdir()
    assert same_run(folder, kept) == "finished"


def test_settings_that_change_no_result_may_differ_and_the_record_has_the_newest(folder):
    finish(folder)
    changed = described(workers=4, machine={"device": "cuda"})
    assert same_run(folder, changed) == "finished"
    before = begun_run(folder, described()).identity
    save_run(folder, changed)
    assert read_versioned(folder.recipe_path)["workers"] == 4
    assert begun_run(folder, changed).identity == before


def test_a_larger_budget_continues_a_finished_run_whose_results_are_removed_first(folder):
    finish(folder)
    grown = described(limits={"minutes": 9, "steps": 10})
    assert same_run(folder, grown) == "grown"
    save_run(folder, grown)
    assert not folder.results_path.exists()
    assert same_run(folder, grown) == "resumed"
    assert same_run(folder, described()) == "grown", "it was stopped while it grew, and has another budget again"


def test_another_setting_is_named_with_both_values_and_nothing_is_written(folder):
    before = {path: path.read_bytes() for path in folder.path.iterdir()}
    with refusal(CannotCreate, "holds another run with other settings: limits.steps (10, now 20)", "--replace"):
        same_run(folder, described(limits={"minutes": 5, "steps": 20}))
    with refusal(CannotCreate, 'task ("a", now null)'):
        same_run(folder, Call(record={"limits": RECORD["limits"]}, inputs=INPUTS))
    many = {f"setting {number}": number for number in range(5)}
    with refusal(CannotCreate, "setting 2 (null, now 2) and 2 more"):
        same_run(folder, described(settings=many))
    assert {path: path.read_bytes() for path in folder.path.iterdir()} == before


def test_another_input_is_named_with_both(folder):
    finish(folder)
    with refusal(CannotCreate, "a finished run with another corpus: wiki (01234567), now news (abcdef01)"):
        same_run(folder, described(INPUTS | {"corpus": Input("news", "abcdef0123")}))
    with refusal(CannotCreate, "another initial weights: random weights, now small (77)"):
        same_run(folder, described(INPUTS | {"initial weights": Input("small", "77")}))
    with refusal(CannotCreate, "another teacher: none, now large (55)"):
        same_run(folder, described(INPUTS | {"teacher": Input("large", "55")}))
    with refusal(CannotCreate, "another corpus: wiki (01234567), now none"):
        same_run(folder, described({"initial weights": INPUTS["initial weights"]}))


def test_a_path_that_moved_changes_nothing_and_the_name_of_the_start_stays(folder):
    moved = described(INPUTS | {"corpus": Input("moved", "0123456789")})
    assert same_run(folder, moved) == "resumed"
    save_run(folder, moved)
    assert read_versioned(folder.inputs_path)["inputs"]["corpus"]["name"] == "wiki"


def test_several_runs_are_not_one(tmp_path):
    save_run(RunFolder(tmp_path / "seed-0"), described())
    with refusal(CannotCreate, "holds the runs of several seeds, not one"):
        same_run(RunFolder(tmp_path), described())


def test_a_run_without_its_inputs_is_another_one(folder):
    folder.inputs_path.unlink()
    with refusal(CannotCreate, "another corpus: none, now wiki"):
        same_run(folder, described())
