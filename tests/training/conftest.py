"""A problem small enough to train on dozens of times: points to classify, some of them to measure as well.

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
    """Not a number where a point was not measured."""
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
    """Points by number. Every third one is measured, so that micro-batches differ in their counts."""

    def __init__(self, batch_size: int = 8, micro_batch_size: int = 8) -> None:
        self.batch_size, self.micro_batch_size = batch_size, micro_batch_size

    def point(self, number: int) -> tuple[Tensor, int, float]:
        from albert.runtime.random_streams import stream

        draws = stream("points", 0, number)
        inputs = torch.from_numpy(draws.normal(size=N_INPUTS)).float()
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
    """Sends a signal to this very process while it makes the batch of one step."""

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
    measured = batch.sizes.isfinite()
    return Sums(
        losses={
            "class": nn.functional.cross_entropy(logits, batch.classes, reduction="sum"),
            "size": (sizes[measured] - batch.sizes[measured]).square().sum(),
        },
        correct={"class": (logits.argmax(-1) == batch.classes).sum()},
    )


def final_bytes(run) -> bytes:
    """Weights and moments of a run's newest checkpoint."""
    return (run.checkpoints()[-1][1] / "training_state.safetensors").read_bytes()


def steps_kept(run) -> list[int]:
    """Of its checkpoints."""
    return [step for step, _ in run.checkpoints()]


@pytest.fixture
def source_of():
    """The class of the batches' source."""
    return PointSource


@pytest.fixture
def make_model():
    """The same model every time."""

    def make(dropout: float = 0.0) -> PointModel:
        torch.manual_seed(7)
        return PointModel(dropout)

    return make


@pytest.fixture
def objective():
    """The loss."""
    return point_objective


@pytest.fixture
def learn(make_model, tmp_path):
    """Train in a folder, afresh or from where it stands, as a new process would; returns model and result."""
    from albert.optim.optimizer import OptimizerRecipe, build_optimizer
    from albert.training.logging import TrainingPlan
    from albert.training.loop import Training
    from albert.training.run_folder import RunFolder

    def learn(name="run", *, source=None, objective=point_objective, dropout=0.0, kind="lamb", **changes):
        learn.model = model = make_model(dropout)
        settings = {
            "identity": {"recipe": "r1", "corpus": "c1"},
            "evaluate": None,
            "before_step": None,
            "meter": None,
            "loggers": (),
            "compute_workers": 1,
        }
        settings |= {key: changes.pop(key) for key in settings.keys() & changes.keys()}
        run = RunFolder(tmp_path / name)

        def save_model(directory):
            (directory / "model.bin").write_bytes(bytes(10))

        with run.locked():
            result = Training(
                model,
                build_optimizer(OptimizerRecipe(kind=kind, learning_rate=0.01), model),
                lambda step, used: 0.01 / (step + 1),
                source or PointSource(),
                objective,
                TrainingPlan(**({"total_steps": 10, "precision": "fp32", "log_every": 4} | changes)),
                run,
                device=torch.device("cpu"),
                save_model=save_model,
                description="Learning",
                **settings,
            ).complete()
        return model, result

    return learn


@pytest.fixture
def run(tmp_path):
    """The folder that `learn` writes unless another is named."""
    from albert.training.run_folder import RunFolder

    return RunFolder(tmp_path / "run")
