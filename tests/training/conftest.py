"""A problem that trains in milliseconds: points to classify, every third of them with a size to regress.

`albert` is imported late: the hook on annotations comes first.
"""

import os
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

N_INPUTS, N_CLASSES = 6, 3


@dataclass(frozen=True)
class Points:
    """A micro-batch."""

    inputs: Tensor
    classes: Tensor
    sizes: Tensor
    """NaN for points without a size."""
    numbers: tuple[int, ...]

    @property
    def counts(self) -> dict[str, int]:
        return {"class": len(self.classes), "size": int(self.sizes.isfinite().sum())}

    @property
    def n_tokens(self) -> int:
        return self.inputs.numel()

    def to(self, device: torch.device) -> "Points":
        return replace(self, inputs=self.inputs.to(device))


class PointSource:
    """Points by number. Only every third one has a size, so micro-batches differ in their counts."""

    def __init__(self, batch_size: int = 8, micro_batch_size: int = 8) -> None:
        self.batch_size, self.micro_batch_size = batch_size, micro_batch_size

    def point(self, number: int) -> tuple[Tensor, int, float]:
        from albert.runtime.random_streams import stream

        inputs = torch.from_numpy(stream("points", 0, number).normal(size=N_INPUTS)).float()
        size = float(inputs.sum()) if number % 3 == 0 else float("nan")
        return inputs, int(inputs.argmax()) % N_CLASSES, size

    def micro_batches(self, step: int, rank: int, world_size: int) -> list[Points]:
        numbers = range(step * self.batch_size + rank, (step + 1) * self.batch_size, world_size)
        batches = []
        for first in range(0, len(numbers), self.micro_batch_size):
            chunk = numbers[first : first + self.micro_batch_size]
            inputs, classes, sizes = zip(*(self.point(number) for number in chunk), strict=True)
            batches.append(Points(torch.stack(inputs), torch.tensor(classes), torch.tensor(sizes), tuple(chunk)))
        return batches


class Interrupting:
    """A source that sends a signal to this process when it makes the batch of one step."""

    def __init__(self, source, step: int, number: int) -> None:
        self._source, self._step, self._number = source, step, number

    def micro_batches(self, step, rank, world_size):
        if step == self._step:
            os.kill(os.getpid(), self._number)
        return self._source.micro_batches(step, rank, world_size)


class PointModel(nn.Module):
    """Two outputs over one hidden layer."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.hidden, self.dropout = nn.Linear(N_INPUTS, 12), nn.Dropout(dropout)
        self.classifier, self.measure = nn.Linear(12, N_CLASSES), nn.Linear(12, 1)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.dropout(self.hidden(inputs).tanh())
        return self.classifier(hidden), self.measure(hidden)[:, 0]


def point_objective(model: nn.Module, batch: Points):
    """Sums of the cross-entropy and of the squared error."""
    from albert.training.update import Sums

    logits, sizes = model(batch.inputs)
    has_size = batch.sizes.isfinite()
    return Sums(
        losses={
            "class": nn.functional.cross_entropy(logits, batch.classes, reduction="sum"),
            "size": (sizes[has_size] - batch.sizes[has_size]).square().sum(),
        },
        correct={"class": (logits.argmax(-1) == batch.classes).sum()},
    )


def scaled(sums, factor: float):
    """Sums with all losses multiplied by a factor, for instance NaN."""
    return replace(sums, losses={name: loss * factor for name, loss in sums.losses.items()})


def on_call(call: int, action):
    """The objective, which first runs `action` in its call number `call` (from 1)."""
    calls = []

    def objective(model, batch):
        calls.append(batch)
        if len(calls) == call:
            action()
        return point_objective(model, batch)

    return objective


def weights_of(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def final_bytes(run) -> bytes:
    """Weights and moments of a run's newest checkpoint."""
    return (run.checkpoints()[-1][1] / "training_state.safetensors").read_bytes()


def checkpoint_steps(run) -> list[int]:
    return [step for step, _ in run.checkpoints()]


def events(run, name: str) -> list[dict]:
    """Records of one kind in the journal."""
    from albert.runtime.json_files import read_journal

    return [record for record in read_journal(run.journal_path) if record["event"] == name]


@pytest.fixture
def make_model():
    """Build the same model every time."""

    def make(dropout: float = 0.0) -> PointModel:
        torch.manual_seed(7)
        return PointModel(dropout)

    return make


