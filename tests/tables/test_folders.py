"""Tables that are not one plain file: folders, saved data sets, zip archives."""

import json
import zipfile
from pathlib import Path

import pytest

import albert
from albert.cli.main import run
from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.tasks.single_label import SingleLabel

MODEL = Path(__file__).parents[2] / "models" / "tiny"
TEXTS = ["good film", "bad film", "long film", "dull book", "fine book", "poor song"]


def reading(train: Path, **options):
    """How a table is read, with itself as the development set."""
    files = {"train": train, "dev": train, **options}
    result = albert.finetune(**files, model=MODEL)
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
    assert read.task.target == SingleLabel(("neg", "pos"), "label")
    rows = read.tables["train"].rows
    assert [row.fields["text"] for row in rows] == [
        *TEXTS[::2],
        *TEXTS[1::2],
        "schöne Grüße",
    ]  # the empty file is left out
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
    settings = ["--model", str(MODEL), "steps=1", "solve_head=false", "--output", str(run_folder)]
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
        reading(tmp_path / "imdb" / "train", reading={"columns": ("text", "label")})
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
        assert read.task.target == SingleLabel(("neg", "pos"), "label")
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
    assert read.task.target == SingleLabel(("a", "b"), "label")
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


def test_a_table_with_a_file_of_label_names_beside_it(tmp_path):
    tagged = "".join(f"{text.split()[0]} O\nRome B-x\n\n" for text in TEXTS)
    (tmp_path / "text.txt").write_text(tagged)
    (tmp_path / "labels.txt").write_text("O\nB-x\n")
    assert reading(tmp_path / "text.txt").read.table_task.kind == "token-classification"


def test_what_is_no_file_says_what_to_write(tmp_path):
    with pytest.raises(MissingInput, match="hf download"):
        reading(Path("stanfordnlp/imdb"))
    with pytest.raises(MissingInput, match="joined"):
        reading(tmp_path / "*.parquet")
    (tmp_path / "a.csv").write_text(CSV)
    with pytest.raises(UsageError, match="a file of your own is given as train"):
        albert.finetune(str(tmp_path / "a.csv"), train=tmp_path / "a.csv", model=MODEL)


def test_only_a_folder_that_can_be_read_is_suggested(tmp_path, refused):
    write_folders(tmp_path / "imdb" / "test")
    for name in ("a-run", "imdb/a-run"):
        (tmp_path / name / "model").mkdir(parents=True)
        (tmp_path / name / "model" / "config.json").write_text("{}")
    train = ["finetune", "--model", MODEL, "--train"]
    assert "such as" not in refused([*train, tmp_path], 2, "holds folders of folders", "name a file of rows")
    refused([*train, tmp_path / "imdb"], 2, f"such as {tmp_path / 'imdb/test'}")
    (tmp_path / "runs" / "folds" / "fold-1" / "model").mkdir(parents=True)
    (tmp_path / "runs" / "folds" / "fold-1" / "results.json").write_text("{}")
    said = refused(["predict", MODEL, "--task", "fill-mask", "--input", tmp_path / "runs"], 2, "folds")
    assert "such as" not in said
