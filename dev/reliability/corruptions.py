"""Damages directories in many ways; reading them must give exactly what was written, or be refused in time.

A damaged directory may be readable, if the damaged byte is never used. Then every tensor, token and setting must equal
what was written."""

import contextlib
import hashlib
import os
import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dev.reliability.confined import Broken, Limits, record_all
from dev.reliability.material import Material
from dev.reliability.report import NO_WRONG_LOAD
from dev.reliability.trials import Tries, trial

from albert.checkpoints.huggingface import Kind
from albert.checkpoints.model_directory import open_model, tokenizer_of
from albert.model.albert import AlbertForPreTraining
from albert.optim.optimizer import build_optimizer
from albert.recipes.pretraining import PretrainingRecipe
from albert.runtime.errors import AlbertError
from albert.runtime.json_files import load_versioned, to_json
from albert.runtime.manifest import MANIFEST_NAME, files_below
from albert.text.shards import TokenCorpus
from albert.text.tokenizer_loading import load_tokenizer
from albert.training.run_folder import RunFolder
from albert.training.state import STATE_NAME, TrainingState, read_training_state

SECONDS = 10.0
CODES = (65, 66, 78)
"""Exit codes of docs/troubleshooting.md for damaged files, missing files and invalid settings."""


# ---- kinds of directories, and a hash of everything read from them ---------------------------------------------------

PROBE = "It was a DAY, in 1,234 Zürichs: ﬁne “quotes” — …"
"""A text that different tokenizers encode differently."""


@dataclass(frozen=True)
class DirectoryKind:
    """A kind of saved directory."""

    name: str
    original: Callable[[Material], Path]
    others: Callable[[Material], tuple[Path, ...]]  # directories with the same shapes but other contents
    reader: Callable[[Material], Callable[[Path], str]]  # reads as `albert` does, and hashes the result
    bound: bool = False  # whether it must match other files: another intact directory is a wrong load


def digest(*values: Any) -> str:
    """SHA-256 of arrays, tensors and plain values."""
    result = hashlib.sha256()
    for value in values:
        if isinstance(value, torch.Tensor):
            value = value.detach().contiguous().view(-1).view(torch.uint8).numpy()
        data = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode("utf-8", "surrogatepass")
        result.update(len(data).to_bytes(8, "little") + data)
    return result.hexdigest()


def _items(tensors: Iterable[tuple[str, torch.Tensor]]) -> list[Any]:
    return [part for name, tensor in sorted(tensors, key=lambda item: item[0]) for part in (name, tensor)]


def _read_tokenizer(path: Path) -> str:
    tokenizer = load_tokenizer(path)
    return digest(tokenizer.fingerprint, tokenizer.encode_with_offsets(PROBE))


def _read_corpus(path: Path) -> str:
    parts: list[Any] = []
    for split in ("train", "held_out"):
        corpus = TokenCorpus.open(path, split)
        parts += [corpus.read(0, corpus.n_tokens), corpus.sentence_starts, corpus.document_starts]
        parts += [corpus.tokenizer_fingerprint, to_json(corpus.description)]
    return digest(*parts)


def _model_reader(kind: Kind) -> Callable[[Material], Callable[[Path], str]]:
    def read(path: Path) -> str:
        torch.manual_seed(0)  # for heads missing in another model
        opened = open_model(path, kind)
        tokenizer = tokenizer_of(opened)
        plain = to_json(opened.config), sorted(opened.extra.items(), key=str), tokenizer.encode(PROBE)
        return digest(*_items(opened.model.state_dict().items()), *plain)

    return lambda material: read


def _checkpoint(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:08d}"


def _checkpoint_reader(material: Material) -> Callable[[Path], str]:
    """Reads the newest checkpoint as a resumed run does."""
    run = material.pretraining_run
    recipe = load_versioned(PretrainingRecipe, run / "recipe.json")
    identity = load_versioned(TrainingState, _checkpoint(run, 4) / STATE_NAME).identity

    def read(path: Path) -> str:
        torch.manual_seed(0)
        model = AlbertForPreTraining(recipe.model)
        optimizer = build_optimizer(recipe.optimizer, model)
        newest = RunFolder(path.parent.parent).newest_checkpoint()
        assert newest is not None, "it is there"
        step, directory = newest
        state = read_training_state(directory, model, optimizer, identity, step)
        named = sorted(model.named_parameters(), key=lambda item: item[0])
        moments = [(name, *pair) for name, parameter in named for pair in sorted(optimizer.state[parameter].items())]
        return digest(step, to_json(state), *_items(named), *(part for moment in moments for part in moment))

    return read


