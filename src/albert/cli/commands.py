"""Options of `albert predict`, `serve`, `convert`, `export`, `quantize`, `info`, `analyze` and `quickstart`.

They are parsed without torch, and without modules of training, for which `albert predict` need not wait; the modules
that do the work are imported afterwards."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from tyro.conf import Positional

from albert.cli.options import CommandGroup, Subcommand
from albert.inference.abilities import ABILITIES
from albert.inference.server.limits import Limits
from albert.model.config import Activation
from albert.runtime.environment import OptimizerKind, PrecisionChoice

TASKS = tuple(each.name for each in ABILITIES.values() if each.row)
if TYPE_CHECKING:
    Task = str
else:
    Task = Literal[TASKS]


@dataclass(frozen=True)
class OpenedModel:
    """Which model is asked, and how it computes."""

    model: Positional[str]
    """A model directory, a run directory, or a Hugging Face Hub id."""
    revision: str | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    """Of the products in the encoder; auto is bf16 where the machine has it in hardware, else fp32. int8 can change
    answers, and is slower than bf16 on a processor with AMX."""
    depth: int | None = None
    """Layers to apply; a shared layer can be applied as often as you like."""
    patience: int | None = None
    """Decide a text early, as soon as so many depths in a row agree; the model must have learnt it (--exits)."""


@dataclass(frozen=True)
class Predict(OpenedModel):
    """Ask a trained model: fill masks, judge an order, classify, score, answer a question, tag words, choose, embed.

    What a model can do depends on its head: `albert pretrain` makes models that fill masks and judge orders,
    and `albert finetune` the others. Give one question, or with --input a file of them: it is checked from end to
    end first, then answered row by row, whatever its size. A run that was stopped or killed goes on with the same
    command; OUTPUT is there when it is whole.

    Example: albert predict run/model --fill-mask "The cat [MASK] on the mat."

    Example: albert predict run/model --tag "U.N. official Ekeus heads for Baghdad ." --words

    Example: albert predict run/model --input reviews.csv --text-field review --output answered.parquet
    """

    fill_mask: str | None = None
    """A text with [MASK] in it, once or several times."""
    order: tuple[str, str] | None = None
    """Two adjacent segments: are they in their order, or swapped?"""
    classify: str | None = None
    """A text to classify, or to score where the model predicts a number."""
    pair: str | None = None
    """The second text, where the classifier was trained on pairs."""
    question: str | None = None
    """A question, to be answered from --context, or about it where --choose gives the options."""
    context: str | None = None
    """The text that holds the answer."""
    tag: str | None = None
    """A text whose words get a label each."""
    words: bool = False
    """The words to tag are what stands between blanks, as in tagged text; else the tokenizer says what a word is."""
    choose: Annotated[tuple[str, ...], tyro.conf.arg(metavar="OPTION...")] = ()
    """Two or more options, to be chosen from after reading --context."""
    input: str | None = None
    """Many rows: .txt with a text a line, .jsonl, .csv, .tsv, .parquet, plain or packed (.gz); - is standard input."""
    output: Path | None = None
    """Where they go with their answers: .jsonl, .csv, .parquet, or .npy for vectors; JSON on standard output if not
    given."""
    task: Task | None = None
    """What is asked of every row; what the model's head is for if not given."""
    text_field: str = "text"
    """The field of a row that holds its text."""
    pair_field: str = "text_pair"
    """The field of the second text, which rows may lack."""
    question_field: str = "question"
    """The field of a question."""
    context_field: str = "context"
    """The field of the text that holds its answer."""
    options_field: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD...")] = ("options",)
    """The field with a list of options, or one field for each option."""
    prefix: str = "predicted_"
    """What the names of an answer's fields begin with, beside those of the row."""
    pooling: Literal["mean", "cls", "weighted"] = "mean"
    """How tokens become the vector of a text; weighted: a mean in which rare pieces weigh more, the better one for a
    model that learnt no vectors."""
    normalize: bool = False
    """Vectors of length 1."""
    replace: bool = False
    """Replace an existing output, or one that was begun with other settings."""
    top_k: int | None = None
    """How many pieces a mask, or how many answers a question gets; 5, but one answer to a question of a file."""
    hidden_act: Activation | None = None
    num_attention_heads: int | None = None
    json: bool = False
    """JSON in place of a table."""


predict_main = Subcommand(Predict, "albert predict", "predict:run_predict")


