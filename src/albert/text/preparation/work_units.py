"""A corpus cut into units of work: runs of whole files, decided by their names and sizes alone.

Whoever prepares a unit, one process or a cluster, writes the same shards: a shard never holds text of two units.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from albert.text.readers.corpus_files import CorpusFile

UNIT_BYTES = 64_000_000
"""Bytes on disk of a unit, at least; a larger file is a unit by itself."""


@dataclass(frozen=True)
class WorkUnit:
    """Some files, in the order of the corpus."""

    number: int
    files: tuple[CorpusFile, ...]

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)


def plan_units(files: Sequence[CorpusFile], unit_bytes: int = UNIT_BYTES) -> list[WorkUnit]:
    """Cut a list of files into units of consecutive ones."""
    units: list[WorkUnit] = []
    waiting: list[CorpusFile] = []
    size = 0
    for file in files:
        waiting.append(file)
        size += file.size
        if size >= unit_bytes:
            units.append(WorkUnit(len(units), tuple(waiting)))
            waiting, size = [], 0
    if waiting:
        units.append(WorkUnit(len(units), tuple(waiting)))
    return units
