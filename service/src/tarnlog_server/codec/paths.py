"""The names of objects in storage: built here, parsed here, nowhere else. All are keys below a store's root."""

from __future__ import annotations

import re

from tarnlog.protocol.ids import TableName

CATALOG = "_catalog"
PROBE = "_probe"
LOG = "_transaction_log"
_NUMBER = re.compile(r"[0-9]{20}\Z")
_VERSION_FILE = re.compile(r"([0-9]{20})\.json\Z")
_STATE_DIR = re.compile(r"state-v([0-9]{20})\Z")
_MANIFEST = re.compile(r"manifest-[0-9A-Za-z_-]+\.avro\Z")
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\.json\Z")
_CHECKPOINT_PART = re.compile(r"([0-9]{20})\.checkpoint\.([0-9A-Za-z-]+)\.([0-9]{5,10})\.json\Z")
_PARQUET = re.compile(r"([0-9]{20})\.checkpoint(?:\.([0-9]{5,10}))?\.parquet\Z")
_CHECKPOINT_IDS = re.compile(r"([0-9]{20})\.ids\.bin\Z")
_SESSION = re.compile(r"([^/]+)\.json\Z")
_CATALOG_ENTRY = re.compile(r"_catalog/([^/]+)/([^/]+)/([0-9]{20})\.json\Z")


def catalog_prefix(table: TableName | None = None, namespace: str | None = None) -> str:
    """Where catalog entries lie: of one table, of one namespace, or all."""
    if table is not None:
        return f"{CATALOG}/{table.namespace}/{table.name}/"
    return f"{CATALOG}/{namespace}/" if namespace is not None else f"{CATALOG}/"


def catalog_entry(table: TableName, number: int) -> str:
    """The key of a name's n-th entry."""
    return f"{catalog_prefix(table)}{number:020d}.json"


def parse_catalog_entry(key: str) -> tuple[TableName, int] | None:
    """The table and number of a catalog entry; None for anything else."""
    match = _CATALOG_ENTRY.match(key)
    if match is None:
        return None
    try:
        return TableName.parse(f"{match[1]}.{match[2]}"), int(match[3])
    except ValueError:
        return None


def default_location(table: TableName, table_id: str) -> str:
    """A new table's folder: it holds the table's id, so a re-created table never shares one."""
    return f"{table.namespace}/{table.name}-{table_id}"


def state_dir(version: int) -> str:
    """The name of a state's directory, as `_last_checkpoint` gives it."""
    return f"state-v{version:020d}"


