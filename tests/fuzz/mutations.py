"""Damage of two kinds, chosen by a random generator: to bytes as such, and to what JSON means while it stays JSON."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Sequence
from typing import Any

TOKENS = (
    *(b"", b"\x00", b"\xff", b"\x80", b"\n", b"\r\n", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" " * 1000),
    *(b"null", b"true", b"NaN", b"Infinity", b"-Infinity", b"-0", b"1e999", b"1E-999", b"0x10", b"1.5", b"-1"),
    *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809", b"9" * 400, b"9" * 5000),
    *(b'"\\ud800"', b'"\\u0000"', b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xf4\x90\x80\x80", b'{"a":1,"a":2}'),
    *(b"[" * 200, b"[" * 5000, b'{"a":' * 5000, b"\xff" * 10, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x1f\x8b"),
    *(b"\x01\x01", b"Obj\x01", b"PAR1", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x00" * 64, b"../", b"%00", b"'"),
)
DEEP, DIGITS, TWICE = "@@deep@@", "@@digits@@", "@@twice@@"
_RAW = {
    f'"{DEEP}"': "[" * 3000 + "]" * 3000,
    f'"{DIGITS}"': "9" * 5000,
    f'"{TWICE}"': '{"path":1,"path":{"path":"x"},"version":-1,"version":1}',
}
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1, 10**40),
    *(0.5, -0.0, 1e308, float("nan"), float("inf"), float("-inf")),
    *(
        "",
        " ",
        "x",
        "\x00",
        "\ud800",
        "\U0001f600",
        "x" * 5000,
        "9" * 40,
        "2024-13-45",
        "1e400",
        "%zz",
        "../../x",
        "{}",
    ),
    *('{"type":"struct","fields":[]}', "[" * 3000, DEEP, DIGITS, TWICE),
    *([], {}, [[]], [None], [1, "1"], {"": None}, {"a": {}}, [{}] * 20, {"type": "struct", "fields": 1}),
)
_NUMBER = re.compile(rb"-?\d+")


def _edit(rng: random.Random, data: bytes, samples: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    kind = rng.randrange(9)
    at = rng.randrange(max(len(data), 1))
    length = rng.randrange(16) if rng.random() < 0.7 else rng.randrange(len(data) + 1)
    token = rng.choice(tokens if tokens and rng.random() < 0.7 else TOKENS)
    if kind == 0 and data:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + token + data[at + length :]
    if kind == 2:
        return data[:at] + token + data[at:]
    if kind == 3:
        return data[:at] + data[at + length :]
    if kind == 4:
        return data[:at]
    if kind == 5:
        return data[: at + length] + data[at:]
    if kind == 6:
        return data[:at] + rng.randbytes(rng.randrange(24)) + data[at + length :]
    if kind == 7:
        other = rng.choice(samples)
        return data[:at] + other[rng.randrange(len(other) + 1) :]
    places = list(_NUMBER.finditer(data))
    if not places:
        return data
    place = rng.choice(places)
    return data[: place.start()] + token + data[place.end() :]


def damaged(rng: random.Random, samples: Sequence[bytes], tokens: Sequence[bytes] = ()) -> bytes:
    """A sample after a few edits of its bytes."""
    data = rng.choice(samples)
    for _ in range(rng.randint(1, 4)):
        data = _edit(rng, data, samples, tokens)
    return data


def _odd(rng: random.Random) -> Any:
    return copy.deepcopy(rng.choice(ODD))


def _replaced(rng: random.Random, value: Any) -> Any:
    """A JSON value with something odd at a place inside of it."""
    if not isinstance(value, dict | list) or not value or rng.randrange(6) == 0:
        return _odd(rng)
    if isinstance(value, list):
        at = rng.randrange(len(value))
        what = rng.randrange(6)
        if what == 0:
            del value[at]
        elif what == 1:
            value.insert(at, copy.deepcopy(value[at]))
        else:
            value[at] = _replaced(rng, value[at])
        return value
    key = rng.choice(sorted(value))
    what = rng.randrange(8)
    if what == 0:
        del value[key]
    elif what == 1:
        value[rng.choice(("", "x", "\x00", "\ud800", "version", "path", "a.b", "x" * 2000))] = value.pop(key)
    elif what == 2:
        value[rng.choice(("unknown", "checkpointId", "parts", "add"))] = _odd(rng)
    else:
        value[key] = _replaced(rng, value[key])
    return value


def written(value: Any) -> bytes:
    """A JSON value as text, with what the writer of JSON would not write."""
    text = json.dumps(value, separators=(",", ":"))
    for marker, raw in _RAW.items():
        text = text.replace(marker, raw)
    return text.encode()


def misshapen(rng: random.Random, samples: Sequence[bytes]) -> bytes:
    """A JSON sample in which a few members are not what they should be."""
    value = json.loads(rng.choice(samples))
    for _ in range(rng.randint(1, 3)):
        value = _replaced(rng, value)
    return written(value)


def misshapen_lines(rng: random.Random, samples: Sequence[bytes]) -> bytes:
    """The same with lines of JSON."""
    lines = [json.loads(line) for line in rng.choice(samples).split(b"\n") if line]
    for _ in range(rng.randint(1, 3)):
        if not lines:
            break
        at = rng.randrange(len(lines))
        what = rng.randrange(7)
        if what == 0:
            del lines[at]
        elif what == 1:
            lines.insert(rng.randrange(len(lines) + 1), copy.deepcopy(lines[at]))
        else:
            lines[at] = _replaced(rng, lines[at])
    return b"\n".join([*(written(line) for line in lines), b""])
