"""How to reach an S3 bucket, whichever client does it."""

from __future__ import annotations

from typing import Literal

import msgspec


class S3Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a bucket. Without keys here, the usual AWS_* variables, profiles and instance roles are used.

    `listing`: `flat` if the server lists in code-point order, as S3 does; `walk` for any server (see directory_order).
    None means `flat` on AWS and `walk` on any other endpoint, since a wrong `flat` would miss objects.
    """

    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    connections: int = 64
    connect_timeout: float = 2.0
    read_timeout: float = 10.0
    read_attempts: int = 4
    listing: Literal["flat", "walk"] | None = None

    @property
    def walks(self) -> bool:
        """Whether `list` must not trust the server's order."""
        return self.listing == "walk" or (self.listing is None and self.endpoint is not None)
