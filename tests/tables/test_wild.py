"""Tables as people have them: how each is read, or the one line that says what to do (through `albert.finetune`)."""

import json
from pathlib import Path

import pytest

import albert
from albert.tasks.multi_label import MultiLabel
from albert.tasks.multiple_choice import MultipleChoice
from albert.tasks.regression import Regression
from albert.tasks.single_label import SingleLabel
from albert.tasks.span import Span
from albert.tasks.tagging import TokenTagging

MODEL = Path(__file__).parents[2] / "models" / "tiny"
WORDS = ["good film", "bad film", "long film", "dull book", "fine book", "poor song"]


def read(folder: Path, name: str, content: str | bytes, dev: str | None = None, **options):
    """How a file is read; the same rows are the development set when it is not given."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    files = {"train": path, "dev": path}
    if dev is not None:
        files["dev"] = folder / f"dev{path.suffix}"
        files["dev"].write_text(dev)
    result = albert.finetune(**files, model=MODEL, **options)
    assert result.reading is not None and result.reading.read is not None
    return result.reading


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(separator: str, *header: str, rows=None) -> str:
    rows = rows or [(text, "ab"[number % 2]) for number, text in enumerate(WORDS)]
    return "".join(separator.join(row) + "\n" for row in ((header,) if header else ()) + tuple(rows))


CONLL = "".join(f"{word} O\nin O\nRome B-place\n. O\n\n" for word in ("Anna", "Otto", "Rain"))
LINES_OF_CONLL = [line.split() for line in CONLL.splitlines()]
NUMBERED = "".join(
    f"# sent_id = {s}\n" + "".join(f"{n}\t{word}\t{tag}\n" for n, (word, tag) in enumerate(sentence, start=1)) + "\n"
    for s, sentence in enumerate([[("Anna", "O"), ("in", "O"), ("Rome", "B-place")], [("It", "O"), ("is", "O")]])
)
CONLLU = (
    "# text = He came\n1\tHe\the\tPRON\tPRP\t_\t2\tnsubj\t_\t_\n2-3\tcame\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "2\tcame\tcome\tVERB\tVBD\t_\t0\troot\t_\t_\n\n1\tNow\tnow\tADV\tRB\t_\t0\troot\t_\t_\n"
)
CONLL_PLUS = "# global.columns = FORM UPOS CONLL:NER LEMMA\n" + "".join(
    f"# sent_id = {word}\n{word}\tPROPN\tO\t{word}\nin\tADP\tO\tin\nRome\tPROPN\tB-place\trome\n\n"
    for word in ("Anna", "Otto")
)
PARTS_OF_SPEECH = ("ADP", "PROPN")
TWO, ONE_LABEL = SingleLabel(("a", "b"), "label"), {"text": "text", "label": "label"}
ROME = TokenTagging(("B-place", "O"), "tags")
ROME_OF_NER = TokenTagging(("B-place", "O"), "CONLL:NER")
SPANS = lines({"text": "Anna in Rome", "label": [[8, 12, "place"]]}, {"text": "It rains", "label": []})
WORD_NUMBERS = [
    {"text": "Anna in Rome", "entities": [{"words": "2", "type": "place"}]},
    {"text": "It rains", "entities": []},
]
SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "It is red, so red.",
                    "qas": [{"id": 7, "question": "How?", "answers": [{"text": "red", "answer_start": 13}]}],
                }
            ]
        }
    ]
}
WORD_A_ROW = "Sentence #,Word,Tag\n" + "".join(
    f"{f'Sentence: {n}' if word == 'Anna' else ''},{word},{tag}\n"
    for n in range(9)
    for word, tag in (("Anna", "O"), ("in", "O"), ("Rome", "B-place"))
)
COLUMNS = "text,toxic,rude\n" + "".join(f"{text},{n % 2},{n % 3 == 0:d}.0\n" for n, text in enumerate(WORDS))
CHOICES = lines(
    *(
        {
            "question": {"stem": f"{n}?", "choices": [{"label": "ABCD"[i], "text": f"t{i} {n}"} for i in range(2 + n)]},
            "answerKey": "AB"[n % 2],
        }
        for n in range(3)
    )
)


@pytest.mark.parametrize(
    ("name", "content", "options", "target", "note"),
    [
        # A1: the separator
        ("a.csv", table(";", "text", "label"), {}, TWO, "columns are separated by ';'"),
        ("b.csv", table("\t", "text", "label"), {}, TWO, "columns are separated by a tab"),
        ("c.csv", table("|", "text", "label"), {}, TWO, "columns are separated by '|'"),
        (
            "d.csv",
            "text;label\n" + "".join(f"{w}, really;{n},{n}5\n" for n, w in enumerate(WORDS)),
            {"reading": {"decimal": ","}},
            Regression("label"),
            "separated by ';'",
        ),
        ("e.csv", 'text,label\n"a\nb, c",a\n"say ""no""",b\n', {}, TWO, None),
        ("f.csv", table("~", "text", "label"), {"reading": {"delimiter": "~"}}, TWO, None),
        ("g.csv", "text,label\n" + "".join(f"{w},{'ab'[n % 2]},,\n" for n, w in enumerate(WORDS)), {}, TWO, None),
        # A2, A3: columns without a name, no header
        (
            "a.csv",
            "v1,v2,,,\n" + "".join(f"{'ab'[n % 2]},{w},,,\n" for n, w in enumerate(WORDS)),
            {"text": "v2", "label": "v1"},
            SingleLabel(("a", "b"), "v1"),
            "3 columns without a name are ignored",
        ),
        (
            "b.csv",
            ",text,label\n" + "".join(f"{n},{w},{'ab'[n % 2]}\n" for n, w in enumerate(WORDS)),
            {},
            TWO,
            "ignored",
        ),
        ("c.tsv", table("\t"), {"reading": {"columns": ("text", "label")}}, TWO, None),
        (
            "d.tsv",
            table("\t"),
            {"reading": {"no_header": True}, "text": "1", "label": "2"},
            SingleLabel(("a", "b"), "column 2"),
            None,
        ),
        ("e.tsv", table("\t", "text", "label"), {"reading": {"columns": ("text", "label")}}, TWO, "it is not a row"),
        # A4: encodings
        ("a.csv", "text,label\nschöne Grüße,a\nein Übel,b\n".encode("cp1252"), {}, TWO, "read as cp1252"),
        ("b.csv", "text,label\nОчень хороший фильм,a\nПлохой фильм и скучный,b\n".encode("cp1251"), {}, TWO, "cp1251"),
        ("c.csv", table(",", "text", "label").encode("utf-16"), {}, TWO, "UTF-16"),
        ("d.csv", b"\xef\xbb\xbf" + table(",", "text", "label").encode(), {}, TWO, None),
        ("e.csv", "text,label\nKäse,a\nBrot,b\n".encode("cp850"), {"reading": {"encoding": "cp850"}}, TWO, None),
        # A5, A8: endings and formats
        ("a.data", table(",", "text", "label"), {}, TWO, None),
        ("b.ndjson", lines(*({"text": w, "label": "ab"[n % 2]} for n, w in enumerate(WORDS))), {}, TWO, None),
        ("c.json", json.dumps([{"text": w, "label": "ab"[n % 2]} for n, w in enumerate(WORDS)]), {}, TWO, None),
        ("d.jsonl", json.dumps([{"text": w, "label": "ab"[n % 2]} for n, w in enumerate(WORDS)]), {}, TWO, "one list"),
        ("e.json", lines(*({"text": w, "label": "ab"[n % 2]} for n, w in enumerate(WORDS))), {}, TWO, "JSON lines"),
        ("f.json", json.dumps({"text": {"0": "x", "1": "y"}, "label": {"0": "a", "1": "b"}}), {}, TWO, "pandas"),
        ("h.txt", "__label__a good film\n__label__b bad film\n", {}, TWO, "a label and its text"),
        (
            "i.txt",
            "__label__a __label__b good film\n__label__b bad film\n",
            {},
            MultiLabel(("a", "b"), "label"),
            "a label and",
        ),
        (
            "j.any",
            "spam win it\nham no\n",
            {"reading": {"format": "fasttext"}},
            SingleLabel(("ham", "spam"), "label"),
            None,
        ),
        # A6, A7: a table in .txt, quotes in tab-separated files
        ("a.txt", table("\t", "text", "label"), {}, TWO, "separated by a tab"),
        ("b.tsv", 'text\tlabel\n"He said ""no"""\ta\nyes\tb\n', {}, TWO, None),
        ("c.tsv", 'text\tlabel\n"No," he said\ta\nyes\tb\n', {}, TWO, "quotes are read as text"),
        ("d.csv", "text,label\n'a film',a\n'b film',b\n", {}, TWO, "are in single quotes, which are read as text"),
        # A9, A10: lists of objects, SQuAD
        (
            "a.jsonl",
            CHOICES,
            {"question": "question.stem", "options": "question.choices", "label": "answerKey"},
            MultipleChoice(tuple(f"question.choices.text[{n}]" for n in range(4)), "answerKey"),
            None,
        ),
        ("b.json", json.dumps(SQUAD), {}, Span(head="independent"), "SQuAD's layout"),
        # A11: tagged text
        ("a.conll", CONLL, {}, ROME, None),
        ("b.conll", NUMBERED, {}, ROME, "column 1 numbers the words"),
        ("c.conllu", CONLLU, {}, TokenTagging(("ADV", "PRON", "VERB"), "tags"), "the tags column 4 of 10"),
        ("d.conllu", CONLLU, {"words": "2", "tags": "5"}, TokenTagging(("PRP", "RB", "VBD"), "column 5"), None),
        ("e.conll", "word tag\n" + CONLL, {}, ROME, "line 1 holds the names of the columns"),
        ("f.conll", CONLL.replace(" ", "\t").replace("O\n", "O\t\n").replace("e\n", "e\t\n"), {}, ROME, None),
        ("g.conll", "-DOCSTART- O\n\n" + CONLL, {}, ROME, None),
        ("h.annotated", CONLL, {}, ROME, None),
        ("i.conllup", CONLL_PLUS, {}, ROME, "the tags column 3 of 4 ('CONLL:NER')"),
        (
            "j.conllup",
            CONLL_PLUS,
            {"tags": "CONLL:NER", "words": "FORM"},
            ROME_OF_NER,
            "the words are column 1 ('FORM')",
        ),
        (
            "k.tsv",
            CONLL_PLUS,
            {"tags": "UPOS"},
            TokenTagging(PARTS_OF_SPEECH, "UPOS"),
            "the tags column 2 of 4 ('UPOS')",
        ),
        ("l.conllup", CONLL_PLUS, {"tags": "2"}, TokenTagging(PARTS_OF_SPEECH, "UPOS"), "the tags column 2 of 4"),
        (
            "m.conllup",
            CONLL_PLUS.replace("CONLL:NER", "MISC"),
            {},
            TokenTagging(PARTS_OF_SPEECH, "tags"),
            "column 2 of 4",
        ),
        ("n.conll", CONLL_PLUS, {"reading": {"columns": ("words", "pos", "tags")}}, ROME, "column 3 of 4 ('tags')"),
        (
            "o.conll",
            CONLL_PLUS.partition("\n")[2],
            {"words": "column 1", "tags": "3"},
            TokenTagging(("B-place", "O"), "column 3"),
            "the tags column 3 of 4",
        ),
        ("p.conllu", CONLLU, {"tags": "XPOS"}, TokenTagging(("PRP", "RB", "VBD"), "XPOS"), "column 5 of 10 ('XPOS')"),
        # A12, A13: one word a row, marked parts
        (
            "a.csv",
            WORD_A_ROW,
            {"words": "Word", "tags": "Tag", "group": "Sentence #"},
            TokenTagging(("B-place", "O"), "Tag"),
            "9 s",
        ),
        ("b.jsonl", SPANS, {}, ROME, "are read as a tag for each word"),
        # B2 to B4: several columns, vectors, lists as text
        ("a.csv", COLUMNS, {"label": ["toxic", "rude"]}, MultiLabel(("toxic", "rude"), "toxic, rude"), None),
        (
            "b.jsonl",
            lines(*({"text": w, "label": [n % 2, 0, 1 - n % 2]} for n, w in enumerate(WORDS))),
            {"labels": ("x", "y", "z")},
            SingleLabel(("x", "y", "z"), "label"),
            None,
        ),
        (
            "c.jsonl",
            lines(*({"text": w, "label": [1.0, 0.0, n % 2]} for n, w in enumerate(WORDS))),
            {"labels": ("x", "y", "z")},
            MultiLabel(("x", "y", "z"), "label"),
            None,
        ),
        (
            "d.csv",
            "text,label\n" + "".join(f"{w},\"['a', '{'ab'[n % 2]}']\"\n" for n, w in enumerate(WORDS)),
            {},
            MultiLabel(("a", "b"), "label"),
            "written as text",
        ),
        (
            "e.csv",
            'words,tags\n"[""Anna"", ""in"", ""Rome""]","[""O"", ""O"", ""B-place""]"\n',
            {},
            ROME,
            "written as text",
        ),
        # B5 to B7: codes, numbers, equal labels
        (
            "a.csv",
            table(",", "text", "label", rows=[(w, f"{n % 3}_1") for n, w in enumerate(WORDS)]),
            {},
            SingleLabel(("0_1", "1_1", "2_1"), "label"),
            None,
        ),
        (
            "b.csv",
            table(",", "text", "label", rows=[(w, f"01{n % 2}") for n, w in enumerate(WORDS)]),
            {},
            SingleLabel(("010", "011"), "label"),
            None,
        ),
        (
            "d.csv",
            table(",", "text", "label", rows=[(w, ("True", "true", "FALSE")[n % 3]) for n, w in enumerate(WORDS)]),
            {},
            SingleLabel(("FALSE", "True", "true"), "label"),
            None,
        ),
        # B1, B10, B11
        (
            "e.tsv",
            table("\t", "text", "label", rows=[(w, ('"a"', "a ", "b\u00a0")[n % 3]) for n, w in enumerate(WORDS)]),
            {},
            TWO,
            None,
        ),
        (
            "f.csv",
            table(",", "text", "label", rows=[(w, str(n % 2)) for n, w in enumerate(WORDS)]),
            {"label_names": ["0=no", "1=yes"]},
            SingleLabel(("0", "1"), "label", ("no", "yes")),
            None,
        ),
        (
            "g.tsv",
            table("\t", "text", "label", rows=[(w, ("x,y", "x", "y")[n % 3]) for n, w in enumerate(WORDS)]),
            {"kind": "multi-label"},
            MultiLabel(("x", "y"), "label", ","),
            None,
        ),
    ],
)
def test_a_file_is_read_as_its_author_meant_it(name, content, options, target, note, tmp_path):
    reading = read(tmp_path, name, content, **options)
    found = reading.read.task.target
    assert found == target
    notes = reading.read.raw["train"].notes
    assert note is None or any(note in line for line in notes), notes
    reading.read.check()


