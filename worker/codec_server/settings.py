"""Every setting of the codec server, read once from its environment."""

import ipaddress
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from workflows.domain.errors import RefusedToStart

PREFIX = "CHARGEONCE_CODEC_"
TOKEN_CHARACTERS_MIN = 16


class CodecSettings(BaseSettings):
    """What the codec server needs to know beside the keys of payloads. The token never shows in a repr."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    host: str = "127.0.0.1"
    port: int = Field(default=12114, ge=0, le=65_535)
    """0 takes a free one, and the ready file says which."""
    ui_origin: str | None = None
    """Scheme, host and port of Temporal's UI, such as http://127.0.0.1:8233: the one page that may ask."""
    token: SecretStr | None = Field(default=None, min_length=TOKEN_CHARACTERS_MIN)
    """Asked for as `Authorization: Bearer ...`; none is needed on this machine alone."""
    body_bytes_max: int = Field(default=8 * 1024 * 1024, ge=1_024, le=64 * 1024 * 1024)
    """A page of a history is up to 4 MB, and a third more in base64."""
    ready_file: Path | None = None

    @field_validator("ui_origin", "token", mode="before")
    @classmethod
    def _none_if_empty(cls, value: object) -> object:
        return value or None

    @field_validator("ui_origin")
    @classmethod
    def _check_origin(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        origin = f"{parts.scheme}://{parts.netloc}".lower()  # as browsers send it: small, and without a path
        if parts.scheme not in {"http", "https"} or not parts.netloc or value != origin:
            raise ValueError("not an origin")
        return value

    @field_validator("token")
    @classmethod
    def _check_token(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not (
            value.get_secret_value().isascii() and value.get_secret_value().isprintable()
        ):
            raise ValueError("not a token")
        return value

    def refuse_open_door(self) -> None:
        """Raise RefusedToStart where other machines could have payloads decrypted without a token."""
        if self.token is None and not _is_loopback(self.host):
            raise RefusedToStart(
                f"the codec server would decrypt for whoever reaches {self.host}: set {PREFIX}TOKEN, "
                "or listen on 127.0.0.1"
            )


def load_codec_settings() -> CodecSettings:
    """Return the settings of the environment. Raises RefusedToStart without repeating a value."""
    try:
        return CodecSettings()
    except ValidationError as error:
        names = sorted({f"{PREFIX}{part['loc'][0]}".upper() for part in error.errors() if part["loc"]})
        raise RefusedToStart(f"settings of the codec server can't be right: {', '.join(names)}") from None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
