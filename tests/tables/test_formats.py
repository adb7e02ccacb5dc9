"""Reading tables: round trips in every format, and damaged files."""

import csv
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.runtime.errors import AlbertError, DamagedData, MissingInput, UsageError
from albert.tables.rows import read_table

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
LETTERS = st.characters(exclude_categories=("Cs",), exclude_characters="\0\t\n\r ")
WORD = st.text(LETTERS, min_size=1, max_size=6).filter(lambda word: word.strip() and word != "-DOCSTART-")


@given(rows=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6), gz=st.booleans())
def test_csv_round_trip(rows, gz, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / ("x.csv.gz" if gz else "x.csv")
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(("review", "stars"))
    writer.writerows(rows)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if gz else content)
    assert [(row.fields["review"], row.fields["stars"]) for row in read_table(path).rows] == rows


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_table_of_several_megabytes_is_read_as_the_csv_module_reads_it(end, tmp_path):
    """Plain rows, quoted fields, quoted ends of lines, two quotes in a field, empty lines, empty fields at the end."""
    forms = ["plain {},a", '"in, quotes {}",b', f'"two{end}lines {{}}",a', '"a ""word"" {}",b', 'not a" quote {},a,,']
    forms.append('"""all"", {}\x1f","",,')
    lines = ["text,label"]
    for number in range(70_000):
        part = number // 10_000  # one kind of rows after the other
        lines.append(forms[number % len(forms) if part > len(forms) - 1 else part].format("é" * (number % 40)))
        if number == 15_000:
            lines.append("")
    path = tmp_path / "rows.csv"
    path.write_text(end.join(lines), encoding="utf-8", newline="")
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        next(reader)
        expected = []
        line = reader.line_num
        for values in reader:
            if values:
                expected.append((f"{path}:{line + 1}", *values[:2]))
            line = reader.line_num
    rows = read_table(path)
    assert [(row.where, row.fields["text"], row.fields["label"]) for row in rows.rows] == expected
    assert rows.values("text") == [text for _, text, _ in expected]
    assert rows.values("missing") == [None] * 70_000
    assert rows.rows[-1].fields["text"] == expected[-1][1] and len(rows.rows[40_000:40_003]) == 3
    assert [row.identifier for row in rows.rows] == [str(number) for number in range(70_000)]


@pytest.mark.parametrize("fault", ['"open,a', '"a"b,a', "one field", "a,b,c"])
def test_a_fault_far_inside_a_table_is_named_with_its_line(fault, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + 70_000 * "a plain short text,a\n" + fault + "\n" + 9 * "a,b\n")
    with pytest.raises(DamagedData) as raised:
        read_table(path)
    assert raised.value.subject == f"{path}:70002"


@given(rows=st.lists(st.tuples(TEXT, st.integers(-9, 9)), min_size=1, max_size=6))
def test_json_lines_round_trip(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "x.jsonl"
    lines = (json.dumps({"review": text, "stars": stars}) for text, stars in rows)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="")
    assert [(row.fields["review"], int(row.fields["stars"])) for row in read_table(path).rows] == rows


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.jsonl"])
def test_empty_lines_are_skipped(name, tmp_path):
    lines = {"x.csv": ["a,b", "1,2", "3,4"], "x.tsv": ["a\tb", "1\t2", "3\t4"]}
    lines["x.jsonl"] = ['{"a": 1, "b": 2}', '{"a": 3, "b": 4}']
    (tmp_path / name).write_text("\n\n".join(lines[name]) + "\n\n")
    assert [(row.fields["a"], row.fields["b"]) for row in read_table(tmp_path / name).rows] == [("1", "2"), ("3", "4")]


VALUE = st.one_of(TEXT, st.integers(-(2**40), 2**40), st.booleans(), st.lists(TEXT, max_size=3))


