"""Documents that come again are left out of a prepared corpus: the first of them stays.

*exact*: the same text but for white space; case, punctuation and accents count.
*near*: also those of which 80 % is the same: the share of common runs of five words among all of both documents, as
MinHash signatures estimate it (see `albert.text.preparation.duplicate_sketches`).

The text is read once more for that, before it is encoded, by whoever encodes it. Then one process looks for duplicates
among all documents; what it finds depends on the text and its order alone. For a million documents it takes 0.07 GB of
memory and 3 s (measured), and 0.2 GB on disk until the corpus is whole, 0.5 GB for *near*. Of two corpora that are put
together afterwards nothing is compared.
"""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from albert.runtime.durable_files import new_file, write_bytes
from albert.text.preparation.corpus_assembly import SHOWN_NAME
from albert.text.preparation.duplicate_fingerprints import FINGERPRINTING, PLACES_NAME, Fingerprints
from albert.text.preparation.duplicate_search import Recurrences, Signatures, find_recurrences
from albert.text.preparation.unit_preparation import STAYING_NAME, UnitJob
from albert.text.preparation.unit_sharing import Workforce, run_stage

EQUAL, ALIKE = "duplicate of an earlier document", "nearly a duplicate of an earlier document"
SHOWN = 1000
"""Documents that were left out and are named in a file, at most; spread evenly over the corpus."""


@dataclass
class Leftovers:
    """Documents and bytes of text that are left out, by reason; and how many of them a file shows."""

    documents: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    shown: int = 0


def leave_out_duplicates(jobs: Sequence[UnitJob], workforce: Workforce) -> tuple[list[UnitJob], Leftovers]:
    """The jobs, each with the documents that it is to leave out.

    Raises:
        Unavailable: near duplicates are asked for, and their library is not installed.
        AlbertError: what reading raises.
    """
    if not jobs or jobs[0].settings.duplicates == "keep":
        return list(jobs), Leftovers()
    settings, directory = jobs[0].settings, jobs[0].directory
    units = run_stage(FINGERPRINTING, jobs, workforce, "Looking for duplicates")
    batches = [batch for unit in units for batch in unit.shards]
    found = find_recurrences(batches, directory, settings.duplicates == "near")
    ends = np.cumsum([sum(batch.documents for batch in unit.shards) for unit in units])
    staying = np.split(~found.left_out, ends[:-1])
    leftovers = Leftovers(shown=_show(found, batches, jobs[0]))
    for reason, which in ((EQUAL, found.left_out & found.equal), (ALIKE, found.left_out & ~found.equal)):
        if which.any():
            leftovers.documents[reason] = int(which.sum())
            leftovers.bytes[reason] = int(found.bytes[which].sum())
    return [_leave_out(job, stays) for job, stays in zip(jobs, staying, strict=True)], leftovers


def _leave_out(job: UnitJob, staying: np.ndarray) -> UnitJob:
    if staying.all():
        return job
    with new_file(job.directory / STAYING_NAME.format(job.name)) as temporary, open(temporary, "wb") as opened:
        np.save(opened, staying, allow_pickle=False)
    return replace(job, left_out=hashlib.blake2b(staying.tobytes(), digest_size=16).hexdigest())


def _show(found: Recurrences, batches: Sequence[Fingerprints], job: UnitJob) -> int:
    """Name some documents that were left out, and what stays in their place; the least similar come first."""
    numbers = np.flatnonzero(found.left_out)
    numbers = numbers[np.linspace(0, len(numbers) - 1, min(SHOWN, len(numbers))).round().astype(np.int64)]
    instead = found.stands_for[numbers]
    similarity = np.ones(len(numbers), dtype=np.float32)
    if job.settings.duplicates == "near":
        similarity = Signatures(batches, job.directory).similarity(numbers, instead)
    places = _places({*numbers.tolist(), *instead.tolist()}, batches, job.directory)
    lines = []
    for row in np.argsort(similarity, kind="stable").tolist():
        source, beginning = places[int(numbers[row])]
        other_source, other_beginning = places[int(instead[row])]
        shown = {"left_out": source, "stays": other_source, "similarity": round(float(similarity[row]), 2)}
        shown |= {"left_out_begins": beginning, "stays_begins": other_beginning}
        lines.append(json.dumps(shown, ensure_ascii=False) + "\n")
    # A file's name may be no text: its odd bytes are written as escapes of JSON.
    write_bytes(job.directory / SHOWN_NAME, "".join(lines).encode("utf-8", "backslashreplace"))
    return len(lines)


def _places(numbers: set[int], batches: Sequence[Fingerprints], directory: Path) -> dict[int, tuple[str, str]]:
    """Where some documents come from, and how they begin."""
    found: dict[int, tuple[str, str]] = {}
    waiting = iter(sorted(numbers))
    number = next(waiting, None)
    for batch, begin in zip(batches, itertools.accumulate((b.documents for b in batches), initial=0), strict=False):
        if number is None or number >= begin + batch.documents:
            continue
        lines = (directory / PLACES_NAME.format(batch.name)).read_text(encoding="utf-8").splitlines()
        while number is not None and number < begin + batch.documents:
            source, beginning = json.loads(lines[number - begin])
            found[number] = source, beginning
            number = next(waiting, None)
    return found
