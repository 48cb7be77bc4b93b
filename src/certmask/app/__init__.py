"""A page in the browser: look at a photo through a defence, attack it, explore a run."""

from __future__ import annotations

from importlib.util import find_spec

from certmask.errors import CertmaskError

PACKAGES = ("gradio", "fastapi", "uvicorn", "prometheus_client")


def check_installed() -> None:
    """An error that names the extra where a package of the page is missing."""
    missing = next((package for package in PACKAGES if find_spec(package) is None), None)
    if missing:
        raise CertmaskError(f"expected the package {missing}, got none: pip install 'certmask[app]'")