@dataclass(frozen=True)
class Serve(OpenedModel):
    """Answer over HTTP what a model can be asked, and show a page to try it in the browser.

    Requests of all callers are computed together. Memory, queue and time are bounded: what does not fit is refused
    with a status that says why. SIGTERM ends the server when it has answered what it accepted. Addresses: / the page,
    /docs the API, /healthz, /readyz, /metrics.

    Example: albert serve run/model --port 8000
    """

    host: str = "127.0.0.1"
    """The address to listen at; 0.0.0.0 lets other machines in, and there is no password: put a proxy before it."""
    port: int = 8000
    """0 takes one that is free, and says which."""
    allowed_host: tuple[str, ...] = ()
    """Names that requests may have in their Host header, beside localhost, 127.0.0.1, [::1] and the address of --host
    (with --host 0.0.0.0: any IP address); * allows all."""
    threads: int | None = None
    """Threads of the model; all cores by default."""
    drain_timeout: float = 30.0
    """Seconds that accepted requests may take after SIGTERM."""
    limits: Limits = field(default_factory=Limits)


serve_main = Subcommand(Serve, "albert serve", "predict:run_serve")


@dataclass(frozen=True, kw_only=True)
class Convert:
    """Make a model directory from a TensorFlow checkpoint of google-research/albert, or from a Hugging Face model.

    SOURCE is what there is: the directory of a release or a training run, a TF-Hub module, one file or the prefix of
    a checkpoint, a .tar.gz, .tgz, .tar or .zip of these, a Hugging Face directory, or a Hub id. TensorFlow need not
    be installed, every checksum is verified, and every variable is accounted for.

    There is no --to tensorflow: what is written is a Hugging Face model directory, which transformers, ONNX and
    whatever reads safetensors open; nothing current asks for TensorFlow 1 checkpoints.

    Example: albert convert albert_base_v2.tar.gz --output models/albert-base-v2
    """

    source: Positional[str]
    """A directory, a checkpoint's file or prefix, an archive, or a Hub id."""
    output: Path
    """The model directory to write."""
    config: Path | None = None
    """The albert_config.json, when it does not lie beside the checkpoint."""
    tokenizer: Path | None = None
    """A SentencePiece model, a WordPiece vocabulary, or a directory with one, when it does not lie beside SOURCE."""
    without_tokenizer: tyro.conf.FlagCreatePairsOff[bool] = False
    """Write the model alone."""
    lower_case: bool = True
    """What a vocabulary alone does not say: whether its model was trained on lower-cased text."""
    keep_accents: bool = False
    """And whether accents were kept."""
    hidden_act: Activation | None = None
    """The activation, in place of what SOURCE says: gelu_new is the tanh form, gelu the exact one."""
    num_attention_heads: int | None = None
    """In place of what SOURCE says; the shapes of the weights do not show it."""
    num_hidden_layers: int | None = None
    """In place of what SOURCE says; where layers are shared the weights do not show it."""
    one_output: Literal["regression", "multiple_choice"] | None = None
    """What a TensorFlow classifier with one output is: STS-B's score, or the score of an option, as for RACE."""
    labels: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME...")] = ()
    """The names of a classifier's outputs, in order."""
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Of the weights; those of SOURCE by default."""
    revision: str | None = None
    replace: bool = False


convert_main = Subcommand(Convert, "albert convert", "convert:run_convert")


@dataclass(frozen=True, kw_only=True)
class MadeOfModel:
    """What is made of a model, and where it goes."""

    model: Positional[str]
    """A model directory, a run, or a Hub id."""
    output: Path
    """The directory to write."""
    revision: str | None = None
    replace: bool = False


@dataclass(frozen=True, kw_only=True)
class ExportOnnx(MadeOfModel):
    """Write a model as one ONNX file in which the weights that layers share stand once.

    Inputs are input_ids, attention_mask and token_type_ids, any batch and length, padded on the right. The file is
    opened in ONNX Runtime, and in OpenVINO where it is installed; outputs in float32 are within 1e-4 of albert's over
    random batches of mixed lengths, or nothing is written.

    Example: albert export onnx runs/stars/model --output models/stars-onnx --precision int8
    """

    output: Path
    """A directory, for the file with tokenizer, config.json and card; or the file alone, with a name in .onnx."""
    precision: Literal["fp32", "int8"] = "fp32"
    """Of products with weights. int8 keeps each shared matrix once, as integers with a scale for each output."""
    opset: int = 20
    """The version of ONNX's operators, 17 to 24."""
    depth: int | None = None
    """Layers to apply; all by default. A model whose layers are one layer may go deeper than it was trained."""


