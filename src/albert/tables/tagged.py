"""Tagged text as in the CoNLL shared tasks: a word and its tags per line, a blank line after each sentence.

Fields are separated by tabs, or by spaces in a file without tabs. The first is the word, the last its tag, unless the
first numbers the words. Lines that begin with -DOCSTART- mark documents and are counted (Tjong Kim Sang and De
Meulder 2003), as are comments."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.tables.encodings import lines_of
from albert.tables.files import Advance, InputFile
from albert.tables.records import Record
from albert.tables.table import TAGS, WORDS, Row
from albert.tables.table_file import Beginning, Layout, TableFile, Tagged, TextFormat

_DOCUMENT = "-DOCSTART-"
TAGGED_SHARE = 0.95
"""Share of the lines of a tagged text that have the same number of fields; lines of prose differ."""
LONG_SENTENCE = 60
MAX_SENTENCE_LENGTH = 300
_COMMENT = re.compile(r"#\s*[\w.:-]+(\s+[\w.:-]+)*\s*=|#\s+\S+\s+\S+\s+\S+")
_FIELDS_OF_2012 = 11
"""Of a line of CoNLL-2012: further ones, one for each predicate and the last, are not read."""
_BRACKETS = re.compile(r"\([A-Za-z_-]+(\*\)?|\))|\*\)?")
_TAG_OF_ENTITY = re.compile(r"O|[BIESLU]-\S+")
_CONLL_U: str = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC"
_NAMES_OF_WORDS = {"word", "words", "token", "tokens", "form", "text"}
_NAMES_OF_TAGS = {
    "tag",
    "tags",
    "label",
    "labels",
    "ner",
    "ner_tag",
    "ner_tags",
    "pos",
    "pos_tag",
    "bio",
    "iob",
    "upos",
}


class TaggedText(TextFormat):
    """A word and its tags on each line, and a blank line after each sentence."""

    name: ClassVar[str] = "conll"
    about: ClassVar[str] = "tagged text"
    endings: ClassVar[tuple[str, ...]] = (".conll", ".conllu", ".conllup", ".bio", ".iob", ".iob2")

    def recognise(self, beginning: Beginning) -> str | None:
        if re.match(r"#begin document \(.*\);", beginning.sample):
            return ""
        if beginning.layout.has_task or not looks_tagged(beginning.lines):
            return None
        if any(not line.strip() for line in beginning.lines[:-1]):
            return ""
        filled = beginning.filled_lines
        separator = "\t" if "\t" in beginning.sample else None
        if len(filled) > MAX_SENTENCE_LENGTH:
            why = f"has a word and a tag on each of its {len(filled):,} lines, and no blank line between sentences"
            raise UsageError(beginning.file.name, why, _without_blank_lines(len(filled[0].split(separator)), separator))
        has_texts = any(" " in field for line in filled for field in line.split("\t"))
        return None if has_texts and separator is not None else ""

    def open(self, beginning: Beginning) -> TableFile:
        return _open_tagged(beginning.file, beginning.encoding, beginning.notes, beginning.layout)

    def records(self, table: TableFile, reached: Advance, counts: Counter[str], class_names: bool) -> Iterator[Record]:
        return _tagged_records(table, counts)

    def check(self, table: TableFile) -> None:
        if table.tagged is not None and table.tagged.two_columns is not None:
            first, second = table.tagged.two_columns
            why = f"columns {first} and {second} both have tags of the same entities"
            raise UsageError(table.file.path, why, f"say --tags {first} or --tags {second}")

    def remarks(self, rows: Sequence[Row]) -> tuple[str, ...]:
        n_words = len(rows[0].texts(WORDS))
        if len(rows) > 1 or n_words <= LONG_SENTENCE:
            return ()
        return (f"no blank line divides the lines: all {n_words:,} words are one sentence",)


def _fields_of_line(line: str, separator: str | None) -> list[str]:
    if separator is None:
        return [part for part in line.split(" ") if part]
    return line.split(separator) if line.strip(" \t") else []


def looks_tagged(lines: Sequence[str]) -> bool:
    """Return whether lines are words with tags, by their number of fields; a few lines may be damaged."""
    separator = "\t" if any("\t" in line for line in lines) else None
    fields = [each for each in (_fields_of_line(line, separator) for line in lines) if each]
    fields = [each for each in fields if _DOCUMENT not in each and not each[0].startswith("#")]
    sizes = Counter(map(len, fields))
    size, count = sizes.most_common(1)[0] if sizes else (0, 0)
    if size < 2 or count < TAGGED_SHARE * sizes.total():
        return False
    if any(not line.strip() for line in lines[:-1]):
        return True
    # without a blank line only words that are short, with few tags, are tagged text
    return all(len(field) <= 40 and " " not in field.strip() for each in fields for field in each)


def has_sentences(sample: str) -> bool:
    """Return whether lines are words with tags, in blocks between blank lines; some blocks have several words."""
    lines = [line.removesuffix("\r") for line in sample.split("\n")]
    blank = [not line.strip() for line in lines]
    if not any(blank[at] and not blank[at - 1] for at in range(1, len(lines) - 1)):
        return False
    if not any(not blank[at] and not blank[at + 1] for at in range(len(lines) - 1)):
        return False
    has_texts = any(" " in line and "\t" in line and not line.startswith("#") for line in lines)
    return not has_texts and looks_tagged(lines)


def _declared_columns(lines: Sequence[str]) -> list[str]:
    """The names of the columns in the comment `# global.columns = ID FORM UPOS` of CoNLL-U Plus; empty without one."""
    for line in lines:
        line = line.removeprefix("\ufeff")
        if line.strip() and not line.startswith("#"):
            break
        declared = re.match(r"#\s*global\.columns\s*=(.*)", line)
        if declared is not None:
            return declared[1].split()
    return []


def _column_of_tags(headings: Sequence[str], usual: int) -> int:
    """The position of the tags among columns with names: named entities, else UPOS, else another usual name."""
    lowered = [heading.lower() for heading in headings]
    if TAGS in lowered:
        return lowered.index(TAGS)
    for at, heading in enumerate(lowered):
        if re.search(r"(^|[^a-z])ner$", heading):
            return at
    if "upos" in lowered:
        return lowered.index("upos")
    return max((at for at, heading in enumerate(lowered) if heading in _NAMES_OF_TAGS), default=usual)


def _open_tagged(file: InputFile, encoding: str, notes: tuple[str, ...], layout: Layout) -> TableFile:
    """Tagged text: its columns, what divides them, and which of them are the words and the tags."""
    lines: list[str] = []
    for _, line in lines_of(file, encoding):
        lines.append(line)
        if len(lines) >= 20_000:
            break
    separator = "\t" if any("\t" in line for line in lines) else None
    cut = _FIELDS_OF_2012 if any(line.startswith("#begin document") for line in lines) else 0
    divided = [(line, _fields_of_line(line, separator)[: cut or None]) for line in lines]
    filled = [fields for _, fields in divided if fields and _DOCUMENT not in fields]
    sizes = Counter(len(fields) for fields in filled if not (fields[0].startswith("#") and len(fields) == 1))
    if not sizes:
        raise MissingInput(file.name, "has no rows")
    size = sizes.most_common(1)[0][0]
    if size == 1 and len(sizes) > 1:
        size = sizes.most_common(2)[1][0]
    rows = [fields for fields in filled if len(fields) == size]
    numbers = [fields for fields in rows if not fields[0].startswith("#")]
    if numbers and all(fields[0].strip().isdecimal() for fields in numbers):
        rows = numbers  # comments may have as many fields
    drops_last = size > 2 and sum(not fields[-1].strip() for fields in rows) >= TAGGED_SHARE * len(rows)
    if drops_last:
        size -= 1
        notes += ("every line ends in a separator, which is ignored",)
    number, first = next(
        (at, fields)
        for at, (_, fields) in enumerate(divided, start=1)
        if fields and _DOCUMENT not in fields and not fields[0].startswith("#")
    )
    header = 0
    lowered = [field.strip().lower() for field in first]
    are_names = _NAMES_OF_WORDS & set(lowered) and (_NAMES_OF_TAGS & set(lowered) or len(lowered) > 2)
    # a first word such as "text" has a tag that other words have, too
    unnamed = [at for at, heading in enumerate(lowered) if heading not in _NAMES_OF_WORDS | _NAMES_OF_TAGS]
    repeats = any(fields[at] == first[at] for at in unnamed if at < size for fields in rows[1:])
    if len(first) >= 2 and are_names and len(rows) > 1 and not repeats and not layout.no_header:
        header = number
        rows = rows[1:]
        notes += (f"line {number} holds the names of the columns: {', '.join(first)}",)
    ids = [fields[0].strip() for fields in rows]
    plain = [int(each) for each in ids if each.isdecimal()]
    is_id = [bool(re.fullmatch(r"\d+([-.]\d+)?", each)) for each in ids]
    steps = [later - earlier for earlier, later in pairwise(plain)]
    starts = sum(later in (0, 1) for later in plain[1:])
    counted = sum(step == 1 for step in steps)
    in_order = counted > 0 and counted + starts >= 0.98 * len(steps)
    numbered = size > 1 and bool(ids) and all(is_id) and in_order and (size > 2 or starts > 0)
    names = [f"column {position}" for position in range(1, size + 1)]
    words_at = 1 if numbered else 0
    tags_at = size - 1
    headings: list[str] = []
    if numbered and size == 10:
        tags_at = 3
        headings = _CONLL_U.split()
    if cut and size == cut:
        words_at = 3
        tags_at = cut - 1
        numbered = False
        notes += ("CoNLL-2012: the named entities are the tags (--tags 5: parts of speech)",)
    two_columns: tuple[int, int] | None = None
    if size > 2 and not cut and not header:
        inner = [fields[size - 1] for fields in rows]
        outer = [fields[size - 2] for fields in rows]
        are_tags = all(map(_TAG_OF_ENTITY.fullmatch, [*inner, *outer]))
        shared = ({*inner} & {*outer}) - {"O"}
        if are_tags and shared and layout.tags is None:
            two_columns = (size - 1, size)
    tags_first = all(_TAG_OF_ENTITY.fullmatch(fields[0]) for fields in rows) and any(
        fields[0] != "O" for fields in rows
    )
    if tags_first and size == 2 and not all(_TAG_OF_ENTITY.fullmatch(fields[1]) for fields in rows):
        words_at = 1
        tags_at = 0
    declared = _declared_columns(lines)
    if declared and len(declared) != size:
        why = f"names {len(declared)} columns, the words have {size} fields"
        raise DamagedData(f"{file.name}: global.columns", why, "write a name for each column")
    if layout.columns is not None:
        declared = list(layout.columns)
        if len(declared) > size:
            why = f"names {len(declared)} columns, {file.name} has {size}"
            raise UsageError("reading.columns", why, f"the first row is {', '.join(map(repr, first))[:120]}")
        declared += names[len(declared) :]
    if declared:
        headings = declared
        lowered = [heading.lower() for heading in headings]
        words_at = next((at for at, each in enumerate(lowered) if each in _NAMES_OF_WORDS), words_at)
        tags_at = _column_of_tags(headings, tags_at)
        for at, heading in enumerate(headings):
            if heading not in (WORDS, TAGS) and headings.count(heading) == 1:
                names[at] = heading
    elif header:
        headings = [field.strip() for field in first[:size]]
        words_at = next(at for at, each in enumerate(lowered) if each in _NAMES_OF_WORDS)
        tags_at = max((at for at, each in enumerate(lowered[:size]) if each in _NAMES_OF_TAGS), default=tags_at)
    tags_name = TAGS
    if layout.tags in headings:  # the column that the user names keeps its name
        tags_at = headings.index(layout.tags)
        tags_name = layout.tags
    if tags_at != words_at:
        names[tags_at] = tags_name
    names[words_at] = WORDS
    aliases = {heading: name for heading, name in zip(headings, names, strict=False)}
    aliases |= {f"column {position}": name for position, name in enumerate(names, start=1)}
    if numbered:
        notes += ("column 1 numbers the words",)
    if words_at != 0 or size > 2 or declared:
        used = []
        for given, at in ((layout.words, words_at), (layout.tags, tags_at)):
            if given is not None and given.isdecimal():
                given = f"column {given}"
            name = aliases.get(given or "", given)
            at = names.index(name) if name in names else at
            heading = f" ({headings[at]!r})" if headings else ""
            used.append((f"column {at + 1}", heading))
        (words, its_name), (tags, their_name) = used
        note = f"the words are {words}{its_name}, the tags {tags} of {size}{their_name} (--words, --tags)"
        notes += (note if tags_at != words_at else f"the words are {words} of {size}{its_name} (--words)",)
    found = [re.match(r"[a-z]{2,3}:(?=.)", fields[words_at]) for fields in rows]
    prefix = found[0].group() if found and found[0] is not None else ""
    if prefix and len(rows) > 1 and all(each is not None and each.group() == prefix for each in found):
        notes += (f"every word begins with {prefix!r}, which is left out",)
    else:
        prefix = ""
    tagged = Tagged(
        separator=separator,
        size=size,
        drops_last=drops_last,
        header=header,
        numbered=numbered,
        prefix=prefix,
        cut=cut,
        two_columns=two_columns,
    )
    return TableFile(
        file=file,
        format="conll",
        encoding=encoding,
        notes=notes,
        names=tuple(names),
        aliases=aliases,
        tagged=tagged,
        quoted=False,
    )


def _tagged_records(table: TableFile, counts: Counter[str]) -> Iterator[Record]:
    """A record for each sentence: lists in the columns `words`, `tags` and, if there are more, `column 2` and so on."""
    how = table.tagged
    assert how is not None
    name = table.file.name
    names = [str(each) for each in table.names]
    counts["document_marks"] = 0
    sentence: list[list[str]] = []
    begin = 0
    for number, line in lines_of(table.file, table.encoding):
        fields = _fields_of_line(line.removeprefix("\ufeff") if number == 1 else line, how.separator)
        if not fields:
            if sentence:
                yield _tagged_sentence(f"{name}:{begin}", sentence, names, how.prefix, how.separator)
                sentence = []
            continue
        if number == how.header:
            continue
        fields = fields[: how.cut or None]
        if _DOCUMENT in fields:
            counts["document_marks"] += 1
            continue
        if len(fields) == how.size + 1 and not fields[-1].strip():
            fields = fields[:-1]
        if fields[0].startswith("#") and (how.numbered or len(fields) != how.size or _COMMENT.match(line)):
            counts["comments"] += 1
            continue
        if how.numbered and not fields[0].strip().isdecimal() and re.fullmatch(r"\d+[-.]\d+", fields[0].strip()):
            counts["multiword_lines"] += 1
            continue
        if len(fields) != how.size:
            why = f"has {len(fields)} fields where the other words have {how.size}"
            raise DamagedData(f"{name}:{number}", why, "a blank line ends a sentence; a table needs another ending")
        if not all(field.strip() for field in fields):
            if [field.strip() for field in fields] == ["", "O"]:  # in the Broad Twitter Corpus
                counts["blank_words_left_out"] += 1
                continue
            raise DamagedData(f"{name}:{number}", "an empty field", "every word needs its tag")
        if not sentence:
            begin = number
        sentence.append(fields)
    if sentence:
        yield _tagged_sentence(f"{name}:{begin}", sentence, names, how.prefix, how.separator)


def _without_blank_lines(size: int, separator: str | None) -> str:
    """What to do with lines of words and tags that no blank line divides."""
    columns = ",".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:size])
    delimiter = {None: "space", "\t": "tab"}.get(separator, separator)
    table = f"reading.format=tsv reading.delimiter={delimiter} reading.columns={columns}"
    return f"write a blank line after each sentence; a table of single words and their labels is read with {table}"


def _tagged_sentence(
    where: str, sentence: Sequence[Sequence[str]], names: Sequence[str], prefix: str, separator: str | None
) -> Record:
    """The record of a sentence, of which the fields of each word are given."""
    if len(sentence) > 100 * MAX_SENTENCE_LENGTH:
        why = f"is a sentence of {len(sentence):,} words: there is no blank line"
        raise DamagedData(where, why, _without_blank_lines(len(names), separator))
    columns = dict(zip(names, map(list, zip(*sentence, strict=True)), strict=True))
    columns[WORDS] = [word.removeprefix(prefix) for word in columns[WORDS]]
    for name, values in columns.items():
        if name != WORDS and all(map(_BRACKETS.fullmatch, values)):
            columns[name] = _tags_of_brackets(values)
    return Record(where, columns)


def _tags_of_brackets(values: Sequence[str]) -> list[str]:
    """Tags (IOB2) of marks with brackets as in CoNLL-2003's forerunners and CoNLL-2012: `(PERSON*`, `*`, `*)`."""
    tags = []
    label = ""
    for value in values:
        is_first = value.startswith("(")
        if is_first:
            label = value[1:].partition("*")[0].removesuffix(")")
        tags.append(f"{'B' if is_first else 'I'}-{label}" if label else "O")
        if value.endswith(")"):
            label = ""
    return tags
