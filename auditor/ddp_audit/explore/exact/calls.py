"""Functions, classes, attributes and calls of an interpreted run."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import (
    containers,
    definitions,
    described,
    early,
    enums,
    expressions,
    generators,
    hooks,
    layers,
    libraries,
    named,
    own_dicts,
    python_names,
    tensors,
    totals,
    training,
)
from ddp_audit.explore.exact.acting import may_act
from ddp_audit.explore.exact.contents import first_unknown, is_unknown, unknown
from ddp_audit.explore.exact.values import (
    MISSING,
    PLAIN,
    RETURN,
    SPREAD,
    Class,
    Closed,
    Context,
    Cut,
    Error,
    Function,
    Generating,
    Instance,
    Lib,
    Method,
    Module,
    Native,
    Param,
    Raised,
    Scope,
    Several,
    Tensor,
    Unknown,
    View,
    error,
    matches,
)
from ddp_audit.folding import check_key
from ddp_audit.knowledge.libraries import may_send, unfollowed

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

_NATIVE_TYPES = (str, bytes, int, float, list, tuple, dict, set, frozenset, range)
_TAKE_ONE = ("add", "append", "get", "insert", "pop", "remove", "setdefault")  # and do not iterate over it


def super_of(scope: Scope) -> Any:
    """`super()` in a method."""
    holder: Scope | None = scope
    while holder is not None and holder.owner is None:
        holder = holder.parent
    if holder is None or holder.owner is None:
        return Unknown("super()")
    return _Super(holder.owner, holder.receiver)


class _Super:
    """The receiver seen through the bases of a class."""

    def __init__(self, owner: Class, receiver: Any) -> None:
        self.owner = owner
        self.receiver = receiver

    def _rest(self) -> list[Class]:
        """The classes after the owner, in the order of the receiver's own class: a class next to the owner may come first."""
        own = getattr(self.receiver, "cls", self.receiver)
        order = own.lineage() if isinstance(own, Class) else []
        order = order if any(cls is self.owner for cls in order) else self.owner.lineage()
        return order[next(n for n, cls in enumerate(order) if cls is self.owner) + 1 :]

    def attribute(self, it: Interpreter, name: str) -> Any:
        for cls in self._rest():
            if name in cls.namespace:
                return bound(it, cls.namespace[name], self.receiver)
        if isinstance(self.receiver, own_dicts.OwnDict):
            return own_dicts.of_super(it, self.receiver, name)
        if isinstance(self.receiver, Module):
            if name == "__setattr__":
                return Native(lambda key, value: layers.set_attribute(it, self.receiver, key, value))
            if name == "__init__" and self.receiver.held is not None:
                kind = containers.kind_of(self.receiver)
                return Native(lambda *args, **kwargs: containers.fill(self.receiver, kind, list(args), kwargs))
            return Native(lambda *args, **kwargs: None) if name == "__init__" else layers.outside_attribute(it, self.receiver, name)
        if name == "__init__" and isinstance(self.receiver, Instance):
            return Native(lambda *args, **kwargs: self.receiver.attrs.__setitem__("args", args))
        return Native(lambda *args, **kwargs: None)


# ---- calls


