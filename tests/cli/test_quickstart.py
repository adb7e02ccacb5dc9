"""The quickstart, shortened."""

import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from albert.checkpoints.hub import find_model
from albert.commands.quickstart import show_report

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def shortened(monkeypatch):
    from albert.commands import quickstart_stages as module
    from albert.recipes.pretraining import ScheduleRecipe

    short = replace(module.QUICKSTART, schedule=ScheduleRecipe(total_steps=4, warmup_steps=1), evaluation_sequences=20)
    passages = module.labelled_passages()
    fewer = replace(passages, train=passages.train[:48], dev=passages.dev[:24])
    monkeypatch.setattr(module, "QUICKSTART", short)
    monkeypatch.setattr(module, "labelled_passages", lambda: fewer)
    monkeypatch.setattr(module, "AUTHORSHIP", replace(module.AUTHORSHIP, epochs=1.0))
    return module


@pytest.mark.long
def test_quickstart_runs_and_resumes(shortened, tmp_path):
    directory = tmp_path / "quickstart"
    card_of_tiny = (find_model("tiny") / "README.md").read_text(encoding="utf-8")
    with open(tmp_path / "shown.txt", "w", encoding="utf-8") as screen:
        console = Console(file=screen, width=120)
        first = shortened.run_stages(directory, console)
        show_report(first, console)
    shown = (tmp_path / "shown.txt").read_text(encoding="utf-8")
    for stage in ("1/6", "2/6", "3/6", "4/6", "5/6", "6/6"):
        assert stage in shown
    report = json.loads((directory / "report.json").read_text(encoding="utf-8"))
    assert 0 < report["pretraining"]["masked_tokens_baseline"] < 0.2
    assert report["authorship"]["baseline"] == pytest.approx(1 / 6, abs=0.01)
    assert 0 <= report["authorship"]["accuracy"] <= 1
    assert 0 <= report["authorship"]["tiny"] <= 1
    assert len(report["answers"]) == 3 and all(len(answers) == 2 for answers in report["answers"].values())
    assert report["answers"]["He opened the [MASK] and went into the house."][1].startswith("door")
    assert "in order" not in shown.replace("sentences are in order", "")
    assert (directory / "curves.png").read_bytes().startswith(PNG)
    tokens = int(re.search(r"steps, ([\d,]+) tokens", card_of_tiny)[1].replace(",", ""))
    times = tokens / report["pretraining"]["tokens"]
    assert f"tiny was trained on {times:,.0f} times as many tokens" in " ".join(shown.split())
    for command in ("albert predict", "albert serve", "albert finetune"):
        assert command in shown

    before = (first.pretraining.model / "model.safetensors").stat().st_mtime_ns
    again = shortened.run_stages(directory, Console(quiet=True))
    assert (again.pretraining.model / "model.safetensors").stat().st_mtime_ns == before
    assert dict(again.answers) == dict(first.answers)
    assert dict(again.pretraining.evaluation) == dict(first.pretraining.evaluation)
