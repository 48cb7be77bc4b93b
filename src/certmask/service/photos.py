"""From the body of a request to the photos in it: bytes alone, never a path, and none is copied."""

from __future__ import annotations

from email.message import Message

from certmask.service.limits import RefusedError

RAW = frozenset({"application/octet-stream", "image/bmp", "image/jpeg", "image/png", "image/tiff", "image/webp",
                 "image/x-portable-anymap", "image/x-portable-graymap", "image/x-portable-pixmap"})  # fmt: skip
"""Content types of a body that is one photo; its first bytes say of which kind it is."""

MULTIPART = "multipart/form-data"
PADDING = 100
"""Most bytes between a boundary and the end of its line."""


def photos_in(body: bytearray, content_type: str, most: int) -> list[memoryview]:
    """The photos of a body: itself, or every part of a form, whatever it is called; at most one more than ``most``."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind in RAW:
        return [memoryview(body)]
    if kind != MULTIPART:
        raise RefusedError(415, f"expected a photo or {MULTIPART} as the content type, got {kind[:60] or 'none'!r}")
    return _parts(body, _boundary(content_type), most)


def _boundary(content_type: str) -> bytes:
    header = Message()
    header["content-type"] = content_type
    try:
        boundary = (header.get_boundary() or "").encode("ascii")
    except ValueError:
        boundary = b""
    if not 0 < len(boundary) <= 70:
        raise RefusedError(400, f"expected {MULTIPART} with a boundary of 1 to 70 letters, got another one")
    return boundary


def _parts(body: bytearray, boundary: bytes, most: int) -> list[memoryview]:
    """What lies between the boundaries, without the headers; a form without its end is no form."""
    mark, parts = b"\r\n--" + boundary, list[memoryview]()
    begin = len(mark) - 2
    whole = body.startswith(mark[2:])
    while whole and len(parts) <= most and (end := body.find(mark, begin)) >= 0:
        parts.append(_content(body, begin, end))
        begin = end + len(mark)
    if not whole or not (len(parts) > most or body.startswith(b"--", begin)):
        raise RefusedError(400, f"expected {MULTIPART} from its first boundary to its last, got something else")
    return parts


def _content(body: bytearray, begin: int, end: int) -> memoryview:
    """What follows the headers of a part, which has some."""
    blank = body.find(b"\r\n\r\n", begin, end)
    if blank < 0 or not body[begin : min(blank, begin + PADDING)].lstrip(b" \t").startswith(b"\r\n"):
        raise RefusedError(400, f"expected {MULTIPART} whose parts have headers and a content, got another one")
    return memoryview(body)[blank + 4 : end]
