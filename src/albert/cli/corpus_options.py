"""The options of every command that reads a corpus."""

import shlex
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import Positional

from albert.text.readers.reading import BadUtf8, DocumentBoundary, Reading


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """Which text, and how it is read."""

    corpus: Annotated[Positional[tuple[str, ...]], tyro.conf.arg(metavar="CORPUS...", help_behavior_hint="(required)")]
    """Files, folders or patterns: .txt, .jsonl, .csv, .tsv, .parquet, a Wikipedia dump (.xml), packed as .gz, .bz2, .xz
    or .zst; a folder that `datasets` saved; or hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT on the Hub."""
    text_field: str = Reading.text_field
    """The key of a JSON line, or the column of a table, that holds the text."""
    documents: DocumentBoundary = Reading.documents
    """What a document is in a .txt file: the whole file, what stands between blank lines, or every line."""
    sentences_as_lines: bool = False
    """Take every line for a sentence, and look for no others."""
    language: str = "en"
    """Language of the sentence splitter (ISO 639 code)."""
    bad_utf8: BadUtf8 = Reading.bad_utf8
    """What is done about text that is not UTF-8: stop there, put U+FFFD in place of it, or skip the document."""
    max_document_megabytes: float = Reading.max_document_bytes / 1e6
    """Longer documents are divided at the end of a paragraph, a line or a sentence."""

    @property
    def words(self) -> str:
        """The same options as words of a command line, for another command that reads the same text."""
        flags = []
        for option in fields(CorpusOptions):
            value, name = getattr(self, option.name), option.name.replace("_", "-")
            if option.default is not MISSING and value != option.default:
                flags += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        return shlex.join([*self.corpus, *flags])

    @property
    def paths(self) -> list[Path]:
        """The places of the corpus."""
        return [Path(place) for place in self.corpus]

    @property
    def reading(self) -> dict[str, Any]:
        """The fields of `Reading`."""
        return {
            "text_field": self.text_field,
            "documents": self.documents,
            "bad_utf8": self.bad_utf8,
            "max_document_bytes": round(self.max_document_megabytes * 1e6),
        }
