"""Benchmarks of tarnlog, measured beside its peers in the same run: `python -m bench --help`."""
