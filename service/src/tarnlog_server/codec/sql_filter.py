"""Filters as people write them: a SQL predicate in Spark's dialect becomes the tree that everything else works on.

sqlglot reads the text; here it is only translated. What the tree cannot say (functions of columns, other columns,
subqueries) is refused by name. Text, nesting and size are bounded before anything recursive runs. TRUE and FALSE are
an `And` or `Or` of nothing, and are folded away unless they are the whole filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from tarnlog.protocol.predicates import (
    MAX_DEPTH,
    MAX_NODES,
    MAX_VALUES,
    And,
    Compare,
    CompareOp,
    In,
    IsNotNull,
    IsNull,
    Not,
    Or,
    Predicate,
    PredicateError,
    Scalar,
)
from tarnlog.protocol.schema import Field, Schema, StructType
from tarnlog_server.codec.sql_literals import Constant, NotConstant, constant, spelled

MAX_TEXT = 128 * 1024
MAX_NESTING = 30
"""Parentheses within one another. The reader recurses about 25 times for each."""
MAX_TOKENS = 64_000
MAX_PART = 100
"""Words and signs in one comparison: a column of fifty names in one another has a hundred."""
MAX_CASTS = 2_000
"""CAST and :: in all; each takes the reader as long as ten plain values."""
_CASTS = frozenset({"CAST", "TRY_CAST"})
MAX_TYPES = 4
"""Types of types within one another in a CAST."""
_PREFIXES = frozenset({TokenType.NOT, TokenType.DASH, TokenType.TILDE, TokenType.PLUS})
_JOINING = frozenset({TokenType.AND, TokenType.OR})
_TYPES_OF_TYPES = frozenset(Spark.Parser.NESTED_TYPE_TOKENS | Spark.Parser.STRUCT_TYPE_TOKENS)
EVERYTHING, NOTHING = And(()), Or(())
"""TRUE and FALSE."""

_OPS: dict[type[exp.Expr], CompareOp] = {
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
}
_SUCH = "write one predicate, such as date = '2024-01-01' AND id > 5"
_MIRRORED: dict[CompareOp, CompareOp] = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


class _Filters(Spark):
    """Spark's dialect, with a doubled quote as one quote: as Spark 4 reads it, and as people write it."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES = ["'", '"', "\\"]  # noqa: RUF012  # how the library declares it


