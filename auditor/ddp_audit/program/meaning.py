"""What a value is: by the kinds of operations and library functions that it came from, else by a word in its name.

The kinds are in `knowledge/kinds.toml` and `knowledge/tensors.toml`, the words in `knowledge/words.toml`.
"""

from __future__ import annotations

from ddp_audit.knowledge import functions, kinds, words
from ddp_audit.program.made import behind, operation_of, sources
from ddp_audit.program.nodes import Node
from ddp_audit.program.values import Bound, Const, Expr, Ext, Made, Obj, Unknown, Value, loop_leaves


def name_of(value: Value) -> str:
    """What a value came from, by its full name where it has one: the call, operation, attribute, class or library thing."""
    match value:
        case Bound(name=name) | Ext(name=name):
            return name
        case Obj(cls=str() as name):
            return name
    return operation_of(value)


def is_kind(what: Value | str | None, *kinds_of_it: str) -> bool:
    """Whether a value came from something of one of some kinds, or what has a name is of one."""
    if what is None:
        return False
    name = what if isinstance(what, str) else name_of(what)
    return bool(name) and kinds.is_kind(name, *kinds_of_it)


def comes_from(value: Value | None, *kinds_of_it: str) -> bool:
    """Whether a value, or something that it was computed from, came from something of one of some kinds."""
    return value is not None and any(is_kind(inner, *kinds_of_it) for inner in behind(value))


def says(what: Value | Node | str | None, *meanings: str) -> bool:
    """Whether the name of a value, the code of a node, or a text has a word of one of some meanings: a hint, and no more."""
    text = what if isinstance(what, str) else "" if what is None else what.text
    return bool(text) and any(words.says(text, meaning) for meaning in meanings)


def asks_form(test: Value) -> bool:
    """Whether a condition asks for the form of a value (its shape, type or device) and not for what is in it.

    One that holds the index of a loop against a length asks where in the loop it stands.
    """
    if is_kind(test, "comparison") and isinstance(test, Expr) and any(any(loop_leaves(arg)) for arg in test.args):
        return any(length_of(part) is not None for arg in test.args for part in behind(arg))
    made = test.by if isinstance(test, Unknown) else None
    if is_kind(test, "of-form") or made is None:
        return is_kind(test, "of-form") or (isinstance(test, Expr) and any(map(asks_form, test.args)))
    return is_kind(test, "comparison", "element") and any(map(asks_form, made.args))


def asks_for_none(test: Value) -> bool:
    """Whether a condition asks whether there is anything at all: it holds a number against 0, or says `not`."""
    if not is_kind(test, "comparison"):
        return False
    return name_of(test) == "not" or any(isinstance(part, Const) and part.value == 0 for part in sources(test))


def length_of(value: Value) -> Value | None:
    """What a number is the length of: `len(data)`, `data.shape[0]`; None for any other value."""
    match value:
        case Unknown(by=Made(name="builtins.len", args=(whole, *_))):
            return whole
        case Unknown(by=Made(name="[]", args=(Bound(name="shape", receiver=whole), Const(value=0)))):
            return whole
    return None


def differs_by_itself(value: Value) -> bool:
    """Whether a value is what the clock, random numbers or the process gave, and not only computed from such."""
    name = operation_of(value)
    return bool(functions.reasons(name)) or "draws" in functions.described().get(name, {})


def first_name(what: Value | str | None) -> str:
    """The variable with which the code of a value, or some code, begins: `loss` of `loss.mean()` and of `loss["total"]`."""
    text = what if isinstance(what, str) else "" if what is None else what.text
    end = next((i for i, letter in enumerate(text) if not (letter.isalnum() or letter == "_")), len(text))
    return text[:end]


def is_plain_name(value: Value | None) -> bool:
    """Whether nothing is known of a value but the variable that holds it."""
    return isinstance(value, Unknown) and value.by is None and value.text.isidentifier() and not value.deps


__all__ = [
    "asks_for_none",
    "asks_form",
    "comes_from",
    "differs_by_itself",
    "first_name",
    "is_kind",
    "is_plain_name",
    "length_of",
    "name_of",
    "says",
]
