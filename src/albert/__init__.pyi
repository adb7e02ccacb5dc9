# Written by dev/scripts/write_stub.py from the options of the commands: change those, and run it again.
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from albert.api.rows_in_memory import Rows
from albert.api.models import open_model as open_model, pack as pack
from albert.api.results import EvaluateResult, FinetuneResult
from albert.commands.prepare import PrepareResult
from albert.commands.pretrain import PretrainResult
from albert.commands.tokenizer import TokenizerResult
from albert.checkpoints.hub import PushedModel
from albert.inference.embedding import AlbertEmbedding as AlbertEmbedding
from albert.inference.predictor import Predictor
from albert.recipes.architecture import AlbertConfig
from albert.recipes.optimizer import OptimizerRecipe
from albert.recipes.pretraining import MaskingRecipe, PretrainingRecipe, ScheduleRecipe, SequenceRecipe
from albert.runtime.errors import AlbertError as AlbertError
from albert.text.executors import SlurmSettings
from albert.text.tokenizer import Tokenizer

__version__: str
load = Predictor.open

class tokenizer:
    """Train a tokenizer, or open one."""
    @staticmethod
    def train(
        corpus: Rows | Sequence[str | os.PathLike[str]],
        *,
        text_field: str = "text",
        documents: Literal['file', 'blank-line', 'line'] = "file",
        sentences_as_lines: bool = False,
        wrapped: Literal['auto', 'yes', 'no'] = "auto",
        language: str = "en",
        bad_utf8: Literal['refuse', 'skip'] = "refuse",
        output: str | os.PathLike[str],
        vocab_size: int = 30000,
        keep_case: bool = False,
        keep_accents: bool = False,
        character_coverage: float = 0.99995,
        megabytes: float = 100.0,
        sentences: int = 2000000,
        seed: int = 0,
        replace: bool = False,
    ) -> TokenizerResult:
        """Train a SentencePiece vocabulary (unigram, the settings of the released English models).

        The result contains spiece.model and tokenizer.json; transformers.AutoTokenizer opens it.

        Example: albert tokenizer train corpus/ --output tokenizer --vocab-size 30000

        The same as `albert tokenizer train`, with the same files.
        """
    @staticmethod
    def load(path: str | os.PathLike[str]) -> Tokenizer: ...

def prepare(
    corpus: Rows | Sequence[str | os.PathLike[str]],
    *,
    text_field: str = "text",
    documents: Literal['file', 'blank-line', 'line'] = "file",
    sentences_as_lines: bool = False,
    wrapped: Literal['auto', 'yes', 'no'] = "auto",
    language: str = "en",
    bad_utf8: Literal['refuse', 'skip'] = "refuse",
    tokenizer: str | os.PathLike[str],
    output: str | os.PathLike[str],
    held_out: float = 0.01,
    workers: int | None = None,
    seed: int = 0,
    shard_megabytes: float = 8.0,
    replace: bool = False,
    duplicates: Literal['keep', 'exact'] = "keep",
    engine: Literal['processes', 'datatrove', 'ray', 'slurm'] = "processes",
    partition: str = "",
    time: str = "24:00:00",
    memory_gb: int = 4,
) -> PrepareResult:
    """Turn text into token shards for pre-training, in parallel.

    Boundaries of sentences and documents are kept; a share of the documents is held out for evaluation. The
    result does not depend on engine or workers. If it is stopped, the same command resumes.

    Example: albert prepare corpus/ --tokenizer tokenizer --output data

    The same as `albert prepare`, with the same files.
    """

