"""Distillation of vectors: a student learns to give texts the vectors that a teacher gives them (`embed`).

The loss of a text is 1 minus the cosine of the student's mean state and the teacher's vector, which is computed once
(Reimers and Gurevych 2020, arXiv 2004.09813, §2, with cosines instead of squared errors)."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float16, Int

from albert.checkpoints.model_directory import weights_fingerprint
from albert.inference.predictor import Predictor
from albert.runtime.errors import DamagedData
from albert.runtime.files import make_directory, new_file
from albert.runtime.json_files import fingerprint_of, to_json
from albert.runtime.progress import progress

BLOCK = 2048
"""Texts whose vectors are one file."""

# --------------------------------------------------------------------------------------------------------------------
# The teacher's vectors, in blocks of a directory. The name of a block is a fingerprint of the teacher and of the texts,
# so a stopped run goes on with the first block that is missing, and other runs find the blocks that they need, too.


def teacher_fingerprint(teacher: Predictor) -> str:
    """A fingerprint of everything that decides the teacher's vectors, apart from the text."""
    return fingerprint_of(
        {
            "weights": weights_fingerprint(teacher.network.state_dict()),
            "config": to_json(teacher.config),
            "tokenizer": teacher.tokenizer.fingerprint,
            "max_length": teacher.max_length,
            "precision": teacher.precision,
        }
    )


def teacher_vectors(
    teacher: Predictor, texts: Sequence[str], directory: Path
) -> tuple[Float16[np.ndarray, "texts D"], Int[np.ndarray, " texts"]]:
    """The teacher's vectors of length 1, and how many tokens of each text did not fit into the teacher.

    Blocks that `directory` has are read, the others are computed and written.

    Raises:
        DamagedData: a block cannot be read.
    """
    about = teacher_fingerprint(teacher)
    make_directory(directory)
    vectors = []
    cut = []
    with progress("Running the teacher", total=len(texts), unit="texts") as bar:
        for first in range(0, len(texts), BLOCK):
            block = texts[first : first + BLOCK]
            digest = hashlib.sha256(about.encode())
            for text in block:
                digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
            path = directory / f"{digest.hexdigest()[:32]}.npz"
            if not path.exists():
                computed, tokens_cut = teacher.embed_counted(block, normalize=True)
                with new_file(path) as temporary, temporary.open("wb") as file:
                    np.savez(file, vectors=computed.astype(np.float16), cut=np.array(tokens_cut, np.int32))
            try:
                with np.load(path, allow_pickle=False) as saved:
                    vectors.append(saved["vectors"])
                    cut.append(saved["cut"])
            except (OSError, ValueError, KeyError, EOFError) as error:
                raise DamagedData(path, "is no block of vectors", "remove it; it is computed again") from error
            bar.advance(len(block))
    return np.concatenate(vectors), np.concatenate(cut)
