"""Tables that are not one plain file: folders, saved data sets, zip archives, labels in a file of their own."""

import json
import zipfile
from pathlib import Path

import pytest

import albert
from albert.cli.main import run
from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.tasks.kinds.classification import Choice

MODEL = Path(__file__).parents[3] / "models" / "tiny"
TEXTS = ["good film", "bad film", "long film", "dull book", "fine book", "poor song"]


def reading(train: Path, **options):
    """How a table is read, with itself as the development set."""
    files = {"train": train, "dev": train, **options}
    result = albert.finetune(**files, model=MODEL, statistics_only=True)
    assert result.reading is not None and result.reading.read is not None
    return result.reading


def notes_of(read) -> str:
    return "\n".join(read.raw["train"].notes)


def write_folders(folder: Path, ending: str = ".txt") -> Path:
    for number, text in enumerate(TEXTS):
        path = folder / ("pos" if number % 2 else "neg") / f"{number}_7{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return folder


@pytest.mark.parametrize("ending", [".txt", "", ".7c53"])
def test_folder_for_each_label(tmp_path, ending):
    folder = write_folders(tmp_path / "train", ending)
    (folder / "unsup").mkdir()
    (folder / "unsup" / f"0{ending}").write_text("no label")
    (folder / "empty").mkdir()
    (folder / ".DS_Store").write_bytes(b"\0")
    (folder / "urls.txt").write_text("beside the folders")
    (folder / "pos" / f"9{ending}").write_text("")
    (folder / "pos" / f"8{ending}").write_bytes("schöne Grüße".encode("latin-1"))
    read = reading(folder).read
    assert read.task.target == Choice(("neg", "pos"), "label")
    rows = read.tables["train"].rows
    assert [row.fields["text"] for row in rows] == [*TEXTS[::2], *TEXTS[1::2], "schöne Grüße", ""]
    assert rows[0].fields["file"] == f"neg/0_7{ending}"
    notes = notes_of(read)
    for said in ("8 files", "not UTF-8: read as cp1252", "1 of the files is empty", "1 text in 'unsup'"):
        assert said in notes
    assert "1 file beside" in notes and "1 folder without a text" in notes and "1 file with a hidden name" in notes


def test_files_beside_txt_are_counted(tmp_path):
    folder = write_folders(tmp_path / "train")
    (folder / "pos" / "scores.feat").write_text("9 0:9")
    assert "1 file with another ending than .txt" in notes_of(reading(folder).read)


def test_folders_through_train_evaluate_and_predict(tmp_path, capsys):
    write_folders(tmp_path / "imdb" / "train")
    write_folders(tmp_path / "imdb" / "test")
    run_folder = tmp_path / "run"
    files = ["--train", str(tmp_path / "imdb" / "train"), "--dev", str(tmp_path / "imdb" / "test")]
    settings = ["--model", str(MODEL), "--steps", "1", "--no-solve-head", "--output", str(run_folder)]
    assert run(["finetune", *files, *settings]) == 0
    capsys.readouterr()
    assert run(["evaluate", "--model", str(run_folder), "--dev", str(tmp_path / "imdb" / "test")]) == 0
    assert "6 files with a text each" in " ".join(capsys.readouterr().out.split())
    output = tmp_path / "answers.jsonl"
    assert run(["predict", str(run_folder), "--input", str(tmp_path / "imdb" / "test"), "--output", str(output)]) == 0
    answers = [json.loads(line) for line in output.read_text().splitlines()]
    assert [answer["file"] for answer in answers][:2] == ["neg/0_7.txt", "neg/2_7.txt"]
    assert run(["predict", str(run_folder), "--input", str(tmp_path / "imdb" / "train" / "pos")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_folders_that_are_refused(tmp_path):
    write_folders(tmp_path / "imdb" / "train")
    with pytest.raises(UsageError, match="imdb/train"):
        reading(tmp_path / "imdb")
    with pytest.raises(UsageError, match="LABEL"):
        reading(tmp_path / "imdb" / "train" / "pos")
    (tmp_path / "tables").mkdir()
    with pytest.raises(MissingInput, match="without texts"):
        reading(tmp_path / "tables")
    (tmp_path / "tables" / "train.csv").write_text("text,label\na,b\n")
    with pytest.raises(UsageError, match=r"tables/train\.csv"):
        reading(tmp_path / "tables")
    with pytest.raises(UsageError, match="is a folder"):
        reading(tmp_path / "imdb" / "train", columns=("text", "label"))
    (tmp_path / "imdb" / "train" / "pos" / "picture.txt").write_bytes(b"PNG\0")
    with pytest.raises(DamagedData, match="pos/picture.txt"):
        reading(tmp_path / "imdb" / "train")


def test_saved_data_sets(tmp_path):
    datasets = pytest.importorskip("datasets")
    names = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    rows = {"text": TEXTS, "label": [number % 2 for number in range(len(TEXTS))]}
    saved = datasets.Dataset.from_dict(rows, features=names)
    saved.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict({"test": saved, "train": saved}).save_to_disk(tmp_path / "splits")
    for folder in (tmp_path / "saved", tmp_path / "splits" / "train"):
        read = reading(folder).read
        assert read.task.target == Choice(("neg", "pos"), "label")
        assert [row.fields["text"] for row in read.tables["train"].rows] == TEXTS
    with pytest.raises(UsageError, match="splits/train"):
        reading(tmp_path / "splits")
    arrow = next((tmp_path / "saved").glob("*.arrow"))
    arrow.write_bytes(arrow.read_bytes()[:-8])
    with pytest.raises(DamagedData, match="ends too early"):
        reading(tmp_path / "saved")


CSV = "text,label\n" + "".join(f"{text},{'ab'[number % 2]}\n" for number, text in enumerate(TEXTS))


def zipped(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), content)
    return path


def test_a_zip_with_one_table(tmp_path):
    path = zipped(tmp_path / "train.csv.zip", data__train_csv=CSV, README_md="about", MACOSX__x="")
    read = reading(path).read
    assert read.task.target == Choice(("a", "b"), "label")
    assert "data/train.csv in the archive" in notes_of(read)
    assert read.tables["train"].rows[0].where.endswith("train.csv.zip/data/train.csv:2")
    with pytest.raises(UsageError, match=r"train\.csv, test\.csv"):
        reading(zipped(tmp_path / "two.zip", train_csv=CSV, test_csv=CSV))
    with pytest.raises(UsageError, match="holds no table"):
        reading(zipped(tmp_path / "none.zip", model_bin="x"))
    content = bytearray(path.read_bytes())
    content[len("PK") + 50] ^= 255
    path.write_bytes(content)
    with pytest.raises(DamagedData, match="damaged zip file"):
        reading(path)
    path.write_bytes(content[:200])
    with pytest.raises(DamagedData, match="damaged zip file"):
        reading(path)


LABELS = "".join(f"{'ab'[number % 2]}\n" for number in range(len(TEXTS)))


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("train_text.txt", "train_labels.txt"),
        ("train.txt", "train.labels"),
        ("train.text", "train.label"),
        ("X_train.txt", "y_train.txt"),
        ("seq.in", "label"),
    ],
)
def test_texts_and_labels_in_two_files(tmp_path, name, beside):
    (tmp_path / name).write_text("\n".join(TEXTS))
    (tmp_path / beside).write_text(LABELS + "\n")
    read = reading(tmp_path / name).read
    assert read.task.target == Choice(("a", "b"), "label")
    assert [row.fields["text"] for row in read.tables["train"].rows] == TEXTS
    assert f"the labels are the lines of {beside}" in notes_of(read)
    (tmp_path / beside).write_text("a\n")
    with pytest.raises(DamagedData, match="1 lines where .* 6 lines"):
        reading(tmp_path / name)