class LogPaths:
    """The objects of one table's log. `table` is the table's folder, without a slash at its end."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.root = f"{table}/{LOG}/" if table else f"{LOG}/"

    def version(self, version: int) -> str:
        return f"{self.root}{version:020d}.json"

    @property
    def numbered_prefix(self) -> str:
        """Where version files and their checkpoints are: a version has 63 bits, so its twenty digits start with 0."""
        return f"{self.root}0"

    @property
    def floor_prefix(self) -> str:
        return f"{self.root}_floor/"

    def floor(self, version: int) -> str:
        return f"{self.floor_prefix}{version:020d}"

    @property
    def last_checkpoint(self) -> str:
        """The hint to the newest state."""
        return f"{self.root}_last_checkpoint"

    @property
    def last_checkpoint_crc(self) -> str:
        """What Hadoop's local file system leaves beside the hint, and trusts more than a newer hint."""
        return f"{self.root}._last_checkpoint.crc"

    @property
    def manifests_prefix(self) -> str:
        return f"{self.root}manifests/"

    def manifest(self, content_hash: str, random: str) -> str:
        """A shared manifest: by its content, and unlike any other try to write it."""
        return f"{self.manifests_prefix}manifest-{content_hash}-{random}.avro"

    def relative(self, key: str) -> str:
        """A key of this log as a state names it, relative to the log's root."""
        if not key.startswith(self.root):
            raise ValueError(f"{key} does not lie in the log {self.root}")
        return key[len(self.root) :]

    def resolve_manifest(self, path: str, state_version: int) -> str:
        """The key of a manifest that a state names: below the log's root, or bare and inside the state's directory."""
        if ".." in path.split("/") or path.startswith("/"):
            raise ValueError(f"a manifest's path stays inside the log, but {path!r} leaves it")
        if path.startswith(("manifests/", "state-v")):
            return f"{self.root}{path}"
        return f"{self.state_prefix(state_version)}{path}"

    def state_prefix(self, version: int) -> str:
        return f"{self.root}{state_dir(version)}/"

    def state_manifest(self, version: int) -> str:
        """What an Avro state is: the object whose existence completes it."""
        return f"{self.state_prefix(version)}_manifest.json"

    def state_manifest_avro(self, version: int) -> str:
        """The same for other readers of the format."""
        return f"{self.state_prefix(version)}_manifest.avro"

    def state_ids(self, version: int) -> str:
        return f"{self.state_prefix(version)}ids.bin"

    def checkpoint_json(self, version: int) -> str:
        """A JSON checkpoint, or the manifest of one in parts: the content tells."""
        return f"{self.root}{version:020d}.checkpoint.json"

    def checkpoint_part(self, version: int, checkpoint_id: str, part: int) -> str:
        """A part of a JSON checkpoint; they count from 1."""
        return f"{self.root}{version:020d}.checkpoint.{checkpoint_id}.{part:05d}.json"

    @property
    def checkpoints_prefix(self) -> str:
        """Where Parquet checkpoints lie, and the id sidecars of JSON ones."""
        return f"{self.root}_checkpoints/"

    def checkpoint_parquet(self, version: int, part: int | None = None) -> str:
        """A Parquet checkpoint in one file, or its part, which count from 1."""
        number = "" if part is None else f".{part:05d}"
        return f"{self.checkpoints_prefix}{version:020d}.checkpoint{number}.parquet"

    def checkpoint_parquet_info(self, version: int) -> str:
        """The small JSON beside a Parquet checkpoint; its existence completes it."""
        return f"{self.checkpoints_prefix}{version:020d}.checkpoint.json"

    def checkpoint_ids(self, version: int) -> str:
        """The commit ids known at a JSON or Parquet checkpoint."""
        return f"{self.checkpoints_prefix}{version:020d}.ids.bin"

    def damaged(self, key: str) -> str:
        """Where a repair keeps an object of a state that it put aside."""
        return f"{self.root}_damaged/{self.relative(key)}"

    @property
    def sessions_prefix(self) -> str:
        return f"{self.root}_sessions/"

    def session(self, session_id: str) -> str:
        return f"{self.sessions_prefix}{session_id}.json"

    def parse_session(self, key: str) -> str | None:
        name = key.removeprefix(self.sessions_prefix)
        match = _SESSION.match(name) if name != key else None
        return match[1] if match else None

    def parse_manifest(self, key: str) -> str | None:
        """A shared manifest's path as states name it; None for anything else."""
        name = key.removeprefix(self.manifests_prefix)
        return self.relative(key) if name != key and _MANIFEST.match(name) else None

    def parse_checkpoint_json(self, key: str) -> int | None:
        match = _CHECKPOINT.match(key, len(self.root)) if key.startswith(self.root) else None
        return int(match[1]) if match else None

    def parse_checkpoint_part(self, key: str) -> tuple[int, str, int] | None:
        """The version, checkpoint id and number of a JSON checkpoint's part."""
        match = _CHECKPOINT_PART.match(key, len(self.root)) if key.startswith(self.root) else None
        return (int(match[1]), match[2], int(match[3])) if match else None

    def parse_checkpoint_parquet(self, key: str) -> tuple[int, int | None] | None:
        """The version and part number (None for the only file) of a Parquet checkpoint's file."""
        name = key.removeprefix(self.checkpoints_prefix)
        match = _PARQUET.match(name) if name != key else None
        return (int(match[1]), int(match[2]) if match[2] else None) if match else None

    def parse_checkpoint_parquet_info(self, key: str) -> int | None:
        name = key.removeprefix(self.checkpoints_prefix)
        match = _CHECKPOINT.match(name) if name != key else None
        return int(match[1]) if match else None

    def parse_checkpoint_ids(self, key: str) -> int | None:
        """The version whose commit ids these are, of a JSON or Parquet checkpoint."""
        name = key.removeprefix(self.checkpoints_prefix)
        match = _CHECKPOINT_IDS.match(name) if name != key else None
        return int(match[1]) if match else None

    def parse_version(self, key: str) -> int | None:
        """The version a key is the file of; None for checkpoints, states and everything else."""
        match = _VERSION_FILE.match(key, len(self.root)) if key.startswith(self.root) else None
        return int(match[1]) if match else None

    def parse_floor(self, key: str) -> int | None:
        name = key.removeprefix(self.floor_prefix)
        return int(name) if name != key and _NUMBER.match(name) else None

    def parse_state(self, key: str) -> int | None:
        """The version of the state directory that a key lies in."""
        first = key.removeprefix(self.root).split("/", 1)[0] if key.startswith(self.root) else ""
        match = _STATE_DIR.match(first)
        return int(match[1]) if match else None


def is_immutable(key: str) -> bool:
    """Objects that never change once they exist: version files and catalog entries may be cached for ever."""
    name = key.rsplit("/", 1)[-1]
    return _VERSION_FILE.match(name) is not None