def pretrain(
    recipe: PretrainingRecipe | Mapping[str, Any] | str | os.PathLike[str],
    *,
    scale_batch: int | None = None,
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    replace: bool = False,
    init: str | os.PathLike[str] | None = None,
    resize_vocabulary: bool = False,
    extend_positions: bool = False,
    drop_heads: Literal['masked_tokens', 'sentence_order'] | Sequence[Literal['masked_tokens', 'sentence_order']] = (),
    change_dropout: float | None = None,
    device: Literal['auto', 'cpu', 'cuda'] = "auto",
    sinusoidal_positions: float | None = ...,
    max_length: int = ...,
    mixture: float | Sequence[float] = ...,
    learning_rate: float = ...,
    steps: int = ...,
    max_tokens: int | None = ...,
    max_minutes: float | None = ...,
    batch_size: int = ...,
    micro_batch_size: int = ...,
    activation_checkpointing: bool = ...,
    clip_norm: float = ...,
    on_divergence: Literal['stop', 'skip', 'rollback'] = ...,
    max_rollbacks: int = ...,
    dropout_changes: tuple[int, float] | Sequence[tuple[int, float]] = ...,
    precision: Literal['auto', 'fp32', 'bf16'] = ...,
    seed: int = ...,
    log_every: int = ...,
    evaluate_every: int | None = ...,
    evaluation_sequences: int = ...,
    evaluation_objectives: Literal['sop', 'nsp', 'none'] | Sequence[Literal['sop', 'nsp', 'none']] = ...,
    checkpoint_minutes: float = ...,
    checkpoint_every: int | None = ...,
    keep_checkpoints: int = ...,
    workers: int = ...,
    parallelism: Literal['data', 'sharded'] = ...,
    peer_timeout_minutes: float = ...,
    fixed_shape: bool | None = ...,
    compile: bool | None = ...,
    deterministic: bool = ...,
    log: Literal['tensorboard', 'wandb', 'trackio'] = "tensorboard",
    architecture: Mapping[str, Any] | None = None,
    sequences: Mapping[str, Any] | None = None,
    masking: Mapping[str, Any] | None = None,
    optimizer: Mapping[str, Any] | None = None,
    schedule: Mapping[str, Any] | None = None,
) -> PretrainResult:
    """Pre-train an ALBERT encoder with n-gram masking and sentence order.

    The same call resumes a run that was stopped. Keys change single values of the recipe: `steps=2000`; those of a
    group are in a dict: `architecture={"hidden_size": 192}`.

    The same as `albert pretrain`, with the same files.
    """

def finetune(
    task: str | None = None,
    *,
    model: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    replace: bool = False,
    train: Rows | None = None,
    dev: float | Rows | None = None,
    test: Rows | None = None,
    data: str | os.PathLike[str] | None = None,
    text: str | None = None,
    pair: str | None = None,
    label: str | Sequence[str] | None = None,
    words: str | None = None,
    tags: str | None = None,
    options: str | Sequence[str] | None = None,
    question: str | None = None,
    context: str | None = None,
    answer: str | None = None,
    answer_start: str | None = None,
    id: str | None = None,
    group: str | None = None,
    kind: Literal['classification', 'number', 'multi-label'] | None = None,
    labels: str | Sequence[str] | None = None,
    separator: str | None = None,
    metrics: str | Sequence[str] | None = None,
    positive: str | None = None,
    label_names: str | Sequence[str] | None = None,
    option_labels: Literal['name', 'letter', 'from-0', 'from-1', 'text'] | None = None,
    frozen: bool = False,
    teacher: str | os.PathLike[str] | None = None,
    device: Literal['auto', 'cpu', 'cuda'] = "auto",
    learning_rate: float | None = None,
    batch_size: int | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    warmup_share: float | None = None,
    weight_decay: float | None = None,
    max_length: int | None = None,
    question_length: int | None = None,
    stride: int | None = None,
    encoder_dropout: float | None = None,
    head_dropout: float | None = None,
    encode_pairs: Literal['together', 'separately'] | None = None,
    match_embedding: bool | None = None,
    solve_head: bool | None = None,
    freeze_encoder: bool = False,
    span_head: Literal['joint', 'independent'] | None = None,
    null_threshold: Literal['train', 'dev'] = "train",
    threshold: float | None = None,
    optimizer: Literal['adamw', 'lamb'] = "adamw",
    seed: int = 0,
    page_examples: int = 5,
    select: Literal['last', 'best'] | None = None,
    patience: int | None = None,
    class_weights: Literal['balanced'] | None = None,
    max_train_examples: int | None = None,
    evaluate_every: int | None = None,
    checkpoint_every: int | None = None,
    micro_batch_tokens: int = 8192,
    precision: Literal['fp32', 'bf16'] | None = None,
    workers: int = 0,
    log: Literal['tensorboard', 'wandb', 'trackio'] = "tensorboard",
    init: Literal['pretrained', 'random'] = "pretrained",
    keep_head: bool = False,
    depth: int | None = None,
    reading: Mapping[str, Any] | None = None,
    distillation: Mapping[str, Any] | None = None,
    architecture: Mapping[str, Any] | None = None,
) -> FinetuneResult:
    """Fine-tune a model on your own table or on a declared task, and evaluate it.

    The same call resumes a run that was stopped. Without an output the rows are read, shown and counted, and nothing is
    trained. In Python, data frames and lists of dicts are saved in the run's directory. Values that are not set come
    from the task's recipe.

    The same as `albert finetune`, with the same files.
    """

