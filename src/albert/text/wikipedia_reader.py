"""Reader of a Wikipedia dump (`...-pages-articles.xml.bz2`, complete or in parts) without markup.

Only articles are used; other pages, and the bytes of markup, are dropped and counted. Templates within a sentence are
replaced by their text where it is known (see `albert.text.wikipedia_templates`); a sentence with another one in its
middle is dropped and counted. Needs `mwparserfromhell`."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Node, Tag, Template, Text, Wikilink
from mwparserfromhell.wikicode import Wikicode

from albert.runtime.errors import DamagedData
from albert.text.readers import (
    CHUNK,
    Advance,
    CorpusFile,
    CorpusReport,
    RawDocuments,
    Reading,
    begins_with_documents,
    open_corpus_file,
    read_tagged_documents,
    utf8_length,
)
from albert.text.sentences import split_paragraph
from albert.text.wikipedia_templates import choose_variants, is_file_or_category, template_text

# --------------------------------------------------------------------------------------------------------------------
# The prose of an article, without boxes, tables, references, formulas, galleries, files, categories, links to other
# languages and headings of empty sections. Each paragraph, heading and list item is a line.

NON_PROSE_TAGS = re.compile(
    "categorytree|gallery|graph|imagemap|includeonly|inputbox|mapframe|maplink|ref|references|section|"
    "source|syntaxhighlight|table|templatedata|templatestyles|timeline"
)
BLOCK_TAGS = re.compile("blockquote|br|center|dd|div|dl|dt|hr|li|ol|p|poem|ul")
FORMULA_TAGS = re.compile("ce|chem|hiero|math|score")
"""A sentence with a formula in its middle is not used."""
_OTHER_WIKI = re.compile(r"([a-z]{2,3}(-[a-z-]+)?|simple):\S")
"""As editors write links to other languages; "CSI: Miami" is an article."""
_GAP = "\x03"  # an unknown template or a formula; no character of XML
_TABLE = ("{|", "|")
_HEADING = "\x02"  # begins the line of a heading, before its level; no character of XML
_LEFT_OVER = re.compile(
    r"__[^\W\d_a-z]+(?:_[^\W\d_a-z]+)*__|\[\[(?![^\[\]]*\]\])|\{\{(?![^{}]*\}\})|'{2,}|</?(?:b|big|br|center|div|font|i|li|nowiki|p|ref|small|span|su[bp]|t[dhr]|u|ul)\b[^<>]*>"
)
"""Switches in any language, and links, templates, quotes and tags without an end."""
_REMNANTS = (
    (re.compile(r"\(\s*[;,:][;,:\s]*"), "("),
    (re.compile(r"[\s;,:]*[;,:]\s*\)"), ")"),
    (re.compile(r" ?\(\s*\)"), ""),
)


@dataclass
class Wiki:
    """The language of a dump, its prefixes of files and categories, and counts of what was found in its articles."""

    language: str = ""
    namespaces: set[str] = field(default_factory=set)
    templates_shown: int = 0
    sentences_dropped: int = 0


def plain_text(markup: str, wiki: Wiki | None = None) -> str:
    """Return the prose of an article; counts are added in `wiki`."""
    wiki = Wiki() if wiki is None else wiki
    rendered = _render(mwparserfromhell.parse(choose_variants(markup, wiki.language)), wiki)
    lines: list[str] = []
    for line in rendered.split("\n"):
        line = " ".join(line.split())
        if _GAP in line and not line.startswith(_TABLE):
            line = _without_broken_sentences(line, wiki)
        if line.startswith(_TABLE):
            continue
        # Remnants of markup: empty brackets, parts of tables, switches.
        line = _LEFT_OVER.sub("", line)
        for pattern, replacement in _REMNANTS:
            line = pattern.sub(replacement, line)
        line = " ".join(line.split())
        if line:
            lines.append(line)
    return "\n".join(_without_empty_sections(lines))


def _render(code: Wikicode | None, wiki: Wiki) -> str:
    return "".join(_render_node(node, wiki) for node in code.nodes) if code is not None else ""


def _render_node(node: Node, wiki: Wiki) -> str:
    """Return the visible text of a node; empty for other types than these."""
    if isinstance(node, Text):
        return str(node.value)
    if isinstance(node, HTMLEntity):
        return node.normalize()
    if isinstance(node, Heading):
        return f"\n{_HEADING}{node.level}{_render(node.title, wiki)}\n"
    if isinstance(node, Wikilink):
        title = str(node.title).strip()
        label = None if node.text is None else str(node.text)
        if _OTHER_WIKI.match(title) or is_file_or_category(title, label, wiki.namespaces):
            return ""
        return _render(node.text, wiki) if node.text is not None else title.removeprefix(":")
    if isinstance(node, ExternalLink):
        return _render(node.title, wiki) if node.brackets else str(node.url)
    if isinstance(node, Tag):
        name = str(node.tag).strip().lower()
        if FORMULA_TAGS.fullmatch(name):
            return _GAP
        is_hidden = NON_PROSE_TAGS.fullmatch(name) or node.wiki_markup in ("*", "#", ":", ";")
        text = "" if is_hidden else _render(node.contents, wiki)
        return f"\n{text}\n" if BLOCK_TAGS.fullmatch(name) and not node.wiki_markup else text
    if isinstance(node, Template):
        return _render_template(node, wiki)
    return ""


def _render_template(template: Template, wiki: Wiki) -> str:
    """Return what a template shows: its text, nothing for a box or a source, a gap if that is not known."""
    named: dict[str, str] = {}
    unnamed: list[str] = []
    for parameter in template.params:
        text = " ".join(_render(parameter.value, wiki).replace(_GAP, "").split())
        name = str(parameter.name).strip()
        named[name] = text
        if not parameter.showkey:
            unnamed.append(text)
    shown = template_text(str(template.name).strip(), unnamed, named, wiki.language)
    if shown is None:
        return "" if "\n" in str(template) else _GAP
    wiki.templates_shown += shown != ""
    return shown


_MARK = rf" ?{_GAP}(?:\s*{_GAP})*"
_HARMLESS_GAPS = re.compile(
    rf"^\s*{_MARK}\s*(?=$|[^\W\d_a-z]|[*#:;'])"  # alone, or before the beginning of a sentence
    # after the end of a sentence and not before a small letter, as a note is
    rf"|(?<=[.!?…。！？।]){_MARK}(?=\s|$|[^\x00-\u024f])(?!\s*[a-zß-öø-ÿα-ωа-џ])"
    rf"|(?<=[^\s({_GAP}\u2e80-\u9fff]){_GAP}(?=[\s.,;:!?)]|$)"  # attached to a word, as a note is
    rf"|(?<=[\u2e80-\u9fff]){_GAP}(?=[。、，；：！？）]|$)"
    rf"|(?<=[(（])\s*{_MARK}\s*(?=[)）;,，；])|(?<=[(（;,:，；：])\s*{_MARK}\s*(?=[)）])"  # between brackets
)
"""Templates that are not needed to understand the sentence."""


def _without_broken_sentences(line: str, wiki: Wiki) -> str:
    """Drop the sentences with an unknown template in their middle; a heading goes as a whole."""
    line = _HARMLESS_GAPS.sub("", line)
    if _GAP not in line:
        return line
    if line.startswith(_HEADING):
        return line.replace(_GAP, "")
    parts = list(split_paragraph(line, wiki.language or "en"))
    kept = [part for part in parts if _GAP not in part]
    wiki.sentences_dropped += len(parts) - len(kept)
    return "".join(kept).strip()


def _without_empty_sections(lines: list[str]) -> list[str]:
    """Remove headings without prose before the next heading of the same or a higher level."""
    kept: list[str] = []
    filled = 0  # a heading of a lower level number has prose
    for line in reversed(lines):
        if not line.startswith(_HEADING):
            kept.append(line)
            filled = 7
            continue
        level = int(line[1])
        title = line[2:].strip()
        if level < filled and title:
            kept.append(title)
        filled = min(filled, level)
    return kept[::-1]


REDIRECT = "redirect"
OTHER_NAMESPACE = "not an article"
NO_WIKITEXT = "not wikitext"
MARKUP = "markup"
_FILE = "6"
_CATEGORY = "14"
_MEDIA = "-2"
TEMPLATES_SHOWN = "templates shown as text within a sentence"
SENTENCES_DROPPED = "sentences dropped: a formula, or a template that is not known, stands in their middle"


def read(file: CorpusFile, reading: Reading, report: CorpusReport, reached: Advance) -> RawDocuments:
    """Read the articles of a dump (see `albert.text.readers.Reader`)."""
    with open_corpus_file(file) as (content, raw):
        if begins_with_documents(content):
            yield from read_tagged_documents(file, content, raw, reading, report, reached)
            return
        wiki = Wiki()
        for element in _elements(content.read, file, reading.max_record_bytes):
            name = _name(element)
            if name == "mediawiki":
                code = element.get("{http://www.w3.org/XML/1998/namespace}lang") or ""
                wiki.language = "en" if code == "simple" else code.partition("-")[0].lower()
            elif name == "namespace" and element.get("key") in (_FILE, _CATEGORY, _MEDIA):
                wiki.namespaces.add((element.text or "").lower())
            elif name == "page":
                yield from _article(element, wiki, file, report)
                reached(raw.tell())
        for count, what in ((wiki.templates_shown, TEMPLATES_SHOWN), (wiki.sentences_dropped, SENTENCES_DROPPED)):
            if count:
                report.noted[what] += count


def _elements(read_bytes: Callable[[int], bytes], file: CorpusFile, limit: int) -> Iterator[Element]:
    """Yield the root of a dump, and its elements as they end; a page is freed after it is used."""
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
                    yield root
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


def _article(page: Element, wiki: Wiki, file: CorpusFile, report: CorpusReport) -> RawDocuments:
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
        text = plain_text(markup, wiki)
        report.drop(MARKUP, max(size - utf8_length(text), 0), documents=0)
        yield text


def _name(element: Element) -> str:
    """Return the tag without its namespace."""
    return element.tag.rpartition("}")[2]
