"""Makes Spark find the format `tarnlog` by itself: it looks for modules named pyspark_* with a DefaultSource."""

from tarnlog_spark._format import TarnlogFormat as DefaultSource

__all__ = ["DefaultSource"]
