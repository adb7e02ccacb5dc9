"""Distillation of vectors: a student learns to give texts the vectors that a teacher gives them (`embed`).

The loss of a text is 1 minus the cosine of the student's pooled state and the teacher's vector, which is computed once
(Reimers and Gurevych 2020, arXiv 2004.09813, §2, with cosines in the place of squared errors).

No map is learned beside the student. If its width H is the teacher's width D, it learns the teacher's vectors as they
are, and both models can read the same index. If not, it learns the teacher's vectors times a fixed matrix [D, H]: their
first min(D, H) principal directions, turned so that they fit the student's vectors before training best. Cosines of the
products are those of the teacher's vectors, apart from the directions that do not fit into H."""

import hashlib
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float16, Float32, Int
from torch import Tensor, nn
from torch.nn import functional

from albert.checkpoints.card import Card
from albert.checkpoints.sentence_transformers import POOLED, open_dense
from albert.finetuning.data import TaskBatch, TaskBatches
from albert.finetuning.embedding import (
    MAX_SCORED,
    EmbeddingWork,
    encoder_identity,
    pooled_encoder,
    start_encoder,
)
from albert.finetuning.evaluation import ComputeOptions, model_outputs
from albert.finetuning.model import Start, StartedModel
from albert.finetuning.run_record import FinetuningResult, FinetuningSettings, recorded_settings
from albert.finetuning.work import Announce, finished
from albert.runtime.devices import default_precision, pick_device
from albert.runtime.distributed import process_group, wait_for_all
from albert.runtime.environment import Ranks, world
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, UsageError, did_you_mean
from albert.runtime.files import make_directory, new_file
from albert.runtime.json_files import fingerprint_of, save_versioned, to_json
from albert.runtime.progress import progress
from albert.runtime.random_streams import stream
from albert.runtime.words import counted
from albert.tasks.custom import read_table
from albert.tasks.examples import Example, Sequences, text_features
from albert.tasks.metrics import spearman
from albert.tasks.recipe import TaskRecipe, recipe_of_vectors
from albert.tasks.table_task import RecipeChanges
from albert.training.loop import train
from albert.training.metric_logger import require_logger
from albert.training.record import Run, finetuning_fingerprint
from albert.training.run_folder import RunFolder
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


def encode_texts(texts: list[str], started: StartedModel, max_length: int) -> tuple[Sequences, Mapping[str, int]]:
    """Every text as `[CLS] text [SEP]`, cut to `max_length` tokens, and counts of what was cut."""
    own = started.sentence_vectors
    if own is not None and own.lower_case:
        texts = [text.lower() for text in texts]
    features = text_features([Example("", "", (text,)) for text in texts], started.tokenizer, max_length)
    return features.sequences, features.counts


# --------------------------------------------------------------------------------------------------------------------
# A run, with the files of every run of `albert finetune`; the result is an encoder without a head.


