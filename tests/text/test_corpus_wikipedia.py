"""Wikipedia: Parquet files, local and on the Hub; WikiExtractor's JSON lines; dumps are refused with what to do."""

import bz2
import json

import pytest
from tests.refusals import refusal
from tests.text.helpers import stand_in_for_hub

from albert.cli.main import run
from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.text.corpus import read_corpus
from albert.text.readers import CorpusReport
from albert.text.shards import TokenCorpus

ARTICLES = {
    "Ada Lovelace": "Ada Lovelace war eine Mathematikerin.\n\nLeben\n\nSie lebte in London & schrieb.",
    "Brocken": "Der Brocken ist ein Berg im Harz. Er ist 1141 m hoch.",
    "Weiterleitung": "",
}
READ = [text for text in ARTICLES.values() if text]
DUMP = b'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="de">\n  <page/>\n</mediawiki>\n'


def rows(first_id=1):
    """The columns of wikimedia/wikipedia, which FineWiki has too."""
    for number, (title, text) in enumerate(ARTICLES.items(), start=first_id):
        yield {"id": str(number), "url": f"https://de.wikipedia.org/wiki/{title}", "title": title, "text": text}


def write_parquet(path):
    pa = pytest.importorskip("pyarrow", reason="needs the extra [data]: pyarrow")
    path.parent.mkdir(parents=True)
    pa.parquet.write_table(pa.Table.from_pylist(list(rows())), path)


def extracted():
    """As `wikiextractor --json` writes it, one article a line."""
    return "".join(json.dumps({"id": row["id"], "revid": "7", **row}) + "\n" for row in rows()).encode()


def test_a_folder_of_parquet_files_is_read(tmp_path):
    pytest.importorskip("pyarrow.parquet", reason="needs the extra [data]: pyarrow")
    write_parquet(tmp_path / "20231101.de" / "train-00000-of-00002.parquet")
    report = CorpusReport()
    assert list(read_corpus([tmp_path], report=report)) == READ
    assert report.dropped == {"empty": 1}


def test_the_hub_has_the_same_documents(tmp_path, monkeypatch, tokenizer_directory, capsys):
    datasets = pytest.importorskip("datasets", reason="needs the extra [data]: datasets")
    for folder in ("local", "repository"):
        write_parquet(tmp_path / folder / "20231101.de" / "train-00000-of-00001.parquet")
    requests = stand_in_for_hub(monkeypatch, datasets, tmp_path / "repository", ["20231101.de"])
    address = "hf://wikimedia/wikipedia/20231101.de:train"
    for corpus, output in ((address, "from_hub"), (str(tmp_path / "local"), "from_folder")):
        command = ["prepare", corpus, "--tokenizer", str(tokenizer_directory), "--language", "de", "--workers", "1"]
        assert run([*command, "--output", str(tmp_path / output)]) == 0
    assert ("wikimedia/wikipedia", "20231101.de", "0123abc") in requests
    assert f"data set read at commit 0123abc: {address}" in " ".join(capsys.readouterr().out.split())
    tokens = []
    for name in ("from_hub", "from_folder"):
        corpus = TokenCorpus.open(tmp_path / name)
        tokens.append(corpus.read(0, corpus.n_tokens).tolist())
    assert tokens[0] == tokens[1] != []


@pytest.mark.parametrize("name", ["AA/wiki_00", "AA/wiki_00.bz2", "dewiki.txt", "dewiki.jsonl"])
def test_json_lines_of_wikiextractor_are_known_by_their_content(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bz2.compress(extracted()) if path.suffix == ".bz2" else extracted())
    report = CorpusReport()
    assert list(read_corpus([tmp_path], report=report)) == READ
    assert report.dropped == {"empty": 1}
    assert (report.documents_in, report.files) == (3, 1)
    assert list(read_corpus([path])) == READ


def test_a_broken_line_is_named(tmp_path):
    (tmp_path / "wiki_00").write_bytes(extracted() + b'{"id": "4", "te')
    with refusal(DamagedData, "wiki_00:4", "JSON"):
        list(read_corpus([tmp_path]))


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("dewiki-20260901-pages-articles.xml", DUMP, UsageError),
        ("dewiki-20260901-pages-articles.xml.bz2", bz2.compress(DUMP), UsageError),
        ("dewiki-20260901-pages-articles1.xml-p1p297012.bz2", bz2.compress(DUMP), UsageError),
        ("dewiki.txt", DUMP, DamagedData),
        ("wiki_00", b'<doc id="7" url="x" title="Ada">\nAda\n\nAda war hier.\n\n</doc>\n', DamagedData),
        ("wiki_00.bz2", bz2.compress(b'<doc id="7" url="x" title="Ada">\n</doc>\n'), DamagedData),
        ("dewiki.txt", b'\n<doc id="7" url="x" title="Ada">\n</doc>\n', DamagedData),
    ],
)
def test_a_dump_is_refused_with_what_to_do(tmp_path, name, content, error):
    path = tmp_path / name
    path.write_bytes(content)
    what_to_do = ("hf://wikimedia/wikipedia/20231101.de:train", "--json")
    with refusal(error, name, *what_to_do):
        list(read_corpus([path]))
    with refusal(MissingInput if error is UsageError else error, *what_to_do):
        list(read_corpus([tmp_path]))
