"""What an answer of S3, or the lack of one, means for a caller.

The rule for writes: only an answer that says "refused" proves nothing was written. 412 is no error but an answer to a
conditional create; 409 (a competing request was in flight), 5xx, throttling and a broken connection prove nothing.
"""

from __future__ import annotations

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    UnauthorizedSSOTokenError,
)

from tarnlog_server.ports.object_store import (
    ObjectMissing,
    OutcomeUnknown,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)

_NEVER_SENT = (
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    UnauthorizedSSOTokenError,
)
_PASSING_CODES = frozenset(
    {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "RequestTimeoutException"}
)
_WHAT_TO_DO = {
    "AccessDenied": "grant s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket",
    "ExpiredToken": "renew the credentials",
    "InvalidAccessKeyId": "correct the access key",
    "NoSuchBucket": "create the bucket or correct its name",
    "NotImplemented": "the store does not offer conditional create (If-None-Match), which commits need",
    "PermanentRedirect": "the bucket is in another region; set the region",
    "RequestTimeTooSkewed": "set this machine's clock",
    "SignatureDoesNotMatch": "correct the secret key",
}


def status_of(error: BaseException) -> int:
    """The HTTP status of an answer, or 0 when there was none."""
    if isinstance(error, ClientError):
        return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return 0


def failed_write(key: str, error: ClientError | BotoCoreError) -> StoreError:
    """The error of a put. 412 is for the caller to handle first."""
    if _is_refusal(error):
        return StoreRefused(f"S3 refused to write {key!r}: {_reason(error)}", key=key)
    return OutcomeUnknown(f"it is not known whether S3 wrote {key!r}: {_reason(error)}", key=key)


def failed_read(act: str, key: str, error: ClientError | BotoCoreError) -> StoreError:
    """The error of a get, head, list or delete (`act`)."""
    if status_of(error) == 404 and _code(error) != "NoSuchBucket":
        return ObjectMissing(f"there is no object {key!r}", key=key)
    if _is_refusal(error):
        return StoreRefused(f"S3 refused to {act} {key!r}: {_reason(error)}", key=key)
    return StoreUnavailable(f"S3 could not {act} {key!r} now: {_reason(error)}", key=key)


def _is_refusal(error: ClientError | BotoCoreError) -> bool:
    if not isinstance(error, ClientError):
        return isinstance(error, _NEVER_SENT)
    status = status_of(error)
    if _code(error) in _PASSING_CODES:
        return False
    return status == 501 or (300 <= status < 500 and status not in (408, 409, 412, 425, 429))


def _code(error: BaseException) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def _reason(error: BaseException) -> str:
    advice = _WHAT_TO_DO.get(_code(error))
    return f"{error} ({advice})" if advice else str(error) or type(error).__name__
