"""`albert tables` on the terminal: a plan, and a table so far."""

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from albert.cli.console import open_console
from albert.cli.light_tables import bytes_of, table
from albert.cli.tables_options import TablesOptions
from albert.experiments.tables.expense import expense_of
from albert.experiments.tables.facts import Facts
from albert.experiments.tables.jobs import Finetuning, Pretraining
from albert.experiments.tables.outcomes import Outcome
from albert.experiments.tables.plan import Plan, PlannedJob
from albert.experiments.tables.report import about, body, progress_of, sentences, side_by_side
from albert.model.parameter_count import count_parameters
from albert.runtime.devices import pick_device
from albert.runtime.free_memory import free_memory


def show_plan(console: Console, plan: Plan, asked: TablesOptions) -> None:
    """Every distinct run with its cost, then the sum."""
    made = table(
        "pre-trainings", "arm", "seeds", "done", "parameters, M", "tokens, M", "tokens/s", "hours each", "tables"
    )
    for jobs in _alike(plan, Pretraining):
        first = jobs[0]
        assert isinstance(first.job, Pretraining)
        cost = first.cost
        made.add_row(
            first.job.arm.name,
            f"{len(jobs)}",
            _done(jobs),
            f"{count_parameters(first.job.arm.recipe.model).model / 1e6:,.1f}",
            f"{cost.tokens / 1e6:,.1f}",
            f"{cost.tokens / cost.seconds:,.0f}" + ("" if cost.measured else " *"),
            _hours(cost.seconds),
            ", ".join(first.tables),
        )
    print_whole(console, made)
    made = table("fine-tunings", "task", "runs", "done", "hours of all")
    for jobs in _alike(plan, Finetuning):
        first = jobs[0].job
        assert isinstance(first, Finetuning)
        made.add_row(first.task.task, f"{len(jobs)}", _done(jobs), _hours(sum(one.cost.seconds for one in jobs)))
    if made.rows:
        print_whole(console, made)
    if not plan.all_measured:
        console.print("* not tried here, for it takes too long or too much memory: from its operations", markup=False)
    _sum_up(console, plan, asked)


def show_outcome(console: Console, outcome: Outcome) -> None:
    """The table, and a sentence for each claim."""
    head, rows = side_by_side(outcome)
    title = f"{outcome.grid.table}: {outcome.grid.title}"
    if not outcome.grid.columns:
        console.print(title, markup=False, style="bold")
    elif _width(head, rows) <= console.width:
        made = table(title, *head)
        for row in rows:
            made.add_row(*row)
        console.print(made)
    else:
        _show_columns(console, title, *body(outcome))
    for line in (progress_of(outcome), *about(outcome), *sentences(outcome)):
        console.print(line, markup=False)


def print_whole(console: Console, made: Table) -> None:
    """A table with nothing cut off or folded: lines that are too long go on in the next line of the terminal."""
    needed = Measurement.get(console, console.options.update(max_width=10_000), made).maximum
    open_console(at_least=needed).print(made)


def _width(head: list[str], rows: list[list[str]]) -> int:
    return sum(max(map(len, cells)) + 2 for cells in zip(head, *rows, strict=True))


def _show_columns(console: Console, title: str, head: list[str], rows: list[list[str]]) -> None:
    """One column below the other, for terminals that are too narrow for all side by side."""
    made = table(title, "", "paper", "ours")
    for place in range(1, len(head), 2):
        made.add_row(head[place].removesuffix(": paper"), "", "", style="bold")
        for row in rows:
            if row[place] or row[place + 1]:
                made.add_row(f"  {row[0]}", row[place], row[place + 1])
    console.print(made)


def show_facts(console: Console, facts: Facts) -> None:
    """A table that needs no run."""
    made = table(f"{facts.table}: {facts.title}", *facts.head)
    for row in facts.rows:
        made.add_row(*row)
    print_whole(console, made)
    for note in facts.notes:
        console.print(note, markup=False)


def _sum_up(console: Console, plan: Plan, asked: TablesOptions) -> None:
    left, share = plan.seconds_left, 1 - plan.seconds_left / plan.seconds if plan.seconds else 1.0
    lines = [f"{_hours(left)} hours left of {_hours(plan.seconds)} ({share:.0%} done), one process after the other"]
    free = free_memory(pick_device(asked.device))
    if plan.memory:
        room = "" if free is None else f" of {bytes_of(free)} that are free"
        lines.append(f"memory: {bytes_of(plan.memory)} at the peak{room}")
        lines.append(f"disk: {bytes_of(plan.disk_left)} more below {asked.folders.root}")
    spent = expense_of(left / 3600, asked.rates)
    if asked.rates.price_per_hour:
        lines.append(f"money: {spent.dollars:,.2f} dollars at {asked.rates.price_per_hour:g} an hour")
    if asked.rates.watts:
        lines.append(f"electricity: {spent.kilowatt_hours:,.2f} kWh, {spent.co2_kilograms:,.2f} kg of CO2")
    if len({table for one in plan.jobs for table in one.tables}) > 1:
        each = {table: plan.seconds_alone(table) for one in plan.jobs for table in one.tables}
        lines.append("each table by itself, hours: " + ", ".join(f"{name} {_hours(s)}" for name, s in each.items()))
    for line in lines:
        console.print(line, markup=False)


def _alike(plan: Plan, kind: type[Pretraining] | type[Finetuning]) -> list[list[PlannedJob]]:
    """Jobs that differ in their seeds alone, or in the models that learn the same task."""
    found: dict[str, list[PlannedJob]] = {}
    for one in plan.jobs:
        if isinstance(one.job, kind):
            name = one.job.arm.name if isinstance(one.job, Pretraining) else one.job.task.task
            found.setdefault(name, []).append(one)
    return list(found.values())


def _done(jobs: list[PlannedJob]) -> str:
    return f"{sum(one.done for one in jobs):.2g}" if any(one.done for one in jobs) else "0"


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 1 else f"{hours:.2f}"
