"""The service as an ASGI app: its routes, and how it words errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from certmask import __version__
from certmask.data import Framing
from certmask.deployed import Defence
from certmask.service.answers import BatchAnswer, Health, PhotoAnswer, PhotoProblem, Problem
from certmask.service.journal import Journal
from certmask.service.limits import Limits, RefusedError
from certmask.service.page import HEADERS, schema_page
from certmask.service.photos import MULTIPART, RAW
from certmask.service.reception import Reception

BEARER = HTTPBearer(auto_error=False, description="Needed where the service was started with a token.")


def service_app(
    shield: Defence, framing: Framing | None = None, limits: Limits | None = None, token: str | None = None
) -> FastAPI:
    """An ASGI app in which a defence answers about photos.

    framing: how a photo becomes the model's input; Pillow's bicubic resize and the centre if none is given
    limits: the most that is taken on
    token: what clients must send as a bearer token, if anything
    """
    reception = Reception(shield, framing or Framing(), limits or Limits(), token)
    app = FastAPI(
        title="certmask",
        version=__version__,
        summary="An image classifier that is provably safe against adversarial patches, and what is proved of it.",
        description=shield.defence.looks,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=reception.lifespan,
    )
    app.add_middleware(Journal, metrics=reception.metrics)
    app.state.reception = reception
    _add_refusals(app)
    _add_answers(app, reception)
    _add_notices(app, reception)
    return app


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Problem} for status in statuses}


def _body_of(*kinds: str) -> dict[str, Any]:
    """What a route takes, for the schema: the body is read by hand, so that it is never larger than the limit."""
    binary = {"type": "string", "format": "binary"}
    form = {"type": "object", "properties": {"photo": {"type": "array", "items": binary}}}
    content = {kind: {"schema": form if kind == MULTIPART else binary} for kind in kinds}
    return {"requestBody": {"required": True, "content": content}}


def _guard(reception: Reception) -> Callable[..., Awaitable[None]]:
    async def guard(given: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]) -> None:
        reception.check_token(given.credentials if given else "")

    return guard


def _add_answers(app: FastAPI, reception: Reception) -> None:
    common: dict[str, Any] = {
        "dependencies": [Depends(_guard(reception))],
        "responses": _problems(400, 401, 408, 413, 415, 422, 500, 503, 504),
    }

    @app.post("/predict", openapi_extra=_body_of(*sorted(RAW), MULTIPART), response_model=PhotoAnswer, **common)
    async def predict(request: Request, prove: bool = False) -> Any:
        """Label one photo, say whether an alert is raised, and what is guaranteed.

        The body is the photo itself, or a form with one part. With `prove=true` the guarantee is also proved for this
        photo, should it be clean; that takes more passes.
        """
        (found,) = await reception.predict(request, prove, 1)
        if isinstance(found, RefusedError):
            raise found
        return found

    @app.post("/predict/batch", openapi_extra=_body_of(MULTIPART), response_model=BatchAnswer, **common)
    async def predict_batch(request: Request, prove: bool = False) -> Any:
        """The same for all photos of a form, one in each part; a bad one does not spoil the others."""
        found = await reception.predict(request, prove, reception.limits.most_photos)
        return BatchAnswer(answers=[_told(one) for one in found])


def _told(found: PhotoAnswer | RefusedError) -> PhotoAnswer | PhotoProblem:
    return PhotoProblem(error=found.reason, status=found.status) if isinstance(found, RefusedError) else found


def _add_notices(app: FastAPI, reception: Reception) -> None:
    guarded = [Depends(_guard(reception))]

    @app.get("/defence", dependencies=guarded)
    async def defence() -> dict[str, Any]:
        """Function, defence and framing, as headers of results files describe them, and the limits of this service."""
        framing, limits = reception.framing.describe(), reception.limits.describe()
        return {**reception.examiner.describe(), "framing": framing, "limits": limits}

    @app.get("/healthz", response_model=Health, responses=_problems(503))
    async def healthz() -> Any:
        """Whether the service answers; 503 once the model was seen to answer otherwise than at first."""
        reception.check_health()
        return Health(status="ok", fingerprint=reception.examiner.fingerprint, queue=reception.places.taken)

    @app.get("/metrics", dependencies=guarded, response_class=Response)
    async def metrics() -> Response:
        """Counts of requests, photos and passes, for Prometheus."""
        return Response(reception.metrics.page(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(schema_page(app.openapi()), headers=HEADERS)


def _add_refusals(app: FastAPI) -> None:
    """Every error is one line of JSON."""

    @app.exception_handler(RefusedError)
    async def refused(_: Request, refusal: RefusedError) -> JSONResponse:
        headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after else {}
        headers |= {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
        return JSONResponse({"error": refusal.reason}, refusal.status, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        names = ", ".join(sorted({str(one["loc"][-1]) for one in error.errors()}))
        return JSONResponse({"error": f"expected a valid value, got another one for {names[:60]}"}, 422)

    @app.exception_handler(HTTPException)
    async def elsewhere(_: Request, error: HTTPException) -> JSONResponse:
        reason = f"expected a path and a method that GET /docs lists, got others ({error.detail})"
        return JSONResponse({"error": reason}, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def unforeseen(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": f"expected to go on, got {type(error).__name__}"}, 500)
