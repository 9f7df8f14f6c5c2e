"""Conditions as Spark reads them: the one place that turns the text or Column of a caller into a filter of a plan.

Spark parses and resolves a condition under the session's settings (double quotes, escapes, ANSI, time zone, case), over
an empty frame with the table's schema, and its optimizer folds the constants. What becomes of it is translated
(`_catalyst`). A condition that is not understood chooses every file; Spark applies it to the rows in any case.

A Spark Connect client has no access to these trees. There text is parsed by the service, where both are known to read
it alike, and chooses every file otherwise.

Cost, on classic Spark: analysis and optimization of one Filter and about 20 calls through Py4J, no job and no request;
three times a `where`, a tenth of the smallest job.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from pyspark.errors import PySparkException

from tarnlog import InvalidRequest
from tarnlog.protocol.actions import MetaData
from tarnlog.protocol.predicates import In
from tarnlog_spark._catalyst import MAX_NODES, Raw, Translation, parsed, translate
from tarnlog_spark._options import option_error
from tarnlog_spark._per_session import PerSession
from tarnlog_spark._planning import PlanFilter
from tarnlog_spark._spark_schema import is_padded, strings_for_chars

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    Condition = str | Column

_ANSI = "spark.sql.ansi.enabled"
_SESSION_ZONE = "spark.sql.session.timeZone"
_MOST_FRAMES = 16
_SEPARATOR = "\0"
_TIMES = ("date", "timestamp", "timestamp_ntz")
_UDF_STEPS = ("Project", "BatchEvalPython", "ArrowEvalPython")
_SPECIAL = re.compile(r"\b(?:now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""Words that a cast to a date or a timestamp takes for the time at which it runs."""
_NON_DETERMINISTIC = ("INVALID_NON_DETERMINISTIC_EXPRESSIONS", "AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION")

_PLAIN_SETTINGS = {
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "false",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "false",
    "spark.sql.legacy.literal.pickMinimumPrecision": "true",
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.timestampType": "timestamp_ltz",
}
"""Settings that change what a text means, with the values under which the service reads it as Spark does."""
_AMBIGUOUS = {"a double quote": '"', "a backslash": "\\", "a variable (${...})": "${"}
_QUOTED = re.compile(r"`[^`]*`|'[^']*'(?P<next>\s*r?')?", re.IGNORECASE)
_DOUBLE = re.compile(r"\d\.?(?:e[+-]?\d|[df]\b)", re.IGNORECASE)
"""A number that is a double or a float, whose comparison with a whole number or a decimal rounds that."""
_IN_TEXT = re.compile(r"\bin\b.*'", re.IGNORECASE | re.DOTALL)
_DECIMAL = re.compile(r'"decimal\((\d+),')
_DIGITS_OF_A_DOUBLE = 15
_COMMENT = re.compile(r"--|/\*")


class Resolved(Struct, frozen=True):
    """A condition as a filter of a plan; None admits every file. `why` says what kept it from being `exact`."""

    filter: PlanFilter | None
    exact: bool = True
    deterministic: bool = True
    why: str = ""


def resolve(spark: SparkSession, condition: Condition | None, meta_data: MetaData) -> Resolved:
    """The files that a condition over a table chooses. Never fails: what Spark refuses it refuses when it is run."""
    if condition is None:
        return Resolved(None)
    if _is_connect(spark):
        return _by_text(spark, condition, meta_data)
    try:
        return _by_spark(spark, condition, meta_data)
    except Exception as error:  # Spark refuses it, or is one whose trees are others: all files are right, and slower
        return _inexact(next((line for line in str(error).splitlines() if line.strip()), type(error).__name__))


def plan_filter(
    spark: SparkSession, condition: Condition | None, meta_data: MetaData, *, changes: str | None = None
) -> PlanFilter | None:
    """The filter of a plan for a condition. `changes` names what the operation that changes rows calls it: there a
    condition that is not deterministic is refused, because it is evaluated more than once."""
    found = resolve(spark, condition, meta_data)
    if condition is not None and changes is not None:
        if not found.deterministic:
            raise _refused(changes, condition)
        if _is_connect(spark):
            check_deterministic(empty_frame(spark, meta_data.schema_string), condition, changes)
    return found.filter


def exact_filter(spark: SparkSession, condition: Condition, meta_data: MetaData, what: str) -> PlanFilter | None:
    """The same where the condition alone decides, because Spark does not apply it to rows afterwards: InvalidRequest
    `filter-invalid` for one that is not understood exactly."""
    found = resolve(spark, condition, meta_data)
    if not found.exact:
        message = f"The filter of {what} ({condition}) cannot choose files: {found.why.rstrip('.;')}."
        raise InvalidRequest(message, slug="filter-invalid")
    return found.filter