class SqlFilterError(PredicateError):
    """A SQL filter that cannot be used; `position` is where in its text, counted in characters."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__("", message)
        self.position = position


def parse_sql_filter(text: str, schema: Schema, zone: str | None = None) -> Predicate:
    """The tree of a SQL predicate; constants are spelled for the columns of `schema`, times without a zone in `zone`
    (by default UTC). SqlFilterError."""
    if not text.strip():
        raise SqlFilterError("the filter is empty: leave it out to get every file")
    if len(text) > MAX_TEXT:
        raise SqlFilterError(f"the filter has more than {MAX_TEXT} characters: send it as a tree")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SqlFilterError("the text contains a lone surrogate: send valid Unicode", error.start) from None
    try:
        return _Translator(schema, zone).whole(_parsed(text))
    except RecursionError:
        raise SqlFilterError("the filter is nested too deeply: flatten its AND and OR") from None


def _parsed(text: str) -> exp.Expr:
    dialect = _Filters()
    try:
        tokens = dialect.tokenize(text)
        _check_tokens(tokens)
        found = dialect.parser().parse_into(exp.Condition, tokens, text)
    except TokenError:
        raise SqlFilterError("the filter breaks off: is a quote missing?") from None
    except ParseError as error:
        raise _not_sql(error, text) from None
    if len(found) != 1 or found[0] is None:
        raise SqlFilterError(_SUCH)
    return found[0]


def _check_tokens(tokens: list[Token]) -> None:
    """Refuse what the reader would recurse over deeply, or read again and again, before it runs. Linear.

    Its work grows with the square of a chain such as `a::int::int`, and may double with each type inside a type.
    """
    if len(tokens) > MAX_TOKENS:
        message = f"the filter has more than {MAX_TOKENS} words and signs: send it as a tree"
        raise SqlFilterError(message, tokens[MAX_TOKENS].start)
    run = types = joined = casts = 0
    levels = [_Level()]
    before: TokenType | None = None
    for token in tokens:
        kind, start = token.token_type, token.start
        if kind is TokenType.SEMICOLON:
            raise SqlFilterError("write one predicate, without a semicolon", start)
        if kind in (TokenType.L_BRACKET, TokenType.L_BRACE):
            raise SqlFilterError(f"{token.text} cannot be used in a filter: {_INSTEAD}", start)
        levels[-1].take(kind)
        if kind is TokenType.L_PAREN:
            levels.append(_Level())
        elif kind is TokenType.R_PAREN and len(levels) > 1:
            levels.pop()
        run = run + 1 if kind in _PREFIXES else 0
        joined += kind in _JOINING
        types = 0 if kind in _JOINING else types + (kind is TokenType.LT and before in _TYPES_OF_TYPES)
        if len(levels) > MAX_NESTING + 1 or run > MAX_NESTING or types > MAX_TYPES:
            raise SqlFilterError(
                f"the filter is nested deeper than {MAX_NESTING} levels: flatten its AND and OR", start
            )
        if levels[-1].part > MAX_PART:
            message = f"there are more than {MAX_PART} words and signs without AND, OR or a comma between them"
            raise SqlFilterError(f"{message}: {_SUCH}", start)
        casts += kind is TokenType.DCOLON or token.text.upper() in _CASTS
        if casts > MAX_CASTS:
            message = f"the filter has more than {MAX_CASTS} casts: write constants such as DATE '2024-01-01'"
            raise SqlFilterError(message, start)
        if joined >= MAX_NODES:
            raise SqlFilterError(f"the filter has more than {MAX_NODES} parts: use IN for long lists of values", start)
        before = kind


class _Level:
    """How long the comparison is that is being written, outside of any parentheses in it."""

    def __init__(self) -> None:
        self.part = 0
        self._between = False

    def take(self, kind: TokenType) -> None:
        if kind is TokenType.AND and self._between:
            self._between = False  # it belongs to BETWEEN
        elif kind in _JOINING or kind is TokenType.COMMA:
            self.part = -1
            self._between = False
        self._between = self._between or kind is TokenType.BETWEEN
        self.part += 1


def _not_sql(error: ParseError, text: str) -> SqlFilterError:
    for fault in error.errors:
        near, before = str(fault.get("highlight") or ""), str(fault.get("start_context") or "")
        position = text.find(before + near)
        where = f" near {near[:40]!r}" if near else ""
        at = position + len(before) if position >= 0 else None
        return SqlFilterError(
            f"this is not a SQL predicate{where}: write one such as date = '2024-01-01' AND id > 5", at
        )
    return SqlFilterError("this is not a SQL predicate: write one such as date = '2024-01-01' AND id > 5")


class _Translator:
    """Walks sqlglot's tree once and counts what it makes."""

    def __init__(self, schema: Schema, zone: str | None) -> None:
        self.fields = schema.by_name()
        self.zone = zone
        self.nodes_left = MAX_NODES

    def whole(self, node: exp.Expr) -> Predicate:
        return self.node(node, 1)

    def node(self, node: exp.Expr, depth: int) -> Predicate:
        node = node.unnest()
        self.nodes_left -= 1
        if self.nodes_left < 0:
            raise _refused(node, f"the filter has more than {MAX_NODES} parts: use IN for long lists of values")
        if depth > MAX_DEPTH:
            raise _refused(node, f"the filter is nested deeper than {MAX_DEPTH} levels: flatten its AND and OR")
        if isinstance(node, exp.And | exp.Or):
            return _joined(node, [self.node(part, depth + 1) for part in node.flatten()])
        if isinstance(node, exp.Not):
            return _negated(self.node(node.this, depth + 1))
        return self.leaf(node)

    def leaf(self, node: exp.Expr) -> Predicate:
        if type(node) in _OPS:
            return self.compare(node, _OPS[type(node)])
        by_type: dict[type[exp.Expr], Callable[[exp.Expr], Predicate]] = {
            exp.NullSafeEQ: self.same,
            exp.NullSafeNEQ: lambda found: _negated(self.same(found)),
            exp.Between: self.between,
            exp.In: self.member,
            exp.Is: self.state,
            exp.Like: lambda found: self.like(found, "\\"),
            exp.Escape: self.escaped,
            exp.StartsWith: self.prefix,
            exp.Boolean: lambda found: EVERYTHING if found.this else NOTHING,
            exp.Column: lambda found: Compare("eq", self.column(found)[0], True),
            exp.Dot: lambda found: Compare("eq", self.column(found)[0], True),
        }
        translate = by_type.get(type(node))
        if translate is None:
            raise _refused(node, f"{_named(node)} cannot be used in a filter: {_INSTEAD}")
        return translate(node)

    def compare(self, node: exp.Expr, op: CompareOp) -> Predicate:
        left, right = node.this.unnest(), node.expression.unnest()
        first, second = _constant(left), _constant(right)
        if first is not None and second is not None:
            return _between_constants(node, op, first, second)
        if first is None and second is None and _is_column(left) and _is_column(right):
            raise _refused(node, "two columns are compared: compare each with a constant")
        side, value, op = (left, second, op) if second is not None else (right, first, _MIRRORED[op])
        if value is None:
            side = left if not _is_column(left) else right
            raise _refused(side, f"{_named(side)} cannot be used in a filter: {_INSTEAD}")
        name, kind = self.column(side)
        return Compare(op, name, self.spelled(node, value, kind))

    def same(self, node: exp.Expr) -> Predicate:
        """`<=>`: equal, and false instead of unknown where only one side is null."""
        left, right = node.this.unnest(), node.expression.unnest()
        value, side = (_constant(right), left) if _constant(right) is not None else (_constant(left), right)
        if value is None:
            raise _refused(node, "<=> needs a constant on one side")
        name, kind = self.column(side)
        if value.value is None:
            return IsNull(name)
        return And((IsNotNull(name), Compare("eq", name, self.spelled(node, value, kind))))

    def between(self, node: exp.Expr) -> Predicate:
        if node.args.get("symmetric"):
            raise _refused(node, "BETWEEN SYMMETRIC cannot be used in a filter: write the smaller value first")
        name, kind = self.column(node.this)
        low, high = (self.value(node.args[end], kind) for end in ("low", "high"))
        return And((Compare("ge", name, low), Compare("le", name, high)))

    def member(self, node: exp.Expr) -> Predicate:
        items = node.expressions
        if not items or any(isinstance(item, exp.Query) for item in items):
            raise _refused(node, "IN needs a list of constants, such as id IN (1, 2, 3)")
        if len(items) > MAX_VALUES:
            raise _refused(node, f"IN takes at most {MAX_VALUES} values")
        name, kind = self.column(node.this)
        return In(name, tuple(None if isinstance(item, exp.Null) else self.value(item, kind) for item in items))

    def state(self, node: exp.Expr) -> Predicate:
        name, _ = self.column(node.this)
        wanted = node.expression.unnest()
        if isinstance(wanted, exp.Null):
            return IsNull(name)
        if isinstance(wanted, exp.Boolean):
            return And((IsNotNull(name), Compare("eq", name, bool(wanted.this))))
        raise _refused(node, "after IS, write NULL, NOT NULL, TRUE or FALSE")

    def like(self, node: exp.Expr, escape: str) -> Predicate:
        name, _ = self.column(node.this)
        pattern = _constant(node.expression)
        if pattern is None or not isinstance(pattern.value, str) or pattern.kind != "text":
            raise _refused(node, "LIKE needs a pattern in quotes, such as name LIKE 'abc%'")
        found = _like(pattern.value, escape, name)
        if found is None:
            raise _refused(node, "LIKE is understood only with one % at the end: name LIKE 'abc%'")
        return _negated(found) if node.args.get("negate") else found

    def escaped(self, node: exp.Expr) -> Predicate:
        escape = node.expression.name
        if not isinstance(node.this, exp.Like) or len(escape) != 1 or escape in "%_":
            raise _refused(node, "ESCAPE needs one character, and LIKE before it")
        return self.like(node.this, escape)

    def prefix(self, node: exp.Expr) -> Predicate:
        name, _ = self.column(node.this)
        value = _constant(node.expression)
        if value is None or value.kind != "text":
            raise _refused(node, "startswith needs a column and a text in quotes")
        return Compare("starts-with", name, cast(str, value.value))

    def value(self, node: exp.Expr, kind: str) -> Scalar:
        found = _constant(node)
        if found is None:
            raise _refused(node, f"{_named(node)} is no constant: {_INSTEAD}")
        return self.spelled(node, found, kind)

    def spelled(self, node: exp.Expr, value: Constant, kind: str) -> Scalar:
        try:
            return spelled(value, kind, self.zone)
        except NotConstant as error:
            raise _refused(node, str(error)) from None

    def column(self, node: exp.Expr) -> tuple[str, str]:
        """The column that a node names, and its type."""
        node = node.unnest()
        parts = _name_parts(node)
        if parts is None:
            raise _refused(node, f"{_named(node)} cannot be used in a filter: {_INSTEAD}")
        name = ".".join(parts)
        if not name:
            raise _refused(node, "a column's name is empty")
        field = self.fields.get(name.lower())
        if field is not None and len(parts) > 1:
            raise _refused(node, f"{name[:200]} is one name with a dot in it: write it in back quotes")
        if field is None:
            field = _nested(self.fields, [part.lower() for part in parts])
        if field is None:
            raise _refused(node, f"there is no column {name[:200]!r}: use one of the table's schema")
        return name, str(field.type)


