"""The commands tokenizer and prepare."""

import io
import json
import re
import shlex

import pytest

from albert.cli import data as command
from albert.cli.data import prepare_main, tokenizer_main
from albert.runtime.errors import CannotCreate, DamagedData, MissingInput, UsageError
from albert.text.shards import TokenCorpus
from albert.text.tokenizer_loading import load_tokenizer

# --------------------------------------------------------------------------------------------------------------------
# `albert tokenizer train` and `albert prepare`, from text to a corpus that opens.


@pytest.fixture
def corpus(documents, tmp_path):
    folder = tmp_path / "my corpus"
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    (folder / "b.txt").write_text("")
    return folder


def test_text_becomes_a_vocabulary_and_a_corpus(corpus, tmp_path, capsys):
    words, data = tmp_path / "words", tmp_path / "data [1]"
    assert tokenizer_main(["train", str(corpus), "--output", str(words), "--vocab-size", "300"]) == 0
    said = capsys.readouterr().out
    assert "read 151 documents" in said
    assert "1 documents dropped: empty" in said
    assert f"next: albert prepare '{corpus}' --tokenizer {words}" in said
    options = ["--tokenizer", str(words), "--output", str(data), "--held-out", "0.2", "--workers", "1"]
    assert prepare_main([str(corpus), *options]) == 0
    said = capsys.readouterr().out
    assert "151" in said
    assert "1 documents dropped: empty" in said
    assert "data [1] is ready" in said
    opened = TokenCorpus.open(data, "held_out")
    assert opened.tokenizer_fingerprint == load_tokenizer(words).fingerprint


def test_help_ends_with_an_example(capsys):
    assert tokenizer_main(["--help"]) == 0
    assert "albert tokenizer train corpus" in capsys.readouterr().out
    for main, arguments in ((tokenizer_main, ["train", "--help"]), (prepare_main, ["--help"])):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 0
        assert "Example:\n  albert" in capsys.readouterr().out


# --------------------------------------------------------------------------------------------------------------------
# `albert tokenizer encode`, `decode` and `convert`; the note on accents that `train` gives.


TEXT = "  Bating, ``CAFÉ'' 2010, ½\u200b [MASK] 中文"


@pytest.fixture
def run(capsys):
    """Run `albert tokenizer` and return what it wrote on standard output."""

    def run(*arguments):
        assert command.tokenizer_main([str(argument) for argument in arguments]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def standard_input(monkeypatch):
    """Put bytes on standard input."""

    def put(data, terminal=False):
        stream = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")
        stream.isatty = lambda: terminal
        monkeypatch.setattr("sys.stdin", stream)

    return put


@pytest.fixture
def directories(tokenizer_directory, wordpiece, tmp_path):
    """One of each kind."""
    (tmp_path / "wordpiece").mkdir()
    wordpiece.save(tmp_path / "wordpiece")
    return [tokenizer_directory, tokenizer_directory / "spiece.model", tmp_path / "wordpiece"]


def test_encode_shows_pieces_ids_places_and_slices(run, directories):
    for place in directories:
        ids, offsets = load_tokenizer(place).encode_with_offsets(TEXT)
        shown = run("encode", "--tokenizer", place, TEXT)
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if "│" in line]
        assert [[int(cell) for cell in row[1:4]] for row in rows] == [
            [number, *pair] for number, pair in zip(ids, offsets, strict=True)
        ]
        assert [row[4] for row in rows] == [TEXT[start:end] for start, end in offsets]
        unknown = ids.count(load_tokenizer(place).unk_id)
        counted = f"{len(TEXT)} characters, {len(ids)} tokens" + f", {unknown} of them unknown" * bool(unknown)
        assert shown.splitlines()[-1] == counted


def test_json_has_all_that_the_table_has(run, directories, standard_input):
    for place in directories:
        ours = load_tokenizer(place)
        standard_input(f"{TEXT}\r\n\nsecond line".encode())
        found = [json.loads(line) for line in run("encode", "--tokenizer", place, "--json").splitlines()]
        assert [entry["text"] for entry in found] == [TEXT, "", "second line"]
        for entry in found:
            ids, offsets = ours.encode_with_offsets(entry["text"])
            assert entry["ids"] == ids
            assert entry["offsets"] == [list(pair) for pair in offsets]
            assert entry["tokens"] == [ours.piece(number) for number in ids]
        again = [json.loads(line) for line in run("encode", "--tokenizer", place, "--json", TEXT, "").splitlines()]
        assert again == found[:2]


def test_decode_is_the_way_back(run, directories, standard_input):
    for place in directories:
        ours = load_tokenizer(place)
        ids = ours.encode("bating, foha")
        assert run("decode", "--tokenizer", place, *ids) == ours.decode(ids) + "\n"
        framed = [ours.cls_id, *ids, ours.sep_id]
        assert run("decode", "--tokenizer", place, *framed) == ours.decode(ids) + "\n"
        shown = run("decode", "--tokenizer", place, "--special", *framed)
        assert (shown.startswith("[CLS] "), shown.endswith(" [SEP]\n")) == (True, True)
        standard_input(f"{ids}\n\n{' '.join(map(str, framed))}\n".encode())
        found = [json.loads(line) for line in run("decode", "--tokenizer", place, "--json").splitlines()]
        assert [entry["ids"] for entry in found] == [ids, [], framed]
        assert found[0]["tokens"] == [ours.piece(number) for number in ids]
        assert found[0]["text"] == found[2]["text"] == ours.decode(ids)


