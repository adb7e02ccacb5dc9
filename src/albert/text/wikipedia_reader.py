"""Reader of a Wikipedia dump (`...-pages-articles.xml.bz2`, complete or in parts) without markup.

Only articles are used; other pages, and the bytes of markup, are dropped and counted. Needs `mwparserfromhell`."""

import re
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Node, Tag, Text, Wikilink
from mwparserfromhell.wikicode import Wikicode

from albert.runtime.errors import DamagedData
from albert.text.readers import (
    CHUNK,
    Advance,
    CorpusFile,
    CorpusReport,
    RawDocuments,
    Reading,
    open_corpus_file,
    utf8_length,
)

# --------------------------------------------------------------------------------------------------------------------
# The prose of an article, without templates, tables, references, formulas, galleries, files, categories, links to other
# languages and headings of empty sections. Each paragraph, heading and list item is a line.

NON_PROSE_TAGS = re.compile(
    "categorytree|ce|chem|gallery|graph|hiero|imagemap|inputbox|mapframe|maplink|math|ref|references|score|section|"
    "source|syntaxhighlight|table|templatedata|templatestyles|timeline"
)
BLOCK_TAGS = re.compile("blockquote|br|center|dd|div|dl|dt|hr|li|ol|p|poem|ul")
FILES_AND_CATEGORIES: AbstractSet[str] = frozenset(("file", "image", "media", "category"))
_OTHER_WIKI = re.compile(r"([a-z]{2,3}(-[a-z-]+)?|simple):\S")
"""As editors write links to other languages; "CSI: Miami" is an article."""
_HEADING = "\x02"  # begins the line of a heading, before its level; no character of XML
_LEFT_OVER = re.compile(
    r"__[A-Z]+__|'{2,}|</?(?:b|big|br|center|div|font|i|li|nowiki|p|ref|small|span|su[bp]|t[dhr]|u|ul)\b[^<>]*>"
)
"""Switches, and quotes and tags without an end."""
_REMNANTS = (
    (re.compile(r"\(\s*[;,:][;,:\s]*"), "("),
    (re.compile(r"[\s;,:]*[;,:]\s*\)"), ")"),
    (re.compile(r" ?\(\s*\)"), ""),
)


def plain_text(markup: str, namespaces: AbstractSet[str] = FILES_AND_CATEGORIES) -> str:
    """Return the prose of an article.

    Args:
        namespaces: the lower-cased prefixes of links to files and categories, in English and the language of the wiki.
    """
    lines = [" ".join(line.split()) for line in _render(mwparserfromhell.parse(markup), namespaces).split("\n")]
    return "\n".join(_without_empty_sections([line for line in map(_tidy, lines) if line]))


def _render(code: Wikicode | None, namespaces: AbstractSet[str]) -> str:
    return "".join(_render_node(node, namespaces) for node in code.nodes) if code is not None else ""


def _render_node(node: Node, namespaces: AbstractSet[str]) -> str:
    """Return the visible text of a node; empty for other types than these."""
    if isinstance(node, Text):
        return str(node.value)
    if isinstance(node, HTMLEntity):
        return node.normalize()
    if isinstance(node, Heading):
        return f"\n{_HEADING}{node.level}{_render(node.title, namespaces)}\n"
    if isinstance(node, Wikilink):
        title = str(node.title).strip()
        prefix = title.partition(":")[0].strip().lower() if ":" in title else ""
        if prefix in namespaces or _OTHER_WIKI.match(title):
            return ""
        return _render(node.text, namespaces) if node.text is not None else title.removeprefix(":")
    if isinstance(node, ExternalLink):
        return _render(node.title, namespaces) if node.brackets else str(node.url)
    if isinstance(node, Tag):
        name = str(node.tag).strip().lower()
        is_hidden = NON_PROSE_TAGS.fullmatch(name) or node.wiki_markup in ("*", "#", ":", ";")
        text = "" if is_hidden else _render(node.contents, namespaces)
        return f"\n{text}\n" if BLOCK_TAGS.fullmatch(name) and not node.wiki_markup else text
    return ""


def _tidy(line: str) -> str:
    """Remove remnants of markup from a line: empty brackets, parts of tables, switches."""
    if line.startswith(("{|", "|")):
        return ""
    line = _LEFT_OVER.sub("", line)
    for pattern, replacement in _REMNANTS:
        line = pattern.sub(replacement, line)
    return line.strip()


def _without_empty_sections(lines: list[str]) -> list[str]:
    """Remove headings without prose before the next heading of the same or a higher level."""
    kept: list[str] = []
    filled = 0  # a heading of a lower level number has prose
    for line in reversed(lines):
        if not line.startswith(_HEADING):
            kept.append(line)
            filled = 7
            continue
        level, title = int(line[1]), line[2:].strip()
        if level < filled and title:
            kept.append(title)
        filled = min(filled, level)
    return kept[::-1]


REDIRECT, OTHER_NAMESPACE, NO_WIKITEXT, MARKUP = "redirect", "not an article", "not wikitext", "markup"
_FILE, _CATEGORY, _MEDIA = "6", "14", "-2"


def read(file: CorpusFile, reading: Reading, report: CorpusReport, reached: Advance) -> RawDocuments:
    """Read the articles of a dump (see `albert.text.readers.Reader`)."""
    namespaces: set[str] = set(FILES_AND_CATEGORIES)
    with open_corpus_file(file) as (content, raw):
        for element in _elements(content.read, file, reading.max_record_bytes):
            name = _name(element)
            if name == "namespace" and element.get("key") in (_FILE, _CATEGORY, _MEDIA):
                namespaces.add((element.text or "").lower())
            elif name == "page":
                yield from _article(element, namespaces, file, report)
                reached(raw.tell())


def _elements(read_bytes: Callable[[int], bytes], file: CorpusFile, limit: int) -> Iterator[Element]:
    """Yield the elements of a dump as they end; a page is freed after it is used."""
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
                        raise DamagedData(file.path, f"is not a Wikipedia dump: its root is {_name(root)!r}")
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


def _article(page: Element, namespaces: set[str], file: CorpusFile, report: CorpusReport) -> RawDocuments:
    children: dict[str, list[Element]] = {}
    for child in page:
        children.setdefault(_name(child), []).append(child)
    title, namespace = (children[name][0].text or "" if name in children else "" for name in ("title", "ns"))
    revisions = children.get("revision", [])
    if len(revisions) != 1:
        why = f"the page {title!r} has {len(revisions)} revisions, one is expected"
        raise DamagedData(file.path, why, "take the dump called pages-articles")
    fields = {_name(child): child.text or "" for child in revisions[0]}
    markup = fields.get("text", "")
    size = utf8_length(markup)
    if "redirect" in children:
        report.drop(REDIRECT, size)
    elif namespace != "0":
        report.drop(OTHER_NAMESPACE, size)
    elif fields.get("model", "wikitext") != "wikitext":
        report.drop(NO_WIKITEXT, size)
    else:
        text = plain_text(markup, namespaces)
        report.drop(MARKUP, max(size - utf8_length(text), 0), documents=0)
        yield text


def _name(element: Element) -> str:
    """Return the tag without its namespace."""
    return element.tag.rpartition("}")[2]
