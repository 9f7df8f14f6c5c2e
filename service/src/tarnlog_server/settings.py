"""What an operator may set: TARNLOG_* in the environment, or the same keys in tarnlog.toml.

The command line beats the environment, which beats the file. A bad setting becomes one sentence that names it.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from tarnlog_server.core.locations import mistyped
from tarnlog_server.core.table_settings import PropertyError, check_defaults
from tarnlog_server.setting_words import not_json, sentence

PREFIX = "TARNLOG_"
FILE_NAME = "tarnlog.toml"
MIB = 1024 * 1024

_ADDRESS = re.compile(r"https?://[A-Za-z0-9._:\[\]-]+/?\Z")
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Size = Annotated[int, Field(ge=1024, le=2**40)]
HostName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:\[\]-]{1,253}$")]


class BadSettings(Exception):
    """A setting that cannot be used; the message is the one sentence for the operator."""


class KeySettings(BaseModel):
    """One API key: clients send `id.secret`, and only the SHA-256 of the secret is configured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
    scope: Literal["read", "write", "admin"]
    namespaces: Annotated[str, Field(min_length=1, max_length=256)] | None = None


class _Environment(EnvSettingsSource):
    """The environment, in which lists and objects are JSON."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            found = super().decode_complex_value(field_name, field, value)
        except (ValueError, RecursionError):
            found = None
        if found is None:
            raise BadSettings(not_json(PREFIX, field_name, str(value)))
        return found


class Settings(BaseSettings):
    """The service's settings with their defaults: a service of its own on loopback, with its data in ./data."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, validate_default=True)

    warehouse: Annotated[str, Field(min_length=1)] = "./data"
    locations: tuple[str, ...] = ()
    database_url: str | None = Field(None, min_length=1, repr=False)
    database_pool_size: Annotated[int, Field(ge=1, le=1000)] = 5
    database_connect_seconds: Annotated[float, Field(gt=0, le=600)] = 5.0
    database_read_seconds: Annotated[float, Field(gt=0, le=600)] = 0.5
    database_write_seconds: Annotated[float, Field(gt=0, le=600)] = 15.0
    database_retry_seconds: Annotated[float, Field(ge=0.2, le=3600)] = 30.0
    database_migrate: bool = True
    index_segment_bytes: Annotated[int, Field(ge=0, le=2**50)] = 1024 * MIB
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8420
    allowed_hosts: tuple[HostName, ...] = ()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"
    s3_endpoint: str | None = None
    s3_client: Literal["boto3", "obstore"] | None = None
    api_keys: tuple[KeySettings, ...] = ()
    table_defaults: dict[str, str] = {}
    max_body_bytes: Size = 72 * MIB
    max_inflated_bytes: Size = 256 * MIB
    max_body_memory_bytes: Size = 1024 * MIB
    max_connections: Annotated[int, Field(ge=1, le=1_000_000)] = 5000
    request_head_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    request_body_seconds: Annotated[float, Field(gt=0, le=3600)] = 30.0
    max_waiting: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    max_waiting_bytes: Size = 256 * MIB
    commit_deadline_seconds: Annotated[float, Field(gt=0, le=3600)] = 30.0
    head_max_age_seconds: Seconds = 60.0
    cache_ttl_seconds: Seconds = 300.0
    cache_max_versions: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    listing_places: Annotated[int, Field(ge=1, le=10_000)] = 16
    reading_places: Annotated[int, Field(ge=1, le=10_000)] = 64
    checkpointing_places: Annotated[int, Field(ge=1, le=10_000)] = 8
    max_open_tables: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    memory_bytes: Annotated[int, Field(ge=MIB, le=2**50)] = 2048 * MIB
    shutdown_grace_seconds: Seconds = 10.0
    test_store_delay_ms: Annotated[float, Field(ge=0, le=60_000)] = 0.0
    hedge: Literal["auto", "on", "off"] = "auto"
    background_states: bool = True
    operation_wait_seconds: Seconds = 3.0
    advertised_url: str | None = None
    lease_seconds: Annotated[float, Field(ge=0.5, le=3600)] = 10.0
    forward_connect_seconds: Annotated[float, Field(gt=0, le=60)] = 0.5
    forward_timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 3.0

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @field_validator("warehouse", "locations")
    @classmethod
    def _places(cls, given: Any) -> Any:
        for place in (given,) if isinstance(given, str) else given:
            if (meant := mistyped(place)) is not None:
                raise ValueError(f"{place} is neither a folder nor a URI: write {meant}")
        return given

    @field_validator("s3_endpoint")
    @classmethod
    def _endpoint(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError("write a URL such as http://localhost:9000")
        return url

    @field_validator("table_defaults", mode="before")
    @classmethod
    def _properties(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        defaults = dict(_flattened(given, ""))
        try:
            check_defaults(defaults)
        except PropertyError as error:
            raise ValueError(str(error)) from None
        return defaults

    @field_validator("advertised_url")
    @classmethod
    def _bare(cls, url: str | None) -> str | None:
        if url is not None and not _ADDRESS.match(url):
            raise ValueError("write where other replicas reach this one, such as http://10.0.0.7:8420, without a path")
        return url.rstrip("/") if url is not None else None

    @field_validator("api_keys")
    @classmethod
    def _distinct(cls, keys: tuple[KeySettings, ...]) -> tuple[KeySettings, ...]:
        ids = [key.id for key in keys]
        if len(set(ids)) != len(ids):
            raise ValueError("two keys have the same id; give each its own")
        return keys

    @model_validator(mode="after")
    def _guarded(self) -> Settings:
        if not self.api_keys and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host} can be reached from other machines, so keys are needed: set TARNLOG_API_KEYS, "
                "or listen on 127.0.0.1"
            )
        if self.advertised_url is not None and self.database_url in (None, "off", "memory"):
            raise ValueError(
                "advertised_url lets other replicas send commits here, and they find each other in a database: set "
                "TARNLOG_DATABASE_URL to the one that they share"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = os.environ.get(f"{PREFIX}CONFIG") or FILE_NAME
        return (init_settings, _Environment(settings_cls), TomlConfigSettingsSource(settings_cls, Path(file)))


def load_settings(config: str | Path | None = None, **given: Any) -> Settings:
    """The settings, `given` first; `config` names the file instead of TARNLOG_CONFIG. Raises BadSettings."""
    before = os.environ.get(f"{PREFIX}CONFIG")
    if config is not None:
        os.environ[f"{PREFIX}CONFIG"] = str(config)
    try:
        named = os.environ.get(f"{PREFIX}CONFIG")
        if named and not Path(named).is_file():
            raise BadSettings(f"There is no settings file {named}; correct {PREFIX}CONFIG or --config.")
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise BadSettings(sentence(PREFIX, fault, Settings.model_fields)) from None
    except (SettingsError, ValueError, OSError) as error:
        named = os.environ.get(f"{PREFIX}CONFIG") or FILE_NAME
        raise BadSettings(f"The settings file {named} cannot be read: {str(error).rstrip('.')}.") from None
    finally:
        if config is not None:
            os.environ.pop(f"{PREFIX}CONFIG")
            if before is not None:
                os.environ[f"{PREFIX}CONFIG"] = before


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _flattened(given: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Properties by their full names: TOML reads `checkpoint.interval = 50` as a table in a table."""
    for key, value in given.items():
        name = f"{path}{key}"
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{name}.")
        else:
            yield name, str(value).lower() if isinstance(value, bool) else value if value is None else str(value)
