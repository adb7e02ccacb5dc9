"""The commands `albert tokenizer` and `albert prepare`."""

import io
import json
import re
import shlex

import pytest

import albert
from albert.cli.main import run as run_albert
from albert.text.tokenizer_loading import load_tokenizer

TEXT = "  Bating, ``CAFÉ'' 2010, ½\u200b [MASK] 中文"


@pytest.fixture
def run(capsys):
    """Run `albert tokenizer` and return its standard output."""

    def run(*arguments):
        assert run_albert(["tokenizer", *map(str, arguments)]) == 0
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


@pytest.fixture(params=["", "spiece.model", "wordpiece"])
def path(request, tokenizer_directory, wordpiece, tmp_path_factory):
    """A tokenizer of each kind."""
    if request.param != "wordpiece":
        return tokenizer_directory / request.param
    directory = tmp_path_factory.mktemp("wordpiece")
    wordpiece.save(directory)
    return directory


def test_encode_prints_a_table(run, path):
    tokenizer = load_tokenizer(path)
    ids, offsets = tokenizer.encode_with_offsets(TEXT)
    output = run("encode", "--tokenizer", path, TEXT)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if "│" in line]
    expected = [[number, *span] for number, span in zip(ids, offsets, strict=True)]
    assert [[int(cell) for cell in row[1:4]] for row in rows] == expected
    assert [row[4] for row in rows] == [TEXT[start:end] for start, end in offsets]
    unknown = ids.count(tokenizer.unk_id)
    counts = f"{len(TEXT)} characters, {len(ids)} tokens" + f", {unknown} of them unknown" * bool(unknown)
    assert output.splitlines()[-1] == counts


def test_encode_prints_json(run, path, standard_input):
    tokenizer = load_tokenizer(path)
    standard_input(f"{TEXT}\r\n\nsecond line".encode())
    entries = [json.loads(line) for line in run("encode", "--tokenizer", path, "--json").splitlines()]
    assert [entry["text"] for entry in entries] == [TEXT, "", "second line"]
    for entry in entries:
        ids, offsets = tokenizer.encode_with_offsets(entry["text"])
        assert entry["ids"] == ids
        assert entry["offsets"] == [list(span) for span in offsets]
        assert entry["tokens"] == [tokenizer.piece(number) for number in ids]
    from_arguments = run("encode", "--tokenizer", path, "--json", TEXT, "").splitlines()
    assert [json.loads(line) for line in from_arguments] == entries[:2]


def test_decode_reverses_encode(run, path, standard_input):
    tokenizer = load_tokenizer(path)
    ids = tokenizer.encode("bating, foha")
    framed = [tokenizer.cls_id, *ids, tokenizer.sep_id]
    for numbers in (ids, framed):
        assert run("decode", "--tokenizer", path, *numbers) == tokenizer.decode(ids) + "\n"
    output = run("decode", "--tokenizer", path, "--special", *framed)
    assert output.startswith("[CLS] ") and output.endswith(" [SEP]\n")
    standard_input(f"{ids}\n\n{' '.join(map(str, framed))}\n".encode())
    entries = [json.loads(line) for line in run("decode", "--tokenizer", path, "--json").splitlines()]
    assert [entry["ids"] for entry in entries] == [ids, [], framed]
    assert entries[0]["tokens"] == [tokenizer.piece(number) for number in ids]
    assert entries[0]["text"] == entries[2]["text"] == tokenizer.decode(ids)


