"""All fuzz targets by name."""

from __future__ import annotations

from tests.fuzz import answer_targets, log_targets, request_targets, storage_targets
from tests.fuzz.harness import Target

ALL: dict[str, Target] = {
    target.name: target
    for module in (storage_targets, log_targets, request_targets, answer_targets)
    for target in module.TARGETS
}