_INSTEAD = "compare a column with a constant, such as id > 5, name LIKE 'abc%' or day IS NULL"


def _nested(fields: dict[str, Field], parts: list[str]) -> Field | None:
    field = fields.get(parts[0])
    for part in parts[1:]:
        if field is None or not isinstance(field.type, StructType):
            return None
        field = field.type.by_name().get(part)
    return field


def _name_parts(node: exp.Expr) -> list[str] | None:
    """The parts of a dotted name; None for what is no name."""
    behind: list[str] = []
    while isinstance(node, exp.Dot):
        if not isinstance(node.expression, exp.Identifier):
            return None
        behind.insert(0, node.expression.name)
        node = node.this
    if not isinstance(node, exp.Column) or not all(isinstance(part, exp.Identifier) for part in node.parts):
        return None
    return [*(part.name for part in node.parts), *behind]


def _is_column(node: exp.Expr) -> bool:
    return _name_parts(node) is not None


def _joined(node: exp.Expr, parts: list[Predicate]) -> Predicate:
    """AND or OR with the constants folded away."""
    neutral, ruling = (EVERYTHING, NOTHING) if isinstance(node, exp.And) else (NOTHING, EVERYTHING)
    if ruling in parts:
        return ruling
    kept = tuple(part for part in parts if part != neutral)
    if len(kept) < 2:
        return kept[0] if kept else neutral
    return And(kept) if isinstance(node, exp.And) else Or(kept)


