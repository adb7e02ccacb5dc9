"""Valid models opened in every way, while the interpreter is listened to: no code, no network, no file elsewhere.

Refusing what is hostile says nothing about what is done with what is not; here it is the good models that are watched.
"""

import contextlib
import importlib
import io
from collections.abc import Callable
from pathlib import Path

from albert.cli.main import COMMANDS, run
from reliability.confined import Broken, Limits, confined
from reliability.parsers import TENSORFLOW
from reliability.promises import LOADING_RUNS_NOTHING
from reliability.scene import Scene
from reliability.trial import FAILURES_TOLD, Asked, Outcome, Trial

SECONDS = 120.0
OPENINGS = (
    "info {pretrained}",
    "predict {pretrained} --fill-mask [MASK]",
    "predict {classifier} --classify day",
    "predict {answerer} --question Where --context Lisbon",
    "predict {quantized} --fill-mask [MASK]",
    "verify {pretrained} {corpus} {tokenizer}",
    "tokenizer encode word --tokenizer {pretrained}",
    "convert {pretrained} --output {here}/converted",
    "convert {tensorflow} --output {here}/from-tensorflow --without-tokenizer",
    "quantize {pretrained} --output {here}/quantized",
    "predict {pretrained} --order First. Second.",
)
"""Commands that open a model, a corpus or a tokenizer of this machine."""


def run_openings(asked: Asked) -> Outcome:
    """Each opening twice: the first time modules may be imported, the second time there is nothing left to import."""
    scene = Scene(asked.folder / "scene")
    names = ("pretrained", "classifier", "answerer", "quantized", "corpus", "tokenizer")
    places: dict[str, Path] = {name: getattr(scene, name) for name in names} | {"tensorflow": TENSORFLOW}
    openings = OPENINGS[: asked.count]
    for words in openings:
        importlib.import_module(COMMANDS[words.split()[0]].module)
    failures: list[str] = []
    limits = Limits(asked.folder / "tries", SECONDS, memory=2 << 30)
    limits.folder.mkdir()
    for verdict in confined(_opening(openings, places, limits.folder), 2 * len(openings), limits):
        asked.report(verdict.number % 2)
        if verdict.failure:
            failures.append(f"{openings[verdict.number // 2]}: {verdict.failure}")
    return Outcome(
        tried=2 * len(openings),
        failed=len(failures),
        what="openings of valid models, corpora and tokenizers, listened to",
        failures=tuple(failures[:FAILURES_TOLD]),
    )


def _opening(openings: tuple[str, ...], places: dict[str, Path], folder: Path) -> Callable[[int], str]:
    def work(number: int) -> str:
        here = folder / str(number)
        words = [word.format(here=here, **places) for word in openings[number // 2].split()]
        said = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            code = run(words)
        if code:
            raise Broken(f"exit code {code}: {said.getvalue()[-300:]}")
        return "opened"

    return work


TRIAL = Trial(
    "nothing-is-run", LOADING_RUNS_NOTHING, {"quick": 4, "full": len(OPENINGS), "soak": len(OPENINGS)}, run_openings
)
