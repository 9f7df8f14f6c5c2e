"""`python -m tarnlog_spark.demo [--keep]`: about a minute, most of it Spark."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

from tarnlog_spark import JavaNotUsable, session
from tarnlog_spark.demo.service import ServiceNotStarted, running_service
from tarnlog_spark.demo.story import Story, Told, WrongCount

CONF = {
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    # Many small jobs and then the end: what Java's compilers gain in long ones is lost here.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.sql.codegen.wholeStage": "false",
}


class Steps:
    """Runs steps, each shown in a line with its time."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def run(self, name: str, step: Callable[[], Told]) -> None:
        began = time.monotonic()
        with self._console.status(f"{name} ..."):
            told = step()
        spent = f"[green]✓[/] {time.monotonic() - began:5.1f} s"
        self._console.print(f"{spent}  [bold]{name}[/]: {told.line}", highlight=False)
        for label, value in told.below:
            self._console.print(f"           {label:<24} {value:>6}", highlight=False)


def tell(console: Console, folder: Path, *, keep: bool) -> None:
    """The whole story. Raises WrongCount, JavaNotUsable, ServiceNotStarted."""
    steps = Steps(console)
    urls: list[str] = []
    stories: list[Story] = []
    with contextlib.ExitStack() as ends:

        def start_service() -> Told:
            urls.append(ends.enter_context(running_service(folder)))
            return Told(f"its data in a temporary folder, an index in SQLite; dashboard: {urls[0]}/")

        def start_spark() -> Told:
            with _stderr_into(folder / "spark.log"):
                spark = session("tarnlog-demo", conf={**CONF, "spark.local.dir": str(folder / "spark")})
            ends.callback(spark.stop)
            stories.append(Story(spark, urls[0], folder))
            ends.callback(stories[0].close)
            return Told(f"{spark.version} on this machine, Python {platform.python_version()}")

        steps.run("Service", start_service)
        steps.run("Spark", start_spark)
        story = stories[0]
        steps.run("Table", story.create)
        steps.run("Two writers and a stream at once", story.write_together)
        steps.run("Optimize, with a file broken on purpose", story.optimize)
        steps.run("Merge", story.merge)
        steps.run("Time travel", story.travel)
        steps.run("Plan", story.plan)
        steps.run("Vacuum", story.vacuum)
        steps.run("History", story.history)
        if keep:
            console.print(f"The service stays up until Ctrl-C: dashboard {urls[0]}/ and API {urls[0]}/docs")
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()


def _as_ctrl_c(*_: object) -> None:
    """Told to end (SIGTERM): as Ctrl-C, so that the service and the folder go too."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """What Java and the workers it starts say goes to a file, not between the lines of the story."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("wb") as out:
            os.dup2(out.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def main(arguments: list[str]) -> int:
    """The exit code: 0 when every count was right, 130 when somebody ended it before that."""
    parser = argparse.ArgumentParser(prog="./dev demo", description="A pipeline of several Spark jobs on one table.")
    parser.add_argument("--keep", action="store_true", help="leave the service up at the end, until Ctrl-C")
    options = parser.parse_args(arguments)
    console = Console()
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    # Spark warns its users of versions of pandas that nothing here uses.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    with tempfile.TemporaryDirectory(prefix="tarnlog-demo-", ignore_cleanup_errors=True) as folder:
        try:
            tell(console, Path(folder).resolve(), keep=options.keep)
        except (JavaNotUsable, ServiceNotStarted) as error:
            console.print(f"[red]{error}[/]")
            return 1
        except WrongCount as error:
            console.print(f"[bold red]{error}. This is a bug; please report it.[/]")
            return 1
        except KeyboardInterrupt:
            console.print("Ended before its end; nothing is left behind.")
            return 130
    console.print("[bold green]Every count was right.[/]")
    console.print("The same by hand: docs/walkthrough.md. What a kill -9 does under load: ./dev demo kill")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
