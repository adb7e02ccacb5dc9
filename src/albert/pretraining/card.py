"""The model card of a pre-training run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from albert.checkpoints.card import BaseModel, Card, Measured
from albert.model.cost import count_parameters
from albert.model.families import family_of
from albert.pretraining.saved_run import StartRecord
from albert.recipes.pretraining import MaskingRecipe, PretrainingRecipe
from albert.runtime.devices import describe_machine
from albert.runtime.json_files import from_json, values_by_keys
from albert.runtime.words import counted
from albert.text.shards import TokenCorpus
from albert.training.logging import TrainingResult


def run_card(
    name: str,
    recipe: PretrainingRecipe,
    corpora: Sequence[TokenCorpus],
    result: TrainingResult,
    evaluation: Mapping[str, float],
    start: StartRecord | None,
    question: str,
) -> Card:
    """The model card of a finished run."""
    labels = {
        "masked_tokens_accuracy": "masked-token accuracy, held out",
        "masked_tokens_baseline": "baseline: always the most frequent token",
        "masked_tokens_repeated_accuracy": "accuracy on rare masked tokens that occur elsewhere in their sequence",
        "masked_tokens_unrepeated_accuracy": "accuracy on rare masked tokens that occur nowhere else in their sequence",
        "sentence_order_accuracy": f"sentence-task ({recipe.sequences.objective}) accuracy, held out",
        "sentence_order_baseline": "baseline: always the more frequent order",
    }
    unit = recipe.masking.unit
    max_ngram = recipe.masking.max_ngram
    ngrams = f"one {unit}" if max_ngram == 1 else f"1 to {max_ngram} {unit}s"
    machine = ", ".join(f"{key} {value}" for key, value in describe_machine().items())
    data = [
        f"{counted(c.n_documents, 'documents')}, {counted(c.n_tokens, 'tokens')} of {c.vocab_size:,} pieces"
        for c in corpora
    ]
    ending = "" if result.ended_by == "steps" else f" ({result.ending})"
    accuracy = evaluation.get("masked_tokens_accuracy")
    title = family_of(recipe.model).title
    base = BaseModel() if start is None else from_json(BaseModel, start.base, "start.json: base")
    return Card(
        name=name,
        description=f"{_article(title)} {title} encoder pre-trained with {recipe.masking.share:.0%} of the tokens "
        f'masked, {ngrams} at a time, and the sentence objective "{recipe.sequences.objective}" for '
        f"{counted(result.steps, 'steps')}, {counted(result.tokens, 'tokens')}{ending}.",
        parameters=count_parameters(recipe.model).by_part(),
        recipe=values_by_keys(recipe) | {"machine": machine},
        data=data if start is None else [*data, *start.lines()],
        scores={label: evaluation[key] for key, label in labels.items() if key in evaluation},
        scores_note=_evaluation_command(recipe),
        measured=[]
        if accuracy is None
        else [Measured(dataset="held-out text", split="held out", scores={"masked_tokens_accuracy": accuracy})],
        question=question,
        base=replace(base, languages=()),  # the corpus may be in another language
        base_relation="finetune",
    )


def _article(title: str) -> str:
    return "An" if title[0] in "AEX" else "A"


QUESTION_CANDIDATES = 10_000


def masked_question(corpus: TokenCorpus) -> str:
    """An example sentence with one word masked, in the language of the corpus.

    The first sentence of 8 to 24 tokens, held out if possible, that has a word of one piece and at least four letters
    after its first four tokens. Empty if none of the first QUESTION_CANDIDATES sentences has one.
    """
    if corpus.description.shards.get("held_out"):
        corpus = TokenCorpus(corpus.directory, "held_out", corpus.description)
    tokenizer = corpus.tokenizer()
    starts_word = tokenizer.word_starts()
    end = 0
    for length in corpus.lengths(0).sentences[:QUESTION_CANDIDATES].tolist():
        begin = end
        end = end + length
        if not 8 <= length <= 24:
            continue
        ids = corpus.read(begin, end).tolist()
        for i in range(4, len(ids) - 1):
            word = tokenizer.decode(ids[i : i + 1])
            if starts_word[ids[i]] and starts_word[ids[i + 1]] and word.isalpha() and len(word) >= 4:
                return f"{tokenizer.decode(ids[:i])} [MASK] {tokenizer.decode(ids[i + 1 :])}"
    return ""


def _evaluation_command(recipe: PretrainingRecipe) -> str:
    """The command that evaluates any models on the same masked tokens; empty if it lacks an option for the masks."""
    masking = recipe.masking
    if masking != replace(MaskingRecipe(), share=masking.share, max_ngram=masking.max_ngram):
        return ""
    command = (
        f"albert evaluate pretraining --model MODEL... --data CORPUS --max-ngram {masking.max_ngram} "
        f"--max-length {recipe.sequences.max_length} --sequences {recipe.evaluation_sequences}"
    )
    note = "Measured during the run, on its own segment pairs. To evaluate other models on the same texts:"
    return f"{note}\n\n```bash\n{command}\n```"
