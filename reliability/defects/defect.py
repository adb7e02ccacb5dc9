"""A deliberate defect: a few words of our source in place of others, and the tests that are there to catch it."""

from dataclasses import dataclass
from pathlib import Path

from albert.runtime.errors import InvalidConfiguration


@dataclass(frozen=True)
class Defect:
    """A mistake that somebody could make.

    Args:
        name: what it does wrong.
        file: below src/albert.
        old: the right text, which stands in the file exactly once.
        new: the wrong one.
        tests: files or test ids below tests/ (pytest's `FILE::TEST`), of which at least one must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def put_into(self, source: Path) -> str:
        """The text of the file with the defect, which is Python still.

        Args:
            source: src/albert, of a checkout or a copy.

        Raises:
            InvalidConfiguration: the code has moved: the right text is not there, or more than once, or the wrong one
                cannot be compiled.
        """
        path = source / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text.count(self.old) != 1:
            why = f"{path.name} holds {text.count(self.old)} times {self.old!r}"
            raise InvalidConfiguration(f"defect {self.name}", why, "follow the code in reliability/defects")
        wrong = text.replace(self.old, self.new)
        try:
            compile(wrong, self.file, "exec")
        except SyntaxError as error:
            raise InvalidConfiguration(f"defect {self.name}", f"is no Python: {error}") from error
        return wrong