def test_control_characters_are_printed_as_escapes(run, path):
    assert not {"\x07", "\x1b"} & set(run("encode", "--tokenizer", path, "caf\x07\x1b[31me \x07"))


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("The captain of the ship saw a storm.\n" * 30, ()),
        ("".join(f"Row {number} of a longer text, number {number * number}.\n" for number in range(400)), ()),
        ("猫は海を見た。犬は山を見た。\n" * 20, ("--language", "ja", "--keep-accents")),
        ("Ein Schiff im Sturm, ganz ohne Kapitän.\n" * 9, ("--keep-case", "--vocab-size", "8000")),
        ("a b c d e f g h\n" * 5, ("--vocab-size", "9")),
    ],
)
def test_a_small_text_is_refused_with_the_number_of_pieces_to_write(text, flags, run, tmp_path, refused):
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    typed = ["tokenizer", "train", tmp_path / "text.txt", "--output", tmp_path / "out", *flags]
    asked = flags[-1] if "--vocab-size" in flags else "30000"
    said = refused(typed, 78, f"vocabulary of {int(asked):,} pieces")
    size = re.search(r"write --vocab-size (\d+) or (?:less|more)", said)[1]
    assert not (tmp_path / "out").exists()
    plain = [word for word in typed[1:] if word not in ("--vocab-size", asked)]
    assert f"{int(size):,} pieces" in run(*plain, "--vocab-size", size)
    given = {"vocab_size": int(asked), "keep_case": "--keep-case" in flags, "keep_accents": "--keep-accents" in flags}
    given |= {"language": "ja"} if "ja" in flags else {}
    with pytest.raises(albert.AlbertError, match=f"write vocab_size={size} or (less|more)"):
        albert.tokenizer.train(tmp_path / "text.txt", output=tmp_path / "other", **given)


@pytest.mark.parametrize(
    ("arguments", "code", "subjects"),
    [
        (["encode", "a"], 2, "--tokenizer"),
        (["encode", "--tokenizer", "{nowhere}", "a"], 66, "nowhere"),
        (["encode", "--tokenzier", "x"], 2, "did you mean --tokenizer x?"),
        (["encdoe"], 2, "'encode'"),
        (["decode", "--tokenizer", "{here}", "300"], 2, "300 299"),
        (["decode", "--tokenizer", "{here}", "x"], 2, "'x'"),
        (["encode", "--tokenizer", "{here}"], 66, "standard input"),
        (["convert", "{here}", "--output", "{here}"], 73, "tokenizer"),
        (["convert", "{here}", "--output", "{nowhere}", "--keep-accents=maybe"], 2, "maybe"),
    ],
)
def test_errors_are_one_line(standard_input, tokenizer_directory, tmp_path, refused, arguments, code, subjects):
    standard_input(b"")
    filled = [argument.format(here=tokenizer_directory, nowhere=tmp_path / "nowhere") for argument in arguments]
    refused(["tokenizer", *filled], code, *subjects.split())
    assert not (tmp_path / "nowhere").exists()


def test_errors_name_the_line_of_standard_input(standard_input, tokenizer_directory, refused):
    encode = ["tokenizer", "encode", "--tokenizer", tokenizer_directory]
    standard_input(b"fine\n\xff\n")
    refused(encode, 65, "standard input:2")
    standard_input(b"5 6\n5 -6\n")
    refused(["tokenizer", "decode", "--tokenizer", tokenizer_directory], 65, -6)
    standard_input(b"", terminal=True)
    refused(encode, 2, "TEXT")


def test_convert_changes_the_settings_of_a_tokenizer(run, path, tmp_path):
    source = load_tokenizer(path)
    same, other, back = (tmp_path / name for name in ("same", "other", "back"))
    assert "fingerprint is that of the source" in run("convert", path, "--output", same)
    assert load_tokenizer(same).fingerprint == source.fingerprint
    output = run("convert", same, "--output", other, "--keep-case", "--keep-accents")
    assert "capitals stay, accents stay; its fingerprint is not that of the source" in output
    converted = load_tokenizer(other)
    assert (converted.lower_case, converted.keep_accents, converted.vocab_size) == (False, True, source.vocab_size)
    assert converted.encode("CAFÉ") != source.encode("CAFÉ") == source.encode("cafe")
    run("convert", other, "--output", back, "--keep-case=false", "--keep-accents=false")
    assert load_tokenizer(back).fingerprint == source.fingerprint


