"""Commands about tables: list, create, describe, alter, drop, register."""

from __future__ import annotations

import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

import msgspec
import typer

from tarnlog._api import TableApi
from tarnlog._errors import Corrupt, InvalidRequest, NotFound, Unavailable, Unreachable
from tarnlog._results import TableEntry, TableInfo
from tarnlog._wording import command_words
from tarnlog.cli import humane, typed
from tarnlog.cli.connector import Json, TableArgument, connect
from tarnlog.cli.failures import USAGE
from tarnlog.cli.output import Output, grid, row
from tarnlog.cli.schema_text import parse_columns, read_schema
from tarnlog.protocol.schema import SchemaError, StructType, parse_schema

DETAILED = 100
"""Tables that a listing looks at, each by a request: a table that is not open is read from storage for it."""
AT_ONCE = 8

SchemaOption = Annotated[
    str, typer.Option("--schema", help="Columns such as 'id long not null, d date', StructType JSON, or a file.")
]


def tables(
    ctx: typer.Context,
    namespace: Annotated[str | None, typer.Option(help="Only the tables of this namespace.")] = None,
    details: Annotated[
        bool, typer.Option(help=f"Version, files and size, of the first {DETAILED} tables: a request for each.")
    ] = True,
    json: Json = False,
) -> None:
    """List the tables with their version, files and size."""
    out = Output(json)
    api = connect(ctx)
    with out.working("Listing tables") as work:
        found = list(work.counted(api.list_tables(namespace)))
    asked = found[:DETAILED] if details else []
    with (
        out.working("Reading tables", total=len(asked)) as work,
        ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tarnlog-tables") as pool,
    ):
        infos = list(work.counted(pool.map(lambda entry: _table_or_reason(api, entry.name), asked)))
    if json:
        out.lines(_with_details(entry, info) for entry, info in zip_longest(found, infos))
        return
    if not found:
        out.note("No tables yet. Make one with `tarnlog create NAME --schema 'id long'`.")
        return
    table = grid("table", "version", "files", "size", "location", right=("version", "files", "size"))
    for entry, info in zip_longest(found, infos):
        if isinstance(info, TableInfo):
            numbers = (str(info.version), humane.number(info.num_files), humane.size(info.total_bytes))
        else:
            numbers = ("?", "?", "?") if info else ("", "", "")
        row(table, entry.name, *numbers, entry.location)
    out.show(table)
    failed = [(entry.name, info) for entry, info in zip(found, infos, strict=False) if isinstance(info, str)]
    for name, why in failed:
        out.note(f"{name}: {why}")
    if details and len(found) > DETAILED:
        out.note(f"Version, files and size are those of the first {DETAILED}; --namespace shows fewer tables.")


def _table_or_reason(api: TableApi, name: str) -> TableInfo | str:
    """A table, or why it cannot be read: one that is damaged, or dropped meanwhile, does not end the listing."""
    try:
        return api.get_table(name)
    except (Corrupt, InvalidRequest, NotFound, Unavailable) as error:
        if isinstance(error, Unreachable):
            raise
        return command_words(error.slug, error.answered)


def _with_details(entry: TableEntry, info: TableInfo | str | None) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(entry)
    if isinstance(info, TableInfo):
        document |= {"version": info.version, "numFiles": info.num_files, "totalBytes": info.total_bytes}
    return document


def create(
    ctx: typer.Context,
    name: TableArgument,
    schema: SchemaOption,
    partition_by: Annotated[list[str] | None, typer.Option(help="A partition column; several, or with commas.")] = None,
    property_: Annotated[list[str] | None, typer.Option("--property", help="A table property, key=value.")] = None,
    location: Annotated[str | None, typer.Option(help="Where the table lives; by default in the warehouse.")] = None,
    description: Annotated[str | None, typer.Option(help="A sentence about the table.")] = None,
    adopt_existing_files: Annotated[
        bool, typer.Option("--adopt-existing-files", help="The location has files, which stay (needs an admin key).")
    ] = False,
    json: Json = False,
) -> None:
    """Create a table."""
    parsed = typed.usage(read_schema, schema)
    info = connect(ctx).create_table(
        name,
        parsed.to_json_object(),
        partition_by=typed.names(partition_by),
        location=location,
        properties=typed.properties(property_) or None,
        description=description,
        adopt_existing_files=adopt_existing_files,
    )
    _show(Output(json), info)


def register(
    ctx: typer.Context,
    name: TableArgument,
    location: Annotated[str, typer.Argument(help="Where the log is.")],
    foreign_writers_stopped: Annotated[
        bool, typer.Option("--foreign-writers-stopped", help="Every other writer has stopped for good: allow commits.")
    ] = False,
    json: Json = False,
) -> None:
    """Serve a log that is already there; read-only unless its other writers have stopped."""
    info = connect(ctx).register_table(name, location, foreign_writers_stopped=foreign_writers_stopped)
    _show(Output(json), info)


def describe(ctx: typer.Context, table: TableArgument, json: Json = False) -> None:
    """Show a table: version, size, columns, properties."""
    _show(Output(json), connect(ctx).get_table(table))


