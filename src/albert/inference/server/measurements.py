"""What Prometheus is told: requests by how they ended, the queue, batches, and what was refused or dropped."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Measurements:
    """The figures of one server, in a registry of its own, so that two servers in a process do not mix theirs."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.request_seconds = Histogram(
            "albert_request_seconds",
            "From a request's header to the end of its reply.",
            ("address", "status"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.queue_seconds = Histogram(
            "albert_queue_seconds", "A text's wait in the queue.", buckets=_SECONDS, registry=self.registry
        )
        self.batch_seconds = Histogram(
            "albert_batch_seconds",
            "The computation of a batch.",
            ("ability",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.batch_texts = Histogram("albert_batch_texts", "Texts in a batch.", buckets=_TEXTS, registry=self.registry)
        self.batch_tokens = Histogram(
            "albert_batch_tokens", "Estimated tokens in a batch.", buckets=_TOKENS, registry=self.registry
        )
        self.texts = Counter("albert_texts", "Texts answered.", ("ability",), registry=self.registry)
        self.queued = Gauge("albert_queue_texts", "Texts that wait.", registry=self.registry)
        self.connections = Gauge("albert_connections", "Open connections.", registry=self.registry)
        self.refused = Counter(
            "albert_refused", "Requests and connections refused, by reason.", ("reason",), registry=self.registry
        )
        self.dropped = Counter(
            "albert_dropped_texts",
            "Texts that were accepted and not computed, by reason.",
            ("reason",),
            registry=self.registry,
        )

        self.failures = Counter(
            "albert_batch_failures",
            "Computations of a batch that failed, by cause; parts of it are computed again.",
            ("cause",),
            registry=self.registry,
        )

    def text(self) -> bytes:
        """All figures in Prometheus' text format."""
        return generate_latest(self.registry)
