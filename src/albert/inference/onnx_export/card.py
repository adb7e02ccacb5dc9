"""The card beside an ONNX file: what goes in and comes out, its figures, and what a user has to know."""

from albert.checkpoints.card import ModelCard
from albert.checkpoints.kinds import ARCHITECTURES, MODELS
from albert.inference.onnx_export.report import TOLERANCE, Checked, Exported

_USE = """```python
import onnxruntime
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
session = onnxruntime.InferenceSession("{name}/model.onnx")
inputs = tokenizer(["A short text.", "And one that is a little longer."], padding=True, return_tensors="np")
for output, values in zip(session.get_outputs(), session.run(None, dict(inputs))):
    print(output.name, values.shape)
```"""
_USE_WITHOUT_TOKENIZER = """```python
import onnxruntime

session = onnxruntime.InferenceSession("{name}/model.onnx")
print([(each.name, each.type, each.shape) for each in session.get_inputs()])
print([(each.name, each.type, each.shape) for each in session.get_outputs()])
```"""
_USE_FOR_CHOICES = _USE.replace(
    "session.run(None, dict(inputs))", "session.run(None, {key: rows[None] for key, rows in inputs.items()})"
)


def onnx_card(name: str, source: str, report: Exported, has_tokenizer: bool, next_sentence: bool) -> str:
    """The card as Markdown.

    Args:
        name: of the directory.
        source: what the model was called.
        report: what was written and checked.
        has_tokenizer: whether there is one beside the file.
        next_sentence: whether a sentence head tells next sentences, and not their order.
    """
    axes = {output: "[" + ", ".join(map(str, shape)) + "]" for output, shape in report.outputs.items()}
    if "sentence_logits" in axes:
        meaning = "0 the next segment, 1 a foreign one" if next_sentence else "0 in order, 1 swapped"
        axes["sentence_logits"] += f": {meaning}"
    return ModelCard(
        name=name,
        architecture=ARCHITECTURES[MODELS[report.kind]],
        description=f"{source} as one ONNX file of {report.bytes / 1e6:,.1f} MB, opset {report.opset}, "
        f"{report.precision}, {report.depth} layers. What layers share stands in it once: in float32 its parameters "
        f"are {report.weight_bytes / 1e6:,.1f} MB.",
        recipe={"inputs": "input_ids, attention_mask, token_type_ids: int64, padded on the right", **axes},
        scores={
            f"{output} in {check.runtime}: largest difference": largest
            for check in report.checks
            for output, largest in check.differences.largest.items()
        },
        limits=_limits(report),
        tags=("onnx",),
        location="path/to/this/directory",
        use=_use(report, has_tokenizer),
    ).render()


def _use(report: Exported, has_tokenizer: bool) -> str:
    if not has_tokenizer:
        return _USE_WITHOUT_TOKENIZER
    return _USE_FOR_CHOICES if report.kind == "multiple_choice" else _USE


def usual_differences(check: Checked) -> str:
    """The differences of a runtime in words."""
    found = check.differences
    usual = {output: f" ({share:.1%} of its spread as a rule)" for output, share in found.relative.items()}
    return ", ".join(
        f"{output} {largest:.2g}{usual[output] if largest > TOLERANCE else ''}"
        for output, largest in found.largest.items()
    )


def _limits(report: Exported) -> tuple[str, ...]:
    limits = [
        "Differences are absolute, from what albert computes in float32, over random batches of mixed lengths. "
        "OpenVINO computes in bfloat16 by itself where the processor can; INFERENCE_PRECISION_HINT f32 gives these "
        "figures."
    ]
    if report.precision == "int8":
        limits.append(
            "Weights are integers with a scale for each output, activations with a scale for each token, so no answer "
            "depends on what shares its batch. On x86 processors without VNNI such products may saturate. What int8 "
            "does to a task's score is not told by these differences: evaluate it."
        )
    if report.window is not None:
        limits.append(
            f"Attention in a window of {report.window} tokens is computed as dense attention under a mask: the numbers "
            "are the same, memory grows with the square of the length."
        )
    if report.left_out:
        limits.append(f"Not in it, because nobody trained it: {report.left_out}.")
    return tuple(limits)
