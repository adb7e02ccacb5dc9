"""The families of encoders: all that is different in each, in files and in the network.

A model of another family than ALBERT is the same network in other files: keys of `config.json`, names of tensors, rows
of the position table, the activation of its pooler. Each family is one `Family` below; everything that reads or writes
a model directory follows it. To add

- a BERT: a `Family` here, and its name in `Family` of `albert.recipes.architecture`.
- an encoder whose attention knows distances (MPNet): the same, with its table among `names`, and that table in
  `albert.model.attention.position_bias`. Training and inference follow; the export to ONNX refuses it.

An encoder whose layers are built otherwise (T5: RMSNorm before each block, no biases) needs blocks of its own in
`albert.model.encoder` and `albert.inference.fast_encoder`.

With its sizes in `tests/parity.py` every head is compared with that of transformers.

Tensors have the names of transformers 5 (models/FAMILY/modeling_FAMILY.py)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from albert.recipes.architecture import EncoderConfig
from albert.recipes.architecture import Family as FamilyName

POOLED_CLASSIFIER = "pooled_classifier"
"""In files, the classifier that reads a mean, [CLS] or a maximum: transformers' classes would read the pooler."""
OWN_PREFIX = "albert."
"""Before our names of the encoder's tensors, whatever the family."""
_PARAMETERS = ("weight", "bias")


