"""Document mappings: the published hashes, and that moving them out, back and under one name loses nothing."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.action_json import decode_lines, unknown_fields
from tarnlog.protocol.actions import Add
from tarnlog_server.core import schema_dedup as dedup
from tests.core.making import add

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
NAMED = st.fixed_dictionaries({"name": st.sampled_from(["a", "b", "é", "😀"])}, optional={"type": SCALARS})
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3), inner, max_size=4)
        | st.lists(NAMED | st.fixed_dictionaries({"name": inner, "x": inner}), max_size=4)
    ),
    max_leaves=12,
)


def shuffled(value: Any, rng: random.Random) -> Any:
    """The same mapping, its keys and its arrays of named objects in another order."""
    if isinstance(value, dict):
        items = [(key, shuffled(inner, rng)) for key, inner in value.items()]
        rng.shuffle(items)
        return dict(items)
    if isinstance(value, list):
        inner = [shuffled(element, rng) for element in value]
        if all(isinstance(element, dict) and "name" in element for element in inner):
            rng.shuffle(inner)
        return inner
    return value


@pytest.mark.parametrize(
    "text,ref",
    [
        ("[]", "T1PNoYwrqgwDVLtf"),
        ('{"b":2,"a":1}', "QyWM_3g_5wNtikMD"),
        ('{ "a" : 1,\n "b" : 2 }', "QyWM_3g_5wNtikMD"),
        ('[{"name":"b"},{"name":"a"}]', "07LQewjDQm6i-p0x"),
        ('[{"name":"a"},{"name":"b"}]', "07LQewjDQm6i-p0x"),
    ],
)
def test_published_hashes(text: str, ref: str) -> None:
    assert dedup.mapping_ref(text) == ref


@pytest.mark.parametrize(
    "text,canonical",
    [
        ('{"b":{"d":1,"c":2},"a":[]}', '{"a":[],"b":{"c":2,"d":1}}'),
        ('[{"name":"b"},{"type":"a"}]', '[{"name":"b"},{"type":"a"}]'),
        ('[{"name":2},{"name":"1"}]', '[{"name":"1"},{"name":2}]'),
        ('["b","a"]', '["b","a"]'),
        ('{"é":"\\u00e9\\u20ac"}', '{"é":"é€"}'),
        ("[1.50, 1e2, 1, 1.0]", "[1.5,100.0,1,1.0]"),
        ("[0.12345678901234567890123]", "[0.12345678901234567890123]"),
        ("[1e400, 1e99999999999999999999]", "[1e400,1e99999999999999999999]"),
        ('{"a":1,"a":2}', '{"a":2}'),
    ],
)
def test_canonical_spelling(text: str, canonical: str) -> None:
    assert dedup.canonical_json(text) == canonical


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", "[" * 100_000, "'a'"])
def test_what_is_not_json_is_called_by_its_bytes(text: str) -> None:
    with pytest.raises(ValueError):
        dedup.canonical_json(text)
    assert len(dedup.mapping_ref(text)) == 16
    assert dedup.mapping_ref(text) != dedup.mapping_ref(text + " ")


@given(JSON, st.randoms(use_true_random=False), st.sampled_from([None, 1]), st.booleans())
def test_order_and_spaces_never_change_the_hash(
    value: Any, rng: random.Random, indent: int | None, ascii_only: bool
) -> None:
    other = json.dumps(shuffled(value, rng), indent=indent, ensure_ascii=ascii_only)
    assert dedup.mapping_ref(json.dumps(value)) == dedup.mapping_ref(other)


@given(JSON)
def test_canonical_json_is_json_of_the_same_meaning_and_stays_as_it_is(value: Any) -> None:
    text = dedup.canonical_json(json.dumps(value))
    assert dedup.canonical_json(text) == text
    assert canonical_value(json.loads(text)) == canonical_value(value)


def canonical_value(value: Any) -> Any:
    """Meaning by Python's own equality, with arrays of named objects as multisets."""
    if isinstance(value, dict):
        return {key: canonical_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        inner = [canonical_value(element) for element in value]
        named = all(isinstance(element, dict) and "name" in element for element in inner)
        return sorted(inner, key=lambda one: json.dumps(one, sort_keys=True)) if named else inner
    return value


@given(st.lists(JSON.map(json.dumps) | st.text(), min_size=1, max_size=5))
def test_what_moves_out_comes_back(texts: list[str]) -> None:
    registry: dict[str, str] = {}
    moved = []
    for number, text in enumerate(texts):
        out = dedup.externalise(add(f"f{number}", doc_mapping_json=text), registry)
        registry |= out.entries
        moved.append(out.add)
    for text, file in zip(texts, moved, strict=True):
        assert file.doc_mapping_json is None
        back = dedup.restore(file, registry)
        assert back.doc_mapping_json is not None
        assert dedup.mapping_ref(back.doc_mapping_json) == dedup.mapping_ref(text)
        plain = msgspec.structs.replace(back, doc_mapping_json=None, doc_mapping_ref=None)
        assert plain == msgspec.structs.replace(file, doc_mapping_ref=None)
    assert len(registry) == len({dedup.mapping_ref(text) for text in texts})


def test_both_spellings_of_a_registry_key_are_found() -> None:
    file = add("f", doc_mapping_ref="abc")
    assert dedup.restore(file, {"docMappingSchema.abc": "[1]"}).doc_mapping_json == "[1]"
    assert dedup.restore(file, {"abc": "[2]"}).doc_mapping_json == "[2]"
    assert dedup.restore(add("f", doc_mapping_ref="docMappingSchema.abc"), {"abc": "[2]"}).doc_mapping_json == "[2]"
    assert dedup.restore(file, {"other": "[3]"}) == file
    assert dedup.unresolved(["abc", "x"], {"abc": ""}) == {"x"}


def test_reading_never_recomputes_a_hash() -> None:
    registry = {"docMappingSchema.not-its-hash": '{"a":1}'}
    assert dedup.restore(add("f", doc_mapping_ref="not-its-hash"), registry).doc_mapping_json == '{"a":1}'


def test_a_ref_that_means_something_else_is_not_taken() -> None:
    text = '{"a":1}'
    out = dedup.externalise(add("f", doc_mapping_json=text), {dedup.KEY_PREFIX + dedup.mapping_ref(text): "[7]"})
    assert (out.add.doc_mapping_json, out.add.doc_mapping_ref, out.entries) == (text, None, {})


def test_an_inline_mapping_counts_more_than_the_ref_beside_it() -> None:
    out = dedup.externalise(add("f", doc_mapping_json="[]", doc_mapping_ref="stale"), {"docMappingSchema.stale": "[1]"})
    assert out.add.doc_mapping_ref == "T1PNoYwrqgwDVLtf"
    assert out.entries == {"docMappingSchema.T1PNoYwrqgwDVLtf": "[]"}


def test_unknown_fields_survive_both_ways() -> None:
    known = b'"path":"f","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true'
    (file,) = decode_lines(b'{"add":{%s,"new":7,"docMappingJson":"[]"}}' % known)
    assert isinstance(file, Add)
    out = dedup.externalise(file, {})
    assert unknown_fields(out.add) == {"new": 7}
    assert unknown_fields(dedup.restore(out.add, out.entries)) == {"new": 7}


def test_few_refs_are_left_alone() -> None:
    registry = {f"docMappingSchema.r{i}": '{"a":1}' for i in range(5)}
    assert dedup.renormalise([f"r{i}" for i in range(5)], registry, 5) == dedup.Renormalised({}, registry)


def test_many_refs_of_one_mapping_become_one() -> None:
    registry = {f"docMappingSchema.r{i}": " " * i + '{"a":1}' for i in range(6)}
    after = dedup.renormalise([f"r{i}" for i in range(6)], registry, 5)
    ref = dedup.mapping_ref('{"a":1}')
    assert set(after.refs.values()) == {ref}
    assert after.registry == registry | {dedup.KEY_PREFIX + ref: '{"a":1}'}
    assert dedup.referenced(after.refs.values(), after.registry) == {dedup.KEY_PREFIX + ref: '{"a":1}'}


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(["[]", "[ ]", '{"a":1}', "{", '{"a": 1}'])),
    st.lists(st.sampled_from("abcdefghxy")),
    st.integers(1, 4),
    st.booleans(),
)
def test_renormalising_never_loses_a_mapping(
    texts: dict[str, str], refs: list[str], threshold: int, bare: bool
) -> None:
    registry = {("" if bare else dedup.KEY_PREFIX) + ref: text for ref, text in texts.items()}
    after = dedup.renormalise(refs, registry, threshold)
    assert after.registry.items() >= registry.items()
    for ref in refs:
        before, now = dedup.lookup(ref, registry), dedup.lookup(after.refs.get(ref, ref), after.registry)
        assert (before is None) == (now is None)
        if before is not None and now is not None:
            assert dedup.mapping_ref(before) == dedup.mapping_ref(now)
    again = dedup.renormalise([after.refs.get(ref, ref) for ref in refs], after.registry, 0)
    if len(set(refs)) > threshold:
        assert again == dedup.Renormalised({}, after.registry)
        resolved = {after.refs.get(ref, ref) for ref in refs if ref in texts}
        assert len(resolved) == len({dedup.mapping_ref(texts[ref]) for ref in refs if ref in texts})
    else:
        assert after.refs == {}
