"""Filter expressions over the columns of a rollout: `reward >= 0.9 and not truncated`.

The grammar is a small part of Python's expressions. An expression is compiled to closures over a dict of values; it is
never evaluated as Python. A comparison with a missing value is false.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gymnast.errors import UserError, suggest

Values = Mapping[str, Any]
Evaluate = Callable[[Values], Any]

_MAX_LENGTH: Final = 4000
_CONSTANTS: Final = {"true": True, "false": False, "null": None, "none": None}
_FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "len": len, "lower": lambda text: text.lower(), "upper": lambda text: text.upper(), "abs": abs,
}  # fmt: skip
_ORDER: Final[dict[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_ARITHMETIC: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}  # fmt: skip
_CONTAINS: Final = re.compile(r"([\w.]+)\s+(?:contains|like|matches|~)\s+('[^']*'|\"[^\"]*\")", re.IGNORECASE)
_HINT: Final = "example: reward >= 0.9 and not truncated and agent in ('a', 'b')"


@dataclass(frozen=True, slots=True)
class Where:
    """A compiled expression."""

    text: str
    columns: tuple[str, ...]
    """The columns it reads, in the order of their first use."""
    _evaluate: Evaluate
    _compared_with: frozenset[str] = frozenset()
    """Columns that something is compared with: perhaps texts without quotes."""

    def matches(self, values: Values) -> bool:
        """Whether a rollout with these values is wanted. A column that is not in `values` is missing."""
        try:
            return bool(self._evaluate(values))
        except TypeError as error:
            raise UserError(
                f"--where compares different types: {error}", where=self.text, next=self._kinds(values)
            ) from error

    def unknown_column(self, name: str, known: list[str]) -> UserError:
        """The error for a column that no rollout has."""
        hint = suggest(name, known)
        if name in self._compared_with:
            similar = f", or {hint}" if hint and hint.startswith("did you mean") else ""
            hint = f"write texts in quotes: '{name}'{similar}"
        return UserError(f"--where: there is no column '{name}'", where=self.text, next=hint)

    def _kinds(self, values: Values) -> str:
        kinds = (f"{name} is {_kind(values.get(name))}" for name in self.columns)
        return f"in this rollout {', '.join(kinds)}"


def parse_where(*texts: str) -> Where:
    """Compile expressions that must all match. Raises UserError that marks the part that is not supported."""
    if len(texts) == 1:
        return _parse(texts[0])
    for text in texts:
        _parse(text)  # an error is about the one that has it
    return _parse(" and ".join(f"({text.strip()})" for text in texts))


def _parse(text: str) -> Where:
    source = text.strip()
    if not source:
        raise UserError("--where is empty", next=_HINT)
    if len(source) > _MAX_LENGTH:
        raise UserError(f"--where is longer than {_MAX_LENGTH} characters", next="filter in several steps")
    try:
        tree = ast.parse(source, mode="eval")
    except SyntaxError as error:
        raise _syntax_error(source, error) from error
    except (ValueError, MemoryError, RecursionError) as error:
        raise UserError(f"--where cannot be parsed: {str(error) or 'too deeply nested'}", next=_HINT) from error
    compiler = _Compiler(source)
    try:
        evaluate = compiler.compile(tree.body)
    except RecursionError as error:
        raise UserError("--where is too deeply nested", next="use fewer parentheses") from error
    if not compiler.columns:
        raise UserError("--where names no column", where=source, next=_HINT)
    return Where(source, tuple(dict.fromkeys(compiler.columns)), evaluate, frozenset(compiler.compared_with))


class _Compiler:
    """Turns nodes into closures; collects the columns."""

    def __init__(self, source: str) -> None:
        self.columns: list[str] = []
        self.compared_with: set[str] = set()
        self._source = source

    def compile(self, node: ast.expr) -> Evaluate:
        for kinds, method in (
            ((ast.BoolOp, ast.UnaryOp, ast.Compare), self._logic),
            ((ast.BinOp, ast.Call), self._computation),
            ((ast.Tuple, ast.List, ast.Set, ast.Constant, ast.Name, ast.Attribute), self._operand),
        ):
            if isinstance(node, kinds):
                return method(node)
        raise self._unsupported_error(node)

    def _logic(self, node: ast.expr) -> Evaluate:
        match node:
            case ast.BoolOp(op=op, values=parts):
                tests, combine = [self.compile(part) for part in parts], all if isinstance(op, ast.And) else any
                return lambda values: combine(test(values) for test in tests)
            case ast.UnaryOp(op=ast.Not(), operand=part):
                test = self.compile(part)
                return lambda values: not test(values)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=part):
                inner, negate = self.compile(part), isinstance(sign, ast.USub)
                return lambda values: _apply_sign(inner(values), negate=negate)
            case ast.Compare(left=left, ops=ops, comparators=rights):
                return self._comparison(left, ops, rights)
        raise self._unsupported_error(node)

    def _computation(self, node: ast.expr) -> Evaluate:
        match node:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return self._arithmetic(self.compile(left), _ARITHMETIC[type(op)], self.compile(right))
            case ast.Call(func=ast.Name(id=name), args=[only], keywords=[]) if name in _FUNCTIONS:
                function, argument = _FUNCTIONS[name], self.compile(only)
                return lambda values: _apply(function, argument(values), name)
        raise self._unsupported_error(node)

    def _operand(self, node: ast.expr) -> Evaluate:
        match node:
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                entries = [self.compile(item) for item in items]
                return lambda values: [entry(values) for entry in entries]
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return lambda _: value
            case ast.Name() | ast.Attribute():
                return self._column(node)
        raise self._unsupported_error(node)

    def _column(self, node: ast.expr) -> Evaluate:
        name = self._read_dotted_name(node)
        if name.lower() in _CONSTANTS:
            constant = _CONSTANTS[name.lower()]
            return lambda _: constant
        self.columns.append(name)
        return lambda values: values.get(name)

    def _read_dotted_name(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            return f"{self._read_dotted_name(node.value)}.{node.attr}"
        raise self._unsupported_error(node)

    def _comparison(self, left: ast.expr, ops: list[ast.cmpop], rights: list[ast.expr]) -> Evaluate:
        operands = [self.compile(left), *map(self.compile, rights)]
        for right in rights:
            parts = right.elts if isinstance(right, (ast.Tuple, ast.List, ast.Set)) else [right]
            self.compared_with |= {part.id for part in parts if isinstance(part, ast.Name)}
        tests = [_test(op) for op in ops]

        def evaluate(values: Values) -> bool:
            before = operands[0](values)
            for test, operand in zip(tests, operands[1:], strict=True):
                after = operand(values)
                if not test(before, after):
                    return False
                before = after
            return True

        return evaluate

    @staticmethod
    def _arithmetic(left: Evaluate, apply: Callable[[Any, Any], Any], right: Evaluate) -> Evaluate:
        def evaluate(values: Values) -> Any:
            first, second = left(values), right(values)
            if first is None or second is None:
                return None
            for operand in (first, second):
                if not isinstance(operand, (int, float)):
                    raise TypeError(f"{_kind(operand)} in arithmetic")
            try:
                return apply(first, second)
            except (ZeroDivisionError, OverflowError):
                return None

        return evaluate

    def _unsupported_error(self, node: ast.expr) -> UserError:
        part = ast.get_source_segment(self._source, node) or self._source
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            what = f"--where: there is no function '{node.func.id}'"
            return UserError(
                what, where=self._source, next=f"available: {', '.join(_FUNCTIONS)}, each with one argument"
            )
        return UserError(f"--where does not support `{part[:80]}`", where=self._source, next=_HINT)


def _test(op: ast.cmpop) -> Callable[[Any, Any], bool]:
    if type(op) in _ORDER:
        compare = _ORDER[type(op)]
        return lambda left, right: left is not None and right is not None and compare(left, right)
    if isinstance(op, (ast.In, ast.NotIn)):
        negate = isinstance(op, ast.NotIn)
        return lambda left, right: right is not None and (left in right) != negate
    if isinstance(op, (ast.Is, ast.IsNot)):
        negate = isinstance(op, ast.IsNot)
        return lambda left, right: (left is right or (left == right and type(left) is type(right))) != negate
    negate = isinstance(op, ast.NotEq)
    return lambda left, right: bool(left == right) != negate


def _apply_sign(value: Any, *, negate: bool) -> Any:
    if value is None or not negate:
        return value
    return -value


def _apply(function: Callable[[Any], Any], value: Any, name: str) -> Any:
    try:
        return None if value is None else function(value)
    except (TypeError, AttributeError) as error:
        raise TypeError(f"{name}() of {_kind(value)}") from error


def _kind(value: Any) -> str:
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "an object",
    }
    return "missing" if value is None else names.get(type(value), type(value).__name__)


def _syntax_error(source: str, error: SyntaxError) -> UserError:
    hint = _HINT
    if "&&" in source or "||" in source or "!" in source.replace("!=", ""):
        hint = "write and, or, not instead of &&, ||, !"
    elif "=" in source.replace("==", "").replace("!=", "").replace("<=", "").replace(">=", ""):
        hint = "compare with == instead of ="
    elif contains := _CONTAINS.search(source):
        hint = f"write {contains[2]} in {contains[1]}"
    at = f" at character {error.offset}" if error.offset else ""
    return UserError(f"--where cannot be parsed{at}: {error.msg}", where=source, next=hint)