@dataclass(kw_only=True)
class VectorWork(EmbeddingWork):
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
) -> FinetuningResult:
    """Train an encoder to give texts the teacher's vectors, and score it before and after on other texts.

    Args:
        scored: the development set, of which the first 1,000 are scored.
        output: the run directory. A stopped run is resumed by the same call; a finished run is returned as it is.
        changes: replace values of `RECIPE`, whose rate is adapted to the model's width.
        vectors_directory: where the teacher's vectors are kept; None: in the run directory.
        announce: see `finetune`.
    """
    folder = RunFolder(output)
    device = pick_device(settings.device, world().local_rank)
    precision = settings.precision or default_precision(device)
    compute = ComputeOptions(device, precision, settings.micro_batch_tokens)
    require_logger(settings.log)
    with process_group(device) as ranks:
        # The encoder, and everything that is read: bad input leaves no directory behind.
        started, plan = start_encoder(start, RECIPE, changes, settings, len(texts.texts))
        recipe = plan.recipe
        if recipe.batch_size < ranks.size:
            why = f"{recipe.batch_size} texts are fewer than {ranks.size} processes"
            raise InvalidConfiguration("batch_size", why, "choose a larger batch")
        own = started.sentence_vectors
        dense = open_dense(own)
        hidden_size = started.config.hidden_size
        width = hidden_size if own is None else own.width(hidden_size)
        scored_texts = scored.texts[:MAX_SCORED]
        sequences, cut = encode_texts(texts.texts, started, recipe.max_length)
        dev_sequences, dev_cut = encode_texts(scored_texts, started, recipe.max_length)

        # The run: a new one, one that goes on, or a complete one; another run is refused.
        record = {
            "task": "vectors",
            "start": started.source,
            **({"changes": dict(started.changes)} if started.changes else {}),
            "teacher": teacher.name,
            "recipe": to_json(recipe),
            "settings": recorded_settings(settings),
        }
        parts = {name: record[name] for name in ("task", "recipe", "settings")}
        identity = {
            "recipe": finetuning_fingerprint({**parts, "changes": dict(started.changes)}),
            "training data": fingerprint_of(texts.texts),
            "development set": fingerprint_of(scored_texts),
            **encoder_identity(started, dense),
            "teacher": teacher.fingerprint,
        }
        run = Run(folder=folder, record=record, identity=identity)
        with folder.locked(ranks.is_first):
            already_complete = run.is_complete()
            if not already_complete:
                if ranks.is_first:
                    save_versioned(folder.recipe_path, record)
                model = pooled_encoder(started, dense).to(device).train()

                # The teacher's vectors, and what the student learns of them.
                directory = folder.path / VECTORS_NAME if vectors_directory is None else vectors_directory
                targets, tokens_cut = teacher_vectors(teacher, texts.texts, directory, ranks)
                dev_vectors, dev_tokens_cut = teacher_vectors(teacher, scored_texts, directory, ranks)
                dev_teacher = dev_vectors.astype(np.float32)
                dev_targets = dev_teacher
                notes = [f"learns the vectors of {teacher.name}, computed once in {directory}"]
                if targets.shape[1] != width:
                    path = folder.path / MAP_NAME
                    if not folder.checkpoints():  # a resumed run has its matrix, and does not depend on rounding
                        first = np.arange(min(_ALIGNED, len(texts.texts)))
                        what = "Fitting the teacher's vectors to the model"
                        student = np.stack(model_outputs(model, sequences.select(first), compute, what))
                        fitted = fit_map(targets[first].astype(np.float32), student)
                        if ranks.is_first:
                            with new_file(path) as temporary, temporary.open("wb") as file:
                                np.save(file, fitted)
                    wait_for_all(ranks)
                    matrix = np.load(path, allow_pickle=False)
                    dev_targets = dev_teacher @ matrix
                    share = float(np.square(dev_targets).sum() / np.square(dev_teacher).sum())
                    targets = (targets.astype(np.float32) @ matrix).astype(np.float16)
                    notes.append(
                        f"the teacher's {matrix.shape[0]} dimensions are mapped to {width} by a fixed matrix "
                        f"({MAP_NAME}), which keeps {share:.1%} of their squared length"
                    )

                # Training.
                workers = training_workers(device, ranks)
                batches = TaskBatches(
                    sequences,
                    targets,
                    _TERM,
                    recipe.batch_size,
                    settings.seed,
                    settings.micro_batch_tokens,
                    workers=workers,
                )
                learned = None
                if own is not None:  # the texts have no prompts here; those of the teacher are in its vectors
                    learned = replace(own, max_length=recipe.max_length, prompts={}, default_prompt=None)
                    learned = replace(learned, truncate_dim=None)
                work = VectorWork(
                    description="Learning vectors",
                    module=model,
                    source=batches,
                    device=device,
                    workers=workers,
                    plan=plan,
                    settings=settings,
                    compute=compute,
                    kind="vectors",
                    started=started,
                    folder=folder,
                    sentence_vectors=learned,
                    scored=dev_sequences,
                    scored_targets=dev_targets,
                    scored_teacher=dev_teacher,
                )
                before = work.evaluate()
                work.start(ranks, announce)
                training = train(work, work.training_plan, run)
                if ranks.is_first:
                    started_scoring = time.perf_counter()
                    after = work.evaluate()
                    report = {
                        "scores": after,
                        "before": before,
                        "baseline": None,
                        "training": {
                            **texts.counts,
                            "examples": len(texts.texts),
                            **cut,
                            "truncated_for_teacher": int((tokens_cut > 0).sum()),
                            **work.training_figures(training),
                        },
                        "evaluation": {
                            **scored.counts,
                            "rows_not_scored": len(scored.texts) - len(scored_texts),
                            "examples": len(scored_texts),
                            **dev_cut,
                            "truncated_for_teacher": int((dev_tokens_cut > 0).sum()),
                            "seconds": time.perf_counter() - started_scoring,
                        },
                        "notes": [*started.notes, *notes],
                    }
                    shown = {
                        f"{name} (times 100) on {counted(len(scored_texts), 'texts')}": x for name, x in after.items()
                    }
                    shown |= {f"{name}, before training": score for name, score in before.items()}
                    card = Card(
                        name=output.name,
                        base=replace(started.base, languages=()),
                        base_relation="finetune",
                        description=f"Vectors of texts: {POOLED[model.pooling]}, compared by cosine "
                        f"(`albert.load(...).embed`), learned from {teacher.name} on "
                        f"{counted(len(texts.texts), 'texts')}, starting from {started.source}.",
                        recipe=recipe_of_vectors(recipe),
                        scores=shown,
                        data=[*started.changed, *notes, "no layer beside the encoder was trained or is needed"],
                    )
                    work.finish(run, report, card)
            return finished(folder, ranks, already_complete)