def _negated(found: Predicate) -> Predicate:
    if found in (EVERYTHING, NOTHING):
        return NOTHING if found == EVERYTHING else EVERYTHING
    return IsNotNull(found.column) if isinstance(found, IsNull) else Not(found)


def _between_constants(node: exp.Expr, op: CompareOp, left: Constant, right: Constant) -> Predicate:
    """`1 = 1` and the like, which programs write as the start of a list of conditions."""
    a, b = left.value, right.value
    if left.kind != right.kind or left.kind not in ("number", "text") or isinstance(a, float) or isinstance(b, float):
        raise _refused(node, "two constants are compared: write TRUE or FALSE")
    holds = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[op]  # type: ignore[operator]
    return EVERYTHING if holds else NOTHING


def _like(pattern: str, escape: str, name: str) -> Predicate | None:
    """A pattern of plain characters and one % at its end; None for any other."""
    prefix: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                return None
            prefix.append(pattern[at])
        elif char == "%":
            if pattern[at:].strip("%"):
                return None
            return Compare("starts-with", name, "".join(prefix)) if prefix else IsNotNull(name)
        elif char == "_":
            return None
        else:
            prefix.append(char)
        at += 1
    return Compare("eq", name, "".join(prefix))


def _constant(node: exp.Expr) -> Constant | None:
    try:
        return constant(node)
    except NotConstant as error:
        raise _refused(node, str(error)) from None


def _named(node: exp.Expr) -> str:
    """What a node is called, for an error."""
    if isinstance(node, exp.Anonymous):
        return f"the function {node.name[:60]}"
    if isinstance(node, exp.Query | exp.Subquery):
        return "a subquery"
    return node.key.upper()


def _refused(node: exp.Expr, message: str) -> SqlFilterError:
    starts: Iterable[int] = (part.meta["start"] for part in node.walk() if "start" in part.meta)
    return SqlFilterError(message, min(starts, default=None))
