"""Every declared task, by name."""

from albert.runtime.errors import UsageError, did_you_mean
from albert.tasks import glue, race, squad
from albert.tasks.task import Task

DECLARED: dict[str, Task] = {task.name: task for task in (*glue.TASKS, *squad.TASKS, *race.TASKS)}


def find_task(name: str) -> Task:
    """The task of that name; upper case, and dots, hyphens and underscores left out, are forgiven.

    Raises:
        UsageError: no such task; the closest one is suggested.
    """
    plain = {_plain(known): task for known, task in DECLARED.items()}
    if _plain(name) not in plain:
        raise UsageError(f"task {name}", "unknown", did_you_mean(name.lower(), DECLARED))
    return plain[_plain(name)]


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
