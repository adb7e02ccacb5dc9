"""The best model of a run is the one that scored best, whether or not the run was stopped, and it is said."""

import json
import shutil
from functools import partial

import pytest
from tests.tiny import short_task

from albert.finetuning.evaluation import evaluate_directory
from albert.finetuning.model import PretrainedEncoder
from albert.finetuning.run import finetune
from albert.finetuning.run_record import BestModel, FinetuningSettings, describe_selection
from albert.runtime.errors import CannotCreate, DamagedData, InvalidConfiguration
from albert.runtime.json_files import read_journal
from albert.runtime.manifest import MANIFEST_NAME, FileSum, file_hash, manifest_bytes, verify_directory
from albert.tasks.submission import DECLARED

BEST = FinetuningSettings(encode_pairs="together", device="cpu", select="best", evaluate_every=2, checkpoint_every=3)


@pytest.fixture
def short(data):
    """A task that is learnt, and unlearnt at once: the rate is far too high."""
    return short_task("sts-b", steps=14, batch_size=8, learning_rate=2e-2)


def test_the_result_is_the_first_of_the_best_evaluations(short, data, pretrained, tmp_path):
    start = PretrainedEncoder(str(pretrained))
    result = finetune(short, start, data / "score", tmp_path / "run", settings=BEST)
    told = [e for e in read_journal(tmp_path / "run/journal.jsonl") if e["event"] == "evaluation"]
    scores = [each["pearson"] for each in told]
    assert len(scores) == 7
    assert max(scores) > scores[-1]  # or this test could not tell the best from the last
    assert result.scores["pearson"] == max(scores)
    selection = result.report["selection"]
    assert (selection["by"], selection["evaluations"]) == ("best", 7)
    assert selection["step"] == told[scores.index(max(scores))]["step"]
    verify_directory(result.model_directory)
    again = evaluate_directory(short, str(tmp_path / "run"), data / "score", device="cpu")
    assert again.evaluation.scores == result.scores
    assert "is somewhat high" in (result.model_directory / "README.md").read_text()
    assert not (tmp_path / "run/best").exists()
    (tmp_path / "run/best").mkdir()  # as a run leaves it that dies between its last result and its last removal
    assert finetune(short, start, data / "score", tmp_path / "run", settings=BEST).scores == result.scores
    assert not (tmp_path / "run/best").exists()


@pytest.mark.parametrize("step", [5, 8])
def test_a_run_that_was_stopped_finds_its_best_model(step, short, data, pretrained, tmp_path, interrupted):
    start = PretrainedEncoder(str(pretrained))
    whole = finetune(short, start, data / "score", tmp_path / "whole", settings=BEST)
    with interrupted(step):
        finetune(short, start, data / "score", tmp_path / "cut", settings=BEST)
    assert (tmp_path / "cut/best").is_dir()
    resumed = finetune(short, start, data / "score", tmp_path / "cut", settings=BEST)
    one, two = (path / "model.safetensors" for path in (whole.model_directory, resumed.model_directory))
    assert one.read_bytes() == two.read_bytes()
    assert resumed.report["selection"] == whole.report["selection"]


@pytest.fixture
def stopped(short, data, pretrained, tmp_path, interrupted):
    """A run that was stopped after some steps, and what goes on with it."""

    def stop_after(step):
        shutil.copytree(data / "score", tmp_path / "data")
        again = partial(finetune, short, PretrainedEncoder(str(pretrained)), settings=BEST)
        with interrupted(step):
            again(tmp_path / "data", tmp_path / "run")
        return again

    return stop_after


def with_fewer_rows(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))


def test_a_run_does_not_go_on_with_another_development_set(stopped, tmp_path):
    again = stopped(5)
    (dev,) = (tmp_path / "data").rglob("dev*")
    kept = dev.read_text()
    with_fewer_rows(dev)
    with pytest.raises(InvalidConfiguration, match="was trained with another development set; give the run's own"):
        again(tmp_path / "data", tmp_path / "run")
    dev.write_text(kept)
    again(tmp_path / "data", tmp_path / "run")
    with_fewer_rows(dev)
    with pytest.raises(CannotCreate, match="holds a finished run with another development set"):
        again(tmp_path / "data", tmp_path / "run")


def test_a_run_of_before_the_development_set_was_recorded_goes_on(stopped, tmp_path):
    again = stopped(5)
    (state,) = (tmp_path / "run/checkpoints").rglob("training_state.json")
    manifest = state.parent / MANIFEST_NAME
    old = json.loads(state.read_text())
    del old["identity"]["development set"]
    state.write_text(json.dumps(old))
    listed = {name: FileSum(**entry) for name, entry in json.loads(manifest.read_text())["files"].items()}
    listed[state.name] = FileSum(state.stat().st_size, file_hash(state))
    manifest.write_bytes(manifest_bytes(listed))
    result = again(tmp_path / "data", tmp_path / "run")
    report = json.loads((tmp_path / "run/results.json").read_text())
    del report["identity"]["development set"]
    (tmp_path / "run/results.json").write_text(json.dumps(report))
    assert again(tmp_path / "data", tmp_path / "run").scores == result.scores


def test_the_best_model_on_another_development_set_does_not_count(stopped, tmp_path):
    again = stopped(2)  # before the first checkpoint, so that nothing but the best model is left
    assert not (tmp_path / "run/checkpoints").exists()
    score = tmp_path / "run/best/score.json"
    kept = json.loads(score.read_text())
    (dev,) = (tmp_path / "data").rglob("dev*")
    with_fewer_rows(dev)
    whole = again(tmp_path / "data", tmp_path / "whole")
    score.write_text(json.dumps({**kept, "score": 101.0}))  # better than all, on rows that are not there any more
    assert again(tmp_path / "data", tmp_path / "run").scores == whole.scores


def test_an_undefined_score_is_below_all_and_a_changed_file_is_refused(tmp_path):
    saved = []

    def save(directory):
        saved.append(len(saved))
        (directory / "weights").write_text(str(len(saved)))

    best = BestModel(tmp_path / "best", save)
    for score in (None, None, 1.0, 1.0, None, 0.5, 2.0):
        best.consider({"pearson": score, "spearman": 99.0})
    assert (tmp_path / "best/weights").read_text() == "3"
    (tmp_path / "best/weights").write_text("changed")
    with pytest.raises(DamagedData):
        best.tensors(DECLARED["sts-b"].target)


def test_evaluations_are_the_papers_unless_it_is_said():
    assert FinetuningSettings().evaluation_interval is None
    assert FinetuningSettings(select="best").evaluation_interval == 100
    assert FinetuningSettings(select="best", evaluate_every=7).evaluation_interval == 7


def test_what_was_selected_is_told(tmp_path):
    lines = [{"event": "evaluation", "time": 0, "step": s, "f1": f} for s, f in ((2, 1.0), (4, 3.0), (6, 3.0))]
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = describe_selection("best", {"f1": 3.0, "accuracy": 1.0}, tmp_path / "journal.jsonl")
    assert (found["by"], found["metric"], found["step"], found["evaluations"]) == ("best", "f1", 4, 3)
    assert found["note"].startswith("selection: the best of 3 evaluations by f1 on the development set")
    assert (
        describe_selection("last", {"f1": 3.0}, tmp_path / "none")["note"] == "selection: the model after the last step"
    )
