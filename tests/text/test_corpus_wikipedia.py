"""Wikipedia dumps: the prose of articles is read; other pages and markup are dropped and counted."""

import bz2
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

from albert.runtime.errors import DamagedData
from albert.text.corpus import read_corpus
from albert.text.readers import CorpusReport, Reading

pytest.importorskip("mwparserfromhell", reason="needs the extra [wikipedia]: mwparserfromhell")

SITE = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">
  <siteinfo><sitename>Wikipedia</sitename><namespaces>
    <namespace key="-2" case="first-letter">Medium</namespace>
    <namespace key="0" case="first-letter" />
    <namespace key="1" case="first-letter">Diskussion</namespace>
    <namespace key="6" case="first-letter">Datei</namespace>
    <namespace key="14" case="first-letter">Kategorie</namespace>
  </namespaces></siteinfo>
"""


def page(title, text, namespace=0, redirect=False, model="wikitext", revisions=1):
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    revision = f"<revision><id>1</id><model>{model}</model><text xml:space='preserve'>{escaped}</text></revision>"
    to = '<redirect title="Elsewhere" />' if redirect else ""
    return f"<page><title>{title}</title><ns>{namespace}</ns><id>7</id>{to}{revision * revisions}</page>\n"


def dump(path, *pages, end="</mediawiki>"):
    data = (SITE + "".join(pages) + end).encode()
    path.write_bytes(bz2.compress(data) if path.suffix == ".bz2" else data)
    return path


def read(path, report=None, **reading):
    return list(read_corpus([path], Reading(**reading), report=report))


def prose(markup):
    from albert.text.wikipedia_reader import plain_text

    return plain_text(markup)


def test_articles_are_read_and_other_pages_counted(tmp_path):
    path = dump(
        tmp_path / "dewiki-pages-articles.xml.bz2",
        page("Ada", "'''Ada''' war [[Mathematiker|Mathematikerin]]. [[Datei:Ada.jpg|mini|Ein Bild]] Über alles."),
        page("Lovelace", "#REDIRECT [[Ada]]", redirect=True),
        page("Diskussion:Ada", "Stimmt das?", namespace=1),
        page("Daten", "{}", model="json"),
        page("Leer", "{{Vorlage}} [[Kategorie:Leere]]"),
        page("Berg", "Ein Berg."),
    )
    report = CorpusReport()
    assert read(path, report) == ["Ada war Mathematikerin. Über alles.", "Ein Berg."]
    assert report.dropped == {"redirect": 1, "not an article": 1, "not wikitext": 1, "empty": 1}
    assert report.documents_in == report.documents + sum(report.dropped.values()) == 6
    assert report.bytes_in == report.bytes + sum(report.dropped_bytes.values())
    assert report.dropped_bytes["redirect"] == len("#REDIRECT [[Ada]]")
    assert report.dropped_bytes["markup"] > 50


def test_multistream_dump_is_read(tmp_path):
    parts = [SITE, page("A", "One."), page("B", "Two."), "</mediawiki>"]
    path = tmp_path / "pages-articles-multistream.xml.bz2"
    path.write_bytes(b"".join(bz2.compress(part.encode()) for part in parts))
    assert read(path) == ["One.", "Two."]


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("'''Bold''' and ''italic'' [[link]]s, [[target|shown]].", "Bold and italic links, shown."),
        ("A fact.<ref>{{cite web|x}}</ref><ref name='a'/> Another.", "A fact. Another."),
        ("Ada ({{IPA|x}}; born 1815) lived.", "Ada (born 1815) lived."),
        ("Ada ({{IPA|x}}) lived&nbsp;well &amp; long.", "Ada lived well & long."),
        ("{{Infobox|name={{nested|a}}}}\nProse.", "Prose."),
        ("[[File:A.jpg|thumb|A [[photo]]]]\n[[Category:B]]\n[[fr:C]]\n[[zh-min-nan:D]]\nProse.", "Prose."),
        ("In [[CSI: Miami]], [[War: A Story|a story]] and [[de:Haus]].", "In CSI: Miami, a story and ."),
        ("See [[:Category:B]] and [[wikt:word|a word]].", "See Category:B and a word."),
        ("{| class=wikitable\n! head\n|-\n| cell\n|}\nProse.", "Prose."),
        ("<gallery>\nFile:A.jpg|A\n</gallery><math>x^2</math>Prose.<!-- no -->", "Prose."),
        ("Read [http://x.y this text] or http://z.w.", "Read this text or http://z.w."),
        ("* one\n* two\n# three\n: four", "one\ntwo\nthree\nfour"),
        ("One.<br/>Two.\n\nThree.", "One.\nTwo.\nThree."),
        ("<blockquote>Said.</blockquote>Done. __NOTOC__", "Said.\nDone."),
        ("<nowiki>[[not a link]]</nowiki> text", "[[not a link]] text"),
        ("== A ==\nProse.\n== Empty ==\n{{x}}\n== B ==\n=== C ===\nMore.", "A\nProse.\nB\nC\nMore."),
        ("Prose.\n== References ==\n=== Notes ===\n{{reflist}}", "Prose."),
        ("Dr. Smith went home.\nHe said: “Stop!” – and slept.", "Dr. Smith went home.\nHe said: “Stop!” – and slept."),
    ],
)
def test_markup_becomes_prose(markup, expected):
    assert prose(markup) == expected


@pytest.mark.parametrize(
    "markup", ["one {{two", "one [[two", "one '''two", "<div>one two", "one }} two ]]", "== one two"]
)
def test_broken_markup_keeps_its_words(markup):
    assert {"one", "two"} <= set(prose(markup).replace("{{", " ").replace("[[", " ").split())


@given(st.text(alphabet=list("[]{}|='*#:<>/! \n&;ab"), max_size=120))
def test_prose_has_no_blank_lines(markup):
    text = prose(markup)
    assert "\n\n" not in text and text == text.strip()


@pytest.mark.parametrize(
    ("content", "subjects"),
    [
        (b"", "XML"),
        (b"no XML", "XML"),
        (b"<html></html>", "'html'"),
        (SITE.encode(), "XML"),
        (SITE.encode() + b"<page><title>\xff", "XML"),
        (b'<?xml version="1.0" encoding="klingon"?><mediawiki/>', "XML encoding"),
        (b'<?xml version="1.0" encoding="utf-32"?><mediawiki/>', "XML"),
        (
            b'<!DOCTYPE m [<!ENTITY a "aaaaaaaaaa">'
            + b"".join(b'<!ENTITY %c "%s">' % (98 + i, b"&%c;" % (97 + i) * 10) for i in range(9))
            + b"]><mediawiki>&j;</mediawiki>",
            "XML amplification",
        ),
        (SITE.encode() + page("A", "One.", revisions=2).encode() + b"</mediawiki>", "'A' 2 revisions"),
        (SITE.encode() + page("A", "One.", revisions=0).encode() + b"</mediawiki>", "'A' 0 revisions"),
    ],
)
def test_invalid_dump_is_refused(tmp_path, content, subjects):
    path = tmp_path / "a.xml"
    path.write_bytes(content)
    with refusal(DamagedData, path, *subjects.split()):
        read(path)


def test_page_without_an_end_is_refused(tmp_path):
    path = tmp_path / "a.xml"
    path.write_bytes(SITE.encode() + b"<page><title>A</title><x>" + b"x" * 300_000)
    with refusal(DamagedData, path):
        read(path, max_document_bytes=1000)


def test_pages_are_freed_after_they_are_read(tmp_path):
    from albert.text import wikipedia_reader
    from albert.text.corpus import find_corpus_files
    from albert.text.readers import open_corpus_file

    path = dump(tmp_path / "a.xml", *(page(f"P{number}", "One.") for number in range(50)))
    file = find_corpus_files([path]).files[0]
    pages = weakref.WeakSet()
    with open_corpus_file(file) as (content, _):
        for number, element in enumerate(wikipedia_reader._elements(content.read, file, 10_000)):
            if element.tag.endswith("page"):
                pages.add(element)
                assert len(pages) <= 2, number