def point_work(model, optimizer, objective=point_objective, source=None, **changes):
    """The work of a run on points; `changes` replace attributes and methods."""
    from albert.training.task import TrainingTask

    class PointTask(TrainingTask):
        def learning_rate(self, step, budget_used):
            return 0.01 / (step + 1)

        def loss(self, model, batch):
            return objective(model, batch)

        def evaluate(self):
            raise AssertionError("a run that does not evaluate was evaluated")

        def save(self, directory):
            (directory / "model.bin").write_bytes(bytes(10))

    work = PointTask(module=model, optimizer=optimizer, source=source or PointSource(), device=torch.device("cpu"))
    work.evaluates = changes.get("evaluate") is not None
    for name, value in changes.items():
        setattr(work, name, value)
    return work


@pytest.fixture
def train(make_model, tmp_path):
    """Start or resume a run, as a new process would; returns the model and the result."""
    from albert.optim.optimizer import OptimizerRecipe, build_optimizer
    from albert.training import loop
    from albert.training.logging import TrainingPlan
    from albert.training.run_folder import RunFolder
    from albert.training.same_run import Run

    def train(name="run", *, source=None, objective=point_objective, dropout=0.0, kind="lamb", **changes):
        train.model = model = make_model(dropout)
        identity = changes.pop("identity", {"recipe": "r1", "corpus": "c1"})
        of_work = {"evaluate", "before_step", "flops", "matmul_rate"} & changes.keys()
        attributes = {name: changes.pop(name) for name in of_work}
        attributes["workers"] = changes.pop("compute_workers", 1)
        optimizer = build_optimizer(OptimizerRecipe(kind=kind, learning_rate=0.01), model)
        work = point_work(model, optimizer, objective, source, **attributes)
        plan = TrainingPlan(**({"total_steps": 10, "precision": "fp32", "log_every": 4} | changes))
        run = Run(folder=RunFolder(tmp_path / name), record={}, identity=identity)
        with run.folder.locked():
            result = loop.train(work, plan, run)
        return model, result

    return train


@pytest.fixture
def run(tmp_path):
    """The default folder of `train`."""
    from albert.training.run_folder import RunFolder

    return RunFolder(tmp_path / "run")


@pytest.fixture
def reference(tmp_path):
    """The folder of `train("reference")`."""
    from albert.training.run_folder import RunFolder

    return RunFolder(tmp_path / "reference")


# ---- a command of each kind of run ----------------------------------------------------------------------------------

SHAPE = (
    "architecture.hidden_size=16 architecture.embedding_size=8 architecture.num_attention_heads=2 "
    "architecture.intermediate_size=16 architecture.num_hidden_layers=1"
)
SCHEDULE = "max_length=32 batch_size=4 micro_batch_size=4 schedule.warmup_steps=1 evaluation_sequences=4"
WORDS = ("good", "bad", "long", "short")


@pytest.fixture(scope="module")
def commands(tokenizer_directory, tmp_path_factory):
    """The command of each kind of run, without its output."""
    import albert

    root = tmp_path_factory.mktemp("runs")
    text = root / "text.txt"
    text.write_text("".join(f"The cat saw the dog {n} times. It ran away.\n\n" for n in range(200)))
    albert.prepare(text, tokenizer=tokenizer_directory, output=root / "corpus", held_out=0.2)
    table = root / "films.csv"
    table.write_text("text,label\n" + "".join(f"film {n} was {word},{word}\n" for n, word in enumerate(WORDS * 6)))
    pairs = root / "pairs.csv"
    pairs.write_text(
        "anchor,positive\n" + "".join(f"a {word} film {n},the {word} {n}\n" for n, word in enumerate(WORDS * 6))
    )
    pretrain = ["pretrain", "quickstart", *SHAPE.split(), *SCHEDULE.split(), "architecture.max_position_embeddings=32"]
    pretrain += ["steps=8", "--device", "cpu", "precision=fp32", "--data", str(root / "corpus")]
    small = ["batch_size=4", "steps=8", "max_length=16", "--device", "cpu"]
    columns = ["--text", "anchor", "--pair", "positive"]
    vectors = ["--train", str(table), "--text", "text", "--teacher", "tiny"]
    return {
        "pretrain": pretrain,
        "finetune": ["finetune", "--train", str(table), "--dev", str(table), "--model", "tiny", *small],
        "vectors": ["finetune-vectors", *vectors, "--model", "tiny", *small],
        "pairs": ["finetune-vectors", "--train", str(pairs), *columns, "--model", "tiny", *small],
    }
