"""A column holds a text or a list, and is asked for one or the other."""

import pytest

from albert.runtime.errors import DamagedData
from albert.tasks.task import Row


def test_lists_and_texts_say_the_same():
    row = Row("0", "x:1", {"a": ("p", "q r"), "b": "p | q r", "c": "p q", "d": "", "e": " "})
    assert row.texts("a", "|") == row.texts("b", "|") == ("p", "q r")
    assert row.texts("c") == ("p", "q")
    assert row.texts("d", "|") == row.texts("e") == ()


def test_what_is_not_there_is_named():
    row = Row("0", "x:1", {"words": ("p",)})
    with pytest.raises(DamagedData, match="x:1: has no column 'word'; did you mean 'words'"):
        row.texts("word")
    with pytest.raises(DamagedData, match="x:1: has a list in column 'words' where a text is expected"):
        row.text("words")