def check_deterministic(rows: DataFrame, condition: Condition, what: str) -> None:
    """InvalidRequest for a condition over these rows that is not deterministic, on classic Spark and Connect."""
    if not is_deterministic(rows, condition):
        raise _refused(what, condition)


def is_deterministic(rows: DataFrame, condition: Condition) -> bool:
    """Whether a condition over these rows is the same each time it is evaluated, on classic Spark and Connect.

    Spark's analyzer refuses another one of a join, wherever it stands in it; it is never run. Any other refusal is
    raised where the condition is used.
    """
    from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

    holds = F.expr(condition) if isinstance(condition, str) else condition
    try:
        _ = rows.join(rows.sparkSession.range(1).toDF("_tarnlog_one"), holds).schema
    except PySparkException as error:
        return error.getCondition() not in _NON_DETERMINISTIC
    return True


def empty_frame(spark: SparkSession, schema_string: str) -> DataFrame:
    """No rows of a schema. On classic Spark, a leaf that its optimizer does not fold away; kept for the session."""
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    if _is_connect(spark):
        return spark.createDataFrame([], strings_for_chars(StructType.fromJson(json.loads(schema_string))))
    return DataFrame(_frames(spark).of(spark, schema_string), spark)


def ambiguity(text: str) -> str | None:
    """What in a SQL text Spark reads by its settings, or another parser may take for something else."""
    for named, sign in _AMBIGUOUS.items():
        if sign in text:
            return named
    if _COMMENT.search(_QUOTED.sub("", text)):
        return "a comment"
    if any(found["next"] for found in _QUOTED.finditer(text)):
        return "adjacent string literals or a doubled quote"
    return None


def check_unambiguous(option: str, text: str, instead: str) -> None:
    """InvalidRequest for text of an option of the format, which knows no session, that depends on its settings."""
    if (found := ambiguity(text)) is not None:
        raise option_error(
            f"{option} {text!r} has {found}, which means one thing or another by settings of the session, and the "
            "format does not know them. Write text in single quotes and names in back quotes, without escapes and "
            f"comments; for anything else use {instead}."
        )


class _Frames:
    """What is kept for a session: frames of the schemas that were used last, and two of Catalyst's constants."""

    def __init__(self) -> None:
        self._frames: OrderedDict[str, Any] = OrderedDict()
        self.patterns: tuple[Any, ...] = ()

    def of(self, spark: SparkSession, schema_string: str) -> Any:
        found = self._frames.pop(schema_string, None)
        if found is None:
            jvm = cast(Any, spark)._jvm
            schema = jvm.org.apache.spark.sql.types.DataType.fromJson(schema_string)
            plain = jvm.org.apache.spark.sql.catalyst.util.CharVarcharUtils.replaceCharVarcharWithStringInSchema(schema)
            # Files of other writers may hold nulls where the schema allows none: nothing is concluded from that.
            nullable = plain.asNullable()
            found = cast(Any, spark)._jsparkSession.createDataFrame(cast(Any, spark)._sc._jsc.emptyRDD(), nullable)
            trees = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
            self.patterns = self.patterns or (trees.CURRENT_LIKE(), trees.PLAN_EXPRESSION())
        self._frames[schema_string] = found
        while len(self._frames) > _MOST_FRAMES:
            self._frames.popitem(last=False)
        return found


_frames = PerSession(_Frames)


def _is_connect(spark: SparkSession) -> bool:
    return getattr(spark, "_jsparkSession", None) is None


def _by_text(spark: SparkSession, condition: Condition, meta_data: MetaData) -> Resolved:
    """Text for the service, where both read it alike."""
    if not isinstance(condition, str):
        return _inexact("a Spark Connect client translates only SQL text")
    if (found := ambiguity(condition)) is not None:
        return _inexact(f"it has {found}, which Spark and the service may read in different ways")
    if _SPECIAL.search(condition):
        return _inexact("it may depend on the time at which it runs")
    if any(map(is_padded, _fields(meta_data))):
        return _inexact("the table has char columns, which Spark pads")
    if _DOUBLE.search(condition) or _is_wide(meta_data):
        return _inexact("Spark may compare its numbers as doubles")
    given = spark.conf.getAll
    for key, plain in _PLAIN_SETTINGS.items():
        if str(given.get(key, plain)).lower() != plain:
            return _inexact(f"{key} is {given[key]}")
    if _IN_TEXT.search(condition) and str(spark.conf.get(_ANSI)).lower() != "true":
        return _inexact(f"{_ANSI} is false: IN compares all values as text where one is text")
    return Resolved(PlanFilter(condition, str(spark.conf.get(_SESSION_ZONE))))


def _fields(meta_data: MetaData) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", json.loads(meta_data.schema_string)["fields"])


def _is_wide(meta_data: MetaData) -> bool:
    """Whether a decimal column has more digits than a double: Spark compares it with text as doubles."""
    return any(int(digits) > _DIGITS_OF_A_DOUBLE for digits in _DECIMAL.findall(meta_data.schema_string))


