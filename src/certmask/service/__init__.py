"""A defended classifier behind an address: one photo in, an answer and what is guaranteed out."""

from __future__ import annotations

from importlib.util import find_spec

from certmask.errors import CertmaskError

SERVE = ("fastapi", "uvicorn", "prometheus_client")
EXTRAS = {"plain": ("serve", SERVE), "ray": ("ray-serve", (*SERVE, "ray"))}
"""By engine: what to install, and the packages that show whether it is."""


def check_installed(engine: str) -> None:
    """An error that names the extra where a package of the service is missing."""
    extra, packages = EXTRAS[engine]
    missing = next((package for package in packages if find_spec(package) is None), None)
    if missing:
        raise CertmaskError(f"expected the package {missing}, got none: pip install 'certmask[{extra}]'")
