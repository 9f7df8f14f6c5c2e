"""Types that no write can store are refused when a table is created, by column, and not at its first write."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T  # noqa: N812 (Spark's own convention)

from tarnlog import InvalidRequest
from tarnlog.protocol.schema import parse_schema
from tarnlog_spark._arrow_types import arrow_schema, check_storable
from tarnlog_spark._fitting import evolved, nullable
from tarnlog_spark._spark_schema import strings_for_chars

REFUSED: dict[str, tuple[T.DataType, str]] = {
    "char": (T.CharType(5), "char(5) (use string"),
    "varchar": (T.VarcharType(5), "varchar(5) (use string"),
    "variant": (T.VariantType(), "variant (use string"),
    "time": (T.TimeType(3), "time(3) (use string"),
    "days": (T.DayTimeIntervalType(), "interval day to second (use a number"),
    "months": (T.YearMonthIntervalType(), "interval year to month (use a number"),
    "calendar": (T.CalendarIntervalType(), "interval (use a number"),
    "void": (T.NullType(), "void (give it a type"),
    "list of char": (T.ArrayType(T.CharType(2)), "char(2) (use string"),
    "map of variant": (T.MapType(T.StringType(), T.VariantType()), "variant (use string"),
    "member": (T.StructType([T.StructField("x", T.NullType())]), "void (give it a type"),
    "empty": (T.StructType([]), "struct<>"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_type_that_no_write_can_store_is_refused_by_name(case: str) -> None:
    kind, sentence = REFUSED[case]
    schema = T.StructType([T.StructField("id", T.LongType()), T.StructField("bad one", kind)])
    with pytest.raises(InvalidRequest) as caught:
        check_storable(schema, "s.t")
    assert f"s.t cannot be created: no write can fill these columns: bad one: {sentence}" in str(caught.value)
    assert caught.value.slug == "schema-invalid"
    assert list(caught.value.fields["columns"]) == ["bad one"]


def test_what_is_accepted_can_be_written() -> None:
    kinds = [T.LongType(), T.StringType(), T.DecimalType(38, 2), T.BinaryType(), T.TimestampNTZType(), T.DateType()]
    nested = [T.ArrayType(T.DoubleType()), T.MapType(T.StringType(), T.StructType([T.StructField("a", T.ByteType())]))]
    schema = T.StructType([T.StructField(f"c{number}", kind) for number, kind in enumerate([*kinds, *nested])])
    check_storable(schema, "s.t")
    assert arrow_schema(parse_schema(schema.jsonValue())).names == schema.names


def test_a_schema_that_is_wrong_in_itself_is_left_to_the_service() -> None:
    check_storable(T.StructType([T.StructField("a", T.LongType()), T.StructField("A", T.NullType())]), "s.t")


def test_chars_of_other_writers_are_read_as_strings_on_every_level() -> None:
    members = [T.StructField("x", T.VarcharType(3), False, {"comment": "kept"}), T.StructField("y", T.LongType())]
    schema = T.StructType(
        [
            T.StructField("c", T.CharType(5), False),
            T.StructField("s", T.StructType(members)),
            T.StructField("m", T.MapType(T.CharType(1), T.ArrayType(T.VarcharType(2), False), False)),
        ]
    )
    found = strings_for_chars(schema)
    assert found.simpleString() == "struct<c:string,s:struct<x:string,y:bigint>,m:map<string,array<string>>>"
    assert not found["c"].nullable
    assert found["s"].dataType["x"].metadata == {"comment": "kept"}  # type: ignore[index]
    assert strings_for_chars(found) == found


def test_a_char_of_a_data_frame_becomes_a_string_column() -> None:
    """Spark marks a string column that it read from a char; with the mark it would pad, and other readers would not."""
    marked = {"__CHAR_VARCHAR_TYPE_STRING": "char(5)", "comment": "a code"}
    inner = T.StructType([T.StructField("x", T.StringType(), True, marked)])
    given = T.StructType([T.StructField("c", T.StringType(), True, marked), T.StructField("st", inner)])
    assert "CHAR" not in nullable(given).json()
    grown = evolved(T.StructType([T.StructField("id", T.LongType())]), given, table="a.b")
    assert "CHAR" not in grown.json()
    assert grown["c"].metadata == {"comment": "a code"}
