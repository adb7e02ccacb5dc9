"""The benchmarks of stability and of hard examples: what the first calls stable, and that both run and write rows."""

import csv

import numpy as np
import pytest

from albert.training.update import REMEMBERED, Alarm, UpdateFigures


@pytest.fixture(scope="module")
def stability(script):
    return script("stability")


def course(stability, losses, norms, ratios=(0.01, 0.1), alarm=None):
    """A run with these masked-token losses and gradient norms."""
    seen = stability.Course(warmup_steps=10)
    for loss, norm in zip(losses, norms, strict=True):
        seen.add(UpdateFigures({"masked_tokens": 20 * loss}, {"masked_tokens": 20}, {}, 100, norm, (), alarm=alarm))
    seen.ratios += ratios
    return seen.figures(frequencies=6.0)


def with_noise(losses):
    return (losses + np.random.default_rng(0).normal(0, 0.05, len(losses))).tolist()


def falling():
    return with_noise(np.linspace(8, 4, 400))


def test_a_run_that_learns_calmly_is_stable(stability):
    found = course(stability, falling(), with_noise(np.ones(400)))
    assert found["stable"] is True and found["spikes"] == 0 and found["finite"] is True
    assert float(found["loss_first"]) > 7.9 and float(found["loss_last"]) < 5


@pytest.mark.parametrize("what", ["spike", "rise", "plateau", "norm", "ratio", "not finite"])
def test_what_goes_wrong_is_seen(stability, what):
    losses, norms, ratios, alarm = falling(), with_noise(np.ones(400)), [0.01, 0.1], None
    if what == "spike":
        losses[REMEMBERED + 50] = 40.0
    elif what == "rise":
        losses[300:] = [loss + 1.5 * step / 100 for step, loss in enumerate(losses[300:])]
    elif what == "plateau":
        losses = with_noise(np.full(400, 6.5))
    elif what == "norm":
        norms[300] = 12.0
    elif what == "ratio":
        ratios.append(50.0)
    else:
        alarm = Alarm("loss", "is nan")
    found = course(stability, losses, norms, ratios, alarm)
    assert found["stable"] is False
    assert (found["spikes"] > 0) == (what in ("spike", "norm")) and found["finite"] == (what != "not finite")


def test_both_benchmarks_write_a_row_for_every_run(script, stability, tiny_corpus, tmp_path, capsys):
    told = ["--data", str(tiny_corpus), "--max-length", "32", "--batch-size", "4", "--layers", "1"]
    hard_examples = script("hard_examples")
    narrow = ["--hidden-size", "32", "--output", str(tmp_path / "rows.csv")]
    with pytest.raises(SystemExit) as end:
        stability.main([*told, *narrow, "--steps", "60", "--warmup-steps", "5"])
    assert end.value.code == 1  # nothing is learnt in 60 updates
    with open(tmp_path / "rows.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["optimizer"], row["precision"]) for row in rows] == [
        (kind, precision) for kind in ("lamb", "adamw") for precision in ("fp32", "bf16")
    ]
    assert [bool(row["ratio_min"]) for row in rows] == [True, True, False, False]
    (tmp_path / "rows.csv").unlink()
    hard_examples.main([*told, *narrow, "--tokens", "1500", "--sequences", "10"])
    with open(tmp_path / "rows.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["variant"], row["seed"]) for row in rows] == [
        (variant, seed) for seed in "01" for variant in ("plain", "focus", "neighbours")
    ]
    assert "against plain, mean over seeds" in capsys.readouterr().out


def test_the_benchmark_of_workers_has_a_row_for_every_system_and_load(script, checkout, tmp_path, workers, monkeypatch):
    rows_file, picture, measured = tmp_path / "rows.csv", tmp_path / "rates.png", script("workers")
    workers(2)  # which compute nothing here, for beside a busy core that takes long
    monkeypatch.setattr(measured, "update", lambda *given, **how: None)
    asked = ["--hidden-sizes", "64", "--model", str(checkout / "models" / "tiny"), "--rounds", "1"]
    measured.main([*asked, "--output", str(rows_file), "--picture", str(picture)])
    with open(rows_file, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    by_case = {"pre-training": 3, "fine-tuning": 3, "inference": 2}
    assert [row["case"].split(",")[0] for row in rows] == [name for name, n in by_case.items() for _ in range(2 * n)]
    assert {(row["system"], row["number"]) for row in rows} == {("workers", "1"), ("workers", "2"), ("threads", "2")}
    assert all(float(row["slower_than_quiet"]) == 1 for row in rows if row["load"] == "quiet")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_benchmark_of_workers_trains(script, checkout):
    measured = script("workers")
    for case in (measured._pretraining(64, "fp32", [1]), measured._finetuning(checkout / "models" / "tiny", [1])):
        ((way, run),) = case.systems.items()
        assert way == ("workers", 1)
        run()
        assert case.tokens > 1000