def finetune_vectors(
    *,
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    replace: bool = False,
    train: Rows,
    dev: float | Rows | None = None,
    text: str | None = None,
    pair: str | None = None,
    negative: str | Sequence[str] | None = None,
    teacher: str | os.PathLike[str] | None = None,
    teacher_vectors: str | os.PathLike[str] | None = None,
    device: Literal['auto', 'cpu', 'cuda'] = "auto",
    epochs: float | None = None,
    steps: int | None = None,
    learning_rate: float | None = None,
    batch_size: int | None = None,
    max_length: int | None = None,
    seed: int = 0,
    depth: int | None = None,
    keep_layers: int | Sequence[int] | None = None,
    temperature: float | None = None,
    warmup_share: float | None = None,
    weight_decay: float | None = None,
    encoder_dropout: float | None = None,
    optimizer: Literal['adamw', 'lamb'] = "adamw",
    evaluate_every: int | None = None,
    checkpoint_every: int | None = None,
    micro_batch_tokens: int = 8192,
    precision: Literal['fp32', 'bf16'] | None = None,
    workers: int = 0,
    log: Literal['tensorboard', 'wandb', 'trackio'] = "tensorboard",
) -> FinetuneResult:
    """Fine-tune a model whose vectors of texts (albert.load(MODEL).embed) are compared by their cosine.

    Without --teacher the rows are pairs of texts that belong together, such as a question and its answer; the second
    texts of the other rows in a batch are the negatives (contrastive learning). With --teacher the rows are texts, and
    the vectors of a better model are learned (distillation; Reimers and Gurevych 2020).

    The same call resumes a run that was stopped. In Python, data frames and lists of dicts are saved in the run's
    directory.

    Example: albert finetune-vectors --train pairs.csv --text question --pair answer --model small --output runs/vectors

    The same as `albert finetune-vectors`, with the same files.
    """

def sweep(
    task: str | None = None,
    *,
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    replace: bool = False,
    seeds: int | None = None,
    folds: int | None = None,
    rates: float | Sequence[float] | None = None,
    train: Rows | None = None,
    dev: float | Rows | None = None,
    test: Rows | None = None,
    data: str | os.PathLike[str] | None = None,
    text: str | None = None,
    pair: str | None = None,
    label: str | Sequence[str] | None = None,
    words: str | None = None,
    tags: str | None = None,
    options: str | Sequence[str] | None = None,
    question: str | None = None,
    context: str | None = None,
    answer: str | None = None,
    answer_start: str | None = None,
    id: str | None = None,
    group: str | None = None,
    kind: Literal['classification', 'number', 'multi-label'] | None = None,
    labels: str | Sequence[str] | None = None,
    separator: str | None = None,
    metrics: str | Sequence[str] | None = None,
    positive: str | None = None,
    label_names: str | Sequence[str] | None = None,
    option_labels: Literal['name', 'letter', 'from-0', 'from-1', 'text'] | None = None,
    frozen: bool = False,
    teacher: str | os.PathLike[str] | None = None,
    device: Literal['auto', 'cpu', 'cuda'] = "auto",
    learning_rate: float | None = None,
    batch_size: int | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    warmup_share: float | None = None,
    weight_decay: float | None = None,
    max_length: int | None = None,
    question_length: int | None = None,
    stride: int | None = None,
    encoder_dropout: float | None = None,
    head_dropout: float | None = None,
    encode_pairs: Literal['together', 'separately'] | None = None,
    match_embedding: bool | None = None,
    solve_head: bool | None = None,
    freeze_encoder: bool = False,
    span_head: Literal['joint', 'independent'] | None = None,
    null_threshold: Literal['train', 'dev'] = "train",
    threshold: float | None = None,
    optimizer: Literal['adamw', 'lamb'] = "adamw",
    seed: int = 0,
    page_examples: int = 5,
    select: Literal['last', 'best'] | None = None,
    patience: int | None = None,
    class_weights: Literal['balanced'] | None = None,
    max_train_examples: int | None = None,
    evaluate_every: int | None = None,
    checkpoint_every: int | None = None,
    micro_batch_tokens: int = 8192,
    precision: Literal['fp32', 'bf16'] | None = None,
    workers: int = 0,
    log: Literal['tensorboard', 'wandb', 'trackio'] = "tensorboard",
    init: Literal['pretrained', 'random'] = "pretrained",
    keep_head: bool = False,
    depth: int | None = None,
    reading: Mapping[str, Any] | None = None,
    distillation: Mapping[str, Any] | None = None,
    architecture: Mapping[str, Any] | None = None,
) -> FinetuneResult:
    """Fine-tune several times, with other seeds, folds or learning rates, or on every task of a benchmark.

    The runs are directories in OUTPUT. The same call resumes runs that were stopped, and keeps those that are complete.
    In Python, data frames and lists of dicts are saved in OUTPUT. Values that are not set come from the task's recipe.

    The same as `albert sweep`, with the same files.
    """

