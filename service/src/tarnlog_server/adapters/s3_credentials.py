"""AWS credentials for obstore from where the AWS tools look: variables, profiles, SSO, web identity, instance roles.

obstore by itself knows neither profiles nor SSO. The chain is botocore's, which also renews what expires; that may take
a request, so it happens in a thread.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import boto3

from tarnlog_server.ports.object_store import StoreRefused

if TYPE_CHECKING:
    from obstore.store import S3Credential

_ASK_AGAIN = timedelta(minutes=5)
"""botocore renews fifteen minutes before the end, so what it gives now is good for longer than this."""


class AwsCredentials:
    """An obstore credential provider. Raises StoreRefused when the chain ends without credentials."""

    def __init__(self) -> None:
        session = boto3.Session()
        found = session.get_credentials()
        if found is None:
            raise StoreRefused(
                "there are no AWS credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, "
                "or give the machine a role",
                key="",
            )
        self.region = session.region_name
        self._found = found

    async def __call__(self) -> S3Credential:
        frozen = await asyncio.to_thread(self._found.get_frozen_credentials)
        return {
            "access_key_id": frozen.access_key or "",
            "secret_access_key": frozen.secret_key or "",
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + _ASK_AGAIN,
        }
