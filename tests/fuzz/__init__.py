"""Fuzz targets: one for each parser of bytes that come from outside. See docs/testing.md."""
