"""The text of a Wikipedia article without its markup; needs the library `mwparserfromhell`.

What is no prose goes: templates, tables, references, formulas, galleries, files, categories, links to other
languages, and headings with nothing below them. A paragraph, a heading, an item of a list is a line each.
"""

import re
from collections.abc import Set as AbstractSet

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Node, Tag, Text, Wikilink
from mwparserfromhell.wikicode import Wikicode

NO_PROSE = re.compile(
    "categorytree|ce|chem|gallery|graph|hiero|imagemap|inputbox|mapframe|maplink|math|ref|references|score|section|"
    "source|syntaxhighlight|table|templatedata|templatestyles|timeline"
)
"""Tags whose content is none."""
BLOCKS = re.compile("blockquote|br|center|dd|div|dl|dt|hr|li|ol|p|poem|ul")
"""Tags that begin and end a line."""
FILES_AND_CATEGORIES: AbstractSet[str] = frozenset(("file", "image", "media", "category"))
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z-]+)?|simple")
_HEADING = "\x02"  # begins a line, before its level; XML cannot hold the character
_LEFT_OVER = re.compile(
    r"__[A-Z]+__|'{2,}|</?(?:b|big|br|center|div|font|i|li|nowiki|p|ref|small|span|su[bp]|t[dhr]|u|ul)\b[^<>]*>"
)
"""Switches, and quotes and tags that nothing closes."""
_CRUMBS = (
    (re.compile(r"\(\s*[;,:][;,:\s]*"), "("),
    (re.compile(r"[\s;,:]*[;,:]\s*\)"), ")"),
    (re.compile(r" ?\(\s*\)"), ""),
)


def plain_text(markup: str, namespaces: AbstractSet[str] = FILES_AND_CATEGORIES) -> str:
    """The prose of an article.

    Args:
        markup: its wikitext.
        namespaces: what links begin with that show a file or name a category, in small letters; of a Wikipedia in
            another language its own words too.
    """
    lines = [" ".join(line.split()) for line in _rendered(mwparserfromhell.parse(markup), namespaces).split("\n")]
    return "\n".join(_without_empty_sections([line for line in map(_tidy, lines) if line]))


def _rendered(code: Wikicode | None, namespaces: AbstractSet[str]) -> str:
    return "".join(_shown(node, namespaces) for node in code.nodes) if code is not None else ""


def _shown(node: Node, namespaces: AbstractSet[str]) -> str:
    """What a reader sees of a node, in lines; nothing of those that are not named here."""
    if isinstance(node, Text):
        return str(node.value)
    if isinstance(node, HTMLEntity):
        return node.normalize()
    if isinstance(node, Heading):
        return f"\n{_HEADING}{node.level}{_rendered(node.title, namespaces)}\n"
    if isinstance(node, Wikilink):
        title = str(node.title).strip()
        prefix = title.partition(":")[0].strip().lower() if ":" in title else ""
        if prefix in namespaces or _LANGUAGE.fullmatch(prefix):
            return ""
        return _rendered(node.text, namespaces) if node.text is not None else title.removeprefix(":")
    if isinstance(node, ExternalLink):
        return _rendered(node.title, namespaces) if node.brackets else str(node.url)
    if isinstance(node, Tag):
        name = str(node.tag).strip().lower()
        shown = (
            ""
            if NO_PROSE.fullmatch(name) or node.wiki_markup in ("*", "#", ":", ";")
            else _rendered(node.contents, namespaces)
        )
        return f"\n{shown}\n" if BLOCKS.fullmatch(name) and not node.wiki_markup else shown
    return ""


def _tidy(line: str) -> str:
    """A line without what is left of markup: empty brackets, parts of tables, switches."""
    if line.startswith(("{|", "|")):
        return ""
    line = _LEFT_OVER.sub("", line)
    for crumb, instead in _CRUMBS:
        line = crumb.sub(instead, line)
    return line.strip()


def _without_empty_sections(lines: list[str]) -> list[str]:
    """The lines; of the headings those with prose before the next heading of their level or of a higher one."""
    kept: list[str] = []
    filled = 0  # headings of levels below this one would have prose
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
