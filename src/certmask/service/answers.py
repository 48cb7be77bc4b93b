"""What comes back: an answer about a photo, or the reason why there is none."""

from __future__ import annotations

from pydantic import BaseModel, Field

from certmask.certificate import BASES


class PhotoAnswer(BaseModel):
    """What the defence says about one photo."""

    label: int = Field(description="The class that is answered, by number; -1 where the model gave no numbers at all.")
    name: str = Field(description="The class by name.")
    alert: bool = Field(description="Whether the defence warns of a patch: then the label is not to be relied on.")
    guarantee: str = Field(description="What this defence can prove: recovery, detection, published test or none.")
    guaranteed: str = Field(description="What is guaranteed about this photo, in one sentence.")
    certified: bool | None = Field(
        description="Whether that is proved of this photo; null where no proof was asked for."
    )
    basis: str | None = Field(
        description=f"What the answer rests on: {'; '.join(f'{basis}: {told}' for basis, told in BASES.items())}. Null "
        "for rules that do not tell."
    )
    forced: bool | None = Field(
        description="Whether the answer is forced by a patch hypothesis: the picture would be answered otherwise, but "
        "the votes that hide one place, where a patch may be, win against all others. Null for rules that do not tell."
    )
    passes: int = Field(description="Forward passes that the answer took.")
    proof_passes: int | None = Field(description="Forward passes that the proof needed, shared ones included.")
    defence: str = Field(description="The defence's name: its rule on the command line, or that of its file.")
    defence_sha256: str = Field(description="A short hash of threat, masks and rule, as GET /defence describes them.")
    fingerprint: str = Field(description="Of the function's behaviour, as headers of results files have it.")


class Problem(BaseModel):
    """Why there is no answer."""

    error: str = Field(description="The reason, in one line.")


class PhotoProblem(Problem):
    """Why one photo of a batch has no answer; the others are not concerned."""

    status: int = Field(description="The status that this photo alone would have had.")


class BatchAnswer(BaseModel):
    """One entry per photo, in the order in which they were sent."""

    answers: list[PhotoAnswer | PhotoProblem]


class Health(BaseModel):
    """Whether the service answers, and with which function."""

    status: str
    fingerprint: str
    queue: int
