"""The expressions of a script, run for one rank."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls, containers, definitions, early, formats, own_dicts, tensors, totals
from ddp_audit.explore.exact.contents import first_unknown, is_unknown, unknown
from ddp_audit.explore.exact.enums import Member
from ddp_audit.explore.exact.iteration import Measured, several
from ddp_audit.explore.exact.values import (
    MISSING,
    PLAIN,
    SPREAD,
    Class,
    Cut,
    Function,
    Generating,
    Instance,
    Lib,
    Method,
    Module,
    Raised,
    Scope,
    Several,
    Tensor,
    Unknown,
    error,
)
from ddp_audit.folding import TooLarge, check_key

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

# The name of an operator's method, and the operator as `folding.fold` knows it.
_BINARY: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("add", "+"), ast.Sub: ("sub", "-"), ast.Mult: ("mul", "*"), ast.Div: ("truediv", "/"),
    ast.FloorDiv: ("floordiv", "//"), ast.Mod: ("mod", "%"), ast.Pow: ("pow", "**"), ast.BitAnd: ("and", "&"),
    ast.BitOr: ("or", "|"), ast.BitXor: ("xor", "^"), ast.LShift: ("lshift", "<<"), ast.RShift: ("rshift", ">>"),
    ast.MatMult: ("matmul", "@"),
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], str] = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "~"}


def evaluate(it: Interpreter, node: ast.expr, scope: Scope) -> Any:
    """The value of an expression."""
    known = _EXPRESSIONS.get(type(node))
    if known is None:
        it.opaque(f"an expression of the kind {type(node).__name__}")
        return Unknown()
    return known(it, node, scope)


def _constant(it: Interpreter, node: ast.Constant, scope: Scope) -> Any:
    return node.value


def _name(it: Interpreter, node: ast.Name, scope: Scope) -> Any:
    return lookup(it, node.id, scope)


def _attribute(it: Interpreter, node: ast.Attribute, scope: Scope) -> Any:
    value = evaluate(it, node.value, scope)
    it.at(node)
    return calls.attribute(it, value, node.attr)


def _binary_operation(it: Interpreter, node: ast.BinOp, scope: Scope) -> Any:
    return binary(it, node.op, evaluate(it, node.left, scope), evaluate(it, node.right, scope))


def _conditional(it: Interpreter, node: ast.IfExp, scope: Scope) -> Any:
    asked = it.asked_early
    answer = it.truth(evaluate(it, node.test, scope), node.test)
    it.took(node.test, answer)
    return early.chosen(it, node, asked, scope, evaluate(it, node.body if answer else node.orelse, scope))


def _slice(it: Interpreter, node: ast.Slice, scope: Scope) -> Any:
    parts = [None if part is None else evaluate(it, part, scope) for part in (node.lower, node.upper, node.step)]
    early.used(it, parts)
    return slice(*parts)


def _listed(it: Interpreter, node: ast.ListComp | ast.GeneratorExp, scope: Scope) -> Any:
    return _made(it, node.generators, node.elt, scope, list)


def _made(
    it: Interpreter, generators: list[ast.comprehension], elt: ast.expr, scope: Scope, kind: Callable[[list[Any]], Any]
) -> Any:
    """What a comprehension makes of its elements; something of unknown length where it ranges over that."""
    measures: list[Measured] = []
    found = list(_comprehension(it, generators, Scope({}, scope.source, scope, scope.name), elt, measures))
    return kind(found) if all(measure.whole for measure in measures) else several(found, *(m.over for m in measures if not m.whole))


def _generated(it: Interpreter, node: ast.GeneratorExp, scope: Scope) -> Any:
    """The elements of a generator expression, all at once. Where making them sends, when they are asked for is not followed."""
    start = len(it.events)
    made = _listed(it, node, scope)
    if len(it.events) > start:
        later = it.events[start:]
        del it.events[start:]
        it.bound("a generator expression sends, and when its elements are asked for is not followed")
        it.events += later
    return made


def _set_of(it: Interpreter, node: ast.SetComp, scope: Scope) -> Any:
    return _made(it, node.generators, node.elt, scope, functools.partial(it.hashed, set))


def _dict_of(it: Interpreter, node: ast.DictComp, scope: Scope) -> Any:
    pair = ast.Tuple([node.key, node.value], ast.Load())
    made = _made(it, node.generators, pair, scope, functools.partial(it.hashed, dict))
    return unknown(made, why="a dict") if isinstance(made, Several) else made


def _named(it: Interpreter, node: ast.NamedExpr, scope: Scope) -> Any:
    found = evaluate(it, node.value, scope)
    it.bind(node.target.id, found, scope)
    return found


def _given_on(it: Interpreter, node: ast.Yield, scope: Scope) -> Any:
    return _yield(scope, None if node.value is None else evaluate(it, node.value, scope))


def _all_given_on(it: Interpreter, node: ast.YieldFrom, scope: Scope) -> None:
    it.each(evaluate(it, node.value, scope), lambda element: _passed_on(scope, element), node)


def lookup(it: Interpreter, name: str, scope: Scope) -> Any:
    """A variable: of the function, of those around it, of its module, or a builtin."""
    here: Scope | None = scope.module if name in scope.outer else scope
    while here is not None:
        if name in here.variables and (here is scope or not here.is_class):
            return here.variables[name]
        here = here.parent
    return Lib(f"builtins.{name}")


def _yield(scope: Scope, value: Any) -> Any:
    holder: Scope | None = scope
    while holder is not None and holder.yielded is None:
        holder = holder.parent
    return None if holder is None or holder.yielded is None else holder.yielded(value)


def _passed_on(scope: Scope, value: Any) -> bool:
    """One element of `yield from`."""
    _yield(scope, value)
    return True


def _call(it: Interpreter, node: ast.Call, scope: Scope) -> Any:
    if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
        return calls.super_of(scope)
    if isinstance(node.func, ast.Name) and node.func.id in ("locals", "globals") and "globals" not in scope.variables:
        return scope.module.variables if node.func.id == "globals" else dict(scope.variables)
    function = evaluate(it, node.func, scope)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for part in node.args:
        if isinstance(part, ast.Starred):
            value = evaluate(it, part.value, scope)
            if isinstance(value, (Unknown, Tensor)) and takes_spread(function):
                kwargs[SPREAD] = unknown(value)
                continue
            listed = value if isinstance(value, Unknown) else it.listed(value)
            args += [listed] if isinstance(listed, Unknown) else listed
        else:
            # What takes a generator expression as its argument mostly asks for all elements at once.
            args.append(_listed(it, part, scope) if isinstance(part, ast.GeneratorExp) else evaluate(it, part, scope))
    for keyword in node.keywords:
        value = evaluate(it, keyword.value, scope)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
        elif isinstance(value, dict):
            kwargs.update({k: v for k, v in value.items() if isinstance(k, str)})
        elif takes_spread(function):
            kwargs[SPREAD] = unknown(value)
    if function == Lib("builtins.exec"):
        _configure(it, scope)
        return None
    it.at(node)
    return calls.call(it, function, args, kwargs)


def takes_spread(function: Any) -> bool:
    """Whether a call goes to what looks for arguments that are not known: functions of the project, and some of torch."""
    if isinstance(function, Lib):
        return function.name.endswith(".DistributedDataParallel") or function.name.startswith("torch.optim.")
    return isinstance(function, (Function, Method, Class))


def _configure(it: Interpreter, scope: Scope) -> None:
    """`exec(open('configurator.py').read())`: the job's values for the module's plain constants."""

    variables = scope.module.variables
    for name, override in it.overrides.items():
        if isinstance(variables.get(name), (int, float, str, bool)):
            variables[name] = plain_override(override)


def _elements(it: Interpreter, elts: list[ast.expr], scope: Scope) -> list[Any]:
    found: list[Any] = []
    for element in elts:
        if isinstance(element, ast.Starred):
            listed = it.listed(evaluate(it, element.value, scope))
            found += [listed] if isinstance(listed, Unknown) else listed
        else:
            found.append(evaluate(it, element, scope))
    return found


def _dict(it: Interpreter, keys: list[ast.expr | None], values: list[ast.expr], scope: Scope) -> Any:
    found: dict[Any, Any] = {}
    for key, value in zip(keys, values, strict=True):
        made = evaluate(it, value, scope)
        if key is None:
            if not isinstance(made, dict):
                return unknown(*found.values(), made, why="a dict")  # any key may be in it, also one that is known so far
            found.update(made)
        else:
            name = evaluate(it, key, scope)
            try:
                found[check_key(name)] = made
            except TooLarge as reason:
                return it.refused(str(reason), name)
            except TypeError:
                return Unknown()
    return found


def _comprehension(
    it: Interpreter, generators: list[ast.comprehension], scope: Scope, elt: ast.expr, measures: list[Measured]
) -> Iterator[Any]:
    first, rest = generators[0], generators[1:]
    over = it.measured(evaluate(it, first.iter, scope), first.iter)
    measures.append(over)
    for element in over:
        it.tick()
        it.assign(first.target, element, scope)
        if all(it.truth(evaluate(it, test, scope), test, True) for test in first.ifs):
            if rest:
                yield from _comprehension(it, rest, scope, elt, measures)
            else:
                yield evaluate(it, elt, scope)


def plain_override(override: Any) -> Any:
    """The value of an override, Unknown where it is not a constant."""
    value = getattr(override, "value", override)
    return Unknown("an option") if type(value).__name__ == "Unknown" else value


# ---- operators


def binary(it: Interpreter, op: ast.operator, left: Any, right: Any) -> Any:
    """`left op right`."""
    name, sign = _BINARY[type(op)]
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        if isinstance(op, ast.MatMult):
            return tensors.function(it, "matmul", [left, right], {})
        return totals.combined(it, op, left, right, tensors.elementwise(it, left, right, divides=isinstance(op, ast.Div)))
    if isinstance(op, (ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor)):
        left, right = own_dicts.as_sets(it, left, right)
    for receiver, other, method in ((left, right, f"__{name}__"), (right, left, f"__r{name}__")):
        if isinstance(receiver, Instance) and isinstance(receiver.cls.find(method), Function):
            return calls.call(it, Method(receiver.cls.find(method), receiver), [other], {})
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return totals.combined(it, op, left, right, unknown(left, right))
    try:
        return early.carried(it, left, right, it.fold(sign, left, right))
    except ZeroDivisionError:
        raise error("ZeroDivisionError", "division by zero") from None
    except Cut:
        raise
    except Exception:
        return unknown(left, right)


def _unary(it: Interpreter, op: ast.unaryop, value: Any) -> Any:
    if isinstance(op, ast.Not):
        known = it.known_truth(value)
        return unknown(value) if known is None else not known
    if isinstance(value, Tensor):
        return tensors.like(it, value, value)
    try:
        return it.fold(_UNARY[type(op)], value)
    except Cut:
        raise
    except Exception:
        return unknown(value)


def _logic(it: Interpreter, op: ast.boolop, parts: list[ast.expr], scope: Scope) -> Any:
    decisive = isinstance(op, ast.Or)
    lost: list[Any] = []
    value: Any = None
    for part in parts:
        value = evaluate(it, part, scope)
        known = it.known_truth(value)
        if known is None:
            lost.append(value)
            if decisive and len(parts) == 2 and part is parts[0] and isinstance(parts[1], ast.Constant):
                return value  # `x or default`
        elif known == decisive:
            return value
    return unknown(lost) if lost else value


def _comparison(it: Interpreter, node: ast.Compare, scope: Scope) -> Any:
    left = evaluate(it, node.left, scope)
    result: Any = True
    lost: list[Any] = []
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = evaluate(it, comparator, scope)
        result = compare(it, op, left, right)
        known = it.known_truth(result)
        if known is None:
            lost.append(result)
            if isinstance(result, Tensor) and len(node.ops) == 1:
                return result
        elif not known:
            return False
        left = right
    return unknown(lost) if lost else result


def compare(it: Interpreter, op: ast.cmpop, left: Any, right: Any) -> Any:
    """One comparison."""
    if isinstance(op, (ast.Is, ast.IsNot)):
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return Unknown("whether it is there", source=first_unknown(left, right))
        if isinstance(left, PLAIN) and isinstance(right, PLAIN):
            same = left is right or (left == right and type(left) is type(right))
        else:
            same = left is right or (isinstance(left, Lib) and left == right)
        return same == isinstance(op, ast.Is)
    if isinstance(op, (ast.In, ast.NotIn)):
        return _contains(it, left, right, isinstance(op, ast.In))
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        totals.compared(left, right)
        return tensors.compared(left, right)
    if isinstance(left, Member) and isinstance(op, (ast.Eq, ast.NotEq)) and not isinstance(right, Unknown):
        return (left is right) == isinstance(op, ast.Eq)
    if is_unknown(left) or is_unknown(right):
        totals.compared(left, right)
        return unknown(left, right)
    if isinstance(left, Instance) and isinstance(op, (ast.Eq, ast.NotEq)):
        if (method := own_dicts.own_method(left, "__eq__")) is not None:
            same_objects = calls.call(it, method, [right], {})
            return same_objects if isinstance(op, ast.Eq) or isinstance(same_objects, Unknown) else not same_objects
        if left.cls.fields is not None:
            return _same_fields(it, op, left, right)
    left, right = own_dicts.as_sets(it, left, right)
    try:
        return early.carried(it, left, right, it.fold(_COMPARE[type(op)], left, right))
    except Cut:
        raise
    except Exception:
        return unknown(left, right)


def _same_fields(it: Interpreter, op: ast.cmpop, left: Instance, right: Any) -> Any:
    """Whether two objects of a dataclass are equal: their fields decide."""
    same: Any = isinstance(right, Instance) and right.cls is left.cls
    for name, _ in left.cls.fields or () if same else ():
        alike = compare(it, ast.Eq(), left.attrs.get(name), right.attrs.get(name))
        if it.known_truth(alike) is not True:
            same = alike
            break
    known = it.known_truth(same)
    return unknown(same) if known is None else known == isinstance(op, ast.Eq)


def _contains(it: Interpreter, item: Any, container: Any, wanted: bool) -> Any:
    if (method := own_dicts.own_method(container, "__contains__")) is not None:
        found = calls.call(it, method, [item], {})
        known = it.known_truth(found)
        return unknown(found) if known is None else known == wanted
    if isinstance(container, Module) and container.held is not None and not container.opaque:
        named = isinstance(item, str)
        container = list(container.held) if named else list(container.held.values())
        if not named and isinstance(item, (Module, Tensor)):
            return any(item is held for held in container) == wanted
    keys = getattr(container, "keys_known", None)
    if callable(keys):
        container = keys()
    if isinstance(container, dict):
        container = list(container)
    if isinstance(item, (Unknown, Tensor)) or isinstance(container, (Unknown, Tensor)):
        return unknown(item, container)
    if isinstance(item, Member) and isinstance(container, (list, tuple, set, frozenset)):
        return any(element is item for element in container) == wanted
    try:
        if isinstance(container, (list, tuple)) and any(isinstance(e, (Unknown, Tensor)) for e in container):
            return unknown(container)
        return it.fold("in" if wanted else "not in", item, container)
    except Cut:
        raise
    except Exception:
        return Unknown()


# ---- subscripts


def get_item(it: Interpreter, owner: Any, index: Any) -> Any:
    """`owner[index]`."""
    if isinstance(owner, Tensor):
        return totals.copied(owner, tensors.index(it, owner, index))
    if (method := own_dicts.getter(owner, index)) is not None:
        return calls.call(it, method, [index], {})
    if isinstance(owner, Module):
        return containers.child(owner, index)
    if isinstance(owner, Instance):
        return unknown(index)
    if isinstance(owner, Class) and owner.members and isinstance(index, str):
        return owner.members.get(index, Unknown("a member"))
    if isinstance(owner, (Lib, Class)):
        return owner  # Generic[T]
    if isinstance(owner, Several):
        return owner if isinstance(index, slice) else owner.element
    if isinstance(owner, Unknown) or isinstance(index, (Unknown, Tensor)):
        if isinstance(owner, (list, tuple)) and owner and all(type(e) is type(owner[0]) for e in owner):
            return owner[0] if isinstance(owner[0], Tensor) else unknown(owner, index)
        return totals.copied(owner, unknown(owner, index))
    if isinstance(owner, Generating):
        return Unknown()
    try:
        return it.fold("[]", owner, index)
    except (Cut, Raised):
        raise
    except KeyError:
        raise error("KeyError", str(index)) from None
    except IndexError:
        raise error("IndexError", "list index out of range") from None
    except Exception:
        return unknown(owner, index)


def set_item(it: Interpreter, owner: Any, index: Any, value: Any) -> None:
    """`owner[index] = value`."""
    it.effects += not isinstance(owner, Tensor)
    if (method := own_dicts.own_method(owner, "__setitem__")) is not None:
        calls.call(it, method, [index, value], {})
        return
    if isinstance(owner, Module) and owner.held is not None:
        names = list(owner.held)
        at_place = isinstance(index, int) and -len(names) <= index < len(names)
        containers.put(it, owner, names[index] if at_place else index, value)
        return
    if isinstance(owner, (Instance, Module)):
        return
    if isinstance(owner, Tensor):
        tensors.written(owner, value)
        totals.put(owner, value)
        return
    setter = getattr(owner, "set_key", None)
    if callable(setter):
        setter(index, value)
        return
    if isinstance(owner, (list, dict)) and not isinstance(index, (Unknown, Tensor)):
        try:
            it.fold("[]=", owner, index, value)
        except Cut:
            raise
        except Exception:
            return


_EXPRESSIONS: dict[type[ast.expr], Callable[[Any, Any, Scope], Any]] = {
    ast.Constant: _constant, ast.Name: _name, ast.Attribute: _attribute, ast.Call: _call, ast.BinOp: _binary_operation,
    ast.BoolOp: lambda it, node, scope: _logic(it, node.op, node.values, scope),
    ast.UnaryOp: lambda it, node, scope: _unary(it, node.op, evaluate(it, node.operand, scope)),
    ast.Compare: lambda it, node, scope: _comparison(it, node, scope), ast.IfExp: _conditional,
    ast.Tuple: lambda it, node, scope: tuple(_elements(it, node.elts, scope)),
    ast.List: lambda it, node, scope: _elements(it, node.elts, scope),
    ast.Set: lambda it, node, scope: it.hashed(set, _elements(it, node.elts, scope)),
    ast.Dict: lambda it, node, scope: _dict(it, node.keys, node.values, scope),
    ast.JoinedStr: lambda it, node, scope: formats.formatted(it, node.values, scope),
    ast.Subscript: lambda it, node, scope: get_item(it, evaluate(it, node.value, scope), evaluate(it, node.slice, scope)),
    ast.Slice: _slice, ast.Lambda: lambda it, node, scope: definitions.define(it, node, scope, None),
    ast.ListComp: _listed, ast.GeneratorExp: _generated, ast.SetComp: _set_of, ast.DictComp: _dict_of, ast.NamedExpr: _named,
    ast.Starred: lambda it, node, scope: evaluate(it, node.value, scope),
    ast.Await: lambda it, node, scope: evaluate(it, node.value, scope), ast.Yield: _given_on, ast.YieldFrom: _all_given_on,
}  # fmt: skip

__all__ = ["MISSING", "binary", "compare", "evaluate", "get_item", "lookup", "set_item"]
