"""Document mappings, written once: a file names its mapping by a short hash, the table's configuration holds the text.

The hash ignores what does not change a mapping's meaning: spaces, the order of keys, the order of an array of named
objects. It only decides what a mapping is called when it is registered. Reading is a lookup and never recomputes a
hash, because other writers called their mappings by other rules. The registry keeps the text of whoever came first.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from tarnlog.protocol.actions import Add

KEY_PREFIX = "docMappingSchema."
REF_LENGTH = 16


class Externalised(msgspec.Struct, frozen=True):
    """A file whose mapping lies in the registry, and the configuration entries that must be added for it."""

    add: Add
    entries: dict[str, str]


class Renormalised(msgspec.Struct, frozen=True):
    """Old ref to new ref, for those that change, and the registry that resolves the old ones and the new ones."""

    refs: dict[str, str]
    registry: dict[str, str]


def canonical_json(text: str) -> str:
    """The one spelling of all JSON texts that mean the same mapping; ValueError when it is not JSON."""
    try:
        return _spelled(json.loads(text, parse_float=_number, parse_constant=_no_constant))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


@functools.lru_cache(maxsize=512)
def mapping_ref(text: str) -> str:
    """What a mapping is called. Text that is not JSON is called by its own bytes, so that it too is written once."""
    with contextlib.suppress(ValueError):
        text = canonical_json(text)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return base64.urlsafe_b64encode(digest)[:REF_LENGTH].decode()


def lookup(ref: str, registry: Mapping[str, str]) -> str | None:
    """The text of a mapping, by configuration key or by the bare hash that some states use; None when unknown."""
    bare = ref.removeprefix(KEY_PREFIX)
    text = registry.get(KEY_PREFIX + bare)
    return registry.get(bare) if text is None else text


def canonical_ref(ref: str, registry: Mapping[str, str]) -> str:
    """What a listing calls a mapping: by its hash, where the registry has that name for it, else as the file does.

    A state may name it by the one and the log by the other. This depends on the registry alone, so every replica
    answers the same, whether it replayed the log or opened a state.
    """
    text = lookup(ref, registry)
    if text is None:
        return ref
    name = mapping_ref(text)
    known = registry.get(KEY_PREFIX + name)
    return name if known is not None and mapping_ref(known) == name else ref


def externalise(add: Add, registry: Mapping[str, str]) -> Externalised:
    """Move an inline mapping out of a file action. What is inline counts, whatever ref stands beside it.

    A ref that already means something else (another writer's naming) is left to its owner: the file stays inline.
    """
    text = add.doc_mapping_json
    if text is None:
        return Externalised(add, {})
    ref = mapping_ref(text)
    known = lookup(ref, registry)
    if known is not None and mapping_ref(known) != ref:
        return Externalised(msgspec.structs.replace(add, doc_mapping_ref=None), {})
    # Only the configuration's own key counts as registered: a bare hash is known to that one state alone.
    entries = {} if KEY_PREFIX + ref in registry else {KEY_PREFIX + ref: text if known is None else known}
    return Externalised(msgspec.structs.replace(add, doc_mapping_json=None, doc_mapping_ref=ref), entries)


def restore(add: Add, registry: Mapping[str, str]) -> Add:
    """The file with its mapping inline again. The ref stays: readers key their caches by it.

    An unknown ref leaves the file as it is; `unresolved` finds those.
    """
    if add.doc_mapping_json is not None or add.doc_mapping_ref is None:
        return add
    text = lookup(add.doc_mapping_ref, registry)
    return add if text is None else msgspec.structs.replace(add, doc_mapping_json=text)


def listed(add: Add, registry: Mapping[str, str]) -> Add:
    """The file as a listing shows it: its mapping inline and by one name, and `dataChange` false.

    That one speaks of the commit that added the file; states do not keep it.
    """
    ref = add.doc_mapping_ref
    if ref is None or add.doc_mapping_json is not None:
        return msgspec.structs.replace(add, data_change=False) if add.data_change else add
    name = canonical_ref(ref, registry)
    return msgspec.structs.replace(
        add, data_change=False, doc_mapping_ref=name, doc_mapping_json=lookup(name, registry)
    )


def unresolved(refs: Iterable[str], registry: Mapping[str, str]) -> set[str]:
    """The refs that nothing in the registry resolves: those files' mappings are lost, and an audit says so."""
    return {ref for ref in set(refs) if lookup(ref, registry) is None}


def referenced(refs: Iterable[str], registry: Mapping[str, str]) -> dict[str, str]:
    """The part of a registry that these refs need, by configuration key: what a rewritten state carries."""
    found = {KEY_PREFIX + ref.removeprefix(KEY_PREFIX): lookup(ref, registry) for ref in sorted(set(refs))}
    return {key: text for key, text in found.items() if text is not None}


def renormalise(refs: Iterable[str], registry: Mapping[str, str], threshold: int) -> Renormalised:
    """Call equal mappings by one ref once there are more than `threshold` refs in use.

    Entries are only ever added: version files and shared manifests still name the old refs. The outcome depends on
    the arguments alone, so that two replicas write the same; applied twice, it changes nothing the second time.
    """
    distinct = sorted(set(refs))
    after = dict(registry)
    renamed: dict[str, str] = {}
    if len(distinct) <= threshold:
        return Renormalised(renamed, after)
    for ref in distinct:
        text = lookup(ref, registry)
        if text is None:
            continue
        new = mapping_ref(text)
        known = lookup(new, after)
        if new == ref or (known is not None and mapping_ref(known) != new):
            continue
        renamed[ref] = new
        after.setdefault(KEY_PREFIX + new, text if known is None else known)
    return Renormalised(renamed, after)


class _Literal(str):
    """A number that a double cannot hold, as it was written: two different ones must not get one hash."""

    __slots__ = ()


def _number(literal: str) -> float | _Literal:
    value = float(literal)
    try:
        return value if Decimal(repr(value)) == Decimal(literal) else _Literal(literal)
    except ArithmeticError:  # an exponent that no decimal has
        return _Literal(literal)


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _spelled(value: Any) -> str:
    if isinstance(value, _Literal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(key)}:{_spelled(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        spelled = [_spelled(element) for element in value]
        if all(isinstance(element, dict) and "name" in element for element in value):
            # Elements of one name are ordered by their whole text: the order they came in must not matter.
            spelled = [text for _, text in sorted((_name(value[i]), spelled[i]) for i in range(len(value)))]
        return "[" + ",".join(spelled) + "]"
    return _quoted(value)


def _name(element: dict[str, Any]) -> str:
    name = element["name"]
    return name if isinstance(name, str) and not isinstance(name, _Literal) else _spelled(name)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
