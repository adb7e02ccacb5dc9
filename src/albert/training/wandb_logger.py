"""Logging to Weights & Biases. Needs the extra `wandb`; with WANDB_MODE=offline, `wandb sync` uploads them later."""

import secrets
from collections.abc import Mapping
from typing import Any

import wandb  # pyright: ignore[reportMissingImports]  # an extra

from albert.runtime.json_files import read_json_object, save_json
from albert.training.run_folder import RunFolder

IDENTITY_NAME = "wandb.json"


class WandbLogger:
    """Logs a run to one W&B run, also after it was stopped and resumed.

    Steps are logged as a metric of their own, since W&B steps only ascend: after a rollback a step has two points.

    Args:
        run: the folder of the run, which keeps the W&B run id.
        project: W&B project.
        settings: W&B config, for instance the recipe.
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
        """Does nothing: later records of a step are added to the earlier ones."""

    def close(self) -> None:
        """Upload the remaining records."""
        self._run.finish()
