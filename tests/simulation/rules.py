"""The conflict rules once more, written down as plainly as the protocol states them, for JSON values.

Only what certainly is a conflict counts here: the service may refuse more where it cannot know, never less.
"""

from __future__ import annotations

import json
from typing import Any

from tests.simulation.log_model import Sub

Json = dict[str, Any]


def broken_rules(body: Json, winner: Sub, metadata_read: Json | None) -> set[str]:
    """Every rule by which a commit of this body conflicts with a winner that it did not see."""
    broken = set()
    adds = [action["add"] for action in body["actions"] if "add" in action]
    removes = {action["remove"]["path"] for action in body["actions"] if "remove" in action}
    metadata = next((action["metaData"] for action in body["actions"] if "metaData" in action), None)
    reads = body.get("reads", {})
    if _metadata(adds, metadata, winner, metadata_read):
        broken.add("metadata")
    if {txn["appId"] for txn in winner.of("txn")} & set(reads.get("appIds", ())):
        broken.add("txn")
    if any(_read(reads, add) for add in winner.of("add")) and _appends_count(isolation(body), winner):
        broken.add("append")
    for path, file in winner.removed.items():
        if path in reads.get("paths", ()) or (file is not None and _read(reads, file)):
            broken.add("delete-read")
        if path in removes:
            broken.add("delete-delete")
    return broken


def isolation(body: Json) -> str:
    """The level a commit is checked at: one that only rearranges files is checked at snapshot."""
    files = [action.get("add") or action.get("remove") for action in body["actions"]]
    if all(file is not None and not file["dataChange"] for file in files):
        return "snapshot"
    return str(body.get("isolation", "write-serializable"))


def is_blind(body: Json) -> bool:
    """Only adds, nothing read."""
    return all("add" in action for action in body["actions"]) and not any(body.get("reads", {}).values())


def _appends_count(level: str, winner: Sub) -> bool:
    return level == "serializable" or (level == "write-serializable" and not winner.blind)


def _read(reads: Json, file: Json) -> bool:
    return bool(reads.get("wholeTable")) or any(_matches(tree, file) for tree in reads.get("filters", ()))


def _matches(tree: Json, file: Json) -> bool:
    """Whether the file may hold a matching row: by its partition, else by its bounds, else yes."""
    if tree["op"] == "and":
        return all(_matches(arg, file) for arg in tree["args"])
    column, value = tree["column"], tree["value"]
    if column in file["partitionValues"]:
        return bool(file["partitionValues"][column] == value)
    low, high = file.get("minValues", {}).get(column), file.get("maxValues", {}).get(column)
    if low is None or high is None:
        return True
    return bool(int(high) >= value if tree["op"] == "ge" else int(low) < value)


def _metadata(adds: list[Json], metadata: Json | None, winner: Sub, metadata_read: Json | None) -> bool:
    before, after = winner.metadata_before, winner.metadata_after
    if not winner.of("metaData") or before is None or after is None or before == after:
        return False
    if metadata is not None and metadata != metadata_read:
        return True
    old, new = _types(before), _types(after)
    changed = {column for column in {*old, *new} if old.get(column) != new.get(column)}
    return any(
        changed & {*add["partitionValues"], *add.get("minValues", {}), *add.get("maxValues", {})} for add in adds
    )


def _types(metadata: Json) -> dict[str, str]:
    return {field["name"]: json.dumps(field["type"]) for field in json.loads(metadata["schemaString"])["fields"]}