@dataclass(frozen=True, kw_only=True)
class ExportSentenceTransformers(MadeOfModel):
    """Copy a model to a directory that sentence-transformers opens, and albert and transformers as before.

    Its `encode` gives the vectors that `albert.load(PATH).embed` gives.

    Example: albert export sentence-transformers runs/mine/model --output models/vectors --normalize
    """

    pooling: Literal["mean", "cls"] = "mean"
    """How tokens become the vector of a text: the mean of all, [CLS] and [SEP] among them, or what stands at [CLS]."""
    normalize: bool = False
    """Vectors of length 1."""


_FORMATS = {
    "onnx": Subcommand(ExportOnnx, "albert export onnx", "convert:onnx"),
    "sentence-transformers": Subcommand(
        ExportSentenceTransformers, "albert export sentence-transformers", "convert:sentence_transformers"
    ),
}


export_main = CommandGroup("albert export", _FORMATS, "format")


@dataclass(frozen=True, kw_only=True)
class Quantize(MadeOfModel):
    """Write a model with 8-bit integers for matrices, one scale for each row: about a quarter of the size.

    Every command of albert opens the result, `albert predict` and `albert evaluate` among them; transformers does not.
    How far the outputs move is told here; what that does to a score, albert evaluate tells.

    Example: albert quantize runs/stars/model --output models/stars-int8
    """


quantize_main = Subcommand(Quantize, "albert quantize", "convert:run_quantize")


@dataclass(frozen=True, kw_only=True)
class AnalyzeLayers:
    """Draw L2 distance and angle between input and output of every layer (the paper's Figure 1), for any models.

    All models read the same passages, each with its own tokenizer; the means are over all tokens.

    Example: albert analyze layers albert/albert-base-v2 runs/mine --text my_text/
    """

    models: Annotated[Positional[tuple[str, ...]], tyro.conf.arg(metavar="MODEL...")]
    """Model directories, runs, or Hub ids."""
    text: tuple[str, ...] = ()
    """Files or folders whose text is read; the held-out chapters of the embedded sample by default."""
    passages: int = 200
    """How many are read, the first ones of the text."""
    words: int = 100
    """Words of a passage."""
    output: Path = Path("layers.png")
    """The picture, a PNG; an older one is replaced."""
    csv: Path | None = None
    """Write the figures to this file as well, a row for each model and layer."""
    device: Literal["auto", "cpu", "cuda"] = "auto"


analyze_main = CommandGroup(
    "albert analyze", {"layers": Subcommand(AnalyzeLayers, "albert analyze layers", "inspect:layers")}
)


@dataclass(frozen=True)
class Info:
    """What to tell about."""

    what: Positional[str | None] = None
    """A preset (albert-base, ...), a directory, or a Hub id (albert/albert-base-v2); nothing: machine and presets."""
    compare: str | None = None
    """Another one to set beside it, with what is said of the two and whether it holds."""
    max_length: int | None = None
    """Tokens in a sequence, for work and memory; the longest one by default."""
    measure: bool = False
    """Measure tokens per second on this machine: inference and pre-training steps, with random weights."""
    memory: bool = False
    """Plan a training step: its memory by parts, and the largest micro-batch that fits, with and without activation
    checkpointing; with --device cuda also for a GPU that is elsewhere."""
    memory_limit: str | None = None
    """What the plan may use, 24GB say; what is free on the device by default."""
    optimizer: OptimizerKind = "lamb"
    """Of the plan."""
    batch_size: int | None = None
    """Sequences of a measured or planned batch; by default as many as make 512 tokens, in a plan 32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: PrecisionChoice = "auto"
    """Of what is measured or planned; auto takes the one in which the device is faster."""
    self_check: bool = False
    """Ask a model for masked words under every plausible activation and number of heads."""
    revision: str | None = None
    json: bool = False
    """One JSON object in place of tables."""


info_main = Subcommand(Info, "albert info", "info:run")


@dataclass(frozen=True, kw_only=True)
class Quickstart:
    """Where to write."""

    output: Path = Path("quickstart-run")
    """The directory for everything the quickstart makes."""


quickstart_main = Subcommand(Quickstart, "albert quickstart", "inspect:run_quickstart")
