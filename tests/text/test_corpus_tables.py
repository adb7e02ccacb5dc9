"""Parquet files, data sets that `datasets` saved, and those of the Hub: rows become documents; damage is refused."""

import json
import random
from pathlib import Path

import pytest
from tests.refusals import refusal
from tests.text.helpers import stand_in_for_hub

from albert.runtime.errors import AlbertError, DamagedData, MissingInput, Unavailable, UsageError
from albert.text.corpus import read_corpus
from albert.text.readers import CorpusReport, Reading

pa = pytest.importorskip("pyarrow", reason="needs the extra [data]: pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra [data]: pyarrow")

TEXTS = ["one", None, "zwei €", "", *(f"text {number}" for number in range(2000))]
READ = [text for text in TEXTS if text]


def table(texts=TEXTS):
    return pa.table({"id": pa.array(range(len(texts))), "text": pa.array(texts, pa.string())})


def read(path, report=None, **reading):
    return list(read_corpus([path], Reading(**reading), report=report))


@pytest.fixture
def datasets():
    datasets = pytest.importorskip("datasets", reason="needs the extra [data]: datasets")
    datasets.disable_progress_bars()
    return datasets


@pytest.fixture(params=["parquet", "saved"])
def data(request, tmp_path):
    """The texts as a Parquet file of several row groups, and as a saved data set of several files."""
    if request.param == "parquet":
        pq.write_table(table(), tmp_path / "a.parquet", row_group_size=700)
        return tmp_path / "a.parquet"
    request.getfixturevalue("datasets").Dataset(table()).save_to_disk(tmp_path / "a", num_shards=3)
    return tmp_path / "a"


def test_every_row_is_a_document(data):
    report, progress = CorpusReport(), []
    assert list(read_corpus([data], report=report, advance=progress.append)) == READ
    assert report.dropped == {"null": 1, "empty": 1}
    assert (report.documents_in, report.documents) == (len(TEXTS), len(READ))
    assert sum(progress) == report.sources[0].bytes > 0
    (data.parent / "b.txt").write_text("last")
    assert read(data.parent) == [*READ, "last"]


def test_wrong_column_is_refused(data):
    with refusal(DamagedData, "'body'", "--text-field"):
        read(data, text_field="body")
    with refusal(DamagedData, "'id'", "int64"):
        read(data, text_field="id")


def test_source_that_changes_while_it_is_read_is_refused(data):
    documents = read_corpus([data])
    next(documents)
    file = data if data.is_file() else data / "state.json"
    file.write_bytes(file.read_bytes() + b" ")
    with refusal(DamagedData, "changed"):
        list(documents)


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "binary", "large_binary", "dictionary"])
def test_every_type_of_text_is_read(tmp_path, kind):
    type_ = pa.dictionary(pa.int32(), pa.string()) if kind == "dictionary" else getattr(pa, kind)()
    column = pa.array(["one", None, "zwei \0 €"], pa.string()).cast(type_)
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == ["one", "zwei \0 €"]


def test_bad_utf8_in_a_row_is_refused_or_skipped(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array([b"one", b"\xff", b"three"])}), path)
    with refusal(DamagedData, "a.parquet:2"):
        read(path)
    assert read(path, bad_utf8="skip") == ["one", "three"]


