"""The PySpark connector of tarnlog."""