def test_labels_beside_json_lines_and_tags_beside_texts(tmp_path):
    rows = [{"goal": text, "sol1": "a", "sol2": "b"} for text in TEXTS]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "train-labels.lst").write_text("0\n1\n" * 3)
    read = reading(tmp_path / "train.jsonl", question="goal", options=("sol1", "sol2"), label="label").read
    assert [row.fields["label"] for row in read.tables["train"].rows] == ["sol1", "sol2"] * 3
    (tmp_path / "seq.in").write_text("".join(f"{text}\n" for text in TEXTS))
    (tmp_path / "seq.out").write_text("O B-x\nO O\n" * 3)
    (tmp_path / "label").write_text(LABELS)
    read = reading(tmp_path / "seq.in", words="text", tags="tags").read
    assert read.tables["train"].rows[0].fields["tags"] == "O B-x"


def test_a_table_with_a_file_of_label_names_beside_it(tmp_path):
    tagged = "".join(f"{text.split()[0]} O\nRome B-x\n\n" for text in TEXTS)
    (tmp_path / "text.txt").write_text(tagged)
    (tmp_path / "labels.txt").write_text("O\nB-x\n")
    assert reading(tmp_path / "text.txt").read.table_task.kind == "token-classification"


def test_folder_of_brat(tmp_path):
    folder = tmp_path / "brat"
    folder.mkdir()
    for number, text in enumerate(TEXTS):
        (folder / f"{number}.txt").write_text(f"\nAnna ({text}) in Rome\n")
        end = len(text) + 12
        lines = f"T1\tPER 1 5\tAnna\nT2\tLOC {end} {end + 4}\tRome\nR1\tin Arg1:T1 Arg2:T2\n#1\tNote T1\tsic\n"
        (folder / f"{number}.ann").write_text(lines)
    (folder / "9.txt").write_text("It rains")
    with open(folder / "0.ann", "a") as file:
        file.write("T3\tFAR 1 5;20 24\tAnna Rome\n")
    read = reading(folder).read
    rows = read.tables["train"].rows
    assert len(rows) == len(TEXTS)
    assert rows[0].fields["tags"] == ("B-PER", "O", "O", "O", "O", "O", "B-LOC")
    assert "1 text without an .ann file" in notes_of(read) and "in several pieces" in notes_of(read)
    for number in range(len(TEXTS)):
        (folder / f"{number}.ann").write_text("T1\tPER 2 6\tAnna\n")
    with pytest.raises(DamagedData, match=r"0\.ann"):
        reading(folder)
    with pytest.raises(UsageError, match="/brat"):
        reading(tmp_path)
    (folder / "0.ann").write_text("T1 PER\n")
    with pytest.raises(DamagedData, match=r"0\.ann:1"):
        reading(folder)


def test_what_is_no_file_says_what_to_write(tmp_path):
    with pytest.raises(MissingInput, match="hf download"):
        reading(Path("stanfordnlp/imdb"))
    with pytest.raises(MissingInput, match="joined"):
        reading(tmp_path / "*.parquet")
    (tmp_path / "a.csv").write_text(CSV)
    with pytest.raises(UsageError, match="one file"):
        albert.finetune(str(tmp_path / "a.csv"), train=tmp_path / "a.csv", model=MODEL, statistics_only=True)
