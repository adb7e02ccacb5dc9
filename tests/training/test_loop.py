import pytest

from albert.runtime.json_files import read_journal


def test_checkpoints_come_by_time_as_well(learn, run):
    learn(checkpoint_minutes=0.0, keep_checkpoints=100)
    assert [step for step, _ in run.checkpoints()] == list(range(1, 11))


def test_the_journal_tells_means_over_its_windows(learn, run):
    learn()
    lines = [record for record in read_journal(run.journal_path) if record["event"] == "train"]
    assert [(line["step"], line["tokens"]) for line in lines] == [(4, 192), (8, 384), (10, 480)]
    for line in lines:
        assert line["loss"] == pytest.approx(line["class_loss"] + line["size_loss"])
        assert 0 <= line["class_accuracy"] <= 1
        assert line["learning_rate"] == 0.01 / line["step"]
    assert "size_accuracy" not in lines[0]


def test_evaluations_come_as_often_as_asked_and_at_the_end(learn, run):
    _, result = learn(evaluate=lambda: {"score": 0.5}, evaluate_every=4)
    assert result.evaluation == {"score": 0.5}
    assert list(run.tensorboard_path.glob("events.out.tfevents.*"))
    assert [record["step"] for record in read_journal(run.journal_path) if record["event"] == "evaluation"] == [
        4,
        8,
        10,
    ]