def test_what_has_no_shape_is_shown_as_an_escape(run, directories):
    shown = run("encode", "--tokenizer", directories[2], "caf\x07\x1b[31me \x07")
    assert not {"\x07", "\x1b"} & set(shown)
    assert "caf\\x07" in run("encode", "--tokenizer", directories[2], "caf\x07e")


@pytest.mark.parametrize(
    ("arguments", "error", "why"),
    [
        (["encode", "a"], UsageError, "--tokenizer"),
        (["encode", "--tokenizer", "{nowhere}", "a"], MissingInput, "nowhere: No such file"),
        (["encode", "--tokenzier", "x"], UsageError, "did you mean '--tokenizer'"),
        (["encdoe"], UsageError, "did you mean 'encode'"),
        (["decode", "--tokenizer", "{here}", "300"], UsageError, "id 300: is not an id of this vocabulary, 0 to 299"),
        (["decode", "--tokenizer", "{here}", "x"], UsageError, "'x'"),
        (["encode", "--tokenizer", "{here}"], MissingInput, "standard input: holds no line"),
        (["convert", "{here}", "--output", "{here}"], CannotCreate, "exists already"),
        (["convert", "{here}", "--output", "{nowhere}", "--case", "uper"], UsageError, "uper"),
    ],
)
def test_mistakes_are_told_in_one_line(standard_input, tokenizer_directory, tmp_path, arguments, error, why):
    standard_input(b"")
    filled = [argument.format(here=tokenizer_directory, nowhere=tmp_path / "nowhere") for argument in arguments]
    with pytest.raises(error, match=why) as caught:
        command.tokenizer_main(filled)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "nowhere").exists()


def test_lines_that_cannot_be_read_are_named(standard_input, tokenizer_directory):
    standard_input(b"fine\n\xff\n")
    with pytest.raises(DamagedData, match="standard input:2: is not UTF-8"):
        command.tokenizer_main(["encode", "--tokenizer", str(tokenizer_directory)])
    standard_input(b"5 6\n5 -6\n")
    with pytest.raises(DamagedData, match="'-6' is not an id"):
        command.tokenizer_main(["decode", "--tokenizer", str(tokenizer_directory)])
    standard_input(b"", terminal=True)
    with pytest.raises(UsageError, match="TEXT: is missing"):
        command.tokenizer_main(["encode", "--tokenizer", str(tokenizer_directory)])


def test_convert_writes_another_tokenizer_of_the_same_pieces(run, directories, tmp_path):
    for number, place in enumerate(directories[1:]):
        source = load_tokenizer(place)
        same, other = tmp_path / f"same{number}", tmp_path / f"other{number}"
        assert "fingerprint is that of the source" in run("convert", place, "--output", same)
        assert load_tokenizer(same).fingerprint == source.fingerprint
        said = run("convert", same, "--output", other, "--case", "keep", "--accents", "keep")
        assert "capitals stay, accents stay; its fingerprint is not that of the source" in said
        made = load_tokenizer(other)
        assert (made.lower_case, made.keep_accents, made.vocab_size) == (False, True, source.vocab_size)
        assert made.encode("CAFÉ") != source.encode("CAFÉ") == source.encode("cafe")
        back = tmp_path / f"back{number}"
        run("convert", other, "--output", back, "--case", "lower", "--accents", "drop")
        assert load_tokenizer(back).fingerprint == source.fingerprint
        reference = tmp_path / f"reference{number}"
        assert "the original code is followed" in run(
            "convert", place, "--output", reference, "--preprocessing", "reference"
        )
        assert load_tokenizer(reference).reference


@pytest.mark.parametrize("name", ["encode", "decode", "convert"])
def test_the_example_of_the_help_works(name, run, capsys, tokenizer_directory, tmp_path, monkeypatch):
    with pytest.raises(SystemExit) as end:
        command.tokenizer_main([name, "--help"])
    assert end.value.code == 0
    words = " ".join(capsys.readouterr().out.split())
    found = re.search(r"Example: albert tokenizer (.*?) Options:", words)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spiece.model").write_bytes((tokenizer_directory / "spiece.model").read_bytes())
    example = found.group(1).replace("--tokenizer tokenizer", f"--tokenizer {tokenizer_directory}")
    run(*shlex.split(example.replace("1289", "289")))


def test_training_on_a_script_that_needs_its_accents_says_so(tokenizer, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("albert.api.text.train_on_documents", lambda *arguments: tokenizer)
    sentences = {
        "vi": "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi. ",
        "en": "All human beings are born free and equal, café and naïve. " + "No accents for a while. " * 20,
    }
    notes = {}
    for language, text in sentences.items():
        (tmp_path / f"{language}.txt").write_text(text * 20, encoding="utf-8")
        for kept in ([], ["--keep-accents"]):
            output = tmp_path / f"{language}{len(kept)}"
            assert (
                command.tokenizer_main(["train", str(tmp_path / f"{language}.txt"), "--output", str(output), *kept])
                == 0
            )
            notes[language, len(kept)] = re.findall(r"^note: .*", capsys.readouterr().err, re.MULTILINE)
    assert notes["vi", 1] == notes["en", 0] == notes["en", 1] == []
    (note,) = notes["vi", 0]
    expected = (
        r"note: 3\d\d,\d{3} accents and vowel signs are dropped of every million characters; --keep-accents keeps"
    )
    assert re.match(expected, note)
