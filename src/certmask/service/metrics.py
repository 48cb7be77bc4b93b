"""What the service counts, as Prometheus reads it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from certmask.service.answers import PhotoAnswer
from certmask.service.limits import Places, RefusedError

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
PASSES = (1, 4, 10, 30, 100, 300, 1000, 3000, 10000)


class Metrics:
    """Counts of one service; labels are its own words, never a client's."""

    def __init__(self, places: Places, fingerprint: str, defence: str) -> None:
        self.registry = own = CollectorRegistry()
        self.requests = Counter("certmask_requests", "Requests by route and status.", ["route", "status"], registry=own)
        self.seconds = Histogram(
            "certmask_request_seconds",
            "From arrival to answer.",
            ["route"],
            buckets=SECONDS,
            registry=own,
        )
        self.photos = Counter("certmask_photos", "Photos by what became of them.", ["outcome"], registry=own)
        self.passes = Histogram("certmask_passes", "Forward passes for an answer.", buckets=PASSES, registry=own)
        Gauge("certmask_queue_photos", "Photos in the house.", registry=own).set_function(lambda: places.taken)
        Gauge("certmask_queue_limit", "The most that may be.", registry=own).set(places.count)
        Info("certmask_defence", "What answers.", registry=own).info({"fingerprint": fingerprint, "defence": defence})

    def request(self, route: str, status: int, seconds: float) -> None:
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def photo(self, found: PhotoAnswer | RefusedError) -> None:
        if isinstance(found, RefusedError):
            self.photos.labels("refused").inc()
            return
        self.photos.labels("alert" if found.alert else "answered").inc()
        self.passes.observe(found.passes)

    def page(self) -> bytes:
        return generate_latest(self.registry)
