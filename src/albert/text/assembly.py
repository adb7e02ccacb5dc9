"""Finished shards become a prepared corpus; prepared corpora become a larger one. No shard is written twice.

Shards are linked into the new directory (hard links; copies where the file system has none), with the sums that were
taken when they were written, so that a corpus of any size is put together, appended to or merged in seconds.
"""

import errno
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.files import new_directory
from albert.runtime.json_files import save_json
from albert.runtime.manifest import FileSum, read_manifest, verify_directory
from albert.text.shards import (
    DESCRIPTION_NAME,
    DOCUMENTS_NAME,
    SENTENCES_NAME,
    SPLITS,
    TOKENS_NAME,
    CorpusDescription,
    SplitCounts,
    read_description,
)
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer

SHOWN_NAME = "duplicates.jsonl"
"""Some of the documents that were left out because they come again, to look at (see `duplicates.py`)."""
_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS}


@dataclass(frozen=True)
class CorpusPart:
    """Shards that are whole, and what they hold.

    Attributes:
        description: as if the part were a corpus.
        directory: below which its shards lie.
        sums: of every shard file, by its name below the directory.
    """

    description: CorpusDescription
    directory: Path
    sums: Mapping[str, FileSum]


def prepared_part(directory: Path, verify: bool = True) -> CorpusPart:
    """A prepared corpus as a part of a larger one.

    Raises:
        MissingInput, DamagedData, InvalidConfiguration: it is none, or not whole.
    """
    description = read_description(directory)
    if verify:
        verify_directory(directory)
    names = set(_shard_files(description))
    sums = {name: entry for name, entry in read_manifest(directory).items() if name in names}
    return CorpusPart(description, directory, sums)


def merge_corpora(directories: Sequence[Path], output: Path, replace: bool = False) -> CorpusDescription:
    """Put prepared corpora of one tokenizer together, in the given order; their shards are linked, not written anew.

    Raises:
        InvalidConfiguration: another tokenizer, or another choice of held-out documents.
        CannotCreate, WriteFailed: see `new_directory`.
    """
    parts = [prepared_part(directory) for directory in directories]
    return assemble(parts, load_tokenizer(directories[0]), output, replace)


def assemble(parts: Sequence[CorpusPart], tokenizer: Tokenizer, output: Path, replace: bool) -> CorpusDescription:
    """Write a corpus that consists of some parts.

    Raises:
        InvalidConfiguration: the parts do not belong together.
        CannotCreate, WriteFailed: see `new_directory`.
    """
    for part in parts[1:]:
        _refuse_strangers(parts[0], part)
    taken: set[str] = set()
    renamed = [_renamed(part, taken) for part in parts]
    description = _together([description for description, _ in renamed])
    known: dict[str, FileSum] = {}
    with new_directory(output, replace=replace, known=known) as directory:
        for split in SPLITS:
            if description.shards[split]:
                (directory / split).mkdir()
        for part, (_, names) in zip(parts, renamed, strict=True):
            for old, new in names.items():
                _link(part.directory / old, directory / new)
                known[new] = part.sums[old]
        _join([part.directory / SHOWN_NAME for part in parts], directory / SHOWN_NAME)
        tokenizer.save(directory)
        save_json(directory / DESCRIPTION_NAME, description)
    return description


def _refuse_strangers(first: CorpusPart, other: CorpusPart) -> None:
    ours, theirs = first.description, other.description
    remedy = "prepare it again with the same settings"
    if (ours.tokenizer_fingerprint, ours.vocab_size) != (theirs.tokenizer_fingerprint, theirs.vocab_size):
        raise InvalidConfiguration(other.directory, f"has tokens of another tokenizer than {first.directory}", remedy)
    for name, what in (("held_out_share", "share of held-out documents"), ("seed", "seed of their choice")):
        if (here := getattr(theirs, name)) != (there := getattr(ours, name)):
            why = f"the {what} is {here}, that of {first.directory} is {there}: a document could be in both splits"
            raise InvalidConfiguration(other.directory, why, remedy)


def _renamed(part: CorpusPart, taken: set[str]) -> tuple[CorpusDescription, dict[str, str]]:
    """The description with names that nobody has taken yet, and the new name of every file.

    A name is [ORIGIN+]UNIT-SHARD. A part keeps its names if it comes first; else each of its origins gets a number.
    """
    old_names = sorted({shard.name for shards in part.description.shards.values() for shard in shards})
    new_names: dict[str, str] = {}
    origins: dict[str, str] = {}
    for name in old_names:
        origin, _, rest = name.rpartition("+")
        if origin not in origins:
            free = (f"{number:03d}" for number in itertools.count(1))
            origins[origin] = next(o for o in (origin, *itertools.islice(free, len(taken) + 1)) if o not in taken)
            taken.add(origins[origin])
        new_names[name] = f"{origins[origin]}+{rest}" if origins[origin] else rest
    shards = {
        split: tuple(replace(shard, name=new_names[shard.name]) for shard in described)
        for split, described in part.description.shards.items()
    }
    files = {
        f"{split}/{pattern.format(shard.name)}": f"{split}/{pattern.format(new_names[shard.name])}"
        for split, described in part.description.shards.items()
        for shard in described
        for pattern in (TOKENS_NAME, SENTENCES_NAME, DOCUMENTS_NAME)
    }
    return replace(part.description, shards=shards), files


def _together(descriptions: Sequence[CorpusDescription]) -> CorpusDescription:
    first = descriptions[0]
    if len(descriptions) == 1:
        return first
    counts = {split: SplitCounts() for split in SPLITS}
    dropped: Counter[str] = Counter()
    bytes_dropped: Counter[str] = Counter()
    noted: Counter[str] = Counter()
    for description in descriptions:
        for split in SPLITS:
            counts[split].add(description.counts[split])
        dropped.update(description.documents_dropped)
        bytes_dropped.update(description.bytes_dropped)
        noted.update(description.noted)
    return replace(
        first,
        language="+".join(sorted({language for each in descriptions for language in each.language.split("+")})),
        documents_in=sum(each.documents_in for each in descriptions),
        bytes_in=sum(each.bytes_in for each in descriptions),
        documents_dropped=dict(dropped),
        bytes_dropped=dict(bytes_dropped),
        noted=dict(noted),
        sentences_dropped=sum(each.sentences_dropped for each in descriptions),
        counts=counts,
        shards={split: tuple(s for each in descriptions for s in each.shards.get(split, ())) for split in SPLITS},
        sources=tuple(source for each in descriptions for source in each.sources),
    )


def _shard_files(description: CorpusDescription) -> list[str]:
    return [
        f"{split}/{pattern.format(shard.name)}"
        for split, shards in description.shards.items()
        for shard in shards
        for pattern in (TOKENS_NAME, SENTENCES_NAME, DOCUMENTS_NAME)
    ]


def _join(places: Sequence[Path], joined: Path) -> None:
    contents = [place.read_bytes() for place in places if place.is_file()]
    if contents:
        joined.write_bytes(b"".join(contents))


def _link(old: Path, new: Path) -> None:
    try:
        os.link(old, new)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(old, new)
        with open(new, "rb+") as file:
            os.fsync(file.fileno())
