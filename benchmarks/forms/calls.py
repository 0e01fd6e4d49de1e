"""The way a call is written: through an alias, a list, a helper, a partial, a lambda; with other arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import libcst as cst
from libcst import matchers as m
from libcst.metadata import GlobalScope

from forms.form import Form, Rewriter, expr, flat, jumps, names_in, of, stmt

Done = cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]


@dataclass(frozen=True, slots=True)
class Way:
    """A way to make a call that is a statement: {f} the function, {a} its arguments, {n} and {k} fresh names, {T} of `top`."""

    name: str
    text: str
    top: str = ""
    imports: tuple[str, ...] = ()


WAYS = [
    Way("by an alias of the function", "{n} = {f}\n{n}({a})\n"),
    Way("by callbacks in a list", "for {n} in [{f}]:\n    {n}({a})\n"),
    Way("by a hook list that is filled", "{k} = []\n{k}.append({f})\nfor {n} in {k}:\n    {n}({a})\n"),
    Way(
        "by a helper that is given it",
        "{T}({f}{c}{a})\n",
        "def {T}(action, *args, **kwargs):\n    return action(*args, **kwargs)\n",
    ),
    Way("by a lambda", "{n} = lambda: {f}({a})\n{n}()\n"),
    Way("by a nested function", "def {n}():\n    return {f}({a})\n\n{n}()\n"),
    Way("by a dict of functions", "{n} = {{'run': {f}}}\n{n}['run']({a})\n"),
    Way("by a partial", "{n} = functools.partial({f}{c}{a})\n{n}()\n", "", ("functools",)),
    Way("by a partial in a dict", "{n} = {{'run': functools.partial({f}{c}{a})}}\n{n}['run']()\n", "", ("functools",)),
    Way("with its result kept", "{n} = {f}({a})\n"),
    Way(
        "by a task object",
        "{T}({f}{c}{a}).run()\n",
        "class {T}:\n    def __init__(self, action, *args, **kwargs):\n        self.action, self.args, self.kwargs = action, args, kwargs\n\n"
        "    def run(self):\n        return self.action(*self.args, **self.kwargs)\n",
    ),
    Way(
        "by an object that is called",
        "{T}({f})({a})\n",
        "class {T}:\n    def __init__(self, action):\n        self.action = action\n\n"
        "    def __call__(self, *args, **kwargs):\n        return self.action(*args, **kwargs)\n",
    ),
]


def chain(node: cst.CSTNode) -> bool:
    """Whether an expression is a name, or attributes of one."""
    return isinstance(node, cst.Name) or (isinstance(node, cst.Attribute) and chain(node.value))


class Made(Rewriter):
    """Makes each call that stands as a statement in another way."""

    def __init__(self, module: cst.Module, way: Way) -> None:
        super().__init__(module)
        self.way = way
        self.defined = ""

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine) -> Done:
        if not m.matches(updated_node, m.SimpleStatementLine(body=[m.Expr(m.Call())])) or self.in_class_body(original_node):
            return updated_node
        call = updated_node.body[0].value  # type: ignore[union-attr]
        assert isinstance(call, cst.Call)
        if not chain(call.func) or jumps([call]) or names_in([call]) & {"super", "main", "print", "parser", "seed"}:
            return updated_node
        self.need(*self.way.imports)
        if self.way.top and not self.defined:
            self.defined = self.fresh("Task" if "class" in self.way.top else "perform")
            self.top(self.way.top.format(T=self.defined))
        given = ", ".join(self.code(one).rstrip(", ") for one in call.args)
        words = {"f": self.code(call.func), "a": given, "c": ", " if given else "", "T": self.defined}
        names = {"n": self.fresh("act"), "k": self.fresh("hooks")}
        self.changes += 1
        return flat(updated_node, *cst.parse_module(self.way.text.format(**words, **names)).body)


class Calls(Rewriter):
    """Calls of the program's own functions with the same arguments written otherwise."""

    def __init__(self, module: cst.Module, kind: str) -> None:
        super().__init__(module)
        self.kind = kind
        self.functions = {
            one.name.value: one for one in module.body if isinstance(one, cst.FunctionDef) and one.asynchronous is None
        }

    def _own(self, node: cst.Call) -> cst.FunctionDef | None:
        if not isinstance(node.func, cst.Name) or node.func.value not in self.functions:
            return None
        scope = self.scope_of(node.func)
        found = list(scope[node.func.value]) if scope is not None else []  # type: ignore[index]
        if len(found) != 1 or not isinstance(found[0].scope, GlobalScope):
            return None
        return self.functions[node.func.value]

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        function = self._own(original_node)
        if function is None or not updated_node.args or any(one.star for one in updated_node.args) or jumps([updated_node]):
            return updated_node
        name = self.code(updated_node.func)
        placed = [self.code(one.value) for one in updated_node.args if one.keyword is None]
        named = {one.keyword.value: self.code(one.value) for one in updated_node.args if one.keyword is not None}
        keywords = "".join(f", {key}={value}" for key, value in named.items())
        if self.kind == "star":
            text = f"{name}(*({', '.join(placed)},){keywords})" if placed else ""
        elif self.kind == "partial":
            self.need("functools")
            text = f"functools.partial({name}, {', '.join(placed)})({keywords.removeprefix(', ')})" if placed else ""
        else:
            parameters = [one.name.value for one in function.params.params]
            fits = (
                isinstance(function.params.star_arg, cst.MaybeSentinel)
                and not function.params.posonly_params
                and not function.decorators
            )
            if not placed or not fits or len(placed) > len(parameters):
                return updated_node
            words = dict(zip(parameters, placed, strict=False)) | named
            if self.kind == "keywords":
                text = f"{name}({', '.join(f'{key}={value}' for key, value in words.items())})"
            else:
                text = f"{name}(**dict({', '.join(f'{key}={value}' for key, value in words.items())}))"
        if not text:
            return updated_node
        self.changes += 1
        return expr(text)


