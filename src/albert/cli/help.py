"""What the options of a command are called and how its help shows them.

Everything is read from the dataclass of the options: names, types, defaults, and the docstring of each field.
`COMMON` says which options `--help` shows of a command that has many; `--help-all` shows all."""

import dataclasses
import difflib
import inspect
import re
import shutil
import sys
import textwrap
import types
import typing
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from tyro.conf import Positional

from albert.runtime.errors import UsageError
from albert.runtime.toml_files import field_docs

COMMON = {
    "albert pretrain": """data output recipe print-recipe init device max-minutes steps batch-size learning-rate
        warmup-steps max-length objective max-ngram hidden-size num-hidden-layers num-attention-heads
        hidden-dropout-prob precision seed""",
    "albert finetune": """task model output data train dev text pair label regression multi-label epochs learning-rate
        batch-size max-length seed seeds select statistics-only recipe device""",
    "albert evaluate": """task model data dev split text label predictions submission results max-length depth precision
        device revision""",
    "albert predict": """model classify pair fill-mask question context tag choose order input output text-field task
        top-k precision depth device json""",
    "albert serve": "model host port allowed-host precision depth patience device threads revision texts queue-texts",
    "albert prepare": """corpus tokenizer output text-field documents language held-out workers seed duplicates
        append replace plan engine""",
    "albert show": "corpus number first epoch seed split count max-length objective share max-ngram keep-pairs",
    "albert tokenizer train": """corpus output vocab-size lower-case keep-accents text-field documents language
        megabytes seed replace""",
    "albert convert": "source output tokenizer without-tokenizer lower-case hidden-act labels dtype revision replace",
    "albert info": "what compare max-length measure memory memory-limit batch-size device precision json",
}
"""Command -> the options that --help shows; of other commands it shows all."""

TRANSFORMERS_NAMES = {
    "--lr": "--learning-rate",
    "--num-train-epochs": "--epochs",
    "--max-steps": "--steps",
    "--per-device-train-batch-size": "--batch-size",
    "--train-batch-size": "--batch-size",
    "--max-seq-length": "--max-length",
    "--max-seq-len": "--max-length",
    "--block-size": "--max-length",
    "--warmup-ratio": "--warmup-share",
    "--output-dir": "--output",
    "--overwrite-output-dir": "--replace",
    "--model-name-or-path": "--model",
    "--model-revision": "--revision",
    "--tokenizer-name": "--tokenizer",
    "--task-name": "--task",
    "--data-dir": "--data",
    "--train-file": "--train",
    "--validation-file": "--dev",
    "--text-column-name": "--text",
    "--label-column-name": "--label",
    "--adam-beta1": "--beta1",
    "--adam-beta2": "--beta2",
    "--adam-epsilon": "--eps",
    "--max-grad-norm": "--clip-norm",
    "--mlm-probability": "--share",
    "--gradient-checkpointing": "--activation-checkpointing",
    "--dataloader-num-workers": "--workers",
    "--preprocessing-num-workers": "--workers",
    "--logging-steps": "--log-every",
    "--eval-steps": "--evaluate-every",
    "--save-steps": "--checkpoint-every",
    "--save-total-limit": "--keep-checkpoints",
    "--max-train-samples": "--max-train-examples",
    "--doc-stride": "--stride",
    "--max-query-length": "--question-length",
    "--optim": "--optimizer",
}
"""Names that users of transformers type -> ours."""
SAME_THING = {
    "--steps": ("--schedule.total-steps",),
    "--warmup-steps": ("--schedule.warmup-steps",),
    "--optimizer": ("--optimizer.kind",),
    "--model": ("--init",),
    "--text": ("--text-field",),
    "--pair": ("--pair-field",),
    "--text-field": ("--text",),
    "--pair-field": ("--pair",),
    "--question-field": ("--question",),
    "--context-field": ("--context",),
    "--options-field": ("--options",),
    "--num-hidden-layers": ("--depth",),
    "--depth": ("--num-hidden-layers",),
}
"""An option of some commands -> what another command calls it."""
SETTINGS = {
    "--bf16": ("--precision", "bf16"),
    "--fp32": ("--precision", "fp32"),
    "--use-cpu": ("--device", "cpu"),
    "--no-cuda": ("--device", "cpu"),
    "--load-best-model-at-end": ("--select", "best"),
    "--lower-case": ("--case", "lower"),
    "--no-lower-case": ("--case", "keep"),
    "--keep-accents": ("--accents", "keep"),
}
"""Switches of transformers and of other commands -> an option and its value."""
EARLIER_NAMES = {"--second-release": "--v2-recipe", "--ask": "--task", "--sequence-length": "--max-length"}
"""Names that options had before; they work, with a note."""
NO_SUCH_OPTION = {
    "--fp16": "--precision bf16 needs half the memory, too, and no loss scaling",
    "--gradient-accumulation-steps": "--batch-size is that of an update; what fits into memory at once is set by "
    "--micro-batch-size (pretrain) or --micro-batch-tokens (finetune)",
    "--per-device-eval-batch-size": "leave it out; evaluation chooses its batches, see --micro-batch-tokens",
    "--do-train": "leave it out; albert finetune trains and evaluates",
    "--do-eval": "leave it out; albert evaluate evaluates",
    "--do-predict": "leave it out; albert predict --input FILE predicts",
}
"""Options of transformers' scripts that albert has not -> what to do."""

