"""Runs a parser on damaged input and judges what it did: a value, or an error that it documents; nothing else.

Anything else fails: another exception (a panic of a library too), more than CPU_SECONDS, more than MEMORY_BYTES. The
message holds the input, and how to run the parser on it again.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import itertools
import os
import random
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.conftest import LONG
from tests.fuzz.mutations import damaged, misshapen, misshapen_lines

CPU_SECONDS = 10.0
MEMORY_BYTES = 512 * 2**20
SECONDS = float(os.environ.get("TARNLOG_FUZZ_SECONDS") or (600 if LONG else 0.6))
"""For each target."""
EXAMPLES, INPUTS = 50, 20
"""Numbers drawn in one round, and inputs made from each; rounds follow one another until the time is over."""
SHOWN_BYTES = 64 * 1024
Form = Literal["bytes", "json", "lines"]


_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class TooSlow(BaseException):
    """Not an Exception: a parser that turns those into its own error must not hide it."""


class Finding(AssertionError):
    """A parser did what no parser may do."""


@dataclasses.dataclass(frozen=True)
class Target:
    """A parser of outside bytes, valid samples of them, and the errors that it documents.

    `reseal` makes the checksum of a damaged sample right again: what lies behind the check is fuzzed too.
    """

    name: str
    samples: Callable[[], Sequence[bytes]]
    parse: Callable[[bytes], object]
    errors: tuple[type[BaseException], ...]
    form: Form = "bytes"
    reseal: Callable[[bytes], bytes] | None = None
    plain: Callable[[bytes], bytes] | None = None
    """The text of a sample, where it is compressed: what is misshapen is not."""
    accepts_samples: bool = True
    tokens: tuple[bytes, ...] = ()
    """What else damage may put into it: words of its own language."""


def check(target: Target, data: bytes) -> None:
    """Finding unless the parser returns a value or raises one of its own errors."""
    before = _peak(reset=True)
    try:
        with _limited():
            target.parse(data)
    except target.errors:
        pass
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise Finding(_told(target, data, f"{type(error).__name__}: {str(error)[:500]}")) from error
    if _peak() - before > MEMORY_BYTES:
        raise Finding(_told(target, data, f"it took {(_peak() - before) >> 20} MiB"))


def fuzz(target: Target, seconds: float = SECONDS, first_seed: int | None = None) -> int:
    """Run a target until its time is over; how many inputs it got. The first ones are the samples themselves."""
    samples = tuple(target.samples())
    for sample in samples:
        if target.accepts_samples:
            target.parse(sample)  # a sample that is refused would fuzz nothing
        check(target, sample)
    check(target, b"")
    end = time.monotonic() + seconds  # what comes before is not counted: the first use of a target may take seconds
    start = first_seed if first_seed is not None else int.from_bytes(os.urandom(6))
    inputs = 0
    for number in itertools.count(start):
        inputs += _round(target, samples, number, end)
        if inputs and time.monotonic() >= end:
            break
    return inputs


def _round(target: Target, samples: Sequence[bytes], number: int, end: float) -> int:
    inputs = 0
    texts = [target.plain(sample) for sample in samples] if target.plain is not None else list(samples)

    # Hypothesis draws the number that an input is made from: to shrink it would make another input, not a smaller one.
    @seed(number)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**64 - 1))
    def once(drawn: int) -> None:
        nonlocal inputs
        rng = random.Random(drawn)
        for _ in range(INPUTS):
            if not inputs or time.monotonic() < end:
                inputs += 1
                check(target, made(target, samples, texts, rng))

    once()
    return inputs


def made(target: Target, samples: Sequence[bytes], texts: Sequence[bytes], rng: random.Random) -> bytes:
    """One input: a sample with damage, and perhaps with its checksum made right again."""
    if target.form == "json" and rng.random() < 0.6:
        data = misshapen(rng, texts)
    elif target.form == "lines" and rng.random() < 0.6:
        data = misshapen_lines(rng, texts)
    else:
        data = damaged(rng, texts if rng.random() < 0.5 else samples, target.tokens)
    if target.reseal is not None and rng.random() < 0.6:
        data = target.reseal(data)
    return data


def replay(target: Target, packed: str) -> None:
    """Run a target on the input of a finding."""
    check(target, zlib.decompress(base64.b85decode(packed)))


def packed(data: bytes) -> str:
    """An input as a finding shows it."""
    return base64.b85encode(zlib.compress(data, 9)).decode()


def _told(target: Target, data: bytes, what: str) -> str:
    shown = packed(data)
    if len(shown) > SHOWN_BYTES:
        shown = shown[:SHOWN_BYTES] + "... (cut)"
    return (
        f"the parser {target.name!r} did this with {len(data)} bytes: {what}\n"
        f"replay: python -m tests.fuzz.replay {target.name} '{shown}'"
    )


def _peak(*, reset: bool = False) -> int:
    """The most that this process had in memory since it was reset, which only Linux can tell; elsewhere 0."""
    if not _STATUS.exists():
        return 0
    if reset:
        _CLEAR.write_text("5")
    found = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(found.split()[1]) * 1024


@contextlib.contextmanager
def _limited(seconds: float | None = None) -> Iterator[None]:
    """TooSlow after so much of the processor's time, as soon as Python code runs again."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TooSlow(f"more than {seconds or CPU_SECONDS} s of the processor")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds or CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def touched(value: Any) -> Any:
    """A value after everything in it that is made only when asked for was made."""
    for item in getattr(value, "removes", None) or ():
        _ = item
    facts = getattr(value, "facts", None)
    if facts is not None:
        touched(facts)
    for item in getattr(value, "files", None) or ():
        _ = item
    return value
