from __future__ import annotations

import pytest

from tests.scheduling import next_test

SPARK, OTHER = "tests/spark/test_a.py::test_a", "tests/core/test_b.py::test_b"


@pytest.mark.parametrize(
    "waiting, with_spark, expected",
    [
        ([SPARK, OTHER], True, SPARK),
        ([SPARK, OTHER], False, OTHER),
        ([OTHER, SPARK], True, SPARK),
        ([OTHER], True, OTHER),
        ([SPARK], False, SPARK),
    ],
)
def test_a_worker_gets_a_test_of_its_kind_first(waiting: list[str], with_spark: bool, expected: str) -> None:
    assert next_test(waiting, with_spark=with_spark) == expected