def call(it: Interpreter, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Calls a value."""
    it.ticks += 1  # a call costs about as much as a statement; the next statement sees whether there were too many
    stub = described.stub_of(it, function) if it.stubs else None
    if stub is not None:
        return described.call(it, stub, args, kwargs)
    match function:
        case Function():
            return invoke(it, function, args, kwargs, None)
        case Method(function=inner, receiver=receiver):
            return invoke(it, inner, args, kwargs, receiver)
        case Native(call=native):
            return native(*args, **kwargs)
        case Class():
            return instantiate(it, function, args, kwargs)
        case Lib(name=name):
            return libraries.call(it, name, args, kwargs)
        case Module():
            return layers.call_module(it, function, args, kwargs)
        case Instance():
            method = function.cls.find("__call__")
            if isinstance(method, Function):
                return invoke(it, method, args, kwargs, function)
        case Context(grad=grad) if grad is not None and args and isinstance(args[0], Function):
            args[0].grad = grad
            return args[0]
    called = getattr(function, "called", None)
    if callable(called):
        return called(it, args, kwargs)
    it.exhaust((*args, *kwargs.values()))
    it.losses += 1
    given = (*args, *kwargs.values())
    quiet = isinstance(function, Unknown) and function.quiet
    if not quiet or any(isinstance(v, (Function, Method, Native)) and may_act(v) for v in given):
        totals.forgotten(given)
        it.opaque(
            function.why or "a call of an unknown" if isinstance(function, Unknown) else f"a call of {type(function).__name__}"
        )
    deps = frozenset().union(*(t.deps for t in given if isinstance(t, Tensor)))
    if deps:
        return Tensor(None, None, deps, True)
    result = unknown(function, *given)
    result.quiet = quiet
    return result


def invoke(it: Interpreter, function: Function, args: list[Any], kwargs: dict[str, Any], receiver: Any) -> Any:
    """Calls a project function. A memoised one runs once for equal arguments."""
    if function.kept is None:
        return _invoke(it, function, args, kwargs, receiver)
    key = (receiver, *args, *kwargs.items())
    if function.kept and any(isinstance(value, Unknown) for value in (*args, *kwargs.values())):
        it.opaque(f"a call of {function.name}, which is memoised, with an unknown argument")  # it may have run for it before
        return unknown(function, *args, *kwargs.values())
    try:
        if key not in function.kept:
            function.kept[key] = _invoke(it, function, args, kwargs, receiver)
        return function.kept[key]
    except TypeError:  # an argument without a hash, which Python would not take either
        return _invoke(it, function, args, kwargs, receiver)


def _invoke(it: Interpreter, function: Function, args: list[Any], kwargs: dict[str, Any], receiver: Any) -> Any:
    if function.generator:
        return Generating(function, args, kwargs, receiver)
    scope = scope_of(it, function, args, kwargs, receiver)
    return _run(it, function, scope)


def _run(it: Interpreter, function: Function, scope: Scope) -> Any:
    it.tick()
    for functions in it.running:
        functions.add(function.node)
    before, asked = it.grad, it.asked_early
    if function.grad is not None:
        it.grad = function.grad
    try:
        with it.frame(scope.source, function.name):
            if isinstance(function.node, ast.Lambda):
                return expressions.evaluate(it, function.node.body, scope)
            value = it.result if it.block(function.node.body, scope) == RETURN else None
        return early.returned(it, function, asked, value)
    finally:
        it.grad = before


def generate(it: Interpreter, made: Generating, body: Callable[[Any], bool]) -> None:
    """Runs a generator function; `body` gets what it yields, and says False to leave it."""
    scope = scope_of(it, made.function, made.args, made.kwargs, made.receiver)
    frames = it.frames

    def yielded(value: Any) -> Any:
        inner = list(it.frames)
        it.frames[:] = inner[: len(inner) - 1] if len(inner) > 1 else inner
        try:
            going = body(value)
        finally:
            it.frames[:] = inner
        if not going:
            raise Closed
        sent, made.sent = made.sent, None
        return sent

    scope.yielded = yielded
    depth = len(frames)
    try:
        _run(it, made.function, scope)
    except Closed:
        pass
    finally:
        del it.frames[depth:]


def scope_of(it: Interpreter, function: Function, args: list[Any], kwargs: dict[str, Any], receiver: Any) -> Scope:
    """The scope of a call, its parameters bound. One that is not given and has no default is unknown."""
    spec = function.node.args
    positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    given = list(args)
    if receiver is not None and function.kind != "staticmethod":
        given.insert(0, receiver)
    bound = dict(zip(positional, given, strict=False))
    if spec.vararg is not None:
        bound[spec.vararg.arg] = tuple(given[len(positional) :])
    names = [*positional, *(a.arg for a in spec.kwonlyargs)]
    for name in names:
        if name not in bound:
            bound[name] = kwargs.get(name, MISSING if SPREAD in kwargs else function.defaults.get(name, MISSING))
            if bound[name] is MISSING:
                bound[name] = unknown(kwargs.get(SPREAD), why=name)
    if spec.kwarg is not None:
        rest = {k: v for k, v in kwargs.items() if k not in names}
        bound[spec.kwarg.arg] = unknown(rest[SPREAD], why=spec.kwarg.arg) if SPREAD in rest else rest
    if spec.vararg is not None and SPREAD in kwargs:
        bound[spec.vararg.arg] = unknown(kwargs[SPREAD], why=spec.vararg.arg)
    return Scope(bound, function.scope.source, function.scope, function.name, receiver=receiver, owner=function.owner)


def instantiate(it: Interpreter, cls: Class, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """An object of a project class."""
    libraries_ = cls.outside_bases()
    if any(name.endswith("DistributedDataParallel") for name in libraries_):
        return training.wrap(it, args, kwargs)
    if enums.is_enum(cls):
        return enums.by_value(it, cls, args)
    if named.is_record(cls):
        return named.make(it, cls, args, kwargs)
    if own_dicts.is_dict(cls):
        return own_dicts.make(it, cls, args, kwargs)
    for missed in filter(None, map(unfollowed, libraries_)):
        it.bound(missed)
    made: Any = Module(cls) if cls.is_module else Instance(cls)
    init = cls.find("__init__")
    if isinstance(init, Function):
        invoke(it, init, args, kwargs, made)
    elif cls.fields is not None:
        definitions.set_fields(it, cls, made, args, kwargs)
    elif isinstance(made, Instance):
        made.attrs["args"] = tuple(args)
    elif made.held is not None:
        containers.fill(made, containers.kind_of(made), args, kwargs)
    return made


def length(it: Interpreter, value: Any) -> Any:
    """`len(value)`."""
    method = own_dicts.own_method(value, "__len__")
    if method is not None:
        return call(it, method, [], {})
    if isinstance(value, Module) and value.held is not None:
        return Unknown("a length") if value.opaque else len(value.held)
    if isinstance(value, Tensor):
        return value.shape[0] if value.shape else Unknown("a size")
    known = getattr(value, "length", None)
    if callable(known):
        return known(it)
    try:
        return len(value)
    except TypeError:
        return unknown(value, why="a length")


# ---- attributes


def attribute(it: Interpreter, owner: Any, name: str) -> Any:
    """`owner.name`."""

    match owner:
        case described.Thing():
            return described.attribute(it, owner, name)
        case Lib(name=full):
            return libraries.attribute(it, full, name)
        case Scope() if name == "__dict__":
            return owner.variables
        case Scope():
            return owner.variables.get(name, MISSING) if name in owner.variables else Unknown(name)
        case Module():
            return layers.attribute(it, owner, name)
        case Instance():
            return _instance_attribute(it, owner, name)
        case Class():
            if name == "__name__":
                return owner.name
            found = owner.find(name)
            if name == "apply" and found is MISSING:
                return Native(lambda *args, **kwargs: hooks.apply(it, owner, list(args), kwargs), name)
            if isinstance(found, Function) and found.kind == "classmethod":
                return Method(found, owner)
            return Unknown(name) if found is MISSING else found
        case Tensor():
            return tensors.attribute(it, owner, name)
        case Error():
            return owner.args if name == "args" else Unknown(name)
        case Function() | Method():
            return getattr(owner, name) if name == "__name__" and hasattr(owner, name) else Unknown(name)
        case Several() if hasattr(list, name):
            return Native(lambda *args, **kwargs: _of_several(owner, name), name)
        case Unknown():
            return Unknown(name, owner.local, quiet=owner.quiet, source=first_unknown(owner))
        case Generating():
            return generators.method(it, owner, name)
        case _Super():
            return owner.attribute(it, name)
    own = getattr(owner, "attribute", None)
    if callable(own):
        return own(it, name)
    if isinstance(owner, _NATIVE_TYPES):
        return native_method(it, owner, name)
    if type(owner).__module__ == "random":  # a generator with a seed of its own
        return native_method(it, owner, name)
    return Unknown(name)


def _of_several(owner: Several, name: str) -> Any:
    """What a method of a list gives where its length is not known; what it changes is not seen."""
    known = {"pop": owner.element, "copy": owner}
    return known[name] if name in known else unknown(owner) if name in ("index", "count") else None


def _instance_attribute(it: Interpreter, owner: Instance, name: str) -> Any:
    if name in owner.attrs:
        return owner.attrs[name]
    found = owner.cls.find(name)
    if found is not MISSING:
        return bound(it, found, owner)
    if name == "__class__":
        return owner.cls
    if name == "__dict__":
        return owner.attrs
    fallback = owner.cls.find("__getattr__")
    if isinstance(fallback, Function):
        return invoke(it, fallback, [name], {}, owner)
    outside = owner.cls.outside_bases()
    return Unknown(name, quiet=bool(outside) and not any(map(may_send, outside)))


def bound(it: Interpreter, found: Any, receiver: Any) -> Any:
    """What an attribute of a class is when it is read on an object: a method, the value of a property, or itself."""
    if isinstance(found, Function):
        if found.kind == "property":
            return invoke(it, found, [], {}, receiver)
        if found.kind == "cached_property":
            made = invoke(it, found, [], {}, receiver)
            if isinstance(receiver, (Instance, Module, own_dicts.OwnDict)):
                receiver.attrs[found.node.name if isinstance(found.node, ast.FunctionDef) else found.name] = made
            return made
        if found.kind == "staticmethod":
            return found
        if found.kind == "classmethod":
            return Method(found, getattr(receiver, "cls", receiver))
        return Method(found, receiver)
    return found


def native_method(it: Interpreter, owner: Any, name: str) -> Any:
    """A method of a value of Python's own."""
    method = getattr(owner, name, None)
    if method is None or name.startswith("__"):
        return Unknown(name)
    if not callable(method):
        return method

    def run(*args: Any, **kwargs: Any) -> Any:
        if name == "sort" and isinstance(owner, list):
            ordered = python_names.in_order(it, [list(owner)], kwargs)
            if not isinstance(ordered, Unknown):
                owner[:] = ordered
            return None
        if isinstance(owner, str) and any(is_unknown(a) for a in args):
            return unknown(*args, why="a text")
        if name not in _TAKE_ONE:
            args = tuple(it.listed(a) if isinstance(a, Generating) or hasattr(a, "elements") else a for a in args)
        if name in ("join", "extend", "update", "union") and any(isinstance(a, Unknown) for a in args):
            return unknown(*args)
        if isinstance(owner, dict) and name in ("get", "pop", "setdefault") and args and isinstance(args[0], Unknown):
            return unknown(*args)
        if isinstance(owner, (list, tuple)) and name in ("index", "count", "remove") and is_unknown(owner):
            return unknown(owner)
        try:
            result = it.fold(f".{name}", owner, *args, **kwargs)
        except (Cut, Raised):
            raise
        except KeyError:
            raise error("KeyError", str(args[0]) if args else "") from None
        except IndexError:
            raise error("IndexError", f"{name} from an empty list") from None
        except ValueError as wrong:
            if isinstance(owner, (list, tuple, str)) and all(isinstance(value, PLAIN) for value in (*owner, *args)):
                raise error("ValueError", str(wrong)) from None
            return unknown(*args, why="a text" if isinstance(owner, str) else "")
        except Exception:
            return unknown(*args, why="a text" if isinstance(owner, str) else "")
        if isinstance(result, (*PLAIN, list, tuple, dict, set, frozenset)) or name in ("pop", "get", "setdefault", "choice"):
            return result
        if isinstance(owner, dict) and name in ("keys", "items"):
            return View(result)
        return list(result) if hasattr(result, "__iter__") and not isinstance(result, (Tensor, Module)) else result

    return Native(run, name)


def delete_item(it: Interpreter, owner: Any, index: Any) -> None:
    """`del owner[index]`."""
    it.effects += 1
    method = own_dicts.own_method(owner, "__delitem__")
    if method is not None:
        call(it, method, [index], {})
        return
    if isinstance(owner, Module):
        containers.remove(it, owner, index)
        return
    try:
        del owner[check_key(index)]
    except (KeyError, IndexError) as missing:
        if isinstance(owner, (dict, list)) and isinstance(index, PLAIN):
            raise error(type(missing).__name__, str(index)) from None
    except Exception:
        return


def delete_attribute(it: Interpreter, owner: Any, name: str) -> None:
    """`del owner.name`."""
    it.effects += 1
    if isinstance(owner, Module):
        layers.delete_attribute(it, owner, name)
    elif isinstance(owner, Instance):
        owner.attrs.pop(name, None)
    elif isinstance(owner, Class):
        owner.namespace.pop(name, None)


def set_attribute(it: Interpreter, owner: Any, name: str, value: Any) -> None:
    """`owner.name = value`."""
    it.effects += not isinstance(owner, training.Wrapper)  # its flags are nothing to the module inside
    if isinstance(owner, Module):
        layers.set_attribute(it, owner, name, value)
    elif isinstance(owner, Instance):
        owner.attrs[name] = value
    elif isinstance(owner, Scope):
        owner.variables[name] = value
    elif isinstance(owner, Class):
        owner.namespace[name] = value
    elif isinstance(owner, Param) and name == "requires_grad":
        layers.freeze(it, [owner], bool(value))
    elif isinstance(owner, Param) and name == "grad":
        owner.grad = value
    else:
        setter = getattr(owner, "set_attribute", None)
        if callable(setter):
            setter(it, name, value)


__all__ = ["Raised", "attribute", "call", "generate", "instantiate", "invoke", "length", "matches"]
