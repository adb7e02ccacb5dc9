"""Parquet files, data sets that `datasets` saved, and those of the Hub: rows to documents, and damage to one line."""

import json
import random
import sys
from pathlib import Path

import pytest

from albert.runtime.errors import AlbertError, DamagedData, MissingInput, Unavailable, UsageError
from albert.text.corpus import read_corpus
from albert.text.readers import CorpusReport, Reading

pa = pytest.importorskip("pyarrow", reason="needs the extra [data]: pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra [data]: pyarrow")

TEXTS = ["one", None, "zwei €", "", *(f"text {number}" for number in range(2000))]
READ = [text for text in TEXTS if text]


def table(texts=TEXTS, kind=None):
    return pa.table({"id": pa.array(range(len(texts))), "text": pa.array(texts, kind or pa.string())})


def read(path, report=None, **reading):
    return [(d.text, d.source) for d in read_corpus([path], Reading(**reading), report=report)]


@pytest.fixture(params=["parquet", "saved"])
def data(request, tmp_path):
    """The texts as a Parquet file of several groups of rows, and as a saved data set of several files."""
    if request.param == "parquet":
        pq.write_table(table(), tmp_path / "a.parquet", row_group_size=700)
        return tmp_path / "a.parquet"
    datasets = pytest.importorskip("datasets", reason="needs the extra [data]: datasets")
    datasets.disable_progress_bars()
    datasets.Dataset(table()).save_to_disk(tmp_path / "a", num_shards=3)
    return tmp_path / "a"


def test_every_row_is_a_document_with_its_number(data):
    report, progress = CorpusReport(), []
    found = list(read_corpus([data], report=report, advance=progress.append))
    assert [document.text for document in found] == READ
    assert [document.source for document in found[:3]] == [f"{data.name}:{row}" for row in (1, 3, 5)]
    assert found[-1].source == f"{data.name}:{len(TEXTS)}"
    assert report.dropped == {"null": 1, "empty": 1}
    assert (report.documents_in, report.documents) == (len(TEXTS), len(READ))
    assert sum(progress) == report.sources[0].bytes > 0
    (data.parent / "b.txt").write_text("last")
    beside = read(data.parent)
    assert (len(beside), beside[-1]) == (len(READ) + 1, ("last", "b.txt"))


def test_another_column_is_named_by_the_user(data):
    with pytest.raises(DamagedData, match=r"has no column 'body'; known: id, text \(--text-field\)"):
        read(data, text_field="body")
    with pytest.raises(DamagedData, match="column 'id' is int64, text is expected"):
        read(data, text_field="id")


def test_a_source_that_changes_while_it_is_read_is_refused(data):
    found = read_corpus([data])
    next(found)
    changed = data if data.is_file() else data / "state.json"
    changed.write_bytes(changed.read_bytes() + b" ")
    with pytest.raises(DamagedData, match="changed while it was read; run again"):
        list(found)


@pytest.mark.parametrize(
    "kind",
    ["string", "large_string", "string_view", "binary", "large_binary", "dictionary"],
)
def test_text_of_every_type_is_text(tmp_path, kind):
    type_ = pa.dictionary(pa.int32(), pa.string()) if kind == "dictionary" else getattr(pa, kind)()
    column = pa.array(["one", None, "zwei \0 €"], pa.string()).cast(type_)
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    assert [text for text, _ in read(tmp_path / "a.parquet")] == ["one", "zwei \0 €"]


def test_bad_utf8_in_a_row_is_named_replaced_or_skipped(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array([b"one", b"\xff", b"three"])}), path)
    with pytest.raises(DamagedData, match=r"a\.parquet:2: is not UTF-8: byte 0"):
        read(path)
    assert read(path, bad_utf8="replace")[1] == ("\ufffd", "a.parquet:2")
    assert [text for text, _ in read(path, bad_utf8="skip")] == ["one", "three"]