METAVARS = {"model": "MODEL", "init": "MODEL", "teacher": "MODEL", "intermediate": "MODEL", "revision": "REVISION"}
"""Fields of text -> what stands for it in the help."""

_POSITIONAL = typing.get_args(Positional[str])[1]
_NO_OFF_SWITCH = typing.get_args(tyro.conf.FlagCreatePairsOff[bool])[1]
_POSITIONAL_MODELS = ("model", "models", "what", "source")


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option or positional argument of a command.

    Attributes:
        field: its field's name.
        long: `--outer.inner`, as tyro calls it; "" of positional arguments.
        short: the name without the outer one where no other option has it, else `long`.
        off: `--no-...` of switches, else "".
        metavar: what stands for its value; "" of switches.
        choices: the values that it takes, where they are few.
        doc: its docstring, in one line.
        default: in words; "" where there is nothing to say.
        section: the field of the dataclass that it is in, "" of those of the command itself.
        is_path, is_required: whether it takes a path; whether it must be given.
    """

    field: str
    long: str
    short: str
    off: str
    metavar: str
    choices: tuple[str, ...]
    doc: str
    default: str
    section: str
    is_path: bool
    is_required: bool

    @property
    def name(self) -> str:
        """How the table `COMMON` calls it."""
        return self.short.removeprefix("--") or self.field


def options_of(shape: type[Any]) -> list[Option]:
    """Every option of a dataclass, positional arguments first."""
    found = list(_walk(shape, None, ""))
    inner = Counter(option.long.rpartition(".")[2].removeprefix("--") for option in found)
    outer = {option.long for option in found}
    renamed = {long: short for short, longs in SAME_THING.items() for long in longs if short not in outer}
    options = []
    for option in found:
        last = option.long.rpartition(".")[2]
        unique = "." in option.long and inner[last] == 1 and f"--{last}" not in outer
        short = renamed.get(option.long) if "." in option.long else None
        options.append(dataclasses.replace(option, short=short or (f"--{last}" if unique else option.long)))
    return sorted(options, key=lambda option: option.long != "")


def _walk(shape: type[Any], value: Any, section: str, prefix: str = "") -> Iterator[Option]:
    hints, docs = typing.get_type_hints(shape, include_extras=True), field_docs(shape)
    for field in dataclasses.fields(shape):
        hint, markers = hints[field.name], ()
        if typing.get_origin(hint) is typing.Annotated:
            hint, *markers = typing.get_args(hint)
        renamed = next((m.name for m in markers if getattr(m, "name", None) is not None), field.name)
        long = ".".join(part for part in (prefix, renamed.replace("_", "-")) if part)
        default = getattr(value, field.name) if value is not None else field.default
        if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if dataclasses.is_dataclass(hint):
            yield from _walk(typing.cast(type, hint), default, field.name if long else section, long)
            continue
        is_switch = hint is bool
        outer, _, last = long.rpartition(".")
        metavar = next((m.metavar for m in markers if getattr(m, "metavar", None)), None) or _metavar(hint)
        doc = docs.get(field.name, "auto takes a GPU where there is one." if field.name == "device" else "")
        if metavar.startswith("STR"):
            metavar = metavar.replace("STR", METAVARS.get(field.name, "STR"))
        positional = _POSITIONAL in markers
        if positional and metavar in ("STR", "PATH", "MODEL"):
            metavar = field.name.upper() if default is dataclasses.MISSING else f"[{field.name.upper()}]"
        yield Option(
            field=field.name,
            long="" if positional else f"--{long}",
            short="",
            off="" if not is_switch or _NO_OFF_SWITCH in markers else f"--{outer and outer + '.'}no-{last}",
            metavar="" if is_switch else metavar,
            choices=_choices(hint),
            doc=doc,
            default=_in_words(default, is_switch),
            section=section,
            is_path=_has_path(hint),
            is_required=default is dataclasses.MISSING,
        )


def _parts(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _metavar(hint: Any) -> str:
    names = []
    for part in _parts(hint):
        args = typing.get_args(part)
        if typing.get_origin(part) is typing.Literal:
            names.append(str(args[0]) if len(args) == 1 else "{" + ",".join(map(str, args)) + "}")
        elif typing.get_origin(part) is tuple:
            several = len(args) == 2 and args[1] is Ellipsis
            names.append(f"{_metavar(args[0])}..." if several else " ".join(map(_metavar, args)))
        elif part is bool:
            names.append("{True,False}")
        elif part is not type(None):
            names.append("PATH" if part is Path else part.__name__.upper())
    return "|".join(names)


def _choices(hint: Any) -> tuple[str, ...]:
    found: list[str] = []
    for part in _parts(hint):
        if typing.get_origin(part) is typing.Literal:
            found += map(str, typing.get_args(part))
        elif typing.get_origin(part) is tuple:
            found += _choices(typing.get_args(part)[0])
        elif part is bool and hint is not bool:
            found += ["True", "False"]
    return tuple(found)


def _has_path(hint: Any) -> bool:
    return any(part is Path or (typing.get_args(part) and _has_path(typing.get_args(part)[0])) for part in _parts(hint))


def _in_words(default: Any, is_switch: bool) -> str:
    if default is dataclasses.MISSING or default is None or default == () or (is_switch and not default):
        return ""
    if is_switch:
        return "on"
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


# --------------------------------------------------------------------------------------------------------------------
# The words of a command line under the names that tyro knows.


def usual_words(shape: type[Any], arguments: Sequence[str], program: str) -> list[str]:
    """The arguments with every name of an option as tyro has it, and positional arguments without theirs.

    Raises:
        UsageError: an option that the command has not, with the one that was probably meant.
    """
    options = options_of(shape)
    names = {name: option.long for option in options for name in (option.long, option.short) if name}
    for option in options:
        if option.off:
            outer, _, last = option.long.removeprefix("--").rpartition(".")
            names |= {option.off: option.off}
            if option.short != option.long:
                names |= {f"--no-{option.short.removeprefix('--')}": f"--{outer}.no-{last}"}
    places = {f"--{option.field.replace('_', '-')}": option for option in options if not option.long}
    models = next((option for option in options if not option.long and option.field in _POSITIONAL_MODELS), None)
    if models is not None:
        places.setdefault("--model", models)
    words: list[str] = []
    first: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += [word, *rest]
            break
        if not re.match(r"--?[A-Za-z]", word):
            words.append(word)
            continue
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        found = _known_name(name, names, places)
        if found is None and name in SETTINGS and (settled := _known_name(SETTINGS[name][0], names, places)):
            words += [settled, SETTINGS[name][1]]
        elif found is None:
            raise UsageError(f"{program}: {name}", "unknown option", _meant(name, {*names, *places}))
        elif found in names.values():
            words.append(found + equals + value)
        else:  # a positional argument by its name: its values go to the front, where no option takes them
            several = places[found].metavar.rstrip("]").endswith("...")
            values = [value] if equals else []
            while not equals and rest and not re.match(r"--?[A-Za-z]", rest[0]) and (several or not values):
                values.append(rest.pop(0))
            first += values
    return [*first, *words]


def _known_name(name: str, names: dict[str, str], places: dict[str, Option]) -> str | None:
    """An option as tyro has it, or the name of a positional argument; None where the command has no such one."""
    usual = TRANSFORMERS_NAMES.get(name, name)
    if name not in names and name not in places and EARLIER_NAMES.get(name) in {*names, *places}:
        usual = EARLIER_NAMES[name]
        print(f"albert: note: {name} is now called {usual}", file=sys.stderr)
    for each in (name, usual, *SAME_THING.get(usual, ())):
        if each in names:
            return names[each]
        if each in places:
            return each
    return None


def _meant(name: str, known: set[str]) -> str:
    if name in NO_SUCH_OPTION:
        return NO_SUCH_OPTION[name]
    others = {other for other in (*TRANSFORMERS_NAMES, *SAME_THING) if _usual_in(other, known)}
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75)
    close = close or difflib.get_close_matches(name, sorted(known | others), n=1, cutoff=0.6)
    if not close:
        return "--help shows the usual options, --help-all all of them"
    return f"did you mean {close[0] if close[0] in known else _usual_in(close[0], known)!r}?"


def _usual_in(name: str, known: set[str]) -> str | None:
    usual = TRANSFORMERS_NAMES.get(name, name)
    return next((each for each in (usual, *SAME_THING.get(usual, ())) if each in known), None)


def check_required(shape: type[Any], words: Sequence[str], program: str) -> None:
    """Raises UsageError when an option is missing that must be given."""
    given = {word.partition("=")[0] for word in words}
    for option in options_of(shape):
        if option.is_required and option.long and option.long not in given:
            raise UsageError(
                option.long,
                "is missing",
                f"it is {_lower(_first_sentence(option.doc)).rstrip('.')}; see {program} --help",
            )


def missing_positional(shape: type[Any]) -> str:
    """The positional arguments that must be given, as the usage names them."""
    return " ".join(option.metavar for option in options_of(shape) if option.is_required and not option.long)


# --------------------------------------------------------------------------------------------------------------------
# The help.

HELP_WORDS = ("-h", "--help", "--help-all")
_LEFT = 26
"""Columns of the names."""
MOST_LINES = 60
"""Of --help, at `_WIDTH` columns."""
_WIDTH, _WIDEST = 80, 100
"""Columns where there is no terminal, and the most on one."""


def show_help(shape: type[Any], program: str, description: str | None, is_all: bool) -> None:
    """Print the help of a command: what it does, one example, and the common options; or everything."""
    width = min(shutil.get_terminal_size().columns, _WIDEST) if sys.stdout.isatty() else _WIDTH
    about, examples = split_description(description or inspect.getdoc(shape) or "")
    options = options_of(shape)
    common = COMMON.get(_without_recipe(program))
    chosen = options if is_all or common is None else _chosen(options, common.split())
    head = textwrap.wrap(_usage(options, program), width, subsequent_indent=" " * 8)
    examples = examples if is_all else examples[:1]
    lines = ["", "Examples:" if len(examples) > 1 else "Example:", *(line for each in examples for line in each)]
    sections = list(dict.fromkeys(option.section for option in chosen)) if is_all else [""]
    for section in sections:
        lines += ["", f"{section.replace('_', ' ').capitalize()}:" if section else "Options:"]
        for option in chosen:
            if not is_all or option.section == section:
                lines += _rows(option, width, is_all)
        if is_all and section == sections[0]:
            lines += ["  -h, --help, --help-all".ljust(_LEFT - 1) + " Show the usual options; show all."]
    if not is_all and len(chosen) < len(options):
        lines += ["", f"{len(options) - len(chosen)} more options: {program} --help-all"]
    for paragraph in about:
        wrapped = textwrap.wrap(paragraph, width)
        if not is_all and paragraph != about[0] and len(head) + len(wrapped) + 1 + len(lines) > MOST_LINES:
            break
        head += ["", *wrapped]
    print("\n".join(head + lines))


def split_description(description: str) -> tuple[list[str], list[list[str]]]:
    """The paragraphs of a description in one line each, and its examples as their lines."""
    about: list[str] = []
    examples: list[list[str]] = []
    for paragraph in inspect.cleandoc(description).split("\n\n"):
        head, _, rest = paragraph.partition("\n")
        if head.startswith("Example:") and head != "Example:":
            examples.append(["  " + " ".join(paragraph.removeprefix("Example:").split())])
        elif head in ("Example:", "Examples:"):
            for line in rest.split("\n"):
                if line.startswith("    ") and examples:
                    examples[-1].append(line)
                else:
                    examples.append([line])
        else:
            about.append(" ".join(paragraph.split()))
    return about, examples


def _without_recipe(program: str) -> str:
    return "albert pretrain" if program.startswith("albert pretrain") else program


def _chosen(options: list[Option], names: list[str]) -> list[Option]:
    by_name = {option.name: option for option in options}
    return [by_name[name] for name in names]


def _usage(options: list[Option], program: str) -> str:
    words = [option.metavar for option in options if not option.long]
    required = [f"{option.long} {option.metavar}" for option in options if option.long and option.is_required]
    return " ".join(["usage:", program, "[OPTIONS]", *words, *required])


def _rows(option: Option, width: int, is_all: bool) -> list[str]:
    """The lines of one option: its names, then its first sentence, or all of its help with --help-all."""
    names = [option.short]
    if is_all:
        names = list(dict.fromkeys([option.short, option.long, option.off]))
    elif option.default == "on":
        names = ["--[no-]" + option.short.removeprefix("--")]
    left = "  " + " ".join(part for part in (", ".join(filter(None, names)), option.metavar) if part)
    doc = re.sub(r"(^|\. )None:", r"\1Not set:", option.doc).replace("None:", "not set:")
    doc = doc if is_all else _first_sentence(doc)
    notes = ["(required)" if option.is_required else f"(default: {option.default})" if option.default else ""]
    text = textwrap.wrap(" ".join(filter(None, [doc, *notes])), width - _LEFT, break_on_hyphens=False) or [""]
    indented = [" " * _LEFT + line for line in text]
    if len(left) < _LEFT - 1:
        return [(left.ljust(_LEFT) + text[0]).rstrip(), *indented[1:]]
    if len(left) <= width:
        return [left, *indented]
    return [*textwrap.wrap(left.replace(",", ", "), width, initial_indent="  ", subsequent_indent=" " * 6), *indented]


def _first_sentence(doc: str) -> str:
    match = re.search(r"(?<!e\.g)(?<!i\.e)\.(?= (?!When not set)|$)", doc)
    return doc if match is None else doc[: match.end()]


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() or sentence[1:2] == " " else sentence
