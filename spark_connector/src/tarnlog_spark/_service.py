"""The client of the connector: the plain client, with advice for a user of Spark."""

from __future__ import annotations

from typing import TypeVar

from tarnlog import Client, NotFound
from tarnlog._exchange import Exchange

T = TypeVar("T")


class ServiceClient(Client):
    """A client whose errors name calls of the connector. A service that does not answer is reported on stderr within
    five seconds, and every ten seconds until the deadline."""

    def _run(self, steps: Exchange[T]) -> T:
        try:
            return super()._run(steps)
        except NotFound as error:
            if error.slug != "table-not-found":
                raise
            found = error.answered.partition(";")[0]
            raise NotFound(
                f"{found} at {self.url}: check the name and the URL. A write creates the table, "
                "and so does tarnlog_spark.Table.create(spark, name, schema).",
                slug=error.slug,
                status=error.status,
                fields=error.fields,
                answered=error.answered,
            ) from None
