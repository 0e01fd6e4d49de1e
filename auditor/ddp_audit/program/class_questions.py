"""What kind of thing a value is: `isinstance(x, C)`, `type(x) is C`, `type(x) in (C, D)`, `x.__class__.__name__`.

A script that wraps its model only in some jobs asks so before it takes the inner module. The answer is known for a wrapper that was
made here and for a module of a class of the project; nothing else has one.
"""

from __future__ import annotations

from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program.state import ClassInfo
from ddp_audit.program.values import UNIFORM, Const, Expr, Ext, Items, Obj, Value

_WRAPPER = "torch.nn.parallel.DistributedDataParallel"


def is_instance(subject: Value, about: Value) -> bool | None:
    """`isinstance(subject, about)`; None where there is more than one answer."""
    named = _names(about)
    if named is None or not isinstance(subject, Obj):
        return None
    if subject.kind == "ddp":
        return bool(named & {_WRAPPER, "torch.nn.Module"}) or None
    return False if _all_wrap(named) and _is_own_module(subject) else None


def class_of(subject: Value, text: str) -> Value | None:
    """`type(subject)`, as a value that a comparison and `__name__` can ask; None where it says nothing."""
    if isinstance(subject, Obj) and (subject.kind == "ddp" or _is_own_module(subject)):
        return Expr(op="type", args=(subject,), taint=UNIFORM, text=text)
    return None


def name_of_class(owner: Value, attr: str) -> Value | None:
    """`type(subject).__name__`."""
    if attr not in ("__name__", "__qualname__") or not isinstance(owner, Expr) or owner.op != "type":
        return None
    subject = owner.args[0]
    if isinstance(subject, Obj) and subject.kind == "ddp":
        return Const(value=_WRAPPER.rpartition(".")[2])
    cls = subject.cls if isinstance(subject, Obj) else None
    return Const(value=cls.name) if isinstance(cls, ClassInfo) and attr == "__name__" else None


def compared(left: Value, sign: str, right: Value) -> bool | None:
    """`type(subject) is C` and its like; None where the classes do not decide it."""
    if sign not in ("is", "is not", "==", "!=", "in", "not in"):
        return None
    if sign not in ("in", "not in") and not _is_type(left):
        left, right = right, left
    subject = left.args[0] if isinstance(left, Expr) and _is_type(left) else None
    wrapper = isinstance(subject, Obj) and subject.kind == "ddp"
    named = _names(right, own=wrapper)
    if not isinstance(subject, Obj) or named is None:
        return None
    if not wrapper and not _all_wrap(named):
        return None
    same = wrapper and _WRAPPER in named
    return same == (sign in ("is", "==", "in"))


def _is_type(value: Value) -> bool:
    return isinstance(value, Expr) and value.op == "type"


def _all_wrap(named: frozenset[str]) -> bool:
    return all(is_kind(name, "wraps-module") for name in named)


def _is_own_module(subject: Obj) -> bool:
    return subject.kind == "module" and isinstance(subject.cls, ClassInfo)


def _names(about: Value, own: bool = False) -> frozenset[str] | None:
    """The full names of a library's class, or of several; None where there is another, which `own` allows."""
    classes = about.items if isinstance(about, Items) and about.keys is None and not about.many else (about,)
    named = frozenset(c.name for c in classes if isinstance(c, Ext))
    rest = [c for c in classes if not isinstance(c, Ext)]
    return named if all(own and isinstance(c, Obj) and isinstance(c.cls, ClassInfo) and c.kind == "class" for c in rest) else None
