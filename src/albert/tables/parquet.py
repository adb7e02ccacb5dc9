"""Parquet, and data sets that `datasets` saved; the library is loaded when one is read."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from albert.runtime.environment import lazy_import
from albert.runtime.errors import UsageError
from albert.tables.files import Advance, InputFile, input_file
from albert.tables.records import Record
from albert.tables.table_file import BinaryFormat, FolderFormat, Layout, TableFile


class Parquet(BinaryFormat):
    """A Parquet file, of which `datasets` may say the names of classes."""

    name: ClassVar[str] = "parquet"
    about: ClassVar[str] = "Parquet"
    endings: ClassVar[tuple[str, ...]] = (".parquet",)

    def is_in(self, path: Path, beginning: bytes) -> bool:
        return beginning.startswith(b"PAR1")

    def open(self, file: InputFile, layout: Layout) -> TableFile:
        return TableFile(file=file, format=self.name)

    def records(self, table: TableFile, reached: Advance, counts: Counter[str], class_names: bool) -> Iterator[Record]:
        return lazy_import("albert.tables.arrow", "data").read_parquet_records(table.file, class_names, reached)


class SavedDataset(FolderFormat):
    """A folder that `Dataset.save_to_disk` wrote."""

    name: ClassVar[str] = "dataset"
    about: ClassVar[str] = "saved dataset"

    def open(self, path: Path, name: str, layout: Layout) -> TableFile | None:
        """The data set; None if the folder holds none."""
        if (path / "dataset_dict.json").is_file():
            splits = sorted(each.name for each in path.iterdir() if (each / "state.json").is_file())
            why = f"is a data set of several splits: {', '.join(splits) or 'none is there'}"
            example = "train" if "train" in splits else next(iter(splits), "")
            remedy = f"name one, such as {name.rstrip('/')}/{example}" if splits else "save it again"
            raise UsageError(name, why, remedy)
        if not ((path / "state.json").is_file() and (path / "dataset_info.json").is_file()):
            return None
        return TableFile(file=input_file(path, self.about, name), format=self.name)

    def records(self, table: TableFile, reached: Advance, counts: Counter[str], class_names: bool) -> Iterator[Record]:
        return lazy_import("albert.tables.arrow", "data").read_saved_records(table.file, class_names, reached)