MANY = [(f"text {n}", f"{n},{n}5") for n in range(30)]
ESCAPED = 'text,label\n"he said \\"yes\\", twice",a\n"no, \\"never\\"",b\n'
BEFORE_THE_HEADER = {
    "excel.csv": ("sep=;\ntext;label\nx, y;a\nz;b\n", "separates the columns", 3),
    "comments.csv": ("# exported by a tool\n# on Monday, at noon\nid,text,label\n1,x,a\n2,z,b\n", "begin with #", 4),
    "escaped.csv": (ESCAPED, "quotes inside", 2),
}


@pytest.mark.parametrize("name", BEFORE_THE_HEADER)
def test_lines_before_the_header_and_escaped_quotes(name, tmp_path):
    content, note, line = BEFORE_THE_HEADER[name]
    reading = read(tmp_path, name, content)
    rows = reading.read.raw["train"]
    assert any(note in each for each in rows.notes)
    assert rows.values("label") == ["a", "b"] and rows.rows[0].where.endswith(f":{line}")
    expected = {"excel.csv": "x, y", "comments.csv": "x", "escaped.csv": 'he said "yes", twice'}
    assert rows.values("text")[0] == expected[name]


def test_few_combinations_of_many_labels(tmp_path):
    rows = [(f"text {n}", "room; staff" if n % 3 else "food") for n in range(12)]
    reading = read(tmp_path, "x.csv", table(",", "text", "label", rows=rows), kind="multi-label")
    assert reading.read.task.target.labels == ("food", "room", "staff")


