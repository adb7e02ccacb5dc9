"""The model card of a pre-training run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from albert.checkpoints.card import ModelCard
from albert.model.parameter_count import count_parameters
from albert.pretraining.ngram_masking import MaskingRecipe
from albert.pretraining.recipes import PretrainingRecipe
from albert.pretraining.run_recipe import flat
from albert.pretraining.start_record import StartRecord
from albert.runtime.devices import describe_machine
from albert.runtime.strict_json import to_json
from albert.text.preparation.shards import TokenCorpus
from albert.training.plan import TrainingResult


def run_card(
    name: str,
    recipe: PretrainingRecipe,
    corpora: Sequence[TokenCorpus],
    result: TrainingResult,
    evaluation: Mapping[str, float],
    start: StartRecord | None,
) -> str:
    """What the run was, from what to what."""
    names = {
        "masked_tokens_accuracy": "masked-token accuracy, held out",
        "masked_tokens_baseline": "the most frequent token instead",
        "masked_tokens_repeated_accuracy": "of rare masked tokens, those that their sequence shows elsewhere",
        "masked_tokens_unrepeated_accuracy": "of rare masked tokens, those that it does not",
        "sentence_order_accuracy": f"sentence-task ({recipe.sequences.objective}) accuracy, held out",
        "sentence_order_baseline": "the more frequent order instead",
    }
    return ModelCard(
        name=name,
        architecture="AlbertForPreTraining",
        attention_window=recipe.model.effective_window,
        description=f"An ALBERT encoder pre-trained with n-gram masking and the sentence objective "
        f'"{recipe.sequences.objective}" for {result.steps:,} steps, {result.tokens:,} tokens ({result.ending}).',
        parameters=count_parameters(recipe.model).by_part(),
        recipe=flat(to_json(recipe))
        | {"machine": ", ".join(f"{key} {value}" for key, value in describe_machine().items())},
        data=[
            f"{each.n_documents:,} documents, {each.n_tokens:,} tokens of {each.vocab_size:,} pieces"
            for each in corpora
        ]
        + ([] if start is None else start.lines()),
        scores={name: evaluation[key] for key, name in names.items() if key in evaluation},
        scores_note=_asked_again(recipe),
    ).render()


def _asked_again(recipe: PretrainingRecipe) -> str:
    """The command that asks any models for the masked tokens of the same text; nothing where it has not such masks."""
    if recipe.masking != replace(MaskingRecipe(), max_ngram=recipe.masking.max_ngram):
        return ""
    command = (
        f"albert evaluate pretraining --model MODEL... --data CORPUS --max-ngram {recipe.masking.max_ngram} "
        f"--max-length {recipe.sequences.max_length} --sequences {recipe.evaluation_sequences}"
    )
    said = "Measured by the run, on its own pairs. The same sequences in the order of the text, for any models:"
    return f"{said}\n\n```bash\n{command}\n```"