@pytest.mark.parametrize("name", ["encode", "decode", "convert"])
def test_example_of_the_help_works(name, run, capsys, tokenizer_directory, tmp_path, monkeypatch):
    with pytest.raises(SystemExit) as end:
        run_albert(["tokenizer", name, "--help"])
    assert end.value.code == 0
    match = re.search(r"Example: albert tokenizer (.*?) Options:", " ".join(capsys.readouterr().out.split()))
    assert match is not None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spiece.model").write_bytes((tokenizer_directory / "spiece.model").read_bytes())
    example = match[1].replace("--tokenizer tokenizer", f"--tokenizer {tokenizer_directory}")
    run(*shlex.split(example.replace("1289", "289")))


VIETNAMESE = "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi. "
ENGLISH = "All human beings are born free and equal, café and naïve. " + "No accents for a while. " * 20


@pytest.mark.parametrize(
    ("text", "flags", "note"),
    [
        (
            VIETNAMESE,
            [],
            r"albert: note: of every million characters, 3\d\d,\d{3} accents and vowel signs are dropped",
        ),
        (VIETNAMESE, ["--keep-accents"], None),
        (ENGLISH, [], None),
    ],
)
def test_training_warns_if_many_accents_are_dropped(tokenizer, tmp_path, capsys, monkeypatch, text, flags, note):
    monkeypatch.setattr("albert.text.sentencepiece.train_on_documents", lambda *arguments: tokenizer)
    (tmp_path / "a.txt").write_text(text * 20, encoding="utf-8")
    args = ["tokenizer", "train", str(tmp_path / "a.txt"), "--output", str(tmp_path / "words"), *flags]
    assert run_albert(args) == 0
    notes = re.findall(r"^albert: note: .*", capsys.readouterr().err, re.MULTILINE)
    assert len(notes) == (note is not None)
    assert all(re.match(note, printed) for printed in notes)


DOTLESS = (
    r"albert: note: I becomes i, not ı, and İ becomes {}: letters are not lower-cased by the rules of {}; keep "
    r"capitals, or "
)


@pytest.mark.parametrize(
    ("language", "flags", "dotted"),
    [
        ("tr", [], "i"),
        ("az", ["--keep-accents"], "i and a combining dot"),
        ("tr-TR", [], "i"),
        ("az_Latn", [], "i"),
        ("crh", [], "i"),
        ("tr", ["--keep-case"], None),
        ("tg", [], None),
        ("en", [], None),
    ],
)
def test_a_note_says_that_dotless_letters_are_lower_cased_as_in_english(tmp_path, capsys, language, flags, dotted):
    """`tokenizer train` and `prepare`; the ids are those of transformers, which knows no languages."""
    text = "IĞDIR ve İZMİR ıslak, ilk ve son. " + "Bu bir deneme metnidir, başka bir şey değildir. "
    (tmp_path / "a.txt").write_text(text * 30, encoding="utf-8")
    corpus = [str(tmp_path / "a.txt"), "--language", language]
    vocabulary = ["--output", str(tmp_path / "words"), "--vocab-size", "42", *flags]
    assert run_albert(["tokenizer", "train", *corpus, *vocabulary]) == 0
    prepared = ["--output", str(tmp_path / "corpus"), "--tokenizer", str(tmp_path / "words")]
    trained_note = capsys.readouterr().err
    assert run_albert(["prepare", *corpus, *prepared]) == 0
    for printed in (trained_note, capsys.readouterr().err):
        notes = [line for line in printed.splitlines() if "lower-cased" in line]
        assert len(notes) == (dotted is not None)
        assert all(note.startswith(DOTLESS.format(dotted, language)) for note in notes)
    ids = load_tokenizer(tmp_path / "words")
    if dotted is not None:
        assert ids.encode("IĞDIR") == ids.encode("iğdir") != ids.encode("ığdır")
