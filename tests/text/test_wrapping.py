"""Hard-wrapped text: the lines of wrapped documents are joined, those of verses, lists and other layouts are not."""

import textwrap

import pytest
from tests.text.helpers import directory_content

from albert.cli.main import run
from albert.text.sentences import split_paragraphs, split_sentences
from albert.text.wrapping import LineCounts

STORY = [
    "The ferry was late again, and the people on the quay had begun to look at the clock over the ticket office as "
    "if it had been at fault. Old Marten, who had seen worse winters, sat down on his box and lit a pipe.",
    '"Will it come at all?" asked the girl.',
    '"It always comes."',
    '"You said so yesterday, and then we walked the whole way round the lake in the rain."',
    "He did not answer. A well-known voice called from the water, and a lantern swung slowly from one side of the "
    "dark to the other; then the bow of the boat pushed through the fog and touched the planks without a sound.",
    '"There," said Marten.',
    "She laughed, took the heavier of the two baskets, and was the first to step over the rope which the boy had "
    "forgotten to loosen. Nobody in the village could later say which of them had been the first to see the light.",
] * 4
GERMAN = [
    "Am Abend kam der Bote mit dem Brief, den niemand erwartet hatte, und legte ihn auf den Tisch in der Küche. Die "
    "Mutter trocknete sich die Hände ab und las ihn zweimal, bevor sie ein Wort sagte.",
    "„Nun?“, fragte der Vater.",
    "„Er kommt nicht zurück, jedenfalls nicht in diesem Jahr, und das Geld für die Überfahrt hat er verliehen.“",
    "Draußen schlug ein Fensterladen gegen die Wand, und im Stall wurden die Pferde unruhig, weil der Sturm aus "
    "Westen stärker wurde und das Dach der Scheune zu knarren begann.",
] * 5
POLISH = [
    "— Nie wiem, czy zdążymy przed zmrokiem — powiedział stary leśniczy i spojrzał na chmury, które zbierały się nad "
    "doliną od samego rana.",
    "— Zdążymy.",
    "Poszli więc ścieżką wzdłuż strumienia, a pies biegł przodem i co chwila oglądał się za siebie, jak gdyby chciał "
    "sprawdzić, czy nikt się nie zgubił wśród mokrych paproci.",
] * 6
CHINESE = [
    "老人坐在河边，看着水里的月亮，想起了很多年以前的那个夏天。那时候村子里还没有桥，人们要过河，就得等他的船，有时候要等整整一个下午。",
    "“你还记得吗？”她问。",
    "他点了点头，没有说话，只是把手里的石子一颗一颗地扔进河里，听着它们落水的声音，仿佛那声音能把时间带回来一样。",
] * 4


def fill(paragraph, width, indent=""):
    return textwrap.fill(paragraph, width, initial_indent=indent, break_long_words=False, break_on_hyphens=False)


def justify(paragraph, width):
    """Fill lines to both margins: blanks are doubled from the left, and once more, until the width is reached."""
    lines = fill(paragraph, width).split("\n")
    for at, line in enumerate(lines[:-1]):
        words = line.split(" ")
        for extra in range(width - len(line)):
            words[extra % (len(words) - 1)] += " "
        lines[at] = " ".join(words)
    return "\n".join(lines)


LAYOUTS = {
    "blank lines": lambda texts, width: "\n\n".join(fill(text, width) for text in texts),
    "Windows": lambda texts, width: "\r\n\r\n".join(fill(text, width).replace("\n", "\r\n") for text in texts),
    "indented": lambda texts, width: "\n".join(fill(text, width, "    ") for text in texts),
    "a tab": lambda texts, width: "\n".join(fill(text, width, "\t") for text in texts),
    "double spaced": lambda texts, width: "\n\n".join(fill(text, width).replace("\n", "\n\n") for text in texts),
    "no blank lines": lambda texts, width: "\n".join(fill(text, width) for text in texts),
    "justified": lambda texts, width: "\n\n".join(justify(text, width) for text in texts),
    "all indented": lambda texts, width: textwrap.indent("\n\n".join(fill(text, width) for text in texts), "      "),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("texts", "language"), [(STORY, "en"), (GERMAN, "de"), (POLISH, "pl")], ids=["en", "de", "pl"])
def test_wrapped_text_has_the_sentences_of_the_paragraphs(texts, language, layout):
    for width in (60, 72, 90):
        counts = LineCounts()
        wrapped = LAYOUTS[layout](texts, width)
        sentences = [" ".join(sentence.split()) for sentence in split_sentences(wrapped, language, counts=counts)]
        expected = split_sentences("\n".join(texts), language)
        if layout in ("no blank lines", "double spaced"):  # the end of a paragraph cannot always be seen
            ends = {sentence[-12:] for sentence in expected}
            assert all(sentence[-12:] in ends for sentence in sentences)
        else:
            assert sentences == expected
        assert counts.widths.total() == counts.documents == 1
        assert abs(int(next(iter(counts.widths))) - width) <= 6
        assert "lines were joined" in counts.remarks()[0]


