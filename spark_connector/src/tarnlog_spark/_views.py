"""Temporary views of the format: Spark plans one when it is made, so that it stays at the version of that moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tarnlog import InvalidRequest
from tarnlog_spark._arguments import SESSION, TEXT, takes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GLOBAL = "global_temp."
_WRAPPERS = ("SubqueryAlias", "View")


@takes(spark=SESSION, view=TEXT)
def refresh(spark: SparkSession, view: str) -> None:
    """Make a temporary view of the format again, with its own options, at the newest version of its table.

    For a view by `CREATE TEMPORARY VIEW ... USING tarnlog`, or by `createOrReplaceTempView` of what `load` returned.
    REFRESH TABLE does not do this: Spark plans a Python data source once. DataFrames that were made from the view
    before stay at their version. InvalidRequest for any other view, and from Spark Connect clients, which cannot see a
    view's options: run CREATE OR REPLACE TEMPORARY VIEW there.
    """
    options = _options_of(spark, view)
    rows = spark.read.format("tarnlog").options(**options).load()
    if view.lower().startswith(_GLOBAL):
        rows.createOrReplaceGlobalTempView(view[len(_GLOBAL) :])
    else:
        rows.createOrReplaceTempView(view)


def _options_of(spark: SparkSession, view: str) -> dict[str, str]:
    rows = cast(Any, spark.table(view))
    if not hasattr(rows, "_jdf"):
        raise InvalidRequest(
            f"The options of {view} cannot be read over Spark Connect: run CREATE OR REPLACE TEMPORARY VIEW {view} "
            "USING tarnlog OPTIONS (...) again.",
            slug="option-invalid",
        )
    plan = rows._jdf.queryExecution().analyzed()
    while plan.nodeName().split(" ")[0] in _WRAPPERS:
        plan = plan.children().apply(0)
    if plan.getClass().getSimpleName() != "DataSourceV2Relation" or plan.table().name() != "tarnlog":
        raise InvalidRequest(
            f"{view} is not a temporary view of the format tarnlog itself: create it again with the query that it is.",
            slug="option-invalid",
        )
    return dict(plan.options().asCaseSensitiveMap())
