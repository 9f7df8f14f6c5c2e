"""Commands about tables: list, create, describe, alter, drop, register."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tarnlog._results import TableInfo
from tarnlog.cli import humane, typed
from tarnlog.cli.connector import Json, TableArgument, connect
from tarnlog.cli.output import Output, grid, row
from tarnlog.cli.schema_text import parse_columns, read_schema
from tarnlog.protocol.schema import SchemaError, StructType, parse_schema

SchemaOption = Annotated[
    str, typer.Option("--schema", help="Columns such as 'id long not null, d date', StructType JSON, or a file.")
]


def tables(
    ctx: typer.Context,
    namespace: Annotated[str | None, typer.Option(help="Only the tables of this namespace.")] = None,
    json: Json = False,
) -> None:
    """List the tables."""
    out = Output(json)
    with out.working("Listing tables") as work:
        found = list(work.counted(connect(ctx).list_tables(namespace)))
    if json:
        out.lines(found)
        return
    table = grid("table", "location", "id")
    for entry in found:
        row(table, entry.name, entry.location, entry.id)
    if found:
        out.show(table)
    else:
        out.note("No tables yet. Make one with `tarnlog create NAME --schema 'id long'`.")


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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a purge.")] = False,
    json: Json = False,
) -> None:
    """Drop a table; its files stay unless purged."""
    if purge and not yes:
        typer.confirm(f"Delete {table} with all of its data files?", abort=True, err=True)
    out = Output(json)
    with out.working(f"Dropping {table}"):
        connect(ctx).drop_table(table, purge=purge)
    if json:
        out.document({"dropped": table, "purged": purge})
    else:
        out.show(f"Dropped {table}" + (" and its files." if purge else "; its files are still there."))


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
