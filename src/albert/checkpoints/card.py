"""The model card: a README.md with the front matter that the Hugging Face Hub reads, and code that works.

Everything comes in as plain values; nothing is guessed, and a section without content is left out.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_FILL_MASK = """from transformers import pipeline

fill = pipeline("fill-mask", model="{name}")
for answer in fill("The capital of France is [MASK]."):
    print(answer["token_str"], answer["score"])"""
_EXAMPLES = {
    "AlbertForPreTraining": _FILL_MASK,
    "AlbertForMaskedLM": _FILL_MASK,
    "AlbertForSequenceClassification": """from transformers import pipeline

classify = pipeline("text-classification", model="{name}")
print(classify("The picture is a delight."))""",
    "AlbertForTokenClassification": """from transformers import pipeline

tag = pipeline("token-classification", model="{name}", aggregation_strategy="simple")
print(tag("The letter was written by Ada."))""",
    "AlbertForQuestionAnswering": """import torch
from transformers import AlbertForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AlbertForQuestionAnswering.from_pretrained("{name}").eval()
inputs = tokenizer("Who wrote it?", "The letter was written by Ada.", return_tensors="pt")
with torch.inference_mode():
    outputs = model(**inputs)
start, end = int(outputs.start_logits.argmax()), int(outputs.end_logits.argmax())
print(tokenizer.decode(inputs["input_ids"][0, start : end + 1]))""",
    "AlbertForJointQuestionAnswering": """from albert.inference.predictor import Predictor

answers = Predictor.open("{name}")  # transformers opens the encoder alone, it has no class for this head
print(answers.answer("Who wrote it?", "The letter was written by Ada."))""",
    "AlbertForPairClassification": """from albert.inference.predictor import Predictor

pairs = Predictor.open("{name}")  # transformers opens the encoder alone, it has no class for this head
print(pairs.classify("A man plays a guitar.", "Somebody makes music."))""",
    "AlbertForMultipleChoice": """import torch
from transformers import AutoModelForMultipleChoice, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModelForMultipleChoice.from_pretrained("{name}").eval()
options = ["It was written by Ada.", "It was written by nobody."]
inputs = tokenizer(["The letter was written by Ada."] * 2, options, return_tensors="pt", padding=True)
with torch.inference_mode():
    scores = model(**{key: value[None] for key, value in inputs.items()}).logits[0].softmax(-1)
print(options[int(scores.argmax())], scores.tolist())""",
    "AlbertModel": """import torch
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModel.from_pretrained("{name}").eval()
with torch.inference_mode():
    hidden = model(**tokenizer("The letter was written by Ada.", return_tensors="pt")).last_hidden_state
print(hidden.shape)""",
}
_WINDOWED = """Tokens see {window} tokens to either side and [CLS]; albert computes that, transformers does not:

```python
from albert.inference.predictor import Predictor

predictor = Predictor.open("{name}")
print(predictor.max_length, predictor.abilities)
```"""
_UNSET: tuple[object, ...] = (None, [], (), {}, "")
_PIPELINE_TAGS = {
    "AlbertForPreTraining": "fill-mask",
    "AlbertForMaskedLM": "fill-mask",
    "AlbertForSequenceClassification": "text-classification",
    "AlbertForTokenClassification": "token-classification",
    "AlbertForQuestionAnswering": "question-answering",
    "AlbertForJointQuestionAnswering": "question-answering",
    "AlbertForMultipleChoice": "multiple-choice",
    "AlbertModel": "feature-extraction",
}
_ONLY_HERE = ("AlbertForPairClassification",)


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What a card says.

    Args:
        architecture: the transformers class, `AlbertForPreTraining` and so on.
        attention_window: of a model with such attention, which transformers does not open.
        parameters: parameter counts by part, in the order they are shown.
        recipe: how it was trained, as plain values; settings that are None or empty are left out.
        data: what it was trained on, a line each.
        scores: metric -> value, for people; the evaluation set belongs into the metric's name.
        location: the directory or Hub id in the example; the name when empty.
        use: the example in Markdown, for what transformers does not open; `{name}` in it is the location.
    """

    name: str
    architecture: str
    attention_window: int | None = None
    description: str = ""
    parameters: Mapping[str, int] = field(default_factory=dict)
    recipe: Mapping[str, object] = field(default_factory=dict)
    data: Sequence[str] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    scores_note: str = ""
    language: Sequence[str] = ()
    tags: Sequence[str] = ()
    license: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    location: str = ""
    limits: Sequence[str] = ()
    use: str = ""

    def render(self) -> str:
        """The card as Markdown with YAML front matter."""
        sections = [self._front_matter(), f"# {_line(self.name)}"]
        if self.description:
            sections.append(self.description.strip())
        if self.use:
            example = self.use
        elif self.attention_window is not None:
            example = _WINDOWED.replace("{window}", str(self.attention_window))
        elif example := _EXAMPLES.get(self.architecture, ""):
            example = f"```python\n{example}\n```"
        if example:
            location = (self.location or self.name).replace("\\", "/").replace('"', "")
            sections.append("## Use\n\n" + example.replace("{name}", location))
        if self.parameters:
            rows = {key: f"{value:,}" for key, value in self.parameters.items()}
            sections.append("## Parameters\n\n" + _table("part", "parameters", rows))
        if self.scores:
            rows = {key: f"{value:.4g}" for key, value in self.scores.items()}
            sections.append("## Scores\n\n" + _table("metric", "score", rows))
            sections += [self.scores_note] if self.scores_note else []
        if self.data:
            sections.append("## Data\n\n" + "\n".join(f"- {_line(item)}" for item in self.data))
        if self.recipe:
            rows = {key: _shown(value) for key, value in self.recipe.items() if value not in _UNSET}
            sections.append("## Recipe\n\n" + _table("setting", "value", rows))
        if self.limits:
            sections.append("## Limits\n\n" + "\n".join(f"- {_line(item)}" for item in self.limits))
        if self.versions:
            sections.append("## Versions\n\n" + _table("package", "version", dict(self.versions)))
        return "\n\n".join(sections) + "\n"

    def _front_matter(self) -> str:
        opens_there = self.attention_window is None and not self.use and self.architecture not in _ONLY_HERE
        lines = ["---", f"library_name: {'transformers' if opens_there else 'albert'}"]
        if self.license:
            lines.append(f"license: {_yaml(self.license)}")
        if self.language:
            lines += ["language:", *(f"- {_yaml(code)}" for code in self.language)]
        if opens_there and self.architecture in _PIPELINE_TAGS:
            lines.append(f"pipeline_tag: {_PIPELINE_TAGS[self.architecture]}")
        lines += ["tags:", *(f"- {_yaml(tag)}" for tag in dict.fromkeys(["albert", *self.tags]))]
        return "\n".join([*lines, "---"])


def _yaml(text: str) -> str:
    """A YAML scalar: a JSON string is one, whatever the text holds (`no`, a colon, a quote)."""
    return json.dumps(text, ensure_ascii=False)


def _shown(value: object) -> str:
    """A setting for people: no quotes around a text, and of a float no digits that come from rounding."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_shown(part)}" for key, part in value.items() if part not in _UNSET)
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _line(text: str) -> str:
    return " ".join(str(text).split())


def _table(key: str, value: str, rows: Mapping[str, str]) -> str:
    body = [f"| {_cell(name)} | {_cell(text)} |" for name, text in rows.items()]
    return "\n".join([f"| {key} | {value} |", "|---|---|", *body])


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|")