class FirstArgument(Rewriter):
    """The first argument of a call in a variable, where it is a call itself."""

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine) -> Done:
        if len(updated_node.body) != 1 or self.in_class_body(original_node):
            return updated_node
        small = updated_node.body[0]
        value = getattr(small, "value", None)
        if (
            not isinstance(small, cst.Expr | cst.Assign)
            or not isinstance(value, cst.Call)
            or not value.args
            or not chain(value.func)
        ):
            return updated_node
        first = value.args[0]
        if first.star or first.keyword is not None or not isinstance(first.value, cst.Call) or "super" in names_in([value]):
            return updated_node
        name = self.fresh("given")
        self.changes += 1
        call = value.with_changes(args=[first.with_changes(value=cst.Name(name)), *value.args[1:]])
        rest = updated_node.with_changes(body=[small.with_changes(value=call)])
        return flat(updated_node, stmt(f"{name} = {self.code(first.value)}"), rest)


class Getattr(Rewriter):
    """`getattr(x, "f")(..)` for a call of a method."""

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if not isinstance(updated_node.func, cst.Attribute) or not chain(updated_node.func) or "super" in names_in([updated_node]):
            return updated_node
        self.changes += 1
        text = f"getattr({self.code(updated_node.func.value)}, '{updated_node.func.attr.value}')"
        return updated_node.with_changes(func=expr(text))


def _way(way: Way) -> Form:
    return of("calls", f"call {way.name}", lambda module: Made(module, way))


def _calls(name: str, kind: str) -> Form:
    make: Callable[[cst.Module], Rewriter] = lambda module: Calls(module, kind)  # noqa: E731
    return of("calls", name, make)


FORMS: list[Form] = [
    *map(_way, WAYS),
    _calls("own function called with a starred tuple", "star"),
    _calls("own function called by a partial", "partial"),
    _calls("own function called with keywords", "keywords"),
    _calls("own function called with a starred dict", "dict"),
    of("calls", "first argument in a variable", FirstArgument),
    of("calls", "method by getattr", Getattr),
]
