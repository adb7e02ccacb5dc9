"""Jobs of tables: shared runs, order, progress and results."""

import json
from dataclasses import replace

import pytest
import torch
from experiments.grids import PAPER, SCALES, TINY, grid_of
from experiments.jobs import STUDY_NAME, Folders, Job, has_corpora, list_jobs, open_study, parse_file_options
from experiments.report import csv_rows, describe_progress, markdown, side_by_side
from experiments.results import read_outcome

from albert.runtime.errors import UsageError
from albert.runtime.json_files import save_json, save_versioned

CORPORA = ("first", "second")


def pretrainings(*tables: str, scale=TINY, corpora=CORPORA) -> list[Job]:
    jobs = list_jobs([grid_of(table, scale) for table in tables], scale, corpora, ())
    return [job for job in jobs if job.kind == "pre-trainings"]


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_shared_runs_are_planned_once(scale):
    separate = [job.key for table in ("3", "4", "5") for job in pretrainings(table, scale=scale)]
    together = [job.key for job in pretrainings("3", "4", "5", scale=scale)]
    assert set(together) == set(separate) and len(together) == len(set(together)) < len(separate)


def test_jobs_are_ordered_by_start_and_seed():
    jobs = pretrainings("11")
    names = [job.name for job in jobs]
    assert sum(bool(job.needs) for job in jobs) == 2 * (len(TINY.depths) - 1)
    assert all(names.index(need) < names.index(job.name) for job in jobs for need in job.needs)
    seeds = [job.variant.recipe.seed for job in pretrainings("3", "5")]
    assert seeds == sorted(seeds) and set(seeds) == set(TINY.seeds)


def test_intermediate_tasks_come_first():
    jobs = list_jobs([grid_of("9", PAPER)], PAPER, CORPORA, ("mnli", "rte", "sst-2"))
    finetunings = [job for job in jobs if job.kind == "fine-tunings"]
    assert {job.task.task for job in finetunings} == {"mnli", "rte", "sst-2"}
    for job in finetunings:
        assert job.model.parent.name == (f"mnli-seed{job.seed}" if job.task.task == "rte" else job.key)
    names = [job.name for job in jobs]
    assert all(names.index(need) < names.index(job.name) for job in finetunings for need in job.needs)
    assert {job.seed for job in finetunings} == set(PAPER.task_seeds)


def test_additional_text_needs_a_second_corpus():
    assert [has_corpora(variant, CORPORA[:1]) for variant in grid_of("7", TINY).variants()] == [True, False]
    assert len(pretrainings("7", corpora=CORPORA[:1])) == len(TINY.seeds)


@pytest.fixture
def outcome(tmp_path):
    """Reads a table, with held-out scores of Table 5 by seed."""

    def read(table: str, accuracies: dict[int, float]):
        folders = Folders(tmp_path)
        for job in pretrainings("5"):
            if (accuracy := accuracies.get(job.variant.recipe.seed)) is not None:
                score = {"accuracy": accuracy, "count": 400, "baseline": 0.065}
                path = folders.score(job.key, "intrinsic.json")
                path.parent.mkdir(parents=True)
                path.write_text(json.dumps({"models": [{"scores": {"masked_tokens": score}}]}))
        return read_outcome(grid_of(table, TINY), TINY, CORPORA, folders)

    return read


def test_report_shows_spread_and_progress(outcome):
    found = outcome("5", {0: 0.30, 1: 0.34})
    cell = found.cells["none", "masked tokens"]
    assert cell.figures == (30.0, 34.0) and cell.median == 32.0 and found.constant["masked tokens"] == 6.5
    assert found.is_partial
    assert describe_progress(found).startswith("partial: 0 of 6 pre-trainings, 6 of 6 evaluations")
    head, rows = side_by_side(found)
    assert head[1:3] == ["masked tokens: paper", "ours"]
    assert rows[0][1:5] == ["54.9", "32.0 (30.0–34.0)", "52.4", ""]
    assert "86.5" in markdown(found) and "| squad-1.1 f1 |" in markdown(found)
    row = "5,tiny,sop,SOP,albert-base,masked tokens,54,32.0000,30.0000,34.0000,2,2,6.5000"
    assert row.split(",") in csv_rows(found)


def test_empty_paper_columns_are_left_out(outcome):
    head, rows = side_by_side(outcome("3", {}))
    assert head[1:4] == ["parameters, million: paper", "ours", "masked tokens: ours"]
    assert "sst-2: paper" in head and {len(row) for row in rows} == {len(head)}
    assert rows[0][head.index("sst-2: paper")] == "91.5"


def test_unfinished_rows_show_the_number_of_seeds(outcome):
    assert side_by_side(outcome("5", {1: 0.34}))[1][0][2] == "34.0 [1 of 2]"


def test_failed_jobs_are_reported(outcome, tmp_path):
    folders, job = Folders(tmp_path), pretrainings("5")[0]
    save_json(folders.failure(job.name), {"job": job.title, "why": "the loss is nan"})
    assert f"Failed: {job.title}: the loss is nan." in markdown(outcome("5", {}))


def test_file_options_are_parsed():
    files = parse_file_options(["qnli/train=mine.tsv", "QNLI/dev=dev.tsv"])
    assert {split: path.name for split, path in files["qnli"].items()} == {"train": "mine.tsv", "dev": "dev.tsv"}
    with pytest.raises(UsageError):
        parse_file_options(["qnli=mine.tsv"])


@pytest.mark.parametrize(("capabilities", "precision"), [({"amx_bf16": True}, "bf16"), ({"avx2": True}, "fp32")])
def test_keys_contain_the_precision_of_the_study(monkeypatch, tmp_path, capabilities, precision):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    study = open_study(tmp_path, "tiny", (), "cpu")
    assert study.declared.recipe.precision == study.precision == precision
    assert {job.variant.recipe.precision for job in pretrainings("4", scale=study.declared)} == {precision}
    save_versioned(tmp_path / STUDY_NAME, study)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": precision == "fp32"})
    assert open_study(tmp_path, "tiny", (), "cpu") == study  # on another machine it continues with its precision
    other = replace(study, precision="fp32" if precision == "bf16" else "bf16").declared
    keys = [{job.key for job in pretrainings("4", scale=scale)} for scale in (study.declared, other, TINY)]
    assert len(set.union(*keys)) == sum(map(len, keys))


def test_a_study_keeps_its_number_of_seeds(tmp_path):
    save_versioned(tmp_path / STUDY_NAME, open_study(tmp_path, "tiny", (), "cpu", seeds=3))
    jobs = pretrainings("5", scale=open_study(tmp_path, "tiny", (), "cpu").declared)
    assert [job.variant.recipe.seed for job in jobs] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
