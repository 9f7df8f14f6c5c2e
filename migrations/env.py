"""How Alembic reaches the index: on a connection that the service or `tarnlog migrate` hands over."""  # noqa: INP001

from alembic import context

from tarnlog_server.adapters.sql_schema import REVISION_TABLE, metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, version_table=REVISION_TABLE)
with context.begin_transaction():
    context.run_migrations()