def evaluate(
    task: str | None = None,
    *,
    model: str | Sequence[str | os.PathLike[str]],
    data: str | os.PathLike[str] | None = None,
    split: str | None = None,
    dev: Rows | None = None,
    text: str | None = None,
    pair: str | None = None,
    label: str | Sequence[str] | None = None,
    words: str | None = None,
    tags: str | None = None,
    options: str | Sequence[str] | None = None,
    question: str | None = None,
    context: str | None = None,
    answer: str | None = None,
    answer_start: str | None = None,
    id: str | None = None,
    group: str | None = None,
    kind: Literal['classification', 'number', 'multi-label'] | None = None,
    labels: str | Sequence[str] | None = None,
    separator: str | None = None,
    metrics: str | Sequence[str] | None = None,
    positive: str | None = None,
    label_names: str | Sequence[str] | None = None,
    option_labels: Literal['name', 'letter', 'from-0', 'from-1', 'text'] | None = None,
    predictions: str | os.PathLike[str] | None = None,
    submission: str | os.PathLike[str] | None = None,
    results: str | os.PathLike[str] | None = None,
    report: str | os.PathLike[str] | None = None,
    threshold: float | None = None,
    max_length: int | None = None,
    objective: Literal['sop', 'nsp', 'none'] | Sequence[Literal['sop', 'nsp', 'none']] | None = None,
    sequences: int = 2000,
    max_ngram: int = 3,
    depth: int | Sequence[int] = (),
    curve: str | os.PathLike[str] | None = None,
    rounds: int = 1,
    micro_batch_tokens: int = 8192,
    hidden_act: Literal['gelu', 'gelu_new', 'relu', 'tanh'] | None = None,
    num_attention_heads: int | None = None,
    device: Literal['auto', 'cpu', 'cuda'] = "auto",
    precision: Literal['auto', 'fp32', 'bf16', 'int8'] | Sequence[Literal['auto', 'fp32', 'bf16', 'int8']] = ("auto",),
    tolerance: float = 0.5,
    reading: Mapping[str, Any] | None = None,
) -> EvaluateResult:
    """Score a model, or several together, with a task's official metrics, beside the majority baseline.

    The same as `albert evaluate`, with the same files.
    """

def push(
    model: str | os.PathLike[str],
    repository: str,
    *,
    private: bool = False,
    replace: bool = False,
    dry_run: bool = False,
) -> PushedModel:
    """Put a model on the Hugging Face Hub: weights, configuration, tokenizer, card and example rows, and no other file.

    It needs a token with write access, in HF_TOKEN or from `hf auth login`. An existing repository requires --replace.
    albert opens the result by its name; the card says whether transformers or sentence-transformers gives the same
    scores.

    Example: albert push runs/stars/model someone/stars --dry-run

    The same as `albert push`, with the same files.
    """