def test_japanese_in_two_encodings(tmp_path):
    rows = [(f"部屋はとてもきれいでした {n}", "良い" if n % 2 else "悪い") for n in range(12)]
    for encoding in ("cp932", "euc_jp"):
        reading = read(tmp_path, f"{encoding}.csv", table(",", "text", "label", rows=rows).encode(encoding))
        assert set(reading.read.task.target.labels) == {"良い", "悪い"}


DATES = [(f"text {n}", f"2024-01-{n + 1:02d}") for n in range(28)]


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        (
            "a.csv",
            "text,label\na;b,c;d\ne;f,g;h\n",
            {"reading": {"delimiter": "||"}},
            "delimiter\": ...}: '||' is not one",
        ),
        (
            "b.csv",
            "x;a,y;b\n1;2,3;4\n",
            {},
            "may be separated by ',' or ';'; say which with reading={\"delimiter\": ...}",
        ),
        ("c.csv", "text,text,label\na,b,c\n", {}, "two columns have the same name, 'text'"),
        ("d.tsv", table("\t"), {"text": "text"}, "the first row looks like a row"),
        ("e.csv", "text,label\na,b\nc,d,e\n", {}, "e.csv:3: has 3 fields where the header has 2"),
        (
            "e2.csv",
            "a;x\nb;'y; z'\n'c; d';x\n",
            {"reading": {"columns": ("label", "text")}},
            "single quotes do not enclose a field",
        ),
        ("f.csv", b"text,label\na\0b,c\n", {}, "is not text: NUL byte"),
        ("g.csv", "é,ü,label\n".encode() * 9 + b"\xe9,x,a\n", {}, "g.csv:10: is not UTF-8"),
        ("h.csv", table(",", "text", "label"), {"reading": {"encoding": "utf-99"}}, "'utf-99' is unknown"),
        ("h.csv", table(",", "text", "label"), {"reading": {"encoding": "base64"}}, "'base64' is unknown"),
        ("h2.csv", "<!DOCTYPE html><html></html>", {}, "is a web page"),
        ("h3.csv", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n", {}, "is a pointer of Git LFS"),
        ("h4.csv", table(",", "text", "label", rows=DATES), {}, "28 different dates"),
        ("i.xls", "x", {}, "is not an Excel file, whatever its ending is; name its format"),
        ("j.txt", "Anna O\nRome B\n" * 400, {}, "no blank line between sentences; write a blank line after each"),
        ("j2.conll", "Anna O\nRome B\n" * 16_000, {}, 'reading={"columns": ["A", "B"]}'),
        ("k.csv", WORD_A_ROW, {"words": "Word", "tags": "Tag"}, "one word in each row; name the column"),
        ("l.csv", table(",", "t", "label"), {"text": "T", "label": "label"}, "has no column 'T'; did you mean 't'?"),
        (
            "m.csv",
            COLUMNS.replace(",1,", ",7,"),
            {"label": ["toxic", "rude"]},
            "'7' in column 'toxic' is neither 0 nor 1",
        ),
        ("n.csv", "text,label\nx,\"['a' 'b']\"\ny,['c']\n", {}, "is a list without commas; write the rows as .jsonl"),
        (
            "o.tsv",
            table("\t", "text", "label", rows=MANY),
            {},
            'numbers with a comma, such as \'0,05\'; say reading={"decimal": ","}',
        ),
        (
            "o2.tsv",
            table("\t", "text", "label", rows=[(w, ("1,5", "2", "2,5")[n % 3]) for n, w in enumerate(WORDS * 9)]),
            {"kind": "classification"},
            'holds numbers with a comma, such as \'1,5\'; say reading={"decimal": ","}',
        ),
        (
            "o3.tsv",
            table("\t", "text", "label", rows=[(f"t{n}", f"$1,{n}64.50") for n in range(30)]),
            {},
            "values such as '$1,064.50': are they numbers?; write plain numbers (1164.5), or say kind=",
        ),
        (
            "o4.tsv",
            table("\t", "text", "label", rows=[(f"t{n}", f"{n} %") for n in range(30)]),
            {"kind": "number"},
            "'0 %' is not a plain number; write digits with a decimal point, without signs of thousands, currencies",
        ),
        (
            "o5.csv",
            "text,label\n" + "".join(f'{w},"[{n % 2}, 0, 1]"\n' for n, w in enumerate(WORDS)),
            {"labels": ("x", "y", "z")},
            "holds vectors of 0 and 1 as text, such as '[0, 0, 1]'; write a column of 0 and 1 for each label",
        ),
        (
            "o6.jsonl",
            lines(*({"text": w, "label": [n % 2, 0, 1]} for n, w in enumerate(WORDS))),
            {},
            "vectors of 3 numbers 0 or 1, which have no names; name the label of each position: labels A B ... (3",
        ),
        (
            "p.tsv",
            table("\t", "text", "label", rows=[("a", "1,164"), ("b", "2,500")]),
            {"kind": "number"},
            '\'1,164\' is not a plain number; say reading={"decimal": ","} if the comma is the decimal sign',
        ),
        (
            "q.tsv",
            table("\t", "text", "label", rows=[("t", each) for each in ("x,y", "x", "y", "y,x")]),
            {},
            'say kind="multi-label" separator',
        ),
        (
            "r.tsv",
            table("\t", "text", "label", rows=[(f"t{n}", f"word{n}") for n in range(30)]),
            {},
            "label of its own",
        ),
        ("s.jsonl", SPANS.replace("12", "99"), {}, "marks the characters 8 to 99 of a text with 12"),
        ("s2.json", json.dumps(WORD_NUMBERS), {"label": "entities"}, "write marked parts as [0, 3"),
        ("t.json", '{"a": 1}', {}, "is an object with 'a', no list of rows"),
        ("u.csv", table(",", "text", "label"), {"label": "9"}, "there is no column 9; there are 2"),
        ("u2.conllup", CONLL_PLUS.replace(" UPOS", ""), {}, "names 3 columns, the words have 4 fields"),
        ("v.csv", table(",", "text", "label"), {"label_names": ["x"]}, "neither a file nor LABEL=NAME"),
    ],
)
def test_what_cannot_be_read_is_one_line_with_what_to_do(name, content, options, message, tmp_path):
    with pytest.raises(albert.AlbertError) as caught:
        read(tmp_path, name, content, **options)
    assert any(part in str(caught.value) for part in message.split("|", 1)[-1:]), caught.value
    assert "\n" not in str(caught.value)


