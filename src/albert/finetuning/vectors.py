"""Distillation of vectors: a student learns to give texts the vectors that a teacher gives them (`embed`).

The loss of a text is 1 minus the cosine of the student's pooled state and the teacher's vector, which is computed once
(Reimers and Gurevych 2020, arXiv 2004.09813, §2, with cosines in the place of squared errors).

No map is learned beside the student. If its width H is the teacher's width D, it learns the teacher's vectors as they
are, and both models can read the same index. If not, it learns the teacher's vectors times a fixed matrix [D, H]: their
first min(D, H) principal directions, turned so that they fit the student's vectors before training best. Cosines of the
products are those of the teacher's vectors, apart from the directions that do not fit into H."""

import hashlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float16, Float32, Int
from torch import Tensor, nn
from torch.nn import functional

from albert.checkpoints.card import Card
from albert.finetuning.batches import TaskBatch, TaskBatches
from albert.finetuning.embedding import MAX_SCORED, EmbeddingRun, EmbeddingTraining, open_encoder
from albert.finetuning.evaluation import model_outputs
from albert.finetuning.initial_model import InitialModel, Start
from albert.finetuning.task_training import Announce, FinetuningResult
from albert.model.albert import PooledEncoder
from albert.recipes.finetuning import FinetuningSettings, RecipeChanges, TaskRecipe, recipe_of_vectors
from albert.runtime.distributed import wait_for_all
from albert.runtime.environment import Ranks, world
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, UsageError, did_you_mean
from albert.runtime.files import make_directory, new_file
from albert.runtime.json_files import fingerprint_of
from albert.runtime.progress import progress
from albert.runtime.random_streams import stream
from albert.runtime.words import counted
from albert.tables.rows import read_table
from albert.tasks.examples import Example, Sequences, text_features
from albert.tasks.metrics import spearman
from albert.training.metric_logger import require_logger
from albert.training.run import run_training
from albert.training.run_folder import RunFolder
from albert.training.same_run import Input, Run
from albert.training.update import Batch, Sums, training_workers

RECIPE = TaskRecipe(learning_rate=4e-5, batch_size=64, epochs=4.0, max_length=128)
"""At H 256 a rate of 5e-4."""
SIMILARITY = "similarity_correlation"
COSINE = "cosine_to_teacher"
VECTORS_NAME = "teacher-vectors"
"""The directory of the teacher's vectors, in that of the run unless another one is named."""
MAP_NAME = "teacher-map.npy"
"""The matrix [D, H] by which the teacher's vectors are multiplied, in the directory of the run."""
BLOCK = 2048
"""Texts whose vectors are one file."""
KIND = "vectors"
"""The name of the task in recipe.json and config.json."""
_TERM = "vectors"
_ALIGNED = 4096
"""Training texts that decide the matrix."""


@dataclass(frozen=True)
class Texts:
    """Different texts; `counts` has the `rows` of the file and those left out."""

    texts: list[str]
    counts: Mapping[str, int]


def read_texts(path: Path, column: str | None) -> Texts:
    """Read a column of a table: the named one, or the one called `text`, or the only one.

    Rows without text and repeated texts are left out and counted; texts that differ only in blanks around them repeat.
    """
    table = read_table(path)
    columns = table.columns
    if column is None and "text" in columns:
        column = "text"
    elif column is None and len(columns) == 1:
        column = columns[0]
    elif column is None:
        raise UsageError(
            "--text", "is missing: the column of the texts must be named", f"{path} has {', '.join(columns)}"
        )
    if column not in columns:
        raise DamagedData(path, f"has no column {column!r}", did_you_mean(column, columns))
    rows = [row.text(column) if column in row.fields else "" for row in table.rows]
    filled = [row for row in rows if row.strip()]
    first: dict[str, str] = {}
    for text in filled:
        first.setdefault(text.strip(), text)
    texts = list(first.values())
    if len(texts) < 2:
        raise MissingInput(
            path, f"has {counted(len(texts), 'different texts')} in column {column!r}, at least 2 are needed"
        )
    left_out = {"rows_without_text": len(rows) - len(filled), "repeated_texts": len(filled) - len(texts)}
    return Texts(texts, {**table.counts, **left_out})