def test_only_the_column_of_the_text_is_read(tmp_path):
    """Bytes of another column may be damaged without anybody noticing."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["one"] * 10, "other": ["other"] * 10}), path, use_dictionary=False)
    other = pq.read_metadata(path).row_group(0).column(1)
    with open(path, "r+b") as file:
        file.seek(other.data_page_offset)
        file.write(b"\xff" * other.total_compressed_size)
    assert [text for text, _ in read(path)] == ["one"] * 10
    with pytest.raises(DamagedData, match="damaged Parquet file"):
        read(path, text_field="other")


def test_what_is_no_parquet_file_is_said_to_be_damaged(tmp_path):
    for content in (b"", b"PAR1", b"no parquet at all, though long enough", b"PAR1" + bytes(40) + b"PAR1"):
        (tmp_path / "a.parquet").write_bytes(content)
        with pytest.raises(DamagedData, match=r"a\.parquet: damaged Parquet file \(.*\); fetch or write it again"):
            read(tmp_path / "a.parquet")


@pytest.mark.parametrize("seed", range(4))
def test_damage_is_one_line_and_never_a_crash(data, seed):
    """Cut, with flipped bits or full of noise, a file gives an error of ours or texts."""
    numbers = random.Random(seed)
    parts = [data] if data.is_file() else sorted(data.iterdir())
    for _ in range(30):
        part = numbers.choice(parts)
        whole = part.read_bytes()
        damaged = bytearray(whole)
        match numbers.randrange(3):
            case 0:
                del damaged[numbers.randrange(len(damaged)) :]
            case 1:
                for _ in range(3):
                    damaged[numbers.randrange(len(damaged))] ^= 1 << numbers.randrange(8)
            case 2:
                damaged[:] = numbers.randbytes(numbers.randrange(80))
        part.write_bytes(damaged)
        try:
            assert all(isinstance(text, str) for text, _ in read(data))
        except AlbertError as error:
            assert "\n" not in str(error)
        part.write_bytes(whole)


# ---- saved by `datasets` -------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    datasets = pytest.importorskip("datasets", reason="needs the extra [data]: datasets")
    datasets.disable_progress_bars()
    part = datasets.Dataset(table())
    datasets.DatasetDict(train=part, test=part).save_to_disk(tmp_path / "a")
    return tmp_path / "a"


def test_a_file_that_is_cut_between_two_batches_is_cut(saved):
    part = next((saved / "train").glob("*.arrow"))
    with open(part, "rb") as stream:
        reader = pa.ipc.open_stream(stream)
        reader.read_next_batch()
        end = stream.tell()
    part.write_bytes(part.read_bytes()[:end])
    assert len(list(pa.ipc.open_stream(part.read_bytes()))) == 1  # nothing amiss for the library
    with pytest.raises(DamagedData, match="it ends too early"):
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
def test_a_state_that_is_none_is_refused(saved, state):
    (saved / "train" / "state.json").write_text(state)
    with pytest.raises(DamagedData, match=r"state\.json"):
        read(saved / "train")


def test_of_several_splits_one_must_be_named(saved):
    with pytest.raises(UsageError, match=r"several splits: test, train; name one: .*a/test"):
        read(saved)
    assert [text for text, _ in read(saved / "train")] == READ
    next((saved / "train").glob("*.arrow")).unlink()
    with pytest.raises(MissingInput, match=r"data-00000-of-00001\.arrow: No such file"):
        read(saved / "train")


# ---- on the Hub ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["parquet", "jsonl"])
def hub(request, tmp_path, monkeypatch):
    """A folder that stands for owner/name on the Hub, with two configurations."""
    datasets = pytest.importorskip("datasets", reason="needs the extra [data]: datasets")
    from albert.text import arrow_files as hub_dataset

    datasets.disable_progress_bars()
    folder = tmp_path / "repository"
    card = "---\nconfigs:\n"
    for config in ("english", "german"):
        (folder / config).mkdir(parents=True)
        if request.param == "parquet":
            pq.write_table(table(), folder / config / "train.parquet")
        else:
            lines = [json.dumps({"text": text, "id": number}) + "\n" for number, text in enumerate(TEXTS)]
            (folder / config / "train.jsonl").write_text("".join(lines))
        card += f"- config_name: {config}\n  data_files:\n  - split: train\n    path: {config}/*\n"
    (folder / "README.md").write_text(card + "---\n")
    asked, load = [], datasets.load_dataset_builder

    class Commit:
        sha = "0123abc"

    class Hub:
        def dataset_info(self, name, revision=None):
            asked.append((name, revision))
            return Commit()

    def from_the_folder(name, config, revision):
        asked.append((name, config, revision))
        return load(str(folder), config)

    monkeypatch.setattr(hub_dataset, "HfApi", Hub)
    monkeypatch.setattr(datasets, "load_dataset_builder", from_the_folder)
    return asked


def test_a_data_set_of_the_hub_is_streamed_at_one_commit(hub):
    report = CorpusReport()
    address = "hf://owner/name/english@v1.0:train"
    found = read(Path(address), report)
    assert [text for text, _ in found] == READ
    assert found[0][1] == f"{address}:1"
    assert hub == [("owner/name", "v1.0"), ("owner/name", "english", "0123abc")]
    assert report.noted == {f"data set read at commit 0123abc: {address}": 1}
    assert report.sources[0].name == address


@pytest.mark.parametrize(
    ("address", "error", "reason"),
    [
        ("hf://owner/name/english:tarin", UsageError, "Bad split: tarin. Available splits: .'train'."),
        ("hf://owner/name/klingon:train", UsageError, "klingon"),
        ("hf://owner/name:train", UsageError, "english"),
    ],
)
def test_what_a_data_set_has_not_is_named(hub, address, error, reason):
    with pytest.raises(error, match=rf"{address}: cannot be read .*{reason}.*write hf://"):
        read(Path(address))


def test_without_a_network_the_hub_is_not_available():
    pytest.importorskip("datasets", reason="needs the extra [data]: datasets")
    with pytest.raises(Unavailable, match="hf://owner/name:train: HF_HUB_OFFLINE is set; download it") as error:
        read(Path("hf://owner/name:train"))
    assert error.value.exit_code == 69


def test_files_that_are_no_tables_of_text_are_refused(hub, monkeypatch):
    from albert.text import arrow_files as hub_dataset

    monkeypatch.setattr(hub_dataset, "DATASET_FORMATS", ("csv",))
    with pytest.raises(UsageError, match="holds (parquet|json) files; the formats that are read are csv"):
        read(Path("hf://owner/name/english:train"))


def test_a_library_that_is_missing_is_named_with_its_extra(tmp_path, monkeypatch):
    pq.write_table(table(), tmp_path / "a.parquet")
    monkeypatch.delitem(sys.modules, "albert.text.arrow_files", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(Unavailable, match=r"pyarrow.* is not installed; pip install 'albert-encoder\[data\]'"):
        read(tmp_path / "a.parquet")
