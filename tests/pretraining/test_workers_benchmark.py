"""The benchmark of workers: it has a row for every system and load, and what it measures trains."""

import csv


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