def hold_out_texts(texts: Texts, share: float, seed: int) -> tuple[Texts, Texts]:
    """Split texts into training and development texts, the latter at least 3 and at most 1,000."""
    n_texts = len(texts.texts)
    n_held = min(MAX_SCORED, max(3, round(share * n_texts)))
    if n_texts - n_held < 2:
        why = f"{counted(n_texts, 'texts')} {'is' if n_texts == 1 else 'are'} too few to hold some out for scoring"
        raise InvalidConfiguration("development set", why, "give more rows, or --dev")
    held_numbers = {int(number) for number in stream("vectors.held_out", seed).permutation(n_texts)[:n_held]}
    held = [text for number, text in enumerate(texts.texts) if number in held_numbers]
    train = [text for number, text in enumerate(texts.texts) if number not in held_numbers]
    return Texts(train, {**texts.counts, "kept_back_for_dev": n_held}), Texts(held, {"rows": n_held})


def without_texts(texts: Texts, scored: Texts) -> Texts:
    """Training texts without those of the development set."""
    scored_texts = set(map(str.strip, scored.texts))
    train = [text for text in texts.texts if text.strip() not in scored_texts]
    if len(train) < 2:
        raise MissingInput("training texts", f"{len(train)} are not in the development set, at least 2 are needed")
    left_out = {"rows_that_share_a_text_with_dev": len(texts.texts) - len(train)}
    return Texts(train, {**texts.counts, **left_out})


# --------------------------------------------------------------------------------------------------------------------
# The teacher's vectors, in blocks of a directory that is named by a fingerprint of the teacher. A block has a digest of
# each text beside its vector, so a stopped run goes on with the texts that are missing, and other runs find theirs.


@dataclass(frozen=True)
class VectorTeacher:
    """A model whose vectors are learned.

    Attributes:
        name: in records and cards.
        fingerprint: of everything that decides its vectors, apart from the text.
        embed: its vectors of texts, of length 1, and how many tokens of each text did not fit.
    """

    name: str
    fingerprint: str
    embed: Callable[[Sequence[str]], tuple[Float32[np.ndarray, "texts D"], list[int]]]


def teacher_vectors(
    teacher: VectorTeacher, texts: Sequence[str], directory: Path, ranks: Ranks | None = None
) -> tuple[Float16[np.ndarray, "texts D"], Int[np.ndarray, " texts"]]:
    """The teacher's vectors of length 1, and how many tokens of each text did not fit into the teacher.

    Vectors that `directory` has are read, the others are computed and written; several processes share that work.

    Args:
        texts: different texts.

    Raises:
        DamagedData: a block cannot be read.
    """
    ranks = ranks or world()
    folder = directory / teacher.fingerprint[:32]
    make_directory(folder)
    rows = {_digest(text): row for row, text in enumerate(texts)}
    vectors, cut, missing = _read_blocks(folder, rows)
    blocks = [missing[first : first + BLOCK] for first in range(0, len(missing), BLOCK)]
    if blocks:
        with progress("Running the teacher", total=len(missing), unit="texts", quiet=not ranks.is_first) as bar:
            for block in blocks[ranks.rank :: ranks.size]:
                computed, tokens_cut = teacher.embed([texts[row] for row in block])
                digests = b"".join(_digest(texts[row]) for row in block)
                path = folder / f"{hashlib.sha256(digests).hexdigest()[:32]}.npz"
                with new_file(path) as temporary, temporary.open("wb") as file:
                    np.savez(
                        file,
                        digests=np.frombuffer(digests, np.uint8).reshape(len(block), -1),
                        vectors=computed.astype(np.float16),
                        cut=np.array(tokens_cut, np.int32),
                    )
                bar.advance(len(block) * ranks.size)
        wait_for_all(ranks)
        vectors, cut, missing = _read_blocks(folder, rows)
        assert not missing, "the blocks of another process are not in this directory"
    return vectors, cut


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def _read_blocks(
    folder: Path, rows: Mapping[bytes, int]
) -> tuple[Float16[np.ndarray, "texts D"], Int[np.ndarray, " texts"], list[int]]:
    """The vectors and cut tokens of the texts with these digests, and the rows that no block has."""
    vectors = np.zeros((len(rows), 0), np.float16)
    cut = np.zeros(len(rows), np.int32)
    is_missing = np.ones(len(rows), bool)
    for path in sorted(folder.glob("*.npz")):
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
                digests = saved["digests"]
                block_vectors = saved["vectors"]
                block_cut = saved["cut"]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise DamagedData(path, "is not a block of vectors", "remove it, and it is computed again") from error
        if not vectors.shape[1]:
            vectors = np.zeros((len(rows), block_vectors.shape[1]), np.float16)
        for number, digest in enumerate(digests):
            row = rows.get(digest.tobytes())
            if row is not None:
                vectors[row] = block_vectors[number]
                cut[row] = block_cut[number]
                is_missing[row] = False
    return vectors, cut, np.flatnonzero(is_missing).tolist()


