"""Select the prose that is embedded in the package, and write it with its sources.

    python dev/scripts/make_sample.py BOOKS.jsonl.gz src/albert/commands/sample

BOOKS.jsonl.gz holds one chapter or story a line, from the Standard Ebooks repositories that `BOOKS` names,
with the fields ``id`` ("se:BOOK:CHAPTER"), ``title`` ("Author, Book - Chapter") and ``text`` (one paragraph a
line). The same input gives the same text.
"""

import argparse
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Book:
    """One repository of standardebooks, the commit of its text, and the amount to use."""

    author: str
    title: str
    repository: str
    commit: str
    kilobytes: int


# Six authors, about 430 kB of each.
BOOKS = (
    Book(
        "Jane Austen",
        "Pride and Prejudice",
        "jane-austen_pride-and-prejudice",
        "8ec1ca806088448201a95e277010ea160d3ebb48",
        215,
    ),
    Book("Jane Austen", "Emma", "jane-austen_emma", "f7cad66be3828a30f47f0c0f0f6096222fc7fe29", 215),
    Book(
        "Charles Darwin",
        "The Origin of Species",
        "charles-darwin_the-origin-of-species",
        "7c13c26dbac394a5fbe31c21b0403a8688686ba3",
        430,
    ),
    Book(
        "Charles Dickens",
        "Oliver Twist",
        "charles-dickens_oliver-twist",
        "3db6d21bca9bf582a401275e4bdef5a29c175921",
        145,
    ),
    Book(
        "Charles Dickens",
        "A Tale of Two Cities",
        "charles-dickens_a-tale-of-two-cities",
        "afac92bfe9b48d69a651891c6c93cddd504f6dcf",
        145,
    ),
    Book(
        "Charles Dickens",
        "David Copperfield",
        "charles-dickens_david-copperfield",
        "b00322a0956fec6d38ff19142d7acae58cd64fe9",
        140,
    ),
    Book(
        "Arthur Conan Doyle",
        "The Adventures of Sherlock Holmes",
        "arthur-conan-doyle_the-adventures-of-sherlock-holmes",
        "23b2b6e0aa1350aaccaac91e1d0fe3bb6ed4c81f",
        430,
    ),
    Book("Herman Melville", "Moby Dick", "herman-melville_moby-dick", "f6a255003170e113bb80a33cad230154af4caef8", 430),
    Book("Mark Twain", "Roughing It", "mark-twain_roughing-it", "0942731741932425052d1c5310a3291a8b3b9554", 215),
    Book(
        "Mark Twain",
        "The Innocents Abroad",
        "mark-twain_the-innocents-abroad",
        "66cbaaa5026bc61ab24706df9f5ae2a965010d74",
        215,
    ),
)

# Shorter ones are prefaces or lists of extracts; longer ones would be a fifth of their author's share.
CHAPTER_BYTES = range(3_000, 75_000)


def chapters(books_file: Path) -> Iterator[dict[str, str]]:
    """Whole chapters of each book, from its beginning, until its share is full."""
    names = {book.repository for book in BOOKS}
    by_book: dict[str, list[dict[str, str]]] = {name: [] for name in names}
    with gzip.open(books_file, "rt", encoding="utf-8") as lines:
        for line in lines:
            chapter = json.loads(line)
            _, repository, _ = chapter["id"].split(":", 2)
            if repository in names:
                by_book[repository].append(chapter)
    for book in BOOKS:
        total = 0
        for chapter in by_book[book.repository]:
            size = len(chapter["text"].encode())
            if size not in CHAPTER_BYTES:
                continue
            if total + size // 2 > book.kilobytes * 1000:  # the share is nearer without this chapter than with it
                break
            total += size
            yield {
                "id": chapter["id"].removeprefix("se:"),
                "author": book.author,
                "title": book.title + ", " + chapter["title"].split(" - ", 1)[1],
                "text": chapter["text"],
            }


def source_page(documents: list[dict[str, str]]) -> str:
    """SOURCE.md: the origin of the text, its licence, and all chapters."""
    size = sum(len(document["text"].encode()) for document in documents)
    lines = [
        "# The embedded sample",
        "",
        f"`prose.jsonl.gz`: {len(documents)} chapters and stories by six authors, {size:,} bytes of text;",
        "fields `id`, `author`, `title`, `text` (one paragraph a line). Written by `dev/scripts/make_sample.py`.",
        "",
        "The works are in the public domain in the United States. The text is that of the [Standard Ebooks]"
        "(https://standardebooks.org) editions,",
        "which are dedicated to the public domain under [CC0 1.0]"
        "(https://creativecommons.org/publicdomain/zero/1.0/), from the commits",
        "named below. Headings, notes and images were left out, curly quotes became straight ones.",
        "",
    ]
    for book in BOOKS:
        chapters_of_book = [document for document in documents if document["id"].startswith(book.repository + ":")]
        size = sum(len(document["text"].encode()) for document in chapters_of_book)
        lines += [
            f"## {book.author}, *{book.title}*",
            "",
            f"`standardebooks/{book.repository}` @ `{book.commit}`: {len(chapters_of_book)} chapters, {size:,} bytes",
            "",
            ", ".join(f"`{document['id'].partition(':')[2]}`" for document in chapters_of_book),
            "",
        ]
    return "\n".join(lines)


def main(books_file: Path, folder: Path) -> None:
    """Write ``prose.jsonl.gz`` and ``SOURCE.md`` into the folder."""
    documents = list(chapters(books_file))
    text = "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in documents)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prose.jsonl.gz").write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    (folder / "SOURCE.md").write_text(source_page(documents), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("books", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    main(options.books, options.folder)
