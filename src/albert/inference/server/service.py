"""What is served and how it stands: starting until the model is loaded, ready, draining once it is to end."""

from typing import Literal

from albert.inference.predictor import Predictor
from albert.inference.server.batcher import Batcher
from albert.inference.server.calls import compute
from albert.inference.server.limits import LOOPBACK, Hosts, Limits
from albert.inference.server.measurements import Measurements

State = Literal["starting", "ready", "draining", "broken"]


class Service:
    """One model behind one queue.

    Attributes:
        draining: whether new work is refused, because the server is to end.
        in_progress: requests that were accepted and whose replies are not out.

    Args:
        limits: what is taken on at most.
        hosts: what the `Host` header of a request may say (see `allowed_hosts`).
    """

    def __init__(self, limits: Limits, hosts: Hosts = LOOPBACK) -> None:
        self.limits, self.hosts, self.measurements = limits, hosts, Measurements()
        self._served: tuple[Predictor, Batcher] | None = None
        self.draining, self.in_progress = False, 0

    def start(self, predictor: Predictor) -> None:
        """Serve this model from now on; called in the event loop."""
        batcher = Batcher(lambda call, inputs: compute(predictor, call, inputs), self.limits, self.measurements)
        self._served = predictor, batcher

    @property
    def state(self) -> State:
        """Whether requests are taken, and if not, why."""
        if self.draining:
            return "draining"
        if self._served is None:
            return "starting"
        return "ready" if self.batcher.is_alive else "broken"

    @property
    def predictor(self) -> Predictor:
        """The model; there is one unless the service is starting."""
        assert self._served is not None, "asked before the model was loaded"
        return self._served[0]

    @property
    def batcher(self) -> Batcher:
        """Its queue."""
        assert self._served is not None, "asked before the model was loaded"
        return self._served[1]

    def close(self) -> None:
        """End the worker, once what waits is computed."""
        if self._served is not None:
            self.batcher.close()
