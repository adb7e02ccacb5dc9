"""Deliberate defects of this project's own code (defects.txt), located by what they change, wherever it stands.

A defect in defects.txt is a name, a definition in src/albert, tests of which one must fail, and the lines it changes:

    # an answer may end before it begins
    at answer_candidates: test_independent_logits_give_every_allowed_span_its_share
    - last = first[:, None] + np.arange(max_tokens)
    + last = first[:, None] - np.arange(max_tokens)

The old lines are searched for in the whole package, its tables in TOML included, at any indentation; they may be a part
of a line. Where they occur more than once, the occurrence in the named definition counts. So code may move to another
file, and what is around the lines may be renamed. Tests are named by function or by file (test_x.py), wherever they
stand below tests/.
"""

import ast
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from albert.runtime.errors import InvalidConfiguration


@dataclass(frozen=True)
class Defect:
    """A mistake that somebody could make.

    Args:
        name: what it does wrong.
        symbol: the function, method ("Class.method") or constant of src/albert that it changes.
        tests: test functions or files (test_x.py), of which at least one must fail.
        old: the right lines, without the indentation of the first one.
        new: the wrong ones.
    """

    name: str
    symbol: str
    tests: tuple[str, ...]
    old: tuple[str, ...]
    new: tuple[str, ...]

    def put_into(self, source: Path) -> tuple[Path, str]:
        """The file that holds the old lines, and its text with the new ones, which is still valid Python or TOML.

        Args:
            source: src/albert, of a checkout or a copy.

        Raises:
            InvalidConfiguration: the old lines are not there, or more than once, or the new text cannot be compiled.
        """
        pattern = re.compile(r"\n *".join(re.escape(line.strip()) for line in self.old))
        found = [(path, text, match) for path, text in _texts(source, "py", "toml") for match in pattern.finditer(text)]
        here = (
            found if len(found) == 1 else [each for each in found if _symbol(*each[:2], each[2].start()) == self.symbol]
        )
        if len(here) != 1:
            why = f"found {len(found)} times, {len(here)} times in {self.symbol}: {self.old[0]!r}"
            raise InvalidConfiguration(f"defect {self.name}", why, "follow the code in reliability/defects.txt")
        path, text, match = here[0]
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        indentation = line[: len(line) - len(line.lstrip())]
        wrong = text[: match.start()] + f"\n{indentation}".join(self.new) + text[match.end() :]
        try:
            if path.suffix == ".py":
                compile(wrong, path.name, "exec")
            else:
                tomllib.loads(wrong)
        except (SyntaxError, tomllib.TOMLDecodeError) as error:
            raise InvalidConfiguration(f"defect {self.name}", f"is not valid Python or TOML: {error}") from error
        return path, wrong

    def test_ids(self, tests: Path) -> list[str]:
        """The tests as pytest names them, below a folder of tests.

        Raises:
            InvalidConfiguration: there is no such test.
        """
        ids = []
        for name in self.tests:
            if name.endswith(".py"):
                found = [str(path.relative_to(tests)) for path in sorted(tests.rglob(name))]
            else:
                definition = re.compile(rf"^def {name}\(", re.MULTILINE)
                found = [
                    f"{path.relative_to(tests)}::{name}"
                    for path, text in _texts(tests, "py")
                    if definition.search(text)
                ]
            if not found:
                raise InvalidConfiguration(f"defect {self.name}", f"no test {name}", "name a test of tests/")
            ids += found
        return ids


def read_defects(path: Path) -> tuple[Defect, ...]:
    """The defects of a file, in its order; lines before the first one and those with == are titles.

    Raises:
        InvalidConfiguration: a line is not of the form.
    """
    defects = []
    for part in re.split(r"^# ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name, place, *lines = [line for line in part.splitlines() if line and not line.startswith("==")]
        at = re.fullmatch(r"at ([\w.]+): (.+)", place)
        old = tuple(line[2:] for line in lines if line.startswith("- "))
        new = tuple(line[2:] for line in lines if line.startswith("+ "))
        if at is None or not old or len(old) + len(new) != len(lines):
            raise InvalidConfiguration(f"{path}: {name}", "needs `at SYMBOL: TESTS`, then lines with - and +")
        defects.append(Defect(name, at[1], tuple(at[2].split()), old, new))
    return tuple(defects)


def _texts(folder: Path, *endings: str) -> list[tuple[Path, str]]:
    return [(path, path.read_text("utf-8")) for end in endings for path in sorted(folder.rglob(f"*.{end}"))]


def _symbol(path: Path, text: str, position: int) -> str:
    """The function, method or constant around a position, by its qualified name; "" where there is none."""
    line = text.count("\n", 0, position) + 1
    name, body = "", ast.parse(text).body if path.suffix == ".py" else []
    while around := [node for node in body if node.lineno <= line <= (node.end_lineno or node.lineno)]:
        (node,) = around
        body = node.body if isinstance(node, ast.ClassDef) else []
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name += f".{node.name}" if name else node.name
        elif not name and isinstance(node, ast.Assign | ast.AnnAssign):
            name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
    return name


DEFECTS = read_defects(Path(__file__).with_name("defects.txt"))
"""All of them; the first ones are the quickest to try."""
