"""Examples for the OpenAPI document, of one table that runs through all of them."""

from __future__ import annotations

from typing import Any

COMMIT_ID = "018cc251-f400-7abc-8def-0123456789ab"
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": False, "metadata": {}},
        {"name": "amount", "type": "double", "nullable": True, "metadata": {}},
        {"name": "day", "type": "date", "nullable": True, "metadata": {}},
    ],
}
_ID = "018cc251-f400-7000-8000-000000000001"
_LOCATION = f"file:///data/sales/orders-{_ID}"
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 1}
TABLE_REF: dict[str, Any] = {"name": "sales.orders", "id": _ID, "location": _LOCATION}
TABLE: dict[str, Any] = {
    **TABLE_REF,
    "version": 13,
    "schema": SCHEMA,
    "partitionColumns": ["day"],
    "properties": {"owner": "sales"},
    "description": None,
    "protocol": PROTOCOL,
    "createdTime": 1704067200000,
    "numFiles": 1,
    "totalBytes": 4096,
    "numRecords": 100,
    "readOnly": False,
}
ADD: dict[str, Any] = {
    "path": "day=2024-01-01/part-00000.parquet",
    "partitionValues": {"day": "2024-01-01"},
    "size": 4096,
    "modificationTime": 1704067200000,
    "dataChange": True,
    "numRecords": 100,
}
COMMIT_REQUEST: dict[str, Any] = {
    "operation": "WRITE",
    "operationParameters": {"mode": "Append"},
    "actions": [{"add": ADD}],
}
COMMITTED: dict[str, Any] = {
    "outcome": "committed",
    "commitId": COMMIT_ID,
    "version": 13,
    "seq": 0,
    "timestamp": 1704067200000,
    "replayed": False,
    "attempts": 1,
    "rebasedOver": [],
}
COMMIT: dict[str, Any] = {
    "version": 13,
    "seq": 0,
    "commitId": COMMIT_ID,
    "timestamp": 1704067200000,
    "operation": "WRITE",
    "operationParameters": {"mode": "Append"},
    "operationMetrics": {},
    "isBlindAppend": True,
    "committedBy": "etl",
}
VERSION: dict[str, Any] = {
    "version": 13,
    "timestamp": 1704067200000,
    "commits": [COMMIT],
    "actionCounts": [1],
    "actions": [{"add": ADD}],
}
CHANGE: dict[str, Any] = {
    "version": 13,
    "timestamp": 1704067200000,
    "commits": [COMMIT],
    "adds": [ADD],
    "removes": [],
}
SNAPSHOT: dict[str, Any] = {
    "version": 13,
    "timestamp": 1704067200000,
    "protocol": PROTOCOL,
    "metaData": {
        "id": _ID,
        "name": "sales.orders",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": '{"type":"struct","fields":[]}',
        "partitionColumns": ["day"],
        "configuration": {"owner": "sales"},
        "createdTime": 1704067200000,
    },
    "numFiles": 1,
    "totalBytes": 4096,
    "numRecords": 100,
    "txns": {"orders-stream": 41},
}
RECORD_SKIP: dict[str, Any] = {
    "path": "day=2024-01-01/part-00000.parquet",
    "reason": "footer is damaged",
    "operation": "MERGE",
    "cooldownHours": 24,
}
SKIP: dict[str, Any] = {
    "path": "day=2024-01-01/part-00000.parquet",
    "skipTimestamp": 1704067200000,
    "reason": "footer is damaged",
    "operation": "MERGE",
    "partitionValues": {"day": "2024-01-01"},
    "size": 4096,
    "retryAfter": 1704153600000,
    "skipCount": 2,
}
CHECKPOINT: dict[str, Any] = {
    "tableName": "sales.orders",
    "status": "success",
    "checkpointVersion": 13,
    "numActions": 3,
    "numFiles": 1,
    "protocolVersion": 4,
    "isMultiPart": False,
}
CLEANUP: dict[str, Any] = {
    "tableName": "sales.orders",
    "status": "success",
    "checkpointVersion": 4200,
    "versionsDeleted": 130,
    "checkpointsDeleted": 0,
    "statesDeleted": 12,
    "manifestsDeleted": 7,
    "filesPreserved": 4105,
    "floor": 130,
    "message": "the floor moved to version 260: versions below it are deleted after 24 hours",
}
STATE: dict[str, Any] = {
    "tableName": "sales.orders",
    "format": "avro-state",
    "version": 13,
    "numFiles": 1,
    "numManifests": 1,
    "numTombstones": 0,
    "tombstoneRatio": 0.0,
    "totalBytes": 4096,
    "needsCompaction": False,
    "status": "ours",
}
VACUUM: dict[str, Any] = {
    "tableName": "sales.orders",
    "status": "dry-run",
    "orphanedFilesFound": 1,
    "orphanedFilesDeleted": 0,
    "sizeBytesFound": 4096,
    "sizeBytesDeleted": 0,
    "retentionHours": 168.0,
    "dryRun": True,
    "durationMs": 12,
    "message": "1 files would be deleted; send dryRun: false to delete them",
    "kept": {"referenced": 1, "young": 0, "inSession": 0, "notData": 0, "otherTable": 0, "olderThanTable": 0},
    "examples": [{"path": "day=2024-01-01/part-00001.parquet", "size": 4096, "modifiedTime": 1703000000000}],
}
ERASED: dict[str, Any] = {
    "tableName": "sales.orders",
    "status": "success",
    "version": 13,
    "floor": 13,
    "filesFound": 1,
    "filesDeleted": 1,
    "sizeBytesFound": 4096,
    "sizeBytesDeleted": 4096,
    "versionsErased": 13,
    "checkpointsDeleted": 0,
    "statesDeleted": 2,
    "manifestsDeleted": 3,
    "dryRun": False,
    "durationMs": 42,
    "message": "1 files and 13 versions were erased",
    "withheld": {"inSession": 0, "writtenAgain": 0, "olderThanTable": 0, "otherTable": 0, "notData": 0},
    "examples": [{"path": "day=2024-01-01/part-00001.parquet", "size": 4096, "modifiedTime": 1703000000000}],
}
VERIFIED: dict[str, Any] = {
    "tableName": "sales.orders",
    "status": "failed",
    "checks": [
        {"name": "log-contiguous", "ok": True, "detail": "versions 0 to 12 without a gap"},
        {"name": "data-files", "ok": False, "detail": "1 of 12 files are missing: day=2024-01-01/part-0001.parquet"},
    ],
    "repaired": [],
}
REPAIRED: dict[str, Any] = {
    "tableName": "sales.orders",
    "status": "success",
    "checks": [{"name": "states-sound", "ok": True, "detail": "2 states are whole"}],
    "repaired": [
        {
            "object": "the state of version 12",
            "action": "written from scratch and validated; _last_checkpoint leads to it",
        }
    ],
}
SESSION: dict[str, Any] = {
    "id": "018cc251-f400-7000-8000-000000000003",
    "prefix": "day=2024-01-01/",
    "expiresAt": 1704068100000,
}
OPERATION: dict[str, Any] = {
    "id": "018cc251-f400-7000-8000-000000000002",
    "kind": "checkpoint",
    "table": "sales.orders",
    "status": "running",
    "progress": {"done": 40000, "total": 100000, "unit": "files"},
    "startedAt": 1704067200000,
}
CACHE: dict[str, Any] = {
    "versions": {"hits": 90, "misses": 10, "hitRate": 0.9, "size": 10, "maxSize": 1000, "ttlSeconds": 300.0}
}

REBUILT = {
    "tableName": "sales.orders",
    "status": "success",
    "firstVersion": 0,
    "lastVersion": 41,
    "versions": 42,
    "contentHash": "165f2c8a01b3",
}
