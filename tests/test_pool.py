"""How many workers a cluster has room for: each has what it reserves on one node."""

from __future__ import annotations

from typing import Any

import pytest

from certmask.errors import UsageError
from certmask.scale.pool import Pool

SMALL, LARGE, GRAPHICS = {"CPU": 1.0}, {"CPU": 8.0}, {"CPU": 4.0, "GPU": 2.0}


@pytest.mark.parametrize(
    ("asked", "nodes", "workers", "gpus"),
    [
        ({}, [SMALL, SMALL], 2, 0.0),
        ({}, [SMALL, LARGE], 9, 0.0),
        ({"workers": 3}, [SMALL, LARGE], 3, 0.0),
        ({"workers": 30}, [SMALL, LARGE], 9, 0.0),
        ({"cpus": 2.0}, [SMALL, SMALL, LARGE], 4, 0.0),
        ({"cpus": 3.0}, [LARGE, LARGE], 4, 0.0),
        ({"cpus": 0.1}, [SMALL], 10, 0.0),
        ({}, [LARGE, GRAPHICS], 2, 1.0),
        ({"gpus": 0.0}, [LARGE, GRAPHICS], 12, 0.0),
        ({"gpus": 0.25}, [GRAPHICS], 4, 0.25),
        ({"gpus": 0.25, "cpus": 0.5}, [GRAPHICS, GRAPHICS], 16, 0.25),
        ({"gpus": 2.0}, [GRAPHICS], 1, 2.0),
    ],
)
def test_workers_are_those_that_fit_on_nodes(asked: Any, nodes: Any, workers: int, gpus: float) -> None:
    found = Pool(**asked).fitted(nodes)
    assert (found.workers, found.gpus) == (workers, gpus)


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [
        ({"cpus": 2.0}, [SMALL, SMALL]),
        ({"gpus": 1.0}, [LARGE]),
        ({"gpus": 4.0}, [GRAPHICS, GRAPHICS]),
        ({"cpus": 8.0, "gpus": 1.0}, [LARGE, GRAPHICS]),
        ({}, []),
    ],
)
def test_what_fits_on_no_node_is_refused(asked: Any, nodes: Any) -> None:
    """Ray itself would wait for such a node without end."""
    with pytest.raises(UsageError, match=r"^expected room for a worker of [\d.]+ CPUs and [\d.]+ GPUs, got .* on a "):
        Pool(**asked).fitted(nodes)


ODD = ({"workers": 0}, {"cpus": 0.0}, {"cpus": float("inf")}, {"gpus": -1.0}, {"gpus": 1.5})


@pytest.mark.parametrize("asked", ODD)
def test_a_pool_that_makes_no_sense_is_refused(asked: Any) -> None:
    with pytest.raises(UsageError, match=r"^expected "):
        Pool(**asked)
