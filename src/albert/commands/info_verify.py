"""What `albert info PATH --verify` prints: files checked against their manifest."""

from pathlib import Path

from rich.text import Text

from albert.cli.render import open_console, table
from albert.recipes.architecture import preset_name
from albert.runtime.environment import bundled_model
from albert.runtime.errors import AlbertError, DamagedData, MissingInput, UsageError
from albert.runtime.json_files import read_journal
from albert.runtime.manifest import MANIFEST_NAME, read_manifest, verify_directory
from albert.runtime.progress import progress
from albert.text.shards import DESCRIPTION_NAME, TokenCorpus, read_description
from albert.training.run_folder import RunFolder


def verify(name: str) -> None:
    """Check every file of a model, corpus, tokenizer or run against the SHA-256 sums in its manifest.

    Of a run, the model, every checkpoint and the journal are checked.

    Args:
        name: of a directory, or of a model that comes with the package.

    Raises:
        MissingInput: nothing there has a manifest.
        DamagedData: a file differs from its manifest; all others are checked and reported before.
    """
    path = Path(name)
    if not path.exists():
        if preset_name(name) is not None:
            raise UsageError("--verify", f"is for files; {name} is a preset", "name a directory that albert wrote")
        path = bundled_model(name) or path
    directories = manifest_directories(path)
    total = sum(file.bytes for directory in directories for file in _listed_files(directory).values())
    rows: list[tuple[object, ...]] = []
    errors: list[AlbertError] = []
    sizes: list[int] = []
    with progress("Checking", total=total / 1e6, unit="MB") as bar:

        def count(name: str, size: int) -> None:
            sizes.append(size)
            bar.advance(size / 1e6)

        for directory in directories:
            sizes.clear()
            try:
                verify_directory(directory, count)
                _open_corpus(directory)
                finding = Text("intact")
            except (DamagedData, MissingInput) as error:
                errors.append(error)
                finding = Text(str(error), "bold red")
            rows.append((directory, len(sizes), f"{sum(sizes) / 1e6:,.2f}", finding))
    journal = RunFolder(path).journal_path
    if journal.is_file():
        rows.append((journal, 1, "", f"{len(read_journal(journal)):,} records"))
    columns = ("directory", "files", "MB", "finding")
    open_console().print(table("Files against their manifests", columns, rows, words=(0, 3), boxed=True))
    if errors:
        remedy = f"{len(errors)} of {len(directories)} directories are damaged"
        raise DamagedData(errors[0].subject, errors[0].why, remedy)


def manifest_directories(path: Path) -> list[Path]:
    """The directory itself if it has a manifest; otherwise the model and checkpoints of a run."""
    if (path / MANIFEST_NAME).is_file():
        return [path]
    run = RunFolder(path)
    inside = [run.model_path, *(checkpoint for _, checkpoint in run.checkpoints())]
    directories = [directory for directory in inside if directory.is_dir()]
    if not directories:
        why = f"has no {MANIFEST_NAME} and is not a run" if path.is_dir() else "no such directory"
        raise MissingInput(path, why, "name a directory that albert wrote")
    return directories


def _listed_files(directory: Path) -> dict:
    """The files in the manifest; none if it is damaged, which `verify_directory` reports."""
    try:
        return read_manifest(directory)
    except (DamagedData, MissingInput):
        return {}


def _open_corpus(directory: Path) -> None:
    """Check that the files of a corpus belong together, by opening it."""
    if (directory / DESCRIPTION_NAME).is_file():
        for split in ("train", "held_out"):
            if read_description(directory).shards.get(split):
                TokenCorpus.open(directory, split, verify=False)