def fit_map(
    teacher: Float32[np.ndarray, "texts D"], student: Float32[np.ndarray, "texts H"]
) -> Float32[np.ndarray, "D H"]:
    """The matrix that turns the teacher's vectors into those that the student learns.

    Its columns (or rows, if H exceeds D) are orthonormal. They span the first min(D, H) principal directions of the
    teacher's vectors, not centred, and are turned towards the student's vectors (orthogonal Procrustes problem,
    Schönemann 1966).
    """
    _, directions = np.linalg.eigh(teacher.T.astype(np.float64) @ teacher)
    principal = directions[:, ::-1][:, : student.shape[1]]
    unit = student / np.maximum(np.linalg.norm(student, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    left, _, right = np.linalg.svd(principal.T @ teacher.T @ unit, full_matrices=False)
    return (principal @ left @ right).astype(np.float32)


# --------------------------------------------------------------------------------------------------------------------
# Loss and scores.


def vector_loss(vectors: Float[Tensor, "texts H"], targets: Float[Tensor, "texts H"]) -> Float[Tensor, ""]:
    """1 minus the cosine of each vector and its target, summed over texts."""
    return (1 - functional.cosine_similarity(vectors.float(), targets.float(), dim=1)).sum()


def vector_scores(
    vectors: Float32[np.ndarray, "texts H"],
    targets: Float32[np.ndarray, "texts H"],
    teacher: Float32[np.ndarray, "texts D"],
) -> dict[str, float]:
    """How alike a student's vectors and a teacher's are, times 100.

    `similarity_correlation` is Spearman's correlation of the cosines of all pairs of texts, `cosine_to_teacher` the
    mean cosine of a student's vector and the vector that it learns.
    """
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    goal = targets / np.maximum(np.linalg.norm(targets, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    pairs = np.triu_indices(len(unit), k=1)
    correlation = spearman((teacher @ teacher.T)[pairs], (unit @ unit.T)[pairs])
    cosine = 100 * float((unit * goal).sum(axis=1).mean())
    return {SIMILARITY: 0.0 if correlation is None else float(correlation), COSINE: cosine}


def encode_texts(texts: list[str], initial: InitialModel, max_length: int) -> tuple[Sequences, Mapping[str, int]]:
    """Every text as `[CLS] text [SEP]`, cut to `max_length` tokens, and counts of what was cut."""
    own = initial.sentence_vectors
    if own is not None and own.lower_case:
        texts = [text.lower() for text in texts]
    features = text_features([Example("", "", (text,)) for text in texts], initial.tokenizer, max_length)
    return features.sequences, features.counts


# --------------------------------------------------------------------------------------------------------------------
# A run, with the files of every run of `albert finetune`; the result is an encoder without a head.


@dataclass(kw_only=True)
class VectorTraining(EmbeddingTraining):
    """Learning a teacher's vectors, scored on other texts."""

    scored: Sequences
    scored_targets: Float32[np.ndarray, "texts H"]
    """What the student should give for the scored texts."""
    scored_teacher: Float32[np.ndarray, "texts D"]
    """The teacher's vectors of the scored texts."""

    def loss(self, model: nn.Module, batch: Batch) -> Sums:
        assert isinstance(batch, TaskBatch)
        return Sums({_TERM: vector_loss(model(batch.packed), batch.targets)})

    def evaluate(self) -> dict[str, float]:
        return vector_scores(self.vectors_of(self.scored, "Embedding"), self.scored_targets, self.scored_teacher)


def finetune_vectors(
    texts: Texts,
    scored: Texts,
    start: Start,
    teacher: VectorTeacher,
    output: Path,
    changes: RecipeChanges,
    settings: FinetuningSettings,
    vectors_directory: Path | None = None,
    announce: Announce | None = None,
    replace: bool = False,
    read_from: Sequence[Path] = (),
) -> FinetuningResult:
    """Train an encoder to give texts the teacher's vectors, and score it before and after on other texts.

    Args:
        scored: the development set, of which the first 1,000 are scored.
        changes: replace values of `RECIPE`, whose rate is adapted to the model's width.
        vectors_directory: where the teacher's vectors are kept; None: in the run directory.
        For the others see `finetune`.
    """
    require_logger(settings.log)

    def open_work(earlier: RunFolder, device: torch.device, ranks: Ranks) -> VectorRun:
        encoder = open_encoder(start, RECIPE, changes, settings, len(texts.texts), KIND, earlier, device)
        recipe = encoder.recipe.values
        if recipe.batch_size < ranks.size:
            why = f"{recipe.batch_size} texts are fewer than {ranks.size} processes"
            raise InvalidConfiguration("batch_size", why, "choose a larger batch")
        scored_texts = scored.texts[:MAX_SCORED]
        sequences, cut = encode_texts(texts.texts, encoder.initial, recipe.max_length)
        dev_sequences, dev_cut = encode_texts(scored_texts, encoder.initial, recipe.max_length)
        return VectorRun(
            record=encoder.record(KIND, teacher=teacher.name),
            inputs={
                "training data": Input(counted(len(texts.texts), "texts"), fingerprint_of(texts.texts)),
                "development set": Input(counted(len(scored_texts), "texts"), fingerprint_of(scored_texts)),
                **encoder.inputs(),
                "teacher": Input(teacher.name, teacher.fingerprint),
            },
            plan=encoder.recipe.training_plan,
            ranks=ranks,
            device=device,
            read_from=read_from,
            encoder=encoder,
            announce=announce,
            teacher=teacher,
            vectors_directory=vectors_directory,
            texts=texts,
            scored=scored,
            scored_texts=scored_texts,
            sequences=sequences,
            dev_sequences=dev_sequences,
            cut=cut,
            dev_cut=dev_cut,
        )

    return run_training(open_work, output, settings.device, replace)


@dataclass(kw_only=True)
class VectorRun(EmbeddingRun):
    """A run that learns a teacher's vectors, opened."""

    WHAT = "texts"

    teacher: VectorTeacher
    vectors_directory: Path | None
    texts: Texts
    scored: Texts
    scored_texts: list[str]
    sequences: Sequences
    dev_sequences: Sequences
    cut: Mapping[str, int]
    dev_cut: Mapping[str, int]
    about_teacher: list[str] = field(default_factory=list)
    cut_for_teacher: int = 0
    dev_cut_for_teacher: int = 0

    def set_up(self, run: Run, is_new: bool) -> VectorTraining:
        """The teacher's vectors, what the student learns of them, and the encoder with its pooling."""
        encoder = self.encoder
        model = encoder.pooled().to(self.device).train()
        directory = self.vectors_directory or run.folder.path / VECTORS_NAME
        targets, tokens_cut = teacher_vectors(self.teacher, self.texts.texts, directory, self.ranks)
        dev_vectors, dev_tokens_cut = teacher_vectors(self.teacher, self.scored_texts, directory, self.ranks)
        self.cut_for_teacher = int((tokens_cut > 0).sum())
        self.dev_cut_for_teacher = int((dev_tokens_cut > 0).sum())
        dev_teacher = dev_vectors.astype(np.float32)
        dev_targets = dev_teacher
        self.about_teacher = [f"learns the vectors of {self.teacher.name}, computed once in {directory}"]
        hidden_size = encoder.initial.config.hidden_size
        width = hidden_size if encoder.vectors is None else encoder.vectors.width(hidden_size)
        if targets.shape[1] != width:
            path = run.folder.path / MAP_NAME
            if is_new:  # a resumed run has its matrix, and does not depend on rounding
                self._fit_matrix(model, targets, path)
            wait_for_all(self.ranks)
            matrix = np.load(path, allow_pickle=False)
            dev_targets = dev_teacher @ matrix
            share = float(np.square(dev_targets).sum() / np.square(dev_teacher).sum())
            targets = (targets.astype(np.float32) @ matrix).astype(np.float16)
            self.about_teacher.append(
                f"the teacher's {matrix.shape[0]} dimensions are mapped to {width} by a fixed matrix "
                f"({MAP_NAME}), which keeps {share:.1%} of their squared length"
            )
        settings = encoder.recipe.settings
        recipe = encoder.recipe.values
        workers = training_workers(self.device, self.ranks)
        sizes = (recipe.batch_size, settings.seed, settings.micro_batch_tokens)
        learned = encoder.vectors
        if learned is not None:  # the texts have no prompts here; those of the teacher are in its vectors
            learned = replace(learned, max_length=recipe.max_length, prompts={}, default_prompt=None)
            learned = replace(learned, truncate_dim=None)
        task = VectorTraining(
            description="Learning vectors",
            module=model,
            source=TaskBatches(self.sequences, targets, _TERM, *sizes, workers=workers),
            device=self.device,
            workers=workers,
            recipe=encoder.recipe,
            compute=encoder.compute,
            kind=KIND,
            initial=encoder.initial,
            sentence_vectors=learned,
            scored=self.dev_sequences,
            scored_targets=dev_targets,
            scored_teacher=dev_teacher,
        )
        self.begin(run, task)
        return task

    def _fit_matrix(self, model: PooledEncoder, targets: Float16[np.ndarray, "texts D"], path: Path) -> None:
        """Write the matrix that maps the teacher's vectors to the student's width; on the first rank."""
        first = np.arange(min(_ALIGNED, len(self.texts.texts)))
        what = "Fitting the teacher's vectors to the model"
        student = np.stack(model_outputs(model, self.sequences.select(first), self.encoder.compute, what))
        fitted = fit_map(targets[first].astype(np.float32), student)
        if self.ranks.is_first:
            with new_file(path) as temporary, temporary.open("wb") as file:
                np.save(file, fitted)

    def training_counts(self) -> dict[str, Any]:
        texts = self.texts
        counts = {**texts.counts, "examples": len(texts.texts), **self.cut}
        return counts | {"truncated_for_teacher": self.cut_for_teacher}

    def evaluation_counts(self) -> dict[str, Any]:
        return {
            **self.scored.counts,
            "rows_not_scored": len(self.scored.texts) - len(self.scored_texts),
            "examples": len(self.scored_texts),
            **self.dev_cut,
            "truncated_for_teacher": self.dev_cut_for_teacher,
        }

    def baseline(self) -> None:
        return None

    def notes(self) -> list[str]:
        return self.about_teacher

    def card(self, report: Mapping[str, Any]) -> Card:
        of_texts = f"(times 100) on {counted(len(self.scored_texts), 'texts')}"
        scores = {f"{name} {of_texts}": score for name, score in report["scores"].items()}
        scores |= {f"{name}, before training": score for name, score in report["before"].items()}
        learned = "no layer beside the encoder was trained or is needed"
        return Card(
            name="",
            description=f"learned from {self.teacher.name} on {counted(len(self.texts.texts), 'texts')}",
            recipe=recipe_of_vectors(self.encoder.recipe.values),
            scores=scores,
            data=[*self.encoder.initial.changed, *self.about_teacher, learned],
        )