def test_tagged_text_without_blank_lines(tmp_path):
    path = tmp_path / "a.bio"
    path.write_text("Anna O\nRome B-place\n" * 50)
    with pytest.raises(albert.AlbertError, match="no blank line between sentences.* one sentence of 100 words; write"):
        albert.finetune(train=path, model=MODEL)
    with pytest.raises(albert.AlbertError, match="no blank line between sentences.* one sentence"):
        albert.finetune(train=path, model=MODEL, reading={"columns": ("words", "tags")})
    reading = read(tmp_path, "b.bio", path.read_text())
    assert any("all 100 words are one sentence" in note for note in reading.read.raw["train"].notes)
    as_table = {"reading": {"format": "tsv", "delimiter": "space", "columns": ("A", "B")}, "text": "A", "label": "B"}
    assert read(tmp_path, "c.bio", path.read_text(), **as_table).read.task.target == SingleLabel(("B-place", "O"), "B")


def test_labels_of_both_files_are_equal_and_missing_ones_are_left_out_on_request(tmp_path):
    train = "text,label\n" + "".join(f"{word},{n % 2}.0\n" for n, word in enumerate(WORDS)) + "odd,\n"
    with pytest.raises(albert.AlbertError, match="a.csv:8: empty label"):
        read(tmp_path, "a.csv", train, dev="text,label\nx,1\ny,0\n")
    reading = read(tmp_path, "a.csv", train, dev="text,label\nx,1\ny,0\n", reading={"drop_unlabelled": True})
    reading.read.check()
    assert reading.read.raw["train"].counts["rows_without_label"] == 1
    assert reading.statistics["dev"].counts["labels unknown to train"] == 0