@dataclass(frozen=True, kw_only=True)
class Needed:
    """The values of a key of `config.json` that mean what is computed here.

    Attributes:
        values: the others are refused; a missing key has the first one in transformers.
        why: what another value means.
        architecture: the class, by our name, that reads the key; None: every one.
    """

    key: str
    values: tuple[Any, ...]
    why: str
    architecture: str | None = None


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family; tables go from our names to those of transformers. A module stands for its weight and its bias.

    Attributes:
        name: `model_type` in transformers.
        classes: how the names of its classes begin.
        prefix: before the encoder's tensors.
        layer_prefix: before the tensors of a layer; with the fields `group` and `layer`.
        names: of the encoder outside of its layers. Without token types there, ours are zeros.
        layer: of a layer; our names begin with `attention.` or `feed_forward.`.
        heads: of all heads that transformers has.
        heads_of: by class, the names that are other ones there.
        copies: tensors that are written twice -> the tensor that they equal.
        pooler_activation: of the pooler, or of the map before the classifiers that has its place.
        has_pooler: whether its class without a head has one.
        sentence_head: what the sentence head of its pre-training class predicts; None: it has none.
        first_position: rows of the position table before the first position.
        config: our keys of `config.json` -> its own.
        aliases: our keys that its class takes, too, and prefers to its own.
        defaults: what its configuration takes where `config.json` says nothing.
        fixed: our settings that its `config.json` does not have.
        written: keys of `config.json` with a fixed value; those of the tokenizer may replace them.
        finds_replaced_tokens: whether its pre-training class does, so that it is read as an encoder.
        needed: keys whose other values are refused, beside those of all families (`checkpoints.config_json`).
    """

    name: FamilyName
    title: str
    classes: str
    prefix: str
    layer_prefix: str
    names: Mapping[str, str]
    layer: Mapping[str, str]
    heads: Mapping[str, str]
    heads_of: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    copies: Mapping[str, str]
    pooler_activation: Literal["tanh", "relu", "gelu"] = "tanh"
    has_pooler: bool = True
    sentence_head: Literal["sop", "nsp"] | None = None
    first_position: int = 0
    config: Mapping[str, str] = field(default_factory=dict)
    aliases: Sequence[str] = ()
    defaults: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    written: Mapping[str, Any]
    finds_replaced_tokens: bool = False
    needed: Sequence[Needed] = ()

    def class_name(self, architecture: str) -> str:
        """The name of one of our classes in this family: `AlbertForMaskedLM` -> `BertForMaskedLM`."""
        return self.classes + architecture.removeprefix("Albert")

    def our_class(self, class_name: str) -> str:
        """Our name of a class; names of other families stay."""
        return "Albert" + class_name.removeprefix(self.classes) if class_name.startswith(self.classes) else class_name

    @property
    def has_token_types(self) -> bool:
        """Whether there is a table of token types; ours is zeros otherwise, which are not trained."""
        return "embeddings.token_type_embeddings.weight" in self.names

    @property
    def has_embedding_size(self) -> bool:
        """Whether embeddings may have another width than layers."""
        return "embeddings.projection.weight" in self.names

    def heads_written(self, architecture: str, config: EncoderConfig) -> dict[str, str]:
        """Our names -> those in a file of this class; also of a pooler that belongs to the head there."""
        names = dict(self.heads) | dict(self.heads_of.get(architecture, {}))
        if config.head_pooling != "pooler":
            names |= {f"classifier.{p}": f"{POOLED_CLASSIFIER}.{p}" for p in _PARAMETERS}
        return names

    def heads_read(self) -> dict[str, str]:
        """Every name of a tensor of a head in a file -> ours."""
        names: dict[str, str] = {}
        for table in (*self.heads_of.values(), self.heads):
            names |= {theirs: ours for ours, theirs in table.items()}
        names |= {f"{POOLED_CLASSIFIER}.{p}": f"classifier.{p}" for p in _PARAMETERS}
        names |= {
            f"{own}.classifier.{p}": f"sop_classifier.classifier.{p}" for own in _OWN_SENTENCE for p in _PARAMETERS
        }
        return names

    def head_prefixes(self) -> frozenset[str]:
        """How the names of heads begin in files, up to the first dot."""
        return frozenset(name.split(".", 1)[0] for name in (*self.heads_read(), *self.copies))


_OWN_SENTENCE = ("sop_classifier", "nsp_classifier")
"""The names of a sentence head in a family whose classes have none, or one that predicts something else."""


def _parameters(names: Mapping[str, str]) -> dict[str, str]:
    """The names of all parameters; a module stands for its weight and its bias."""
    result: dict[str, str] = {}
    for ours, theirs in names.items():
        is_parameter = ours.endswith(_PARAMETERS)
        result |= {ours: theirs} if is_parameter else {f"{ours}.{p}": f"{theirs}.{p}" for p in _PARAMETERS}
    return result


_OWN_HEADS = {
    name: name
    for name in (
        "pair_classifier",
        "joint_qa_outputs.start",
        "joint_qa_outputs.end_dense",
        "joint_qa_outputs.end_layer_norm",
        "joint_qa_outputs.end",
        "joint_qa_outputs.answer_dense",
        "joint_qa_outputs.answer.weight",
    )
}
"""Heads that transformers has no class for; every family has them under our names."""


def _heads(names: Mapping[str, str]) -> dict[str, str]:
    """The heads of transformers, and ours; without a sentence head there, that one has our name, too."""
    sentence = "sop_classifier.classifier"
    return _parameters({**names, **_OWN_HEADS, sentence: names.get(sentence, sentence)})


# --------------------------------------------------------------------------------------------------------------------
# The families.

_EMBEDDINGS = {
    "embeddings.word_embeddings.weight": "embeddings.word_embeddings.weight",
    "embeddings.position_embeddings.weight": "embeddings.position_embeddings.weight",
    "embeddings.token_type_embeddings.weight": "embeddings.token_type_embeddings.weight",
    "embeddings.layer_norm": "embeddings.LayerNorm",
}
_BERT_LAYER = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.dense": "attention.output.dense",
    "attention.layer_norm": "attention.output.LayerNorm",
    "feed_forward.intermediate": "intermediate.dense",
    "feed_forward.output": "output.dense",
    "feed_forward.layer_norm": "output.LayerNorm",
}
_HEAD_OF_ROBERTA = {"albert.pooler": "classifier.dense", "classifier": "classifier.out_proj"}
"""A map and a classifier; the map has the place of the pooler."""
_BERT_BASE: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}

ALBERT = Family(
    name="albert",
    title="ALBERT",
    classes="Albert",
    prefix="albert.",
    layer_prefix="encoder.albert_layer_groups.{group}.albert_layers.{layer}.",
    names=_parameters(
        {**_EMBEDDINGS, "embeddings.projection": "encoder.embedding_hidden_mapping_in", "pooler": "pooler"}
    ),
    layer=_parameters(
        {
            "attention.query": "attention.query",
            "attention.key": "attention.key",
            "attention.value": "attention.value",
            "attention.dense": "attention.dense",
            "attention.layer_norm": "attention.LayerNorm",
            "feed_forward.intermediate": "ffn",
            "feed_forward.output": "ffn_output",
            "feed_forward.layer_norm": "full_layer_layer_norm",
        }
    ),
    heads=_heads(
        {
            "predictions.dense": "predictions.dense",
            "predictions.layer_norm": "predictions.LayerNorm",
            "predictions.bias": "predictions.bias",
            "sop_classifier.classifier": "sop_classifier.classifier",
            "classifier": "classifier",
            "qa_outputs.outputs": "qa_outputs",
        }
    ),
    copies={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    sentence_head="sop",
    defaults={  # the sizes of xxlarge
        "vocab_size": 30000,
        "embedding_size": 128,
        "hidden_size": 4096,
        "num_hidden_layers": 12,
        "num_hidden_groups": 1,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "inner_group_num": 1,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
        "classifier_dropout_prob": 0.1,
    },
    written={"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3},
)

BERT = Family(
    name="bert",
    title="BERT",
    classes="Bert",
    prefix="bert.",
    layer_prefix="encoder.layer.{layer}.",
    names=_parameters({**_EMBEDDINGS, "pooler": "pooler.dense"}),
    layer=_parameters(_BERT_LAYER),
    heads=_heads(
        {
            "predictions.dense": "cls.predictions.transform.dense",
            "predictions.layer_norm": "cls.predictions.transform.LayerNorm",
            "predictions.bias": "cls.predictions.bias",
            "sop_classifier.classifier": "cls.seq_relationship",
            "classifier": "classifier",
            "qa_outputs.outputs": "qa_outputs",
        }
    ),
    copies={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    sentence_head="nsp",
    config={"classifier_dropout_prob": "classifier_dropout"},
    defaults=_BERT_BASE,
    written={"pad_token_id": 0},
)

ROBERTA = Family(
    name="roberta",
    title="RoBERTa",
    classes="Roberta",
    prefix="roberta.",
    layer_prefix="encoder.layer.{layer}.",
    names=_parameters({**_EMBEDDINGS, "pooler": "pooler.dense"}),
    layer=_parameters(_BERT_LAYER),
    heads=_heads(
        {
            "predictions.dense": "lm_head.dense",
            "predictions.layer_norm": "lm_head.layer_norm",
            "predictions.bias": "lm_head.bias",
            "classifier": "classifier",
            "qa_outputs.outputs": "qa_outputs",
        }
    ),
    heads_of={"AlbertForSequenceClassification": _parameters(_HEAD_OF_ROBERTA)},
    copies={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    first_position=2,
    config={"classifier_dropout_prob": "classifier_dropout"},
    defaults={**_BERT_BASE, "vocab_size": 50265},
    written={"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    needed=(
        Needed(key="pad_token_id", values=(1,), why="positions begin after it, at 2 in the models here"),
        Needed(key="hidden_act", values=("gelu", "gelu_python"), why="the heads of this family have gelu"),
    ),
)

XLM_ROBERTA = replace(ROBERTA, name="xlm-roberta", title="XLM-R", classes="XLMRoberta", defaults=_BERT_BASE)

CAMEMBERT = replace(ROBERTA, name="camembert", title="CamemBERT", classes="Camembert", defaults=_BERT_BASE)

DISTILBERT = Family(
    name="distilbert",
    title="DistilBERT",
    classes="DistilBert",
    prefix="distilbert.",
    layer_prefix="transformer.layer.{layer}.",
    names=_parameters(
        {
            "embeddings.word_embeddings.weight": "embeddings.word_embeddings.weight",
            "embeddings.position_embeddings.weight": "embeddings.position_embeddings.weight",
            "embeddings.layer_norm": "embeddings.LayerNorm",
            "pooler": "pooler",
        }
    ),
    layer=_parameters(
        {
            "attention.query": "attention.q_lin",
            "attention.key": "attention.k_lin",
            "attention.value": "attention.v_lin",
            "attention.dense": "attention.out_lin",
            "attention.layer_norm": "sa_layer_norm",
            "feed_forward.intermediate": "ffn.lin1",
            "feed_forward.output": "ffn.lin2",
            "feed_forward.layer_norm": "output_layer_norm",
        }
    ),
    heads=_heads(
        {
            "predictions.dense": "vocab_transform",
            "predictions.layer_norm": "vocab_layer_norm",
            "predictions.bias": "vocab_projector.bias",
            "classifier": "classifier",
            "qa_outputs.outputs": "qa_outputs",
        }
    ),
    heads_of={
        "AlbertForSequenceClassification": _parameters({"albert.pooler": "pre_classifier"}),
        "AlbertForMultipleChoice": _parameters({"albert.pooler": "pre_classifier"}),
    },
    copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    pooler_activation="relu",
    has_pooler=False,
    config={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "classifier_dropout_prob": "seq_classif_dropout",
    },
    aliases=("hidden_size", "num_hidden_layers", "num_attention_heads"),  # attribute_map of its class
    defaults={
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "classifier_dropout_prob": 0.2,
        "max_position_embeddings": 512,
        "initializer_range": 0.02,
    },
    fixed={"type_vocab_size": 1, "layer_norm_eps": 1e-12},
    written={"pad_token_id": 0},
)

_SUMMARY = "AlbertForMultipleChoice"
"""The class whose head ELECTRA describes by keys."""
ELECTRA = Family(
    name="electra",
    title="ELECTRA",
    classes="Electra",
    prefix="electra.",
    layer_prefix="encoder.layer.{layer}.",
    names=_parameters({**_EMBEDDINGS, "embeddings.projection": "embeddings_project", "pooler": "pooler"}),
    layer=_parameters(_BERT_LAYER),
    heads=_heads(
        {
            "predictions.dense": "generator_predictions.dense",
            "predictions.layer_norm": "generator_predictions.LayerNorm",
            "predictions.bias": "generator_lm_head.bias",
            "classifier": "classifier",
            "qa_outputs.outputs": "qa_outputs",
        }
    ),
    heads_of={
        "AlbertForSequenceClassification": _parameters(_HEAD_OF_ROBERTA),
        "AlbertForMultipleChoice": _parameters({"albert.pooler": "sequence_summary.summary"}),
    },
    copies={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    pooler_activation="gelu",
    has_pooler=False,
    config={"classifier_dropout_prob": "classifier_dropout"},
    defaults={
        **_BERT_BASE,
        "embedding_size": 128,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    },
    written={"pad_token_id": 0},
    finds_replaced_tokens=True,
    needed=(
        Needed(key="hidden_act", values=("gelu", "gelu_python"), why="the heads of this family have gelu"),
        Needed(key="summary_type", values=("first",), why="the state at [CLS] is read here", architecture=_SUMMARY),
        Needed(
            key="summary_use_proj",
            values=(True,),
            why="there is a map before the classifier here",
            architecture=_SUMMARY,
        ),
        Needed(
            key="summary_proj_to_labels",
            values=(False, None),
            why="that map keeps the width here",
            architecture=_SUMMARY,
        ),
        Needed(
            key="summary_activation",
            values=("gelu", "gelu_python"),
            why="that map is followed by gelu",
            architecture=_SUMMARY,
        ),
    ),
)

FAMILIES: dict[str, Family] = {
    family.name: family for family in (ALBERT, BERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, DISTILBERT, ELECTRA)
}
"""By `model_type`."""


def family_of(config: EncoderConfig) -> Family:
    """The family of a configuration."""
    return FAMILIES[config.family]


OTHER_FAMILIES: dict[str, str] = {
    "mpnet": "MPNet, whose attention has relative positions",
    "deberta": "DeBERTa, whose attention is disentangled",
    "deberta-v2": "DeBERTa, whose attention is disentangled",
    "modernbert": "ModernBERT, whose positions are rotations",
    "nomic_bert": "Nomic's BERT, whose positions are rotations",
    "t5": "T5, an encoder and a decoder",
    "mt5": "mT5, an encoder and a decoder",
    "umt5": "uMT5, an encoder and a decoder",
    "xlnet": "XLNet, whose attention has relative positions",
    "xlm-roberta-xl": "XLM-R XL, whose layers normalise first",
    "roberta-prelayernorm": "RoBERTa with normalisation first",
    "funnel": "Funnel, whose layers shorten the text",
    "mobilebert": "MobileBERT, whose layers are bottlenecks",
    "squeezebert": "SqueezeBERT, whose layers are convolutions",
    "ernie": "ERNIE, whose embeddings have task types",
    "longformer": "Longformer, whose attention is another",
    "big_bird": "BigBird, whose attention is another",
    "gpt2": "GPT-2, a decoder",
    "llama": "Llama, a decoder",
    "qwen2": "Qwen, a decoder",
    "qwen3": "Qwen, a decoder",
    "mistral": "Mistral, a decoder",
    "new": "Alibaba's GTE with positions that are rotations",
}
"""`model_type` in transformers of encoders that are refused -> what they are."""
