"""What tables have to run: shared runs once, what is needed first, and figures read from what lies on the disk."""

import json
from dataclasses import replace

import pytest
import torch

from albert.experiments.execution import PlannedJob, fraction_done
from albert.experiments.grids import GRIDS, PAPER, SCALES, TINY, grid_of
from albert.experiments.jobs import (
    STUDY_NAME,
    Finetuning,
    Folders,
    Pretraining,
    has_corpora,
    list_jobs,
    open_study,
    parse_file_options,
)
from albert.experiments.report import csv_rows, describe_progress, markdown, side_by_side
from albert.experiments.results import read_outcome
from albert.runtime.errors import UsageError
from albert.runtime.json_files import save_json

CORPORA = ("first", "second")


def pretrainings(*tables: str, scale=TINY) -> list[Pretraining]:
    jobs = list_jobs([grid_of(table, scale) for table in tables], scale, CORPORA, ())
    return [job for job in jobs if isinstance(job, Pretraining)]


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_a_run_that_tables_share_is_made_once(scale):
    apart = [job for table in ("3", "4", "5") for job in pretrainings(table, scale=scale)]
    together = pretrainings("3", "4", "5", scale=scale)
    assert len({job.key for job in apart}) == len(together) < len(apart)
    assert {job.key for job in together} == {job.key for job in apart}


def test_a_model_comes_before_the_one_that_begins_as_it():
    jobs = pretrainings("11")
    places = {job.name: place for place, job in enumerate(jobs)}
    assert sum(bool(job.needs) for job in jobs) == 2 * (len(TINY.depths) - 1)
    for job in jobs:
        assert all(places[need] < places[job.name] for need in job.needs)


def test_one_seed_of_all_arms_comes_before_the_next():
    seeds = [job.arm.recipe.seed for job in pretrainings("3", "5")]
    assert seeds == sorted(seeds) and set(seeds) == set(TINY.seeds)


def test_tasks_begin_with_the_model_of_another_where_the_paper_has_it_so():
    jobs = list_jobs([grid_of("9", PAPER)], PAPER, CORPORA, ("mnli", "rte", "sst-2"))
    found = [job for job in jobs if isinstance(job, Finetuning)]
    assert {job.task.task: job.intermediate for job in found} == {"mnli": None, "rte": "mnli", "sst-2": None}
    names = [job.name for job in jobs]
    assert all(names.index(need) < names.index(job.name) for job in found for need in job.needs)
    assert {job.seed for job in found} == set(PAPER.task_seeds)


def test_additional_text_is_a_second_corpus():
    grid = grid_of("7", TINY)
    assert [has_corpora(arm, CORPORA[:1]) for arm in grid.arms()] == [True, False]
    alone = list_jobs([grid], TINY, CORPORA[:1], ())
    assert len([job for job in alone if isinstance(job, Pretraining)]) == len(TINY.seeds)


@pytest.mark.parametrize("table", GRIDS)
def test_no_score_of_ours_stands_beside_one_of_another_task(table):
    for scale in SCALES.values():
        renamed = {column.name: column.published for column in grid_of(table, scale).columns if column.published}
        assert set(renamed.items()) <= {("race", "race test")}


def written(folders: Folders, jobs, scores: dict[int, float]) -> None:
    """What held-out text says of every arm, by seed."""
    for job in (job for job in jobs if isinstance(job, Pretraining)):
        accuracy = scores.get(job.arm.recipe.seed)
        if accuracy is not None:
            score = {"accuracy": accuracy, "count": 400, "baseline": 0.065}
            path = folders.intrinsic(job.key)
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps({"models": [{"scores": {"masked_tokens": score}}]}))