KINDS = (
    DirectoryKind("tokenizer", lambda m: m.tokenizer, lambda m: (m.other_tokenizer,), lambda m: _read_tokenizer),
    DirectoryKind("corpus", lambda m: m.corpus, lambda m: (m.other_corpus,), lambda m: _read_corpus),
    DirectoryKind(
        "model",
        lambda m: m.pretrained,
        lambda m: (m.other_pretrained, m.pretraining_run / "model"),
        _model_reader("pretraining"),
    ),
    DirectoryKind("classifier", lambda m: m.classifier, lambda m: (m.pretrained,), _model_reader("classification")),
    DirectoryKind("int8 model", lambda m: m.quantized, lambda m: (m.pretrained,), _model_reader("pretraining")),
    DirectoryKind(
        "checkpoint",
        lambda m: _checkpoint(m.pretraining_run, 4),
        lambda m: (_checkpoint(m.other_run, 4), _checkpoint(m.pretraining_run, 2)),
        _checkpoint_reader,
        bound=True,
    ),
)
_WHAT = f"corruptions of {len(KINDS)} kinds of directories: {', '.join(kind.name for kind in KINDS)}"


# ---- damage ----------------------------------------------------------------------------------------------------------

PAGE, BLOCK = 4096, 512
"""Files of less than two pages are damaged by blocks."""


class Victim:
    """A copy of a directory to damage repeatedly, and the hash of the intact one."""

    def __init__(self, kind: DirectoryKind, material: Material, folder: Path) -> None:
        self.kind, self.original, self.others = kind, kind.original(material), kind.others(material)
        self.path = folder / "checkpoints" / self.original.name
        self.files = sorted(files_below(self.original))
        shutil.copytree(self.original, self.path)
        self._read = kind.reader(material)
        self._intact = self._read(self.path)
        self._other_readings = []
        for other in self.others:
            with contextlib.suppress(AlbertError):  # not readable in its place
                self._other_readings.append(self._read(other))

    def judged(self) -> str:
        try:
            found = self._read(self.path)
        except AlbertError as refusal:
            if refusal.exit_code not in CODES:
                raise Broken(f"refused with exit code {refusal.exit_code}: {refusal}") from refusal
            if "\n" in str(refusal):
                raise Broken(f"refused in more than one line: {refusal}") from refusal
            return "refused"
        if found == self._intact:
            return "read_exactly"
        if found in self._other_readings and not self.kind.bound:
            return "another_whole_one"  # an intact directory in its place is not damage
        raise Broken("a wrong load: the result differs from what was written")

    def restore(self) -> None:
        """Replace the damaged copy by a new one."""
        shutil.rmtree(self.path)
        shutil.copytree(self.original, self.path)


def _unit(data: bytes) -> int:
    return PAGE if len(data) >= 2 * PAGE else BLOCK


def cut(data: bytes, numbers: random.Random) -> bytes:
    """Truncate at a random byte or page."""
    pages = range(0, len(data), PAGE)
    return data[: numbers.choice(pages) if numbers.random() < 0.3 and data else numbers.randrange(max(len(data), 1))]


def _byte(instead: Callable[[int, random.Random], bytes]) -> Callable[[bytes, random.Random], bytes]:
    """Replace one byte, half of the time near the beginning, where headers are."""

    def change(data: bytes, numbers: random.Random) -> bytes:
        if not data:
            return data
        place = numbers.randrange(len(data) if numbers.random() < 0.5 else min(len(data), 400))
        return data[:place] + instead(data[place], numbers) + data[place + 1 :]

    return change


def zero_page(data: bytes, numbers: random.Random) -> bytes:
    """Set a page to zeros, as after a power loss."""
    begin = numbers.randrange(0, max(len(data), 1), _unit(data))
    page = data[begin : begin + _unit(data)]
    return data[:begin] + bytes(len(page)) + data[begin + len(page) :]


def swap_pages(data: bytes, numbers: random.Random) -> bytes:
    """Swap two pages."""
    pages = [data[begin : begin + _unit(data)] for begin in range(0, len(data), _unit(data))]
    if len(pages) > 1:
        first, second = numbers.sample(range(len(pages)), 2)
        pages[first], pages[second] = pages[second], pages[first]
    return b"".join(pages)


def append(data: bytes, numbers: random.Random) -> bytes:
    """Append bytes."""
    return data + numbers.choice([b"\0", b"\n", b"}", numbers.randbytes(7), bytes(PAGE)])


