"""What lies in a directory, as people look at it."""

from dataclasses import asdict

from rich.console import Console
from rich.markup import escape

from albert.cli.light_tables import bytes_of, facts, table
from albert.experiments.directory_reports import CorpusReport, ModelReport, TokenizerReport
from albert.experiments.size_report import SizeReport
from albert.inference.self_check import SelfCheck

_MATCHES = {True: "every file matches", False: "none: unverified"}
_BELONGS = {True: "the one it was made with", False: "NOT the one it was made with", None: "not recorded"}


def show_model(console: Console, report: ModelReport, size: SizeReport) -> None:
    """A model directory: what it is, its tensors, its tokenizer."""
    about: dict[str, object] = {
        "directory": report.directory,
        "architecture": report.architecture,
        "head": report.head + (f" ({len(report.labels)}: {', '.join(report.labels[:6])})" if report.labels else ""),
        "parameters in memory": report.parameters,
        "weights": bytes_of(report.weight_bytes),
        "manifest": _MATCHES[report.verified],
        "shape": _shape(size),
    }
    for field, (own, of_preset) in size.differs.items():
        about[f"  {field}"] = f"{own}, {size.preset} has {of_preset}"
    if size.remark:
        about["remark"] = size.remark
    console.print(facts(size.name, about))
    console.print()
    console.print(facts("Tensors", _tensors(report)))
    console.print()
    show_tokenizer(console, report.tokenizer)
    if report.other_keys:
        console.print(facts("Other keys of config.json", report.other_keys))
        console.print()


def _shape(size: SizeReport) -> str:
    if size.preset is None:
        return "of no preset"
    return f"that of {size.preset}" + (", but for" if size.differs else "")


def _tensors(report: ModelReport) -> dict[str, object]:
    found = report.tensors
    named = {
        "random, train them first": found.newly_initialised,
        "in the file, not used": found.unexpected,
        "in the file, saying nothing new": found.dropped,
    }
    lines: dict[str, object] = {}
    for words, names in named.items():
        shown = ", ".join(names[:4]) + (" ..." if len(names) > 4 else "")
        lines[words] = f"{len(names)}: {shown}" if names else "none"
    return lines | ({"doubtful": "; ".join(found.notes)} if found.notes else {})


def show_tokenizer(console: Console, report: TokenizerReport | None) -> None:
    """A tokenizer, or that there is none."""
    if report is None:
        console.print(facts("Tokenizer", {"none": "the directory holds no vocabulary"}))
    else:
        about = asdict(report) | {"belongs": _BELONGS[report.belongs]}
        console.print(facts("Tokenizer", {name.replace("_", " "): value for name, value in about.items()}))
    console.print()


def show_corpus(console: Console, report: CorpusReport) -> None:
    """A prepared corpus."""
    said = report.description
    dropped = sum(said.documents_dropped.values())
    about: dict[str, object] = {
        "directory": report.directory,
        "manifest": _MATCHES[report.verified],
        "sources": f"{len(said.sources):,} files, {bytes_of(sum(source.bytes for source in said.sources))}",
        "documents read": f"{said.documents_in:,}, {bytes_of(said.bytes_in)}",
        "documents dropped": f"{dropped:,} " + " ".join(f"({n:,} {why})" for why, n in said.documents_dropped.items()),
        "sentences dropped": said.sentences_dropped,
        "language": said.language,
        "tokens are": said.token_type,
        "held out": f"{said.held_out_share:.1%}, seed {said.seed}",
        "made with": ", ".join(f"{name} {version}" for name, version in said.versions.items()),
    }
    console.print(facts(str(report.directory), about))
    console.print()
    made = table("Splits", "", "shards", "documents", "sentences", "tokens")
    for split, counts in said.counts.items():
        numbers = (counts.documents, counts.sentences, counts.tokens)
        made.add_row(f"  {split}", f"{len(said.shards[split]):,}", *(f"{number:,}" for number in numbers))
    console.print(made)
    console.print()
    show_tokenizer(console, report.tokenizer)


def show_self_check(console: Console, check: SelfCheck) -> None:
    """What a model makes of masked words under each setting."""
    made = table(
        f"Self-check: {check.masked_tokens:,} masked tokens of a fixed text",
        *("", "heads", "loss", "right", "above the best"),
    )
    for setting in check.settings:
        stated = " (stated)" if setting.stated else ""
        made.add_row(
            f"  {setting.hidden_act}{stated}",
            str(setting.num_attention_heads),
            f"{setting.loss:.3f}",
            f"{setting.accuracy:.1%}",
            f"{setting.excess:.3f} ± {setting.excess_error:.3f}",
            style="bold" if setting is check.best else None,
        )
    console.print(made)
    console.print(f"  {escape(check.verdict)}.", soft_wrap=False)
    console.print()
