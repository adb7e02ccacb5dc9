"""Commands, options and values that earlier versions had, and what to do instead.

The command line and the Python functions refuse them with this line, as any usage error (exit code 2)."""

from albert.runtime.errors import UsageError

COMMANDS: dict[str, str] = {
    "merge": "albert pretrain --data A B trains on several corpora; or prepare all text into one",
    "tables keep": "write albert tables export",
    "tables plan": "albert tables list has the number of runs, albert tables run says how many are done",
}
"""Command, also a part of a group -> what to do instead."""

_PROXY = "set it in the reverse proxy before the server, see docs/deploying.md"

_COSTS: dict[str, str] = dict.fromkeys(
    ("--price-per-hour", "--watts", "--overhead", "--co2-pounds-per-kwh"),
    "albert tables show cost has the hours of your runs: multiply them by your price and power",
)

OPTIONS: dict[str, dict[str, str]] = {
    "prepare": {
        "--append": "prepare the new text as a corpus of its own, and name both in albert pretrain --data OLD NEW",
        "--plan": "prepare a part of the text first; its report has the time and the sizes",
    },
    "serve": {
        **dict.fromkeys(("--header-bytes", "--header-seconds", "--body-seconds", "--connections"), _PROXY),
        **dict.fromkeys(("--candidates", "--batch-tokens", "--layer-tokens"), "leave it out: its default is used"),
    },
    "evaluate": {
        "--csv": "--json and --results have the same figures",
    },
    "info": {
        "--optimizer": "leave it out; the memory is that of LAMB, others need no more",
    },
    "tables run": _COSTS,
    "tables show": _COSTS,
    "tokenizer convert": {
        "--preprocessing": "leave it out; text is read as transformers reads it",
    },
    "pretrain": {
        "--spike-deviations": "leave it out; a loss or gradient that is not finite is handled by --on-divergence",
    },
}
"""Command ("tokenizer train" for a part of a group) -> option -> what to do instead.

An option is written without its group: `--objective` stands for `--sequences.objective`, too. In Python it is the
keyword of the function with the command's name."""

VALUES: dict[str, str] = {
    "sop-reference": "it was removed; sop is the sentence order of the paper",
}
"""Value of an option with a list of choices -> what to do instead."""

WHY = "was removed"


def removed_command(name: str) -> UsageError | None:
    """The error for a removed command; None for any other name."""
    instead = COMMANDS.get(name)
    return None if instead is None else UsageError(f"albert {name}", WHY, instead)


def removed_option(program: str, option: str, shown: str | None = None) -> UsageError | None:
    """The error for a removed option; None for any other one.

    Args:
        program: "albert prepare", "albert pretrain small", or the Python function "albert.prepare".
        option: `--append` or `--no-append`; a group before it does not matter.
        shown: how the user wrote it, if different: the keyword of a function.
    """
    words = program.split(":")[0].removeprefix("albert").replace(".", " ").split()
    field = "--" + option.rpartition(".")[2].removeprefix("--")
    for end in range(len(words), 0, -1):
        options = OPTIONS.get(" ".join(words[:end]), {})
        instead = options.get(field) or options.get("--" + field.removeprefix("--no-"))
        if instead is not None:
            return UsageError(f"{program}: {shown or option}", WHY, instead)
    return None


def removed_value(value: object) -> str | None:
    """What to do instead of a removed value; None for any other value."""
    return VALUES.get(value) if isinstance(value, str) else None
