"""Functions, classes and the fields of dataclasses as statements of an interpreted run define them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, TypeGuard

from ddp_audit.explore.exact import calls, described, enums, expressions
from ddp_audit.explore.exact.contents import unknown
from ddp_audit.explore.exact.values import MISSING, SPREAD, Class, Context, Function, Lib, Method, Native, Scope, Unknown
from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.knowledge.libraries import may_send

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter


def define(it: Interpreter, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope, owner: Class | None) -> Any:
    """A function statement or a lambda, its decorators applied."""

    spec = node.args
    positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    defaults = {
        name: expressions.evaluate(it, value, scope)
        for name, value in zip(positional[len(positional) - len(spec.defaults) :], spec.defaults, strict=True)
    }
    named = zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
    defaults |= {a.arg: expressions.evaluate(it, value, scope) for a, value in named if value is not None}
    name = getattr(node, "name", "<lambda>")
    made = Function(node, scope, name if owner is None else f"{owner.name}.{name}", owner, defaults)
    if isinstance(node, ast.Lambda):
        return made
    made.generator = scope.source.fact("yields", node, _yields)
    result: Any = made
    for decorator in reversed(node.decorator_list):
        result = _decorated(it, decorator, result, scope)
    return result


def _yields(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is a generator."""
    return any(isinstance(inner, (ast.Yield, ast.YieldFrom)) for inner in _own_nodes(node))


