"""Where the runs of the tables lie, below one root.

ROOT/runs/KEY/                       a pre-training, as `albert pretrain` writes it
    scores/KEY/arm.json              what the key stands for
               intrinsic.json        masked tokens, next sentences, sentence order, on held-out text
               layers.json           how far each layer moves its input (Figure 1), once it was shown
               TASK-seedN/           a fine-tuning, as `albert finetune` writes it
    scores/speed-TABLE.json          training speed of a table's architectures on this machine
    failures/JOB.json                why a job was given up; remove it to try again
    claims/JOB/                      the lock of whoever works on a job
"""

from dataclasses import dataclass
from pathlib import Path

from albert.training.run_folder import RunFolder


@dataclass(frozen=True)
class Folders:
    """The places below a root; nothing is made by asking for them."""

    root: Path

    def pretraining(self, key: str) -> RunFolder:
        """The pre-training of an arm."""
        return RunFolder(self.root / "runs" / key)

    def arm(self, key: str) -> Path:
        """What an arm is, as JSON."""
        return self.root / "scores" / key / "arm.json"

    def intrinsic(self, key: str) -> Path:
        """What an arm knows of held-out text, as JSON."""
        return self.root / "scores" / key / "intrinsic.json"

    def layers(self, key: str) -> Path:
        """How far its layers move what comes into them, as JSON."""
        return self.root / "scores" / key / "layers.json"

    def finetuning(self, key: str, task: str, seed: int) -> RunFolder:
        """A task learnt by an arm."""
        return RunFolder(self.root / "scores" / key / f"{task}-seed{seed}")

    def speed(self, table: str) -> Path:
        """Training speed of a table's architectures, as JSON."""
        return self.root / "scores" / f"speed-{table}.json"

    def failure(self, job: str) -> Path:
        """Why a job was given up, as JSON."""
        return self.root / "failures" / f"{job}.json"

    def claim(self, job: str) -> Path:
        """The directory whose lock is held by whoever works on a job."""
        return self.root / "claims" / job
