"""What an exception of obstore means for a caller.

obstore names few kinds of failure and puts the HTTP status into the text only, so that is read, here and nowhere else.
One kind misleads: a 409 of S3 (a competing request is in flight, nothing is decided) is raised as AlreadyExistsError.
409 counts as "exists" on Azure only, where BlobAlreadyExists is the answer of a conditional create.
"""

from __future__ import annotations

import re

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from tarnlog_server.ports.object_store import (
    ObjectMissing,
    OutcomeUnknown,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)

FAILURES = (BaseError, OSError, NotImplementedError, ValueError)
"""All that obstore raises: its own tree, and builtins for missing objects and unsupported requests."""

# The whole phrase: a key may hold any words, and is quoted before it.
_STATUS = re.compile(r"Error performing [A-Z]+ \S+ in \S+ - Server returned non-2xx status code: (\d{3})")
_REFUSALS = (PermissionDeniedError, UnauthenticatedError, InvalidPathError, NotImplementedError, ValueError)


def status_of(error: BaseException) -> int:
    """The HTTP status of an answer, or 0 when there was none."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else 0


def already_exists(error: BaseException) -> bool:
    """Whether a conditional create was answered by "there is one". A text that cannot be read proves nothing."""
    if not isinstance(error, AlreadyExistsError):
        return False
    return status_of(error) in (304, 412) or "<Code>BlobAlreadyExists</Code>" in str(error)


def failed_write(key: str, error: BaseException) -> StoreError:
    """The error of a put that was not answered by "exists"."""
    if _is_refusal(error) or isinstance(error, FileNotFoundError):  # a put of nothing missing: the bucket is
        return StoreRefused(f"the store refused to write {key!r}: {_reason(error)}", key=key)
    return OutcomeUnknown(f"it is not known whether the store wrote {key!r}: {_reason(error)}", key=key)


def failed_read(act: str, key: str, error: BaseException) -> StoreError:
    """The error of a get, head, list or delete (`act`)."""
    if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in str(error):
        return ObjectMissing(f"there is no object {key!r}", key=key)
    if _is_refusal(error) or isinstance(error, FileNotFoundError):
        return StoreRefused(f"the store refused to {act} {key!r}: {_reason(error)}", key=key)
    return StoreUnavailable(f"the store could not {act} {key!r} now: {_reason(error)}", key=key)


def _is_refusal(error: BaseException) -> bool:
    if isinstance(error, _REFUSALS) or "redirect without LOCATION" in str(error):
        return True
    status = status_of(error)
    if "<Code>RequestTimeout</Code>" in str(error):
        return False
    return status == 501 or (300 <= status < 500 and status not in (408, 409, 412, 425, 429))


def _reason(error: BaseException) -> str:
    return str(error).split("\n\nDebug source:")[0].strip() or type(error).__name__