def _own_nodes(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    found: list[ast.AST] = []
    queue: list[ast.AST] = list(node.body)
    while queue:
        inner = queue.pop()
        found.append(inner)
        if not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            queue += list(ast.iter_child_nodes(inner))
    return found


def _decorated(it: Interpreter, node: ast.expr, value: Any, scope: Scope) -> Any:

    if isinstance(node, ast.Attribute) and node.attr in ("setter", "deleter"):
        return Unknown("a setter")
    decorator = expressions.evaluate(it, node, scope)
    last = decorator.name.rsplit(".", 1)[-1] if isinstance(decorator, Lib) else ""
    if isinstance(value, Function):
        if last in ("property", "cached_property", "staticmethod", "classmethod", "contextmanager"):
            value.kind = last
            return value
        if last in ("cache", "lru_cache"):
            value.kept = {}
            return value
        if isinstance(decorator, Context) or last in ("no_grad", "inference_mode", "enable_grad"):
            value.grad = decorator.grad if isinstance(decorator, Context) else last == "enable_grad"
            return value
    stub = described.stub_of(it, decorator) if it.stubs else None
    if stub is not None and not stub.like:
        return described.decorated(it, stub, value)
    if isinstance(decorator, (Function, Method)):
        return calls.call(it, decorator, [value], {})
    if isinstance(decorator, Native):
        return decorator.call(value)
    if (isinstance(decorator, Lib) and may_send(decorator.name)) or (isinstance(decorator, Unknown) and not decorator.quiet):
        it.opaque(f"the decorator {ast.unparse(node)[:60]}")  # it may call the function on some ranks alone
    return value


def define_class(it: Interpreter, node: ast.ClassDef, scope: Scope) -> Class:
    """A class statement."""

    made = Class(node.name, [expressions.evaluate(it, base, scope) for base in node.bases], {}, scope.source)
    inner = Scope(made.namespace, scope.source, scope, node.name, is_class=True)
    made.scope = inner
    fields: list[tuple[str, ast.expr | None]] = []
    for statement in node.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = define(it, statement, inner, made)
            if not isinstance(function, Unknown):
                made.namespace[statement.name] = function
        else:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                fields.append((statement.target.id, statement.value))
            it.statement(statement, inner)
    made.annotated = fields
    if enums.is_enum(made):
        enums.fill(made, node)
    if any(_makes_dataclass(it, d, scope) for d in node.decorator_list):
        inherited = dict(f for base in reversed(made.bases) if isinstance(base, Class) for f in base.fields or [])
        made.fields = list({**inherited, **dict(fields)}.items())
    _told_to_bases(it, node, made, scope)
    return made


def _told_to_bases(it: Interpreter, node: ast.ClassDef, made: Class, scope: Scope) -> None:
    """Runs the `__init_subclass__` of the class above that has one, with what the class statement gives by name."""
    above = (cls.namespace.get("__init_subclass__") for cls in made.lineage()[1:])
    hook = next((found for found in above if isinstance(found, Function)), None)
    if hook is not None:
        given = [(keyword.arg, expressions.evaluate(it, keyword.value, scope)) for keyword in node.keywords]
        calls.invoke(it, hook, [], {name or SPREAD: value for name, value in given if name != "metaclass"}, made)


def _makes_dataclass(it: Interpreter, decorator: ast.expr, scope: Scope) -> bool:
    head = decorator.func if isinstance(decorator, ast.Call) else decorator
    if not isinstance(head, (ast.Name, ast.Attribute)):
        return False
    made = expressions.evaluate(it, head, scope)
    return isinstance(made, Lib) and is_kind(made.name, "makes-dataclass")


def decorated_class(it: Interpreter, node: ast.ClassDef, made: Class, scope: Scope) -> Any:
    """What a class statement binds: the class, or what the project's functions among its decorators make of it."""
    result: Any = made
    for decorator in reversed(node.decorator_list):
        if _makes_dataclass(it, decorator, scope):
            continue
        function = expressions.evaluate(it, decorator, scope)
        if isinstance(function, (Function, Method, Native)):
            given = calls.call(it, function, [result], {})
            result = result if isinstance(given, Unknown) or given is None else given
        elif (isinstance(function, Lib) and may_send(function.name)) or (isinstance(function, Unknown) and not function.quiet):
            it.opaque(f"the decorator {ast.unparse(decorator)[:60]}")
    return result


def set_fields(it: Interpreter, cls: Class, made: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Gives an object of a dataclass its fields."""
    places = iter(args)
    for name, default in cls.fields or []:
        if not is_left_out(it, cls, default) and (given := next(places, MISSING)) is not MISSING:
            value = given
        elif name in kwargs:
            value = kwargs[name]
        elif SPREAD in kwargs:
            value = unknown(kwargs[SPREAD], why=name)
        elif name in it.overrides:
            value = expressions.plain_override(it.overrides[name])
        else:
            value = default_of(it, cls, default, name)
        made.attrs[name] = value
    after = cls.find("__post_init__")
    if isinstance(after, Function):
        calls.invoke(it, after, [], {}, made)


def default_of(it: Interpreter, cls: Class, default: ast.expr | None, name: str = "") -> Any:
    """The default of a field; unknown where it has none."""
    if not _is_field(default, it, cls):
        return Unknown(name) if default is None else expressions.evaluate(it, default, cls.scope)
    for keyword in default.keywords:
        if keyword.arg == "default":
            return expressions.evaluate(it, keyword.value, cls.scope)
        if keyword.arg == "default_factory":
            return calls.call(it, expressions.evaluate(it, keyword.value, cls.scope), [], {})
    return Unknown(name)


def _is_field(default: ast.expr | None, it: Interpreter, cls: Class) -> TypeGuard[ast.Call]:
    if not isinstance(default, ast.Call) or not isinstance(default.func, (ast.Name, ast.Attribute)):
        return False
    made = expressions.evaluate(it, default.func, cls.scope)
    return isinstance(made, Lib) and is_kind(made.name, "field-of-dataclass")


def is_left_out(it: Interpreter, cls: Class, default: ast.expr | None) -> bool:
    """Whether a field is not an argument of its class's constructor: `field(init=False)`."""
    given = default.keywords if _is_field(default, it, cls) else []
    return any(k.arg == "init" and isinstance(k.value, ast.Constant) and k.value.value is False for k in given)
