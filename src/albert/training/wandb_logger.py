"""Curves on Weights & Biases. Needs the extra `wandb`; WANDB_MODE=offline keeps them here, `wandb sync` sends them."""

import secrets
from collections.abc import Mapping
from typing import Any

import wandb  # pyright: ignore[reportMissingImports]  # an extra

from albert.runtime.json_files import read_json_object, save_json
from albert.training.run_folder import RunFolder

IDENTITY_NAME = "wandb.json"


class WandbLogger:
    """One run there for one run here, also when it is stopped and goes on.

    Steps are told as a number beside the others: a run that goes back tells a step twice, and the service's own steps
    only ascend. What it shows of such a step are both tellings.

    Args:
        run: its folder, which keeps the run's name at the service.
        project: at the service.
        settings: what the service shows beside the curves, the recipe say.
    """

    def __init__(self, run: RunFolder, project: str, settings: Mapping[str, Any]) -> None:
        path = run.path / IDENTITY_NAME
        if not path.exists():
            run.path.mkdir(parents=True, exist_ok=True)
            save_json(path, {"id": secrets.token_hex(8)})
        name = run.path.resolve().name
        identity = read_json_object(path)["id"]
        self._run = wandb.init(
            project=project, name=name, id=identity, resume="allow", dir=str(run.path), config=dict(settings)
        )
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        self._run.log({"step": step, **numbers})

    def rewind(self, step: int) -> None:
        """Nothing is taken back: what is told of a step again stands beside what was told before."""

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()