def _by_spark(spark: SparkSession, condition: Condition, meta_data: MetaData) -> Resolved:
    frame = cast(Any, empty_frame(spark, meta_data.schema_string).where(condition))
    plans = frame._jdf.queryExecution()
    analyzed = plans.analyzed().condition()
    if not analyzed.deterministic():
        return Resolved(None, exact=False, deterministic=False, why="it is not deterministic")
    if any(analyzed.containsPattern(pattern) for pattern in _frames(spark).patterns):
        return _inexact("it has a subquery, or depends on the time or the session in which it runs")
    if _SPECIAL.search(analyzed.sql()) or (isinstance(condition, str) and _SPECIAL.search(condition)):
        return _inexact("it may depend on the time at which it runs")
    found = _of_plan(plans.optimizedPlan(), _fields(meta_data))
    wanted = None if found.predicate is None else PlanFilter(found.predicate)
    why = "" if found.exact else "only whole columns that are compared with constants are understood"
    return Resolved(wanted, exact=found.exact, why=why)


def _of_plan(plan: Any, fields: list[dict[str, Any]]) -> Translation:
    """The predicate of the Filter over the empty frame. Spark leaves out the Filter where the condition is always true,
    the frame where it never is, and puts the functions of Python above the rest of it."""
    name, whole = plan.nodeName(), True
    while name in _UDF_STEPS or (name == "Filter" and plan.child().nodeName() in _UDF_STEPS):
        plan, whole = plan.child(), False
        name = plan.nodeName()
    if name == "LocalRelation":
        return Translation(In(fields[0]["name"], (None,)), whole)
    if name != "Filter":
        return Translation(None, whole and name.startswith("LogicalRDD"))
    if not plan.child().nodeName().startswith("LogicalRDD"):
        return Translation(None, exact=False)
    # Of padded text the plan would have other bytes than the files.
    found = _of_expression(plan.condition(), [field["name"] for field in fields if not is_padded(field)])
    return found if whole else Translation(found.predicate, exact=False)


def _of_expression(condition: Any, columns: list[str]) -> Translation:
    records = json.loads(condition.toJSON())
    if len(records) > MAX_NODES:
        return Translation(None, exact=False)
    return translate(parsed(records, _exact_values(condition, records)), columns)


def _exact_values(condition: Any, records: list[dict[str, Any]]) -> dict[int, tuple[Raw, ...]]:
    """By place, the values that Catalyst's JSON does not hold: it writes times in the zone of the JVM, and no sets."""
    inner, found = _Expressions(condition, records), dict[int, tuple[Raw, ...]]()
    for place, record in enumerate(records):
        kind = record["class"].rpartition(".")[2]
        if kind == "Literal" and record.get("dataType") in _TIMES and record.get("value") is not None:
            found[place] = (inner.at(place).value(),)
        elif kind == "InSet":
            found[place] = _members(inner.at(place).hset())
    return found


def _members(listed: Any) -> tuple[Raw, ...]:
    """The values of a Scala set in one call, in an order that does not depend on it."""
    nulls: tuple[Raw, ...] = ()
    if listed.contains(None):
        listed, nulls = listed.excl(None), (None,)
    texts = listed.mkString(_SEPARATOR).split(_SEPARATOR)
    if len(texts) != listed.size():
        raise ValueError("a value holds the character that separates values")
    return (*sorted(texts), *nulls)


class _Expressions:
    """Java's objects of the expressions of a tree, each fetched once. By loops: chains of AND are deep."""

    def __init__(self, root: Any, records: list[dict[str, Any]]) -> None:
        self._found = {0: root}
        self._parents: dict[int, tuple[int, int]] = {}
        open_nodes = list[list[int]]()  # place, children that were seen, children in all
        for place, record in enumerate(records):
            while open_nodes and open_nodes[-1][1] == open_nodes[-1][2]:
                open_nodes.pop()
            if open_nodes:
                self._parents[place] = (open_nodes[-1][0], open_nodes[-1][1])
                open_nodes[-1][1] += 1
            open_nodes.append([place, 0, record["num-children"]])

    def at(self, place: int) -> Any:
        way = list[int]()
        while place not in self._found:
            way.append(place)
            place = self._parents[place][0]
        for below in reversed(way):
            parent, number = self._parents[below]
            self._found[below] = self._found[parent].children().apply(number)
            place = below
        return self._found[place]


def _inexact(why: str) -> Resolved:
    return Resolved(None, exact=False, why=why)


def _refused(what: str, condition: Condition) -> InvalidRequest:
    return InvalidRequest(
        f"The condition of {what} ({condition}) is not deterministic: it is evaluated several times, and would choose "
        "other rows each time. Compute it into a column or a table first, and compare with that; nothing was written.",
        slug="option-invalid",
    )