def test_f1_is_that_of_the_rarer_class(tmp_path):
    rows = [(word, "aab"[number % 3]) for number, word in enumerate(WORDS)]
    names = read(tmp_path, "a.csv", table(",", "text", "label", rows=rows)).read.table_task.metrics
    assert names == ("accuracy", "f1 (b)", "macro_f1")
    rows = [(word, "abb"[number % 3]) for number, word in enumerate(WORDS)]
    names = read(tmp_path, "a.csv", table(",", "text", "label", rows=rows), label_names=["a=no", "b=yes"])
    assert names.read.table_task.metrics == ("accuracy", "f1 (no)", "macro_f1")


def test_text_that_the_vocabulary_does_not_know_is_said(tmp_path):
    rows = [(word, "ab"[number % 2]) for number, word in enumerate(("很好的电影", "不好看", "天气很好", "他回家了"))]
    reading = read(tmp_path, "a.csv", table(",", "text", "label", rows=rows))
    assert "are unknown to the vocabulary" in reading.warnings[0] and "Cjk" in reading.warnings[0]
    assert read(tmp_path, "b.csv", table(",", "text", "label")).warnings == ()


def test_squad_answers_are_found_near_their_start(tmp_path):
    rows = read(tmp_path, "a.json", json.dumps(SQUAD)).read.tables["train"].rows
    assert [answer.start for answer in rows[0].answers] == [14]