def test_figures_have_their_spread_and_what_is_missing_is_counted(tmp_path):
    folders, grid = Folders(tmp_path), grid_of("5", TINY)
    written(folders, pretrainings("5"), {0: 0.30, 1: 0.34})
    outcome = read_outcome(grid, TINY, CORPORA, folders)
    cell = outcome.cells["none", "masked tokens"]
    assert cell.figures == (30.0, 34.0) and cell.median == 32.0 and outcome.constant["masked tokens"] == 6.5
    assert outcome.is_partial and describe_progress(outcome).startswith(
        "partial: 0 of 6 pre-trainings, 6 of 6 evaluations"
    )
    head, rows = side_by_side(outcome)
    assert head[1:3] == ["masked tokens: paper", "ours"]
    assert rows[0][1:5] == ["54.9", "32.0 (30.0–34.0)", "52.4", ""]
    assert "86.5" in markdown(outcome) and "| squad-1.1 f1 |" in markdown(outcome)
    row = "5,tiny,sop,SOP,albert-base,masked tokens,54,32.0000,30.0000,34.0000,2,2,6.5000"
    assert row.split(",") in csv_rows(outcome)


def test_where_the_paper_says_nothing_it_has_no_column(tmp_path):
    outcome = read_outcome(grid_of("3", TINY), TINY, CORPORA, Folders(tmp_path))
    head, rows = side_by_side(outcome)
    assert head[1:4] == ["parameters, million: paper", "ours", "masked tokens: ours"]
    assert "sst-2: paper" in head and {len(row) for row in rows} == {len(head)}
    assert rows[0][head.index("sst-2: paper")] == "91.5"


def test_a_row_of_some_seeds_says_how_many(tmp_path):
    folders = Folders(tmp_path)
    written(folders, pretrainings("5"), {1: 0.34})
    _, rows = side_by_side(read_outcome(grid_of("5", TINY), TINY, CORPORA, folders))
    assert rows[0][2] == "34.0 [1 of 2]"


def test_what_was_given_up_is_told_and_not_waited_for(tmp_path):
    folders, job = Folders(tmp_path), pretrainings("5")[0]
    path = folders.failure(job.name)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"job": job.title, "why": "the loss is nan"}))
    planned = PlannedJob(job=job, tables=("5",), steps=10, seconds=60.0)
    assert fraction_done(planned, folders, set()) == 1.0
    outcome = read_outcome(grid_of("5", TINY), TINY, CORPORA, folders)
    assert f"Given up: {job.title}: the loss is nan." in markdown(outcome)


def test_own_files_are_told_by_task_and_split():
    found = parse_file_options(["qnli/train=mine.tsv", "QNLI/dev=dev.tsv"])
    assert {split: path.name for split, path in found["qnli"].items()} == {"train": "mine.tsv", "dev": "dev.tsv"}
    with pytest.raises(UsageError, match="is not TASK/SPLIT=FILE"):
        parse_file_options(["qnli=mine.tsv"])


@pytest.mark.parametrize(("capabilities", "precision"), [({"amx_bf16": True}, "bf16"), ({"avx2": True}, "fp32")])
def test_runs_are_keyed_by_the_precision_of_their_study(monkeypatch, tmp_path, capabilities, precision):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    begun = open_study(tmp_path, "tiny", (), "cpu")
    assert begun.declared.recipe.precision == begun.precision == precision
    assert {job.arm.recipe.precision for job in pretrainings("4", scale=begun.declared)} == {precision}
    save_json(tmp_path / STUDY_NAME, begun)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": precision == "fp32"})
    assert open_study(tmp_path, "tiny", (), "cpu") == begun  # on another machine it goes on as it began
    other = replace(begun, precision="fp32" if precision == "bf16" else "bf16").declared
    keys = [{job.key for job in pretrainings("4", scale=scale)} for scale in (begun.declared, other, TINY)]
    assert len(keys[0] | keys[1] | keys[2]) == sum(map(len, keys))


def test_runs_of_before_studies_kept_a_precision_still_count(checkout):
    root = checkout / "results" / "tables-tiny"
    study = open_study(root, "tiny", (), "cpu")
    assert study.precision is None and study.declared == TINY
    outcome = read_outcome(grid_of("4", study.declared), study.declared, study.fingerprints, Folders(root))
    assert outcome.done["pre-trainings"] > 0
    assert any(cell.median is not None for cell in outcome.cells.values())
