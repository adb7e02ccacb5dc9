"""A study without its weights: what tables are told from, small enough to stand beside the text that speaks of it.

The copy is a root like any other. Its tables are shown as before, and `albert tables run` goes on from it on another
machine: what is finished counts, and weights that are wanted again are made again (`jobs.done_jobs`).
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from albert.experiments.tables.folders import Folders
from albert.experiments.tables.run_journals import hours_of
from albert.experiments.tables.study import STUDY_NAME
from albert.finetuning.run_record import RESULTS_NAME
from albert.pretraining.corpus_record import RECORD_NAME
from albert.runtime.durable_files import write_bytes
from albert.runtime.errors import MissingInput
from albert.runtime.journal import read_journal
from albert.training.run_folder import RunFolder

KEPT_LINES = 40
"""Training lines kept of a journal, enough for a curve; evaluations are all kept."""


def keep_results(root: Path, destination: Path) -> int:
    """Copy what finished runs came to; how many files were written.

    Args:
        root: where tables were run.
        destination: another folder; what it holds of the same runs gives way.

    Raises:
        MissingInput: no table was run at `root`.
        WriteFailed: the disk is full or failed; what was written until then is whole.
    """
    if not (root / STUDY_NAME).is_file():
        raise MissingInput(root / STUDY_NAME, "no tables were run here", "name the --output of `albert tables run`")
    kept = dict(_kept(Folders(root)))
    below = {f"{place}/".encode() for place in (root, root.resolve())}  # where it lay is nobody's business
    for path, content in kept.items():
        for place in below:
            content = content.replace(place, b"")
        write_bytes(destination / path.relative_to(root), content)
    return len(kept)


def _kept(folders: Folders) -> Iterator[tuple[Path, bytes]]:
    """Files with what is to be kept of them."""
    root = folders.root
    names = [STUDY_NAME, "failures/*.json", "scores/*.json"]
    for path in (path for name in names for path in sorted(root.glob(name))):
        yield path, path.read_bytes()
    for path in sorted(root.glob("runs/*")):
        run = RunFolder(path)
        if hours_of(run) is None:  # it can go on from its checkpoint alone, which stays here
            continue
        yield run.journal_path, _as_lines(thinned(read_journal(run.journal_path)))
        scores = folders.arm(path.name).parent
        told = [*sorted(scores.glob("*.json")), *sorted(scores.glob(f"*/{RESULTS_NAME}"))]
        for file in (run.recipe_path, run.start_path, path / RECORD_NAME, *told):
            if file.is_file():
                yield file, file.read_bytes()


def thinned(journal: Sequence[dict[str, Any]], lines: int = KEPT_LINES) -> list[dict[str, Any]]:
    """A journal with so many training lines, evenly spread, the last among them.

    Args:
        journal: as `read_journal` gives it.
        lines: at least 1.
    """
    updates = [record for record in journal if record["event"] == "train"]
    every = max(1, -(-len(updates) // lines))
    kept = {record["step"] for record in updates[::-1][::every]}
    return [record for record in journal if record["event"] != "train" or record["step"] in kept]


def _as_lines(records: Sequence[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()
