"""`python -m bench NAME [options]`: a benchmark is a module with `add_arguments` and `run`, a line in BENCHMARKS."""

from __future__ import annotations

import argparse
import importlib
import sys

BENCHMARKS = {
    "commit": ("bench.commit", "commits per second and latency, beside the peers"),
    "open": ("bench.open", "opening a table from states and by replay, beside deltalake"),
    "plan": ("bench.plan", "planning scans over HTTP, beside deltalake and DuckLake"),
    "spark": ("bench.spark", "tables from Spark, beside plain Parquet, Delta Lake and Iceberg"),
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench", description="Benchmarks of tarnlog beside its peers.")
    commands = parser.add_subparsers(dest="name", metavar="NAME")
    for name, (module, text) in BENCHMARKS.items():
        importlib.import_module(module).add_arguments(commands.add_parser(name, help=text, description=text))
    options = parser.parse_args(arguments)
    if options.name is None:
        parser.print_help()
        return 0
    status = importlib.import_module(BENCHMARKS[options.name][0]).run(options)
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
