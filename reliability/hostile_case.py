"""One hostile thing: how it is made, which command meets it, and what must come of that."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reliability.scene import Scene


@dataclass(frozen=True)
class Place:
    """Where one is made: an empty folder, and valid things beside it that are not to be changed."""

    here: Path
    scene: Scene

    @property
    def parts(self) -> dict[str, Path]:
        """What commands may name, by the words in braces."""
        scene = self.scene
        return {"tokenizer": scene.tokenizer, "corpus": scene.corpus, "model": scene.pretrained, "text": scene.text}

    def write(self, name: str, content: bytes | str) -> Path:
        """A file below the folder."""
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def model(self, **instead: bytes | str | None) -> Path:
        """A copy of a model under `m`, without its manifest, with some files replaced; None takes one away.

        Args:
            instead: names with `_` for `.`: `config_json`, `model_safetensors`.
        """
        copy = self.here / "m"
        shutil.copytree(self.scene.pretrained, copy)
        (copy / "MANIFEST.json").unlink()
        for name, content in instead.items():
            stem, _, ending = name.rpartition("_")
            if content is None:
                (copy / f"{stem}.{ending}").unlink()
            else:
                self.write(f"m/{stem}.{ending}", content)
        return copy


@dataclass(frozen=True)
class Hostile:
    """One of the set.

    Args:
        name: what it is.
        make: puts it into the folder.
        command: of `albert`, words separated by blanks; `{here}` is the folder, other braces are `Place.parts`.
        code: the exit code that docs/troubleshooting.md promises.
        says: regular expression for the line.
        absent: names below the folder that must not be there afterwards.
    """

    name: str
    make: Callable[[Place], object]
    command: str
    code: int
    says: str
    absent: tuple[str, ...] = ()
