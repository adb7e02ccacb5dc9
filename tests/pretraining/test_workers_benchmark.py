"""The benchmark of workers has a row for every system and load, and its cases run."""

import csv


def test_there_is_a_row_for_every_system_and_load(script, checkout, tmp_path, workers, monkeypatch):
    rows_file, picture, measured = tmp_path / "rows.csv", tmp_path / "rates.png", script("workers")
    workers(2)
    monkeypatch.setattr(measured, "update", lambda *args, **options: None)  # training beside a busy core takes long
    args = ["--hidden-sizes", "64", "--model", str(checkout / "models" / "tiny"), "--rounds", "1"]
    measured.main([*args, "--output", str(rows_file), "--picture", str(picture)])
    with open(rows_file, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    by_case = {"pre-training": 3, "fine-tuning": 3, "inference": 2}
    assert [row["case"].split(",")[0] for row in rows] == [name for name, n in by_case.items() for _ in range(2 * n)]
    assert {(row["system"], row["number"]) for row in rows} == {("workers", "1"), ("workers", "2"), ("threads", "2")}
    assert all(float(row["slower_than_quiet"]) == 1 for row in rows if row["load"] == "quiet")
    assert picture.read_bytes().startswith(b"\x89PNG")