@given(values=st.lists(VALUE, min_size=1, max_size=5))
def test_json_and_parquet_give_the_same_fields(values, tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    for number, value in enumerate(values):
        row = {"plain": value, "object": {"inner": value}}
        (folder / "x.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
        column = pa.array([value], pa.list_(pa.string()) if isinstance(value, list) else None)
        table = pa.table({"plain": column, "object": pa.StructArray.from_arrays([column], ["inner"])})
        pq.write_table(table, folder / f"{number}.parquet")
        text = tuple(value) if isinstance(value, list) else value if isinstance(value, str) else json.dumps(value)
        for file in ("x.jsonl", f"{number}.parquet"):
            assert read_table(folder / file).rows[0].fields == {"plain": text, "object.inner": text}


NEITHER_NUMBER_NOR_NAME = WORD.map("w{}".format)
"""Words that do not number the others (0, 1), and are not called like a column (TEXT)."""
CELLS = st.tuples(NEITHER_NUMBER_NOR_NAME, NEITHER_NUMBER_NOR_NAME, NEITHER_NUMBER_NOR_NAME)


@given(
    sentences=st.lists(st.lists(CELLS, min_size=1, max_size=5), min_size=1, max_size=4),
    separator=st.sampled_from(["\t", " ", "  "]),
    blank_lines=st.integers(1, 3),
)
def test_tagged_text_round_trip(sentences, separator, blank_lines, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "x.conll"
    blocks = ("\n".join(separator.join(word) for word in sentence) for sentence in sentences)
    mark = separator.join(("-DOCSTART-", "-X-", "O"))
    path.write_text(f"{mark}\n\n" + ("\n" * (blank_lines + 1)).join(blocks), encoding="utf-8", newline="")
    rows = read_table(path)
    names = ("words", "column 2", "tags")
    assert [list(zip(*(row.fields[name] for name in names), strict=True)) for row in rows.rows] == sentences
    assert rows.counts["document_marks"] == 1
    renamed = read_table(path.rename(path.with_suffix(".txt")))
    assert [row.fields for row in renamed.rows] == [row.fields for row in rows.rows]


def test_unreadable_values_are_counted(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"t": "a", "x": [[1]], "y": null, "z": [null]}\n')
    rows = read_table(tmp_path / "x.jsonl")
    assert rows.columns == ("t",)
    assert rows.counts == {"rows": 1, "fields_not_read": 2}


def test_parquet_classes_are_read_by_name(tmp_path):
    features = {
        "label": {"names": ["bad", "good"], "_type": "ClassLabel"},
        "tags": {"feature": {"names": ["O", "B-X"], "_type": "ClassLabel"}, "_type": "Sequence"},
    }
    rows = [{"label": 1, "tags": [0, 1]}, {"label": -1, "tags": []}]
    table = pa.Table.from_pylist(rows).replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )
    pq.write_table(table, tmp_path / "x.parquet")
    assert [dict(row.fields) for row in read_table(tmp_path / "x.parquet").rows] == [
        {"label": "good", "tags": ("O", "B-X")},
        {"tags": ()},
    ]


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("x.conll", "a O\nb\n", DamagedData, r"x\.conll:2: has 1 fields where the other words have 2"),
        ("x.conll", "a\tO\nb\t\n", DamagedData, r"x\.conll:2: an empty field"),
        ("x.conll", "\n\n", MissingInput, "has no rows"),
        ("x.txt", "A line of prose.\nAnd a longer one, too.\n", UsageError, "not words with tags"),
        ("x.txt", "word\nword\n\nword\n", UsageError, "not words with tags"),
        ("x.txt", "\n", UsageError, "not words with tags"),
        ("x.txt", "a O\n" * 30 + "b\n", DamagedData, r"x\.txt:31: has 1 fields"),
        ("x.parquet", "PAR1 and no more", DamagedData, "damaged Parquet file"),
        ("x.jsonl", '{"a.b": 1, "a": {"b": 2}}\n', DamagedData, r"x\.jsonl:1: two values are called 'a\.b'"),
        ("x.jsonl", '{"t": "a"\n', DamagedData, r"x\.jsonl:1: is not JSON"),
        (
            "x.jsonl",
            '{"t": "a", "y": 1}\n[]\n',
            DamagedData,
            r"x\.jsonl:2: is a list, a JSON object \{\.\.\.\} is expected",
        ),
        ("x.jsonl", '{"t": "\\ud800", "y": 1}\n', DamagedData, "surrogate"),
        ("x.json", "{}", DamagedData, "is an object with nothing in it, no list of rows"),
        ("x.csv", "t,t\na,1\n", DamagedData, "same name"),
        ("x.tsv", "t\ty\na\n", DamagedData, r"x\.tsv:2"),
    ],
)
def test_damaged_tables_are_refused(tmp_path, name, content, kind, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(AlbertError, match=message) as error:
        read_table(tmp_path / name)
    assert type(error.value) is kind and "\n" not in str(error.value)
