"""Defects by which the network would compute something else than ALBERT."""

from reliability.defects.defect import Defect

_PARITY = "model/test_parity_with_transformers.py"

MODEL = (
    Defect(
        name="layers are not shared",
        file="model/config.py",
        old="(i * groups // layers) * inner + j",
        new="i * inner + j",
        tests=("model/test_parameter_sharing.py",),
    ),
    Defect(
        name="LayerNorm has torch's epsilon",
        file="model/encoder.py",
        old="nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)",
        new="nn.LayerNorm(config.hidden_size)",
        tests=("model/test_embedding_and_heads.py", _PARITY),
    ),
    Defect(
        name="GELU is the exact one",
        file="model/encoder.py",
        old='"gelu_new": nn.GELU(approximate="tanh"),',
        new='"gelu_new": nn.GELU(),',
        tests=(_PARITY,),
    ),
    Defect(
        name="padding is attended to",
        file="model/attention.py",
        old="None if group.padded is None else ~group.padded[:, None, None, :]",
        new="None",
        tests=("model/test_packed_sequences.py::test_padded_cells_get_no_gradient",),
    ),
    Defect(
        name="positions go on from sequence to sequence",
        file="model/packing.py",
        old="np.arange(len(token_ids)) - np.repeat(starts, lengths)),\n        lengths",
        new="np.arange(len(token_ids))),\n        lengths",
        tests=("model/test_packed_sequences.py::test_a_packed_batch_equals_each_sequence_alone",),
    ),
    Defect(
        name="dropout goes on in evaluation",
        file="model/attention.py",
        old="dropout = self.attention_dropout.p if self.training else 0.0",
        new="dropout = self.attention_dropout.p",
        tests=(
            "model/test_embedding_and_heads.py::test_dropout_is_drawn_anew_while_training_and_absent_in_evaluation",
        ),
    ),
    Defect(
        name="the output matrix is not the embedding table",
        file="model/albert.py",
        old="masked, words = hidden[masked_positions], self.albert.embeddings.word_embeddings.weight",
        new="masked, words = hidden[masked_positions], self.albert.embeddings.word_embeddings.weight.detach()",
        tests=("model/test_embedding_and_heads.py::test_the_embedding_table_gets_a_gradient_from_both_of_its_uses",),
    ),
    Defect(
        name="query and value change places",
        file="model/attention.py",
        old="maps = (self.query, self.key, self.value)",
        new="maps = (self.value, self.key, self.query)",
        tests=(_PARITY,),
    ),
)