def test_only_the_text_column_is_read(tmp_path):
    """Damage in another column does not matter."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["one"] * 10, "other": ["other"] * 10}), path, use_dictionary=False)
    other = pq.read_metadata(path).row_group(0).column(1)
    with open(path, "r+b") as file:
        file.seek(other.data_page_offset)
        file.write(b"\xff" * other.total_compressed_size)
    assert read(path) == ["one"] * 10
    with refusal(DamagedData, "Parquet"):
        read(path, text_field="other")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet, though long enough", b"PAR1" + bytes(40) + b"PAR1"])
def test_invalid_parquet_file_is_refused(tmp_path, content):
    (tmp_path / "a.parquet").write_bytes(content)
    with refusal(DamagedData, "a.parquet"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize("seed", range(4))
def test_damage_raises_one_line_or_is_harmless(data, seed):
    """Files that are cut, have flipped bits, or hold noise."""
    numbers = random.Random(seed)
    files = [data] if data.is_file() else sorted(data.iterdir())
    for _ in range(30):
        file = numbers.choice(files)
        original = file.read_bytes()
        damaged = bytearray(original)
        match numbers.randrange(3):
            case 0:
                del damaged[numbers.randrange(len(damaged)) :]
            case 1:
                for _ in range(3):
                    damaged[numbers.randrange(len(damaged))] ^= 1 << numbers.randrange(8)
            case 2:
                damaged[:] = numbers.randbytes(numbers.randrange(80))
        file.write_bytes(damaged)
        try:
            assert all(isinstance(text, str) for text in read(data))
        except AlbertError as error:
            assert "\n" not in str(error)
        file.write_bytes(original)


# ---- saved by `datasets` -------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path, datasets):
    split = datasets.Dataset(table())
    datasets.DatasetDict(train=split, test=split).save_to_disk(tmp_path / "a")
    return tmp_path / "a"


def test_file_cut_between_two_batches_is_refused(saved):
    file = next((saved / "train").glob("*.arrow"))
    with open(file, "rb") as stream:
        pa.ipc.open_stream(stream).read_next_batch()
        end = stream.tell()
    file.write_bytes(file.read_bytes()[:end])
    assert len(list(pa.ipc.open_stream(file.read_bytes()))) == 1  # pyarrow notices nothing
    with refusal(DamagedData):
        read(saved / "train")


@pytest.mark.parametrize(
    "state",
    [
        "[]",
        "{}",
        '{"_data_files": [{}]}',
        '{"_data_files": [{"filename": "../../other.arrow"}]}',
        '{"_data_files": [{"filename": 3}]}',
        '{"_data_files": 3}',
        '{"_data_files": [], "_indices_data_files": [{"filename": "x"}]}',
    ],
)
def test_invalid_state_is_refused(saved, state):
    (saved / "train" / "state.json").write_text(state)
    with refusal(DamagedData, "state.json"):
        read(saved / "train")


def test_one_of_several_splits_must_be_named(saved):
    with refusal(UsageError, "test, train", "a/test"):
        read(saved)
    assert read(saved / "train") == READ
    next((saved / "train").glob("*.arrow")).unlink()
    with refusal(MissingInput, "data-00000-of-00001.arrow"):
        read(saved / "train")


# ---- on the Hub ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["parquet", "jsonl"])
def hub(request, tmp_path, monkeypatch, datasets):
    """A folder in place of owner/name on the Hub, with two configurations; returns the list of requests."""
    folder = tmp_path / "repository"
    for config in ("english", "german"):
        (folder / config).mkdir(parents=True)
        if request.param == "parquet":
            pq.write_table(table(), folder / config / "train.parquet")
        else:
            lines = [json.dumps({"text": text, "id": number}) + "\n" for number, text in enumerate(TEXTS)]
            (folder / config / "train.jsonl").write_text("".join(lines))
    return stand_in_for_hub(monkeypatch, datasets, folder, ["english", "german"])


def test_hub_data_set_is_read_at_one_commit(hub):
    report = CorpusReport()
    address = "hf://owner/name/english@v1.0:train"
    assert read(Path(address), report) == READ
    assert hub == [("owner/name", "v1.0"), ("owner/name", "english", "0123abc")]
    assert report.noted == {f"data set read at commit 0123abc: {address}": 1}
    assert report.sources[0].name == address


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("hf://owner/name/english:tarin", "tarin"),
        ("hf://owner/name/klingon:train", "klingon"),
        ("hf://owner/name:train", "english"),
    ],
)
def test_unknown_split_or_configuration_is_named(hub, address, reason):
    with refusal(UsageError, address, reason):
        read(Path(address))


def test_hub_is_unavailable_without_network(datasets):
    with refusal(Unavailable, "hf://owner/name:train", "HF_HUB_OFFLINE") as error:
        read(Path("hf://owner/name:train"))
    assert error.value.exit_code == 69


def test_hub_files_of_other_formats_are_refused(hub, monkeypatch):
    from albert.text import arrow_files

    monkeypatch.setattr(arrow_files, "DATASET_FORMATS", ("csv",))
    with refusal(UsageError, "csv"):
        read(Path("hf://owner/name/english:train"))
