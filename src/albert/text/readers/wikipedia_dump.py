"""Documents of a Wikipedia dump (`...-pages-articles.xml.bz2`, whole or in parts); needs `mwparserfromhell`.

Articles only: redirects, talk, templates, files and the like are dropped and counted, and so are the bytes of markup.
"""

from collections.abc import Callable, Iterator
from typing import cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from albert.runtime.errors import DamagedData
from albert.text.readers.corpus_files import CorpusFile
from albert.text.readers.long_documents import documents_of
from albert.text.readers.reading import CorpusReport, Document, Reading, size_in_bytes
from albert.text.readers.unpacking import CHUNK, open_corpus_file
from albert.text.readers.wikitext import FILES_AND_CATEGORIES, plain_text

REDIRECT, OTHER_NAMESPACE, NO_WIKITEXT, MARKUP = "redirect", "not an article", "not wikitext", "markup"
_FILE, _CATEGORY, _MEDIA = "6", "14", "-2"


def read(
    file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
) -> Iterator[Document]:
    """The articles of a dump (see `albert.text.readers.reading.Reader`); the source of each ends with its title."""
    namespaces: set[str] = set(FILES_AND_CATEGORIES)
    with open_corpus_file(file) as (content, raw):
        for element in _elements(content.read, file, reading.max_record_bytes):
            name = _name(element)
            if name == "namespace" and element.get("key") in (_FILE, _CATEGORY, _MEDIA):
                namespaces.add((element.text or "").lower())
            elif name == "page":
                yield from _article(element, namespaces, file, reading, report)
                reached(raw.tell())


def _elements(read_bytes: Callable[[int], bytes], file: CorpusFile, limit: int) -> Iterator[Element]:
    """The elements of a dump as they end; a page is forgotten after its turn.

    Raises:
        DamagedData: no XML, no dump, or a page that does not end.
    """
    parser = XMLPullParser(("start", "end"))
    root: Element | None = None
    size = 0
    try:
        while data := read_bytes(CHUNK):
            parser.feed(data)
            size += len(data)
            for event, element in cast(Iterator[tuple[str, Element]], parser.read_events()):
                if root is None:
                    root = element
                    if _name(root) != "mediawiki":
                        raise DamagedData(file.path, f"is no Wikipedia dump: its root is {_name(root)!r}")
                if event == "end":
                    yield element
                    if _name(element) == "page":
                        root.clear()
                        size = 0
            if size > limit:
                raise DamagedData(file.path, f"no page ends within {limit / 1e6:,.0f} MB", "fetch it again")
        parser.close()
    except (ParseError, LookupError, ValueError) as error:
        raise DamagedData(file.path, f"damaged XML ({error})", "fetch it again") from error


def _article(
    page: Element, namespaces: set[str], file: CorpusFile, reading: Reading, report: CorpusReport
) -> Iterator[Document]:
    children: dict[str, list[Element]] = {}
    for child in page:
        children.setdefault(_name(child), []).append(child)
    title, namespace = (children[name][0].text or "" if name in children else "" for name in ("title", "ns"))
    revisions = children.get("revision", [])
    if len(revisions) != 1:
        why = f"the page {title!r} has {len(revisions)} revisions, one is expected"
        raise DamagedData(file.path, why, "take the dump called pages-articles")
    said = {_name(child): child.text or "" for child in revisions[0]}
    markup = said.get("text", "")
    size = size_in_bytes(markup)
    if "redirect" in children:
        report.drop(REDIRECT, size)
    elif namespace != "0":
        report.drop(OTHER_NAMESPACE, size)
    elif said.get("model", "wikitext") != "wikitext":
        report.drop(NO_WIKITEXT, size)
    else:
        text = plain_text(markup, namespaces)
        report.drop(MARKUP, max(size - size_in_bytes(text), 0), documents=0)
        yield from documents_of(text, f"{file.name}:{title}", reading, report)


def _name(element: Element) -> str:
    """The tag without the version of the format."""
    return element.tag.rpartition("}")[2]
