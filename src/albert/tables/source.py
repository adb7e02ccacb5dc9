"""Where a task's rows come from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from albert.tables.table import Table


@runtime_checkable
class Source(Protocol):
    """Where a task's rows come from."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that can be read, e.g. `("train", "dev")`."""
        ...

    def with_files(self, files: Mapping[str, Path]) -> "Source":
        """The same source with other files for some splits, in the same layout."""
        ...

    def read(self, data: Path, split: str) -> Table:
        """All rows of a split; MissingInput and DamagedData name the file and line."""
        ...