def unlist(data: bytes, numbers: random.Random) -> bytes:
    """Remove an entry of the manifest, without updating its hash."""
    lines = data.split(b"\n")
    begin = 2 + 4 * numbers.randrange((len(lines) - 5) // 4)
    return b"\n".join(lines[:begin] + lines[begin + 4 :])


CONTENTS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flip bit": _byte(lambda byte, numbers: bytes([byte ^ 1 << numbers.randrange(8)])),
    "set byte": _byte(lambda byte, numbers: numbers.randbytes(1)),
    "drop byte": _byte(lambda byte, numbers: b""),
    "cut": cut,
    "append": append,
    "empty": lambda data, numbers: b"",  # as after a full disk
    "zero page": zero_page,
    "swap pages": swap_pages,
}
"""Damage to the contents of a file."""
PLACES: dict[str, Callable[[Path], object]] = {
    "remove": lambda file: None,
    "link to itself": lambda file: file.symlink_to(file.name),
    "link to nothing": lambda file: file.symlink_to("nowhere"),
    "pipe": os.mkfifo,  # without a writer: reading it blocks
    "link to a device": lambda file: file.symlink_to("/dev/zero"),  # endless
    "directory": Path.mkdir,
}
"""Replacements of a file."""


def swap_files(victim: Victim, numbers: random.Random) -> str:
    """Swap the names of two files."""
    first, second = (victim.path / name for name in numbers.sample(victim.files, 2))
    aside = victim.path / "aside"
    os.rename(first, aside)
    os.rename(second, first)
    os.rename(aside, second)
    return f"{first.name} and {second.name}"


def mix(victim: Victim, numbers: random.Random) -> str:
    """Copy some files, possibly the manifest, from another step or run with the same shapes."""
    other = numbers.choice(victim.others)
    shared = [name for name in victim.files if (other / name).is_file()]
    copied = numbers.sample(shared, numbers.randint(1, max(1, len(shared) - 1)))
    for name in copied:
        shutil.copyfile(other / name, victim.path / name)
    return f"{', '.join(sorted(copied))} of {other.name}"


def exchange(victim: Victim, numbers: random.Random) -> str:
    """Replace the directory by that of another run with the same shapes."""
    other = numbers.choice(victim.others)
    shutil.rmtree(victim.path)
    shutil.copytree(other, victim.path)
    return other.name


def add(victim: Victim, numbers: random.Random) -> str:
    """Add an unlisted file."""
    name = numbers.choice(["notes.txt", "model-00001-of-00002.safetensors", "pytorch_model.bin", "vocab.txt"])
    if not (victim.path / name).exists():
        (victim.path / name).write_bytes(numbers.randbytes(40))
    return name


DIRECTORIES = {"swap files": swap_files, "mix in": mix, "exchange for": exchange, "add": add}
"""Damage to a directory."""
DAMAGES = (
    *("flip bit", "flip bit", "flip bit", "set byte", "drop byte", "cut", "cut", "append", "empty", "zero page"),
    *("swap pages", "swap files", "mix in", "mix in", "exchange for", "remove", "add", "link to itself"),
    *("link to nothing", "pipe", "link to a device", "directory", "unlist"),
)
"""All kinds of damage; frequent ones several times."""


def damage(victim: Victim, kind: str, numbers: random.Random) -> str:
    """Damage a random file or the directory; returns a description."""
    if kind in DIRECTORIES:
        return f"{kind} {DIRECTORIES[kind](victim, numbers)}"
    file = victim.path / (MANIFEST_NAME if kind == "unlist" else numbers.choice(victim.files))
    if kind in PLACES:
        file.unlink()
        PLACES[kind](file)
        return f"{kind} for {file.name}"
    before = file.read_bytes() if file.is_file() else b""
    after = unlist(before, numbers) if kind == "unlist" else CONTENTS[kind](before, numbers)
    file.write_bytes(after)
    size = min(len(before), len(after))
    other = np.flatnonzero(np.frombuffer(before, np.uint8, size) != np.frombuffer(after, np.uint8, size))
    place = other[0] if len(other) else size
    return f"{kind} in {file.name}: {len(before)} bytes became {len(after)}, different from {place} on"


@trial(NO_WRONG_LOAD, _WHAT, 60, 20_400, 200_000)
def corruptions(tries: Tries) -> None:
    """Damage the kinds of directories in turn."""
    material, folder = Material(tries.folder / "material"), tries.folder / "victims"
    victims = [Victim(kind, material, folder / str(n)) for n, kind in enumerate(KINDS[: tries.count])]

    def damaged(number: int) -> str:
        victim = victims[number % len(victims)]
        victim.restore()
        numbers = random.Random(f"{tries.seed}/corruptions/{number}")
        kinds = [each for each in DAMAGES if victim.kind.bound or each != "exchange for"]
        return f"{victim.kind.name}: {damage(victim, numbers.choice(kinds), numbers)}"

    def work(number: int) -> str:
        damaged(number)
        return victims[number % len(victims)].judged()

    record_all(tries, work, Limits(tries.folder, SECONDS), damaged, "slowest_refusal_seconds")
