"""What one request may cost, and how it is refused where it would cost more."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from certmask.errors import CertmaskError, UsageError

MIB = 2**20


class RefusedError(CertmaskError):
    """A request, or one photo of it, that is not answered: an HTTP status and the reason in one line."""

    def __init__(self, status: int, reason: str, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.retry_after = status, reason, retry_after


@dataclass(frozen=True)
class Limits:
    """The most that is taken on; what goes beyond is refused before it is read, decoded or computed.

    ``upload`` are bytes of a request's body, ``pixels`` those of a stored photo, ``photos`` those of one batch request;
    ``passes`` is the most that one photo may take, None as many as it needs. ``queue`` counts the photos that are
    uploaded, wait or are looked at, ``seconds`` run from a request's arrival to its answer. One photo is decoded for at
    most ``decoding`` seconds; ``connections`` are those that are open at once.
    """

    upload: int = 16 * MIB
    pixels: int = 50_000_000
    photos: int = 16
    passes: int | None = None
    queue: int = 64
    seconds: float = 60.0
    decoding: float = 10.0
    connections: int = 512

    def __post_init__(self) -> None:
        for field in fields(self):
            limit = getattr(self, field.name)
            if limit is not None and not 0 < limit < float("inf"):
                raise UsageError(f"expected a limit on {field.name} above 0, got {limit}")

    @property
    def most_photos(self) -> int:
        """Photos of one batch request: never more than the queue could ever take."""
        return min(self.photos, self.queue)

    def describe(self) -> dict[str, Any]:
        """As the service tells it."""
        return {**asdict(self), "photos": self.most_photos}

    def check_upload(self, size: int) -> None:
        """Refuse a body of so many bytes."""
        if size > self.upload:
            raise RefusedError(413, f"expected an upload of at most {self.upload:,} bytes, got more")

    def check_pixels(self, width: int, height: int) -> None:
        """Refuse a photo of this size, known from its header."""
        if width * height > self.pixels:
            raise RefusedError(413, f"expected a photo of at most {self.pixels:,} pixels, got {width}×{height}")

    def check_photos(self, count: int) -> None:
        """Refuse a batch of so many photos."""
        if not 0 < count <= self.most_photos:
            got = "more" if count else "none"
            raise RefusedError(
                413 if count else 400, f"expected 1 to {self.most_photos} photos in a request, got {got}"
            )


@dataclass(frozen=True)
class Replicas:
    """How many copies of the service a cluster runs, and the share of processors and GPUs that each has."""

    count: int = 1
    cpus: float = 1.0
    gpus: float = 0.0


class Places:
    """How many photos are in the house; a full house refuses at once and says when to come back."""

    def __init__(self, count: int) -> None:
        self.count, self.taken = count, 0
        self.seconds_each = 1.0

    def take(self, count: int = 1) -> None:
        """Take places that ``leave`` gives back."""
        if self.taken + count > self.count:
            raise RefusedError(
                503, f"expected room for {count} more in a queue of {self.count}, got {self.taken} in it", self.wait
            )
        self.taken += count

    def leave(self, count: int) -> None:
        """Give places back."""
        self.taken -= count

    @property
    def wait(self) -> int:
        """Whole seconds after which there should be room again."""
        return min(max(round(self.taken * self.seconds_each), 1), 600)

    def tell(self, seconds: float) -> None:
        """A photo took so long: the mean of the last ones is what to expect."""
        self.seconds_each += (seconds - self.seconds_each) / 8
