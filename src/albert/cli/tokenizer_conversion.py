"""`albert tokenizer convert`: a vocabulary in whichever form to all the files of a tokenizer."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.runtime.durable_files import new_directory
from albert.text.tokenizer_directory import load_tokenizer


@dataclass(frozen=True, kw_only=True)
class ConvertTokenizer:
    """Write the files of a tokenizer, which transformers.AutoTokenizer opens, from one in any form.

    What is not set stays as the source has it. Other settings make another tokenizer, and a model knows only the one it
    was trained with. "reference" gives the ids of ALBERT's own code (of BERT's, for WordPiece) where transformers gives
    others: numbers before a comma, quotes as `` and '', very long words. transformers itself has no such mode.

    Example: albert tokenizer convert spiece.model --output tokenizer --accents keep
    """

    source: Positional[Path]
    """A directory with a tokenizer (a model has one), a spiece.model, vocab.txt or tokenizer.json."""
    output: Path
    """The directory to make."""
    case: Literal["lower", "keep"] | None = None
    """What happens to capitals."""
    accents: Literal["drop", "keep"] | None = None
    """What happens to accents."""
    preprocessing: Literal["transformers", "reference"] | None = None
    """Whose ids text becomes, where the two differ."""
    replace: bool = False
    """Replace an existing output."""


def convert(arguments: list[str]) -> int:
    """Run `albert tokenizer convert`."""
    options = parse(ConvertTokenizer, arguments, "albert tokenizer convert")
    source = load_tokenizer(options.source)
    tokenizer = load_tokenizer(
        options.source,
        lower_case=None if options.case is None else options.case == "lower",
        keep_accents=None if options.accents is None else options.accents == "keep",
        reference=None if options.preprocessing is None else options.preprocessing == "reference",
    )
    with new_directory(options.output, replace=options.replace) as directory:
        tokenizer.save(directory)
    settings = [
        "letters are lower-cased" if tokenizer.lower_case else "capitals stay",
        "accents stay" if tokenizer.keep_accents else "accents are dropped",
        *(["the original code is followed, not transformers"] if tokenizer.reference else []),
    ]
    same = "that of the source" if tokenizer.fingerprint == source.fingerprint else "not that of the source"
    print(f"{options.output}: {tokenizer.vocab_size:,} pieces; {', '.join(settings)}; its fingerprint is {same}")
    print(f'next: albert tokenizer encode --tokenizer {shlex.quote(str(options.output))} "This is a test"')
    return 0
