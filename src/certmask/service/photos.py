"""From the bytes of an upload to model inputs, as ``certmask predict`` makes them; bytes alone, never a path."""

from __future__ import annotations

from dataclasses import dataclass
from email.message import Message
from io import BytesIO

from PIL import Image
from torch import Tensor

from certmask.data import Framing, read_photo, to_tensor
from certmask.data.photo import opened
from certmask.errors import DataError, first_line
from certmask.service.limits import Limits, RefusedError
from certmask.threat import Size

FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What is decoded; Pillow knows more, some of which start other programs."""

RAW = frozenset({"application/octet-stream", "image/bmp", "image/jpeg", "image/png", "image/tiff", "image/webp",
                 "image/x-portable-anymap", "image/x-portable-graymap", "image/x-portable-pixmap"})  # fmt: skip
"""Content types of a body that is one photo; its first bytes say of which kind it is."""

MULTIPART = "multipart/form-data"
UPLOAD = "the upload"


@dataclass(frozen=True)
class Darkroom:
    """Develops uploads: what the model is shown of each photo, within the limits."""

    framing: Framing
    size: Size
    limits: Limits

    def developed(self, photo: bytes) -> Tensor:
        """The model input, ``[3, height, width]`` in [0, 1]; refused by its header where it has too many pixels."""
        return to_tensor(self.framed(photo))

    def framed(self, photo: bytes) -> Image.Image:
        """The same as a picture."""
        try:
            with opened(BytesIO(photo), UPLOAD, FORMATS) as file:
                self.limits.check_pixels(*file.size)
            return self.framing(read_photo(BytesIO(photo), UPLOAD, FORMATS), self.size, UPLOAD)
        except RefusedError:
            raise
        except DataError as error:
            raise RefusedError(400, str(error)) from None
        except Exception as error:  # whatever a decoder does with bytes that were made to break it
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise RefusedError(400, f"expected a readable image in {UPLOAD}, got {reason}") from None


def photos_in(body: bytes, content_type: str, most: int) -> list[bytes]:
    """The photos of a body: itself, or every part of a form, whatever it is called; at most one more than ``most``."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind in RAW:
        return [body]
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


def _parts(body: bytes, boundary: bytes, most: int) -> list[bytes]:
    """What lies between the boundaries, without the headers; a form without its end is no form."""
    before, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary, most + 2)
    end = parts.pop() if parts else b""
    if before or not (end.startswith(b"--") or len(parts) > most):
        raise RefusedError(400, f"expected {MULTIPART} from its first boundary to its last, got something else")
    return [_content(part) for part in parts]


def _content(part: bytes) -> bytes:
    headers, blank, content = part.partition(b"\r\n\r\n")
    if not blank or headers.strip(b" \t")[:2] != b"\r\n":
        raise RefusedError(400, f"expected {MULTIPART} whose parts have headers and a content, got another one")
    return content
