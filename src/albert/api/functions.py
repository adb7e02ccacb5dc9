"""The function `albert.evaluate`. Its options are in `options`. Torch is imported when it is called."""

from typing import TYPE_CHECKING

from albert.api.checks import check_evaluate
from albert.api.keywords import Call, with_options
from albert.api.options import Evaluate
from albert.runtime.environment import lazy_import

if TYPE_CHECKING:
    from albert.api.results import EvaluateResult


@with_options(Evaluate, "albert.evaluate", positional=("task",), rows=("dev",), omit=("json", "csv"))
def evaluate(call: Call) -> "EvaluateResult":
    """Score a model, or several together, with a task's official metrics, beside the majority baseline.

    The same as `albert evaluate`.
    """
    with call.rows_in("temporary"):
        options = call.options()
        check_evaluate(options)
        *_, last = lazy_import("albert.api.tasks").evaluations(options)
        return last
