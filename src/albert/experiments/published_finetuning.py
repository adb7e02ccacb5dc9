"""Table 14 of the paper as data: how each task was fine-tuned (Lan et al. 2019, A.4).

What `albert finetune` takes for a task is declared with the task (`tasks/`); a test holds the two against each other.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedFinetuning:
    """A row of Table 14.

    Args:
        learning_rate: the peak.
        batch_size: sequences per update.
        encoder_dropout: of ALBERT itself ("ALBERT DR").
        head_dropout: before the task's head ("Classifier DR").
        steps: updates.
        warmup: of which the rate rises.
        max_length: most tokens of a sequence.
    """

    learning_rate: float
    batch_size: int
    encoder_dropout: float
    head_dropout: float
    steps: int
    warmup: int
    max_length: int


TABLE_14: dict[str, PublishedFinetuning] = {
    "cola": PublishedFinetuning(1e-5, 16, 0, 0.1, 5336, 320, 512),
    "sts-b": PublishedFinetuning(2e-5, 16, 0, 0.1, 3598, 214, 512),
    "sst-2": PublishedFinetuning(1e-5, 32, 0, 0.1, 20935, 1256, 512),
    "mnli": PublishedFinetuning(3e-5, 128, 0, 0.1, 10000, 1000, 512),
    "qnli": PublishedFinetuning(1e-5, 32, 0, 0.1, 33112, 1986, 512),
    "qqp": PublishedFinetuning(5e-5, 128, 0.1, 0.1, 14000, 1000, 512),
    "rte": PublishedFinetuning(3e-5, 32, 0.1, 0.1, 800, 200, 512),
    "mrpc": PublishedFinetuning(2e-5, 32, 0, 0.1, 800, 200, 512),
    "wnli": PublishedFinetuning(2e-5, 16, 0.1, 0.1, 2000, 250, 512),
    "squad-1.1": PublishedFinetuning(5e-5, 48, 0, 0.1, 3649, 365, 384),
    "squad-2.0": PublishedFinetuning(3e-5, 48, 0, 0.1, 8144, 814, 384),
    "race": PublishedFinetuning(2e-5, 32, 0.1, 0.1, 12000, 1000, 512),
}
"""By the name that the task has here, in the paper's order."""
