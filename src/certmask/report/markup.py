"""HTML in which everything that is not markup is escaped."""

from __future__ import annotations

import base64
from html import escape

_ALONE = frozenset({"img", "meta", "br"})


class Markup(str):
    """Finished HTML; plain strings become text."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str) -> Markup:
    """One element; a trailing underscore keeps attribute names off Python's keywords, an inner one is a hyphen."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    if name in _ALONE:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: str) -> Markup:
    """Elements and texts one after another."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def data_uri(content: bytes, kind: str) -> str:
    """Bytes as an address that needs no network."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
