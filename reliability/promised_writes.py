"""What is written while the power may go, and what must be left of it: checkpoints, directories, files, commands."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from albert.pretraining.recipe import PretrainingRecipe
from albert.pretraining.run import pretrain
from albert.runtime.errors import AlbertError
from albert.runtime.files import new_directory, remove_leftovers, write_text
from albert.runtime.json_files import Journal, load_json, read_journal
from albert.runtime.manifest import verify_directory
from albert.text.executors import PreparationSettings
from albert.text.prepare import prepare
from albert.text.tokenizer_loading import load_tokenizer
from albert.training.run_folder import RunFolder
from reliability.crash_points import SAVES
from reliability.small_material import Material


@dataclass
class Promised:
    """What the work has promised so far: numbers by name, and by name the content that belongs to a number."""

    sure: dict[str, int] = field(default_factory=dict)
    contents: dict[tuple[str, int], bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """Something that is written, and what must be left of it.

    Attributes:
        name: how it is told of.
        do: writes into a folder, and notes what it promises as it goes.
        broken: what a state of that folder breaks, after what a start of the program mends.
        share: of the states.
    """

    name: str
    do: Callable[[Path, Promised], None]
    broken: Callable[[Path, Promised], Iterator[str]]
    share: float


def save_checkpoints(folder: Path, promised: Promised) -> None:
    """Three checkpoints of which one is kept."""
    run = RunFolder(folder / "runs" / "mine")
    with run.locked():
        for step in (2, 4, 6):
            promised.contents["tensors", step] = bytes([step]) * 64

            def write(directory: Path, step: int = step) -> None:
                (directory / "tensors").write_bytes(promised.contents["tensors", step])
                write_text(directory / "text" / "card.md", f"after {step}")

            run.save_checkpoint(step, write, keep=1)
            promised.sure["checkpoint"] = step


def broken_checkpoints(folder: Path, promised: Promised) -> Iterator[str]:
    """As a run looks for its newest checkpoint."""
    run = RunFolder(folder / "runs" / "mine")
    sure = promised.sure.get("checkpoint", 0)
    try:
        with run.locked():
            newest = run.newest_checkpoint()
            for _, path in run.checkpoints():
                verify_directory(path)
    except AlbertError as error:
        yield f"{error} (saved: {sure})"
        return
    step = 0 if newest is None else newest[0]
    if step < sure:
        yield f"checkpoint {sure} was saved, {step} is left"
    if newest is not None and (newest[1] / "tensors").read_bytes() != promised.contents["tensors", step]:
        yield f"checkpoint {step} holds something else than was saved"


def replace_directory(folder: Path, promised: Promised) -> None:
    """A directory that gives way to a newer one, twice."""
    for version in (1, 2, 3):
        with new_directory(folder / "models" / "mine", replace=True) as directory:
            (directory / "model").write_bytes(bytes([version]) * 64)
            (directory / "deep" / "deeper").mkdir(parents=True)
            (directory / "deep" / "deeper" / "file").write_bytes(b"deep")
        promised.sure["version"] = version


def broken_directory(folder: Path, promised: Promised) -> Iterator[str]:
    """As the next one who writes there finds it."""
    path, sure = folder / "models" / "mine", promised.sure.get("version", 0)
    if path.parent.is_dir():
        remove_leftovers(path.parent)
    if not path.exists():
        if sure:
            yield f"version {sure} was written, nothing is left"
        return
    try:
        verify_directory(path)
    except AlbertError as error:
        yield f"{error} (written: {sure})"
        return
    if (path / "model").read_bytes()[0] < sure:
        yield f"version {sure} was written, an older one is left"


def replace_file(folder: Path, promised: Promised) -> None:
    """A record that is written three times."""
    for version in (1, 2, 3):
        write_text(folder / "made" / "for" / "it" / "record", record(version))
        promised.sure["version"] = version


def broken_file(folder: Path, promised: Promised) -> Iterator[str]:
    """It is whole, and the one that was written or a newer one."""
    path, sure = folder / "made" / "for" / "it" / "record", promised.sure.get("version", 0)
    if not path.exists():
        if sure:
            yield f"version {sure} was written, nothing is left"
        return
    content = path.read_text(encoding="utf-8")
    if content not in [record(version) for version in (1, 2, 3) if version >= sure]:
        yield f"version {sure} was written, {content[:40]!r} is left"


def record(version: int) -> str:
    """A text of more than a few bytes."""
    return f"version {version}\n" * 20


CHECKPOINTS = Work("checkpoints", save_checkpoints, broken_checkpoints, 0.4)


def works(material: Material) -> list[Work]:
    """All of them: directories, files, and the two commands that take long as they are."""

    def pretrain_here(folder: Path, promised: Promised) -> None:
        pretrain(SAVES, material.corpus, folder / "run", "cpu")
        promised.sure["model"] = 1

    def broken_pretraining(folder: Path, promised: Promised) -> Iterator[str]:
        run = RunFolder(folder / "run")
        if not run.path.exists():
            return
        try:
            with run.locked():
                newest = run.newest_checkpoint()
                Journal(run.journal_path).close()
            if newest is not None:
                load_json(PretrainingRecipe, run.recipe_path)
                told = {record["step"] for record in read_journal(run.journal_path) if record["event"] == "train"}
                if missing := set(range(2, newest[0] + 1, 2)) - told:
                    yield f"checkpoint {newest[0]} is left, the journal lost steps {sorted(missing)}"
            if run.model_path.exists():
                verify_directory(run.model_path)
            elif promised.sure:
                yield "the model was written, nothing is left"
        except AlbertError as error:
            yield str(error)

    def prepare_here(folder: Path, promised: Promised) -> None:
        settings = PreparationSettings(held_out=0.2, shard_bytes=12_000)
        prepare([material.text], load_tokenizer(material.tokenizer), folder / "corpus", settings, workers=1)
        promised.sure["corpus"] = 1

    def broken_corpus(folder: Path, promised: Promised) -> Iterator[str]:
        if not (folder / "corpus").exists():
            if promised.sure:
                yield "the corpus was written, nothing is left"
            return
        try:
            verify_directory(folder / "corpus")
        except AlbertError as error:
            yield str(error)

    return [
        CHECKPOINTS,
        Work("directories", replace_directory, broken_directory, 0.2),
        Work("files", replace_file, broken_file, 0.1),
        Work("pre-training", pretrain_here, broken_pretraining, 0.2),
        Work("preparation", prepare_here, broken_corpus, 0.1),
    ]
