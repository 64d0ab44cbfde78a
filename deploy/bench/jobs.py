"""What the command tells the processes that it measures, and what they answer."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

CallStyle = Literal["raw", "typed"]


class LoopJob(BaseModel):
    """One repetition of the unsafe loop."""

    model_config = ConfigDict(frozen=True)

    url: str
    secret_key: str
    call_style: CallStyle
    label: str
    charges: int = Field(ge=1)
    warm_up_charges: int = Field(ge=1)
    at_once: int = Field(ge=1)


class LoopResult(BaseModel):
    """What the loop saw of itself."""

    model_config = ConfigDict(frozen=True)

    seconds: float
    cpu_seconds: float
    succeeded: int
