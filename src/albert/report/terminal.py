"""A result as lines and tables for the terminal, which `albert.cli.render` draws."""

from rich.text import Text

from albert.report.result import Result
from albert.report.tables import Table, analysis_tables

Part = str | Text | Table


def terminal_parts(result: Result) -> list[Part]:
    """The scores of a result, where the model is right and wrong, and what to do next."""
    shown = result.shown
    parts: list[Part] = [*shown.ended, *shown.before]
    parts += [Table(table.rows, words=table.words, minor=table.minor) for table in shown.tables]
    parts += [note for note in shown.notes if note not in shown.said]
    tables = analysis_tables(result.analysis)
    parts += ["", f"of {shown.analysis_of}:"] if shown.analysis_of and tables else []
    for table in tables:
        parts += ["", table]
    parts += shown.advice
    if shown.page is not None:
        parts.append(with_bold("report: ", str(shown.page)))
    parts += [with_bold(*line) for line in shown.written]
    return parts


def with_bold(first: object, rest: str) -> Text:
    """A line with a bold beginning."""
    return Text.assemble((str(first), "bold"), rest)
