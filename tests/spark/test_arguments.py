"""Arguments of a wrong type: a TypeError names the argument, what it got and what it takes. Nothing is sent."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, cast

import pytest

from tarnlog_spark import Table, refresh
from tarnlog_spark._arguments import MOMENT, NAMES, WHOLE, takes


class NoSpark:
    """Passes for a session: nothing here gets as far as using it."""

    def createDataFrame(self) -> None:  # noqa: N802 (Spark's name)
        raise AssertionError


def table() -> Any:
    return Table.for_name(cast(Any, NoSpark()), "s.t", url="http://127.0.0.1:9", deadline=1)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "restore text": (lambda: table().restore("0"), "restore: version takes a whole number, not str '0'"),
    "restore flag": (lambda: table().restore(True), "restore: version takes a whole number, not bool True"),
    "read version": (lambda: table().read(version="3"), "read: version takes a whole number"),
    "read timestamp": (lambda: table().read(timestamp=dt.date(2024, 1, 1)), "read: timestamp takes a datetime"),
    "read columns": (lambda: table().read(columns="id"), "read: columns takes a list of column names such as ['day']"),
    "read filter": (lambda: table().read(5), "read: filter takes SQL text or a Column, not int 5"),
    "changes none": (lambda: table().changes(None), "changes: from_version takes a whole number, not None"),
    "changes text": (lambda: table().changes("1"), "changes: from_version takes a whole number"),
    "history": (lambda: table().history("5"), "history: limit takes a whole number"),
    "write none": (lambda: table().write(None), "write: rows takes a DataFrame, not None"),
    "write list": (lambda: table().write([(1,)]), "write: rows takes a DataFrame, not list [(1,)]"),
    "update pairs": (lambda: table().update([("a", "1")]), "update: set takes a mapping of column names"),
    "update value": (lambda: table().update({"a": 1}), "update: set takes a mapping of column names"),
    "delete": (lambda: table().delete(1), "delete: condition takes SQL text or a Column"),
    "merge": (lambda: table().merge("s.t", "a = b"), "merge: source takes a DataFrame, not str 's.t'"),
    "optimize": (lambda: table().optimize().where(1), "where: condition takes SQL text or a Column, not int 1"),
    "zorder": (lambda: table().optimize().execute_zorder_by(1), "columns takes a list of column names"),
    "vacuum": (lambda: table().vacuum(retention_hours="x"), "vacuum: retention_hours takes a number, not str 'x'"),
    "vacuum dry": (lambda: table().vacuum(dry_run="no"), "vacuum: dry_run takes True or False"),
    "erase none": (lambda: table().erase(dry_run=None), "erase: dry_run takes True or False, not None"),
    "cleanup": (lambda: table().cleanup(dry_run=0), "cleanup: dry_run takes True or False, not int 0"),
    "name": (lambda: Table.for_name(cast(Any, NoSpark()), cast(Any, 5)), "for_name: name takes text, not int 5"),
    "session": (lambda: Table.for_name(cast(Any, None), "s.t"), "for_name: spark takes a SparkSession, not None"),
    "partition_by": (
        lambda: Table.create(cast(Any, NoSpark()), "s.t", "day date", partition_by="day"),
        "create: partition_by takes a list of column names such as ['day'], not str 'day'",
    ),
    "schema": (lambda: Table.create(cast(Any, NoSpark()), "s.t", cast(Any, ["id"])), "create: schema takes a Struct"),
    "view": (lambda: refresh(cast(Any, NoSpark()), cast(Any, None)), "refresh: view takes text, not None"),
}


@pytest.mark.parametrize("case", WRONG)
def test_the_argument_is_named(case: str) -> None:
    call, sentence = WRONG[case]
    with pytest.raises(TypeError) as caught:
        call()
    assert sentence in str(caught.value)


def test_what_is_right_passes_and_a_call_that_does_not_fit_is_pythons_own_error() -> None:
    @takes(number=WHOLE, moment=MOMENT, names=NAMES)
    def method(number: int, moment: object = None, *, names: object = ()) -> tuple[object, ...]:
        return number, moment, names

    assert method(1) == (1, None, ())
    assert method(1, None) == (1, None, ())
    assert method(1, dt.datetime(2024, 1, 1, tzinfo=dt.UTC), names=["a"])[2] == ["a"]
    assert method(1, 1_700_000_000_000, names=("a",))[2] == ("a",)
    for names in (None, iter(["a"]), b"a", {"a": 1}, [1]):
        with pytest.raises(TypeError, match="method: names takes a list"):
            method(1, names=names)
    with pytest.raises(TypeError, match=r"method\(\) missing 1 required positional argument: 'number'"):
        cast(Any, method)()