def alter(
    ctx: typer.Context,
    table: TableArgument,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Set a property, key=value.")] = None,
    unset: Annotated[list[str] | None, typer.Option(help="Remove a property.")] = None,
    add_column: Annotated[list[str] | None, typer.Option(help="Add a column, such as 'x long'.")] = None,
    schema: Annotated[str | None, typer.Option(help="The whole new schema, as for create.")] = None,
    description: Annotated[str | None, typer.Option(help="A new description.")] = None,
    json: Json = False,
) -> None:
    """Change properties, columns or the description of a table, in one version."""
    if not (set_ or unset or add_column or schema or description is not None):
        raise typer.BadParameter("say what to change: --set, --unset, --add-column, --schema or --description")
    if schema and add_column:
        raise typer.BadParameter("give --schema or --add-column, not both")
    api = connect(ctx)
    new_schema: dict[str, Any] | None = typed.usage(read_schema, schema).to_json_object() if schema else None
    read_version: int | None = None
    if add_column:
        now = api.get_table(table)
        added = [field for text in add_column for field in typed.usage(parse_columns, text).fields]
        try:
            old = parse_schema(now.schema)
        except SchemaError as error:
            raise typer.BadParameter(f"the table's schema cannot be extended here: {error}") from None
        new_schema = parse_schema(StructType((*old.fields, *added), old.extra).to_json_object()).to_json_object()
        # Somebody else's column must not be lost to ours.
        read_version = now.version
    info = api.alter_table(
        table,
        set_properties=typed.properties(set_) or None,
        unset_properties=typed.names(unset),
        schema=new_schema,
        description=description,
        read_version=read_version,
    )
    _show(Output(json), info)


def drop(
    ctx: typer.Context,
    table: TableArgument,
    purge: Annotated[bool, typer.Option("--purge", help="Delete the data files and the log too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask: for scripts.")] = False,
    json: Json = False,
) -> None:
    """Drop a table, after asking. Its files stay and can be registered again, unless they are purged."""
    out = Output(json)
    api = connect(ctx)
    info = _to_drop(api, table, purge)
    if not yes:
        _ask(out, table, info, purge)
    with out.working(f"Dropping {table}"):
        api.drop_table(table, purge=purge)
    location = None if info is None else info.location
    if json:
        out.document({"dropped": table, "purged": purge, "location": location})
    elif purge or info is None:
        out.show(f"Dropped {table} and deleted its files. It cannot be registered again.")
    else:
        writable = "" if info.read_only else " --foreign-writers-stopped"
        out.show(
            f"Dropped {table}. Its files stay at {location}",
            "To serve them again:",
            f"tarnlog register {table} {shlex.quote(_plain(info.location))}{writable}",
        )


def _plain(location: str) -> str:
    """A location as it is typed: the name of a folder rather than its URI, which has escapes."""
    parts = urlsplit(location)
    return unquote(parts.path) if parts.scheme == "file" else location


def _to_drop(api: TableApi, table: str, purge: bool) -> TableInfo | None:
    """The table; None where there is none and a purge may have been cut off: asked for again, it goes on."""
    try:
        return api.get_table(table)
    except NotFound:
        if not purge:
            raise
    return None


def _ask(out: Output, table: str, info: TableInfo | None, purge: bool) -> None:
    if not sys.stdin.isatty():
        out.note(
            "Nothing was dropped: this asks first, and stdin is not a terminal. "
            f"In a script, say `tarnlog drop {table}{' --purge' if purge else ''} --yes`."
        )
        raise typer.Exit(USAGE)
    if info is not None:
        size = f"{humane.plural(info.num_files, 'file')}, {humane.size(info.total_bytes)}"
        out.note(f"{table} is at version {info.version}, with {size}, at {info.location}")
    what = "with all of its files, for good?" if purge else "? Its files stay, and can be registered again."
    typer.confirm(f"Drop {table}{' ' if purge else ''}{what}", abort=True, err=True)


def _show(out: Output, info: TableInfo) -> None:
    if out.json:
        out.document(info)
        return
    facts = grid("", "")
    facts.show_header = False
    records = "" if info.num_records is None else f", {humane.plural(info.num_records, 'record')}"
    for label, value in (
        ("table", info.name),
        ("description", info.description or ""),
        ("version", str(info.version)),
        ("holds", f"{humane.plural(info.num_files, 'file')}, {humane.size(info.total_bytes)}{records}"),
        ("created", f"{humane.moment(info.created_time)} ({humane.age(info.created_time, out.now_ms)})"),
        ("location", info.location),
        ("id", info.id),
        ("protocol", humane.pairs(info.protocol)),
    ):
        if value:
            row(facts, label, value)
    out.show(facts, "", _columns(info))
    if info.properties:
        table = grid("property", "value")
        for key, text in sorted(info.properties.items()):
            row(table, key, text)
        out.show("", table)
    if info.defaults:
        table = grid("set by the service", "value")
        for key, text in sorted(info.defaults.items()):
            row(table, key, text)
        out.show("", table)
    for note in info.notes:
        out.note(f"{note.property}: {note.message}.")


def _columns(info: TableInfo) -> Any:
    table = grid("column", "type", "")
    try:
        fields = parse_schema(info.schema).fields
    except SchemaError:
        row(table, "?", str(info.schema), "")
        return table
    for field in fields:
        remarks = [] if field.nullable else ["not null"]
        if field.name in info.partition_columns:
            remarks.append("partition")
        row(table, field.name, str(field.type), ", ".join(remarks))
    return table