@pytest.mark.parametrize("width", [24, 31, 40])
def test_chinese_is_joined_without_blanks(width):
    lines = []
    for text in CHINESE:
        while text:
            end = width
            while text[end : end + 1] in tuple("，。？”"):
                end += 1
            lines.append(text[:end])
            text = text[end:]
        lines.append("")
    assert split_paragraphs("\n".join(lines)) == CHINESE


def test_stray_lines_do_not_hide_the_margin():
    wrapped = LAYOUTS["blank lines"](STORY, 70).split("\n\n")
    wrapped.insert(3, "https://example.org/" + "long/" * 40)
    wrapped.insert(9, STORY[0] + " " + STORY[4])
    wrapped.insert(12, "                    THE FERRY                    17")
    paragraphs = split_paragraphs("\n\n".join(wrapped))
    assert set(STORY) <= set(paragraphs)
    assert len(paragraphs) == len(STORY) + 3


def test_verses_lists_and_contents_beside_prose_stay_apart():
    verses = ["O little boat upon the mere,", "The reeds are white, the night is near,", "And who will row thee home?"]
    contents = ["The Quay" + " ." * 22 + " 7", "The Lake" + " ." * 21 + " 19"]
    items = ["two ropes", "one lantern, green", "bread for three days"]
    prose = LAYOUTS["blank lines"](STORY, 64).split("\n\n")
    blocks = [*prose, *("\n".join(lines) for lines in (verses, contents, items))]
    paragraphs = split_paragraphs("\n\n".join(blocks))
    assert paragraphs == [*STORY, *verses, *contents, *items]


def test_words_divided_at_the_margin_are_whole_again():
    divided = "A lan-\ntern of well-\nknown make, and a pre-\nand a post-war bas\u00ad\nket."
    text = LAYOUTS["blank lines"](STORY, 60) + "\n\n" + divided
    assert split_paragraphs(text, "yes")[-1] == "A lantern of well-known make, and a pre- and a post-war basket."


VERSES = ["The woods are lovely, dark and deep,", "But I have promises to keep,", "And miles to go before I sleep"]
PROGRAM = ["def area(shape):", "    if shape.kind == 'circle':", "        return 3.14 * shape.radius", "    raise"]
GROCERIES = ["Äpfel und Birnen", "Kartoffeln aus dem Keller", "Brot", "Zwiebeln, Knoblauch und Kräuter", "Mehl"]
NOT_WRAPPED = {
    "a paragraph a line": STORY,
    "a sentence a line": split_sentences("\n".join(STORY)),
    "no full stops": [sentence.rstrip('.?"') for sentence in split_sentences("\n".join(STORY))],
    "verses": VERSES * 20,
    "words": " ".join(STORY).split(),
    "a log": [f"2026-03-{day:02} 08:1{day % 10} request {day * 977} took {day * 31 % 17} ms" for day in range(1, 60)],
    "a program": PROGRAM * 20,
    "Base64": ["qfx" * 20] * 40,
    "a list of nouns": GROCERIES * 12,
    "Chinese titles": ["河边的老人" * (1 + number % 5) for number in range(40)],
}


@pytest.mark.parametrize("kind", NOT_WRAPPED)
def test_other_lines_are_not_joined(kind):
    lines = NOT_WRAPPED[kind]
    counts = LineCounts()
    assert split_paragraphs("\n".join(lines), counts=counts) == [line.strip() for line in lines]
    assert not counts.widths
    assert bool(counts.remarks()) == (kind not in ("a paragraph a line", "a sentence a line"))


def test_the_command_joins_says_so_and_obeys(tmp_path, tokenizer_directory, capsys):
    folder = tmp_path / "books"
    folder.mkdir()
    (folder / "a.txt").write_text(LAYOUTS["indented"](STORY, 72))
    (folder / "b.txt").write_text("\n".join(STORY))
    (folder / "c.txt").write_text("\n".join(NOT_WRAPPED["words"]))
    command = ["prepare", folder, "--tokenizer", tokenizer_directory, "--workers", "1", "--held-out", "0"]
    for choice in ("auto", "yes", "no"):
        assert run([*map(str, command), "--output", str(tmp_path / choice), "--wrapped", choice]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1 of 3 documents with line breaks are wrapped at about 7" in said
    assert "of the lines of 1 document end no sentence" in said
    assert directory_content(tmp_path / "auto" / "train") != directory_content(tmp_path / "no" / "train")


def test_joined_lines_cannot_be_sentences(tmp_path, tokenizer_directory, capsys):
    (tmp_path / "a.txt").write_text("One.\nTwo.")
    command = ["prepare", tmp_path / "a.txt", "--tokenizer", tokenizer_directory, "--output", tmp_path / "data"]
    assert run([*map(str, command), "--wrapped", "yes", "--sentences-as-lines"]) == 2
    assert "--sentences-as-lines" in capsys.readouterr().err


def test_python_reports_the_same(tmp_path, tokenizer_directory):
    import albert

    (tmp_path / "a.txt").write_text(LAYOUTS["blank lines"](STORY, 72))
    corpus = [str(tmp_path / "a.txt")]
    result = albert.prepare(corpus, tokenizer=tokenizer_directory, output=tmp_path / "data", workers=1)
    assert "lines were joined" in str(result)
    assert result.report.lines.documents == 1
