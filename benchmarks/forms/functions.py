"""How functions are put together: wrapped, decorated, in a class, in a second file, in main(), as a generator that is driven."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import libcst as cst
from libcst import matchers as m

from forms.form import (
    Form,
    Rewriter,
    Statement,
    Unfit,
    as_statements,
    block,
    bound_in,
    holding,
    is_docstring,
    is_import,
    is_main_guard,
    jumps,
    loads_in,
    looks_at_names,
    names_in,
    of,
    split_docstring,
    stmt,
)  # fmt: skip

PLAIN = "def {T}(function):\n    @functools.wraps(function)\n    def inner(*args, **kwargs):\n        return function(*args, **kwargs)\n\n    return inner\n"
NAMED = (
    "def {T}(label):\n    def decorate(function):\n        @functools.wraps(function)\n        def inner(*args, **kwargs):\n"
    "            result = function(*args, **kwargs)\n            return result\n\n        inner.label = label\n        return inner\n\n    return decorate\n"
)
OBJECT = (
    "class {T}:\n    def __init__(self, function):\n        functools.update_wrapper(self, function)\n        self.function = function\n\n"
    "    def __call__(self, *args, **kwargs):\n        return self.function(*args, **kwargs)\n"
)


def parameters(node: cst.FunctionDef) -> list[str] | None:
    """The names of plain parameters; None where there are others."""
    params = node.params
    if params.posonly_params or params.kwonly_params or params.star_kwarg or not isinstance(params.star_arg, cst.MaybeSentinel):
        return None
    return [one.name.value for one in params.params]


class TopFunctions(Rewriter):
    """Rewrites each function at the top of the module that is neither decorated nor asynchronous."""

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        if (
            not isinstance(self.function_around(original_node), cst.Module)
            or original_node.decorators
            or original_node.asynchronous
        ):
            return updated_node
        done = self.rewritten(original_node, updated_node)
        if done is None:
            return updated_node
        self.changes += 1
        first = done[0].with_changes(leading_lines=updated_node.leading_lines)  # type: ignore[union-attr]
        return cst.FlattenSentinel([first, *done[1:]])

    @abstractmethod
    def rewritten(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> list[Statement] | None:
        """What stands in the place of one; None where it stays."""


class Decorated(TopFunctions):
    """A decorator of the program's own that passes everything on."""

    def __init__(self, module: cst.Module, text: str, use: str) -> None:
        super().__init__(module)
        self.text, self.use = text, use
        self.defined = ""

    def rewritten(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> list[Statement] | None:
        """The function with a decorator."""
        self.need("functools")
        if not self.defined:
            self.defined = self.fresh("Traced" if "class" in self.text else "traced")
            self.top(self.text.format(T=self.defined))
        shape = stmt(f"@{self.use.format(T=self.defined)}\ndef f():\n    pass\n")
        return [updated.with_changes(decorators=shape.decorators)]  # type: ignore[union-attr]


class PassedOn(TopFunctions):
    """A function with *args and **kwargs that calls the present one."""

    def rewritten(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> list[Statement] | None:
        """Two functions."""
        inner = self.fresh(f"{updated.name.value}_inner")
        outer = stmt(f"def {updated.name.value}(*args, **kwargs):\n    return {inner}(*args, **kwargs)\n")
        return [updated.with_changes(name=cst.Name(inner), leading_lines=()), outer]


class Inner(TopFunctions):
    """The body in a nested function."""

    def rewritten(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> list[Statement] | None:
        """One function in another."""
        given, body = parameters(updated), as_statements(updated.body)
        plain, other = bound_in(body)
        if given is None or (plain | other) & set(given):
            return None
        doc, rest = split_docstring(body)
        name = self.fresh("body")
        return [updated.with_changes(body=block([*doc, holding(f"def {name}():\n    pass\n", rest), stmt(f"return {name}()")]))]


class Guarded(TopFunctions):
    """The body in a try, a with, or a context manager."""

    def __init__(self, module: cst.Module, kind: str) -> None:
        super().__init__(module)
        self.kind = kind
        self.defined = ""

    def _open(self, text: str) -> str:
        if not self.defined:
            self.defined = self.fresh("Section" if "class" in text else "section")
            self.top(text.format(T=self.defined))
        return self.defined

    def rewritten(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> list[Statement] | None:
        """The function with its body one level deeper."""
        doc, rest = split_docstring(as_statements(updated.body))
        if "yield" in jumps(rest):
            return None
        if self.kind == "finally":
            name = self.fresh("ended")
            shape = stmt(f"try:\n    pass\nfinally:\n    {name} = True\n")
            body = [shape.with_changes(body=block(rest))]  # type: ignore[union-attr]
        elif self.kind == "except":
            shape = stmt("try:\n    pass\nexcept Exception:\n    raise\n")
            body = [shape.with_changes(body=block(rest))]  # type: ignore[union-attr]
        elif self.kind == "nullcontext":
            self.need("contextlib")
            body = [holding("with contextlib.nullcontext():\n    pass\n", rest)]
        elif self.kind == "stack":
            self.need("contextlib")
            body = [holding(f"with contextlib.ExitStack() as {self.fresh('stack')}:\n    pass\n", rest)]
        elif self.kind == "generator":
            self.need("contextlib")
            name = self._open("@contextlib.contextmanager\ndef {T}():\n    try:\n        yield\n    finally:\n        pass\n")
            body = [holding(f"with {name}():\n    pass\n", rest)]
        else:
            text = (
                "class {T}:\n    def __enter__(self):\n        return self\n\n    def __exit__(self, *exc):\n        return False\n"
            )
            body = [holding(f"with {self._open(text)}():\n    pass\n", rest)]
        return [updated.with_changes(body=block([*doc, *body]))]


class InClass(TopFunctions):
    """The function as a method: a static one, one of a trainer with a base class, or `__call__`."""

    def __init__(self, module: cst.Module, kind: str) -> None:
        super().__init__(module)
        self.kind = kind

    def rewritten(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> list[Statement] | None:
        """A class, and the function's name for what calls it."""
        name = updated.name.value
        if self.kind == "static":
            home = self.fresh("Tools")
            static = stmt("@staticmethod\ndef f():\n    pass\n").decorators  # type: ignore[union-attr]
            method = updated.with_changes(decorators=static, leading_lines=())
            return [holding(f"class {home}:\n    pass\n", [method]), stmt(f"{name} = {home}.{name}")]
        given = parameters(updated)
        if given is None or "self" in names_in([updated]):
            return None
        own = [cst.Param(cst.Name("self")), *updated.params.params]
        method = updated.with_changes(params=updated.params.with_changes(params=own), leading_lines=())
        if self.kind == "call":
            home = self.fresh("Action")
            return [
                holding(f"class {home}:\n    pass\n", [method.with_changes(name=cst.Name("__call__"))]),
                stmt(f"{name} = {home}()"),
            ]
        base, home = self.fresh("BaseTrainer"), self.fresh("Trainer")
        text = (
            f"class {base}:\n    def run(self, *args, **kwargs):\n        return self.train_all(*args, **kwargs)\n\n"
            "    def train_all(self, *args, **kwargs):\n        raise NotImplementedError\n"
        )
        trainer = holding(f"class {home}({base}):\n    pass\n", [method.with_changes(name=cst.Name("train_all"))])
        return [stmt(text), trainer, stmt(f"def {name}(*args, **kwargs):\n    return {home}().run(*args, **kwargs)\n")]


class Driven(TopFunctions):
    """A generator that yields after each pass of its loops, driven by the function."""

    def rewritten(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> list[Statement] | None:
        """The generator and what drives it."""
        doc, rest = split_docstring(as_statements(updated.body))
        given = parameters(updated)
        loops = [one for one in rest if isinstance(one, cst.For)]
        returns = any(m.findall(one, m.Return(value=~m.MatchIfTrue(lambda value: value is None))) for one in rest)
        if given is None or not loops or jumps(rest) - {"return"} or returns:
            return None
        body = [
            one.with_changes(body=block([*as_statements(one.body), stmt("yield")])) if isinstance(one, cst.For) else one
            for one in rest
        ]
        steps = self.fresh(f"{updated.name.value}_steps")
        made = updated.with_changes(name=cst.Name(steps), body=block([*doc, *body]))
        drive = f"def {updated.name.value}({', '.join(self.code(one).rstrip(', ') for one in updated.params.params)}):\n"
        return [made, stmt(f"{drive}    for _ in {steps}({', '.join(given)}):\n        pass\n")]


class IntoMain(Rewriter):
    """The code at the top of the module in a main()."""

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        body = list(updated_node.body)
        stays = [isinstance(one, cst.FunctionDef | cst.ClassDef) or is_import(one) or is_docstring(one) for one in body]
        moved = [one for one, stay in zip(body, stays, strict=True) if not stay]
        plain, other = bound_in(moved)
        used = {name.value for one, stay in zip(body, stays, strict=True) if stay and not is_import(one) for name in loads_in(one)}
        called = len(moved) == 1 and isinstance(moved[0], cst.SimpleStatementLine)
        if not moved or called or used & (plain | other) or any(is_main_guard(one) for one in moved) or looks_at_names(self.module):
            return updated_node
        if jumps(moved) or any(isinstance(one, cst.Global) for one in m.findall(updated_node, m.Global())):
            return updated_node
        name = self.fresh("main")
        self.changes += 1
        kept = [one for one, stay in zip(body, stays, strict=True) if stay]
        guard = stmt(f"if __name__ == '__main__':\n    {name}()\n")
        return updated_node.with_changes(body=[*kept, holding(f"def {name}():\n    pass\n", moved), guard])


class OutOfMain(Rewriter):
    """The body of a main() without parameters at the top of the module."""

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        body = list(updated_node.body)
        found = [one for one in body if isinstance(one, cst.FunctionDef) and one.name.value == "main" and not one.params.params]
        calls = [one for one in body if self._calls_main(one)]
        if len(found) != 1 or len(calls) != 1 or calls[0] is not body[-1] or found[0].decorators or looks_at_names(self.module):
            return updated_node
        main = found[0]
        statements = split_docstring(as_statements(main.body))[1]
        plain, other = bound_in(statements)
        rest = [one for one in body if one is not main and one is not calls[0]]
        taken = set().union(*bound_in(rest)) | {name.value for one in rest if not is_import(one) for name in loads_in(one)}
        named = sum(name.value == "main" for one in [*rest, *statements] for name in loads_in(one))
        if named or jumps(statements) or (plain | other) & taken or m.findall(main, m.Nonlocal() | m.Global()):
            return updated_node
        self.changes += 1
        return updated_node.with_changes(body=[*rest, *statements])

    def _calls_main(self, one: cst.CSTNode) -> bool:
        if is_main_guard(one):
            body = as_statements(one.body)  # type: ignore[attr-defined]
            return len(body) == 1 and self.code(body[0]) == "main()"
        return isinstance(one, cst.SimpleStatementLine) and self.code(one) == "main()"


class SecondFile(Rewriter):
    """Functions and classes at the top that use nothing of the module but imports and one another, in a second file."""

    def __init__(self, module: cst.Module, kind: str) -> None:
        super().__init__(module)
        self.kind = kind

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        body = list(updated_node.body)
        if looks_at_names(self.module) or {"__name__", "__file__"} & names_in(
            [m_ for m_ in body if isinstance(m_, cst.FunctionDef | cst.ClassDef)]
        ):
            return updated_node
        defined = {one.name.value: one for one in body if isinstance(one, cst.FunctionDef | cst.ClassDef)}
        bound = set().union(*bound_in([one for one in body if not is_import(one)]))
        counts = [one.name.value for one in body if isinstance(one, cst.FunctionDef | cst.ClassDef)]
        moved = {
            name for name in defined if name != "main" and counts.count(name) == 1 and not m.findall(defined[name], m.Global())
        }
        while drop := {name for name in moved if self._uses(defined[name]) & (bound - moved)}:
            moved -= drop
        plain = bound_in([one for one in body if not isinstance(one, cst.FunctionDef | cst.ClassDef) and not is_import(one)])[0]
        if not moved or moved & plain:
            return updated_node
        self.changes += 1
        file = self.fresh("parts")
        imports = [one for one in body if is_import(one)]
        there = [one for one in body if getattr(getattr(one, "name", None), "value", None) in moved]
        self.files[f"{file}.py"] = cst.Module(body=[*imports, *there]).code  # type: ignore[list-item]
        kept = [one for one in body if one not in there]
        place = max((i for i, one in enumerate(kept) if is_import(one)), default=-1) + 1
        if place == 0 and kept and is_docstring(kept[0]):
            place = 1
        names = ", ".join(sorted(moved))
        if self.kind == "module":
            line = "\n".join([f"import {file}", *(f"{name} = {file}.{name}" for name in sorted(moved))])
        else:
            line = f"from {file} import {names}" if self.kind == "from" else f"from {file} import *"
        if self.kind == "star" and any(name.startswith("_") for name in moved):
            raise Unfit("star")
        return updated_node.with_changes(body=[*kept[:place], *cst.parse_module(line + "\n").body, *kept[place:]])

    def _uses(self, node: cst.CSTNode) -> set[str]:
        return names_in([node]) - {getattr(getattr(node, "name", None), "value", "")}


class BaseClass(Rewriter):
    """A base class of its own between each class and its bases."""

    def leave_ClassDef(
        self, original_node: cst.ClassDef, updated_node: cst.ClassDef
    ) -> cst.FlattenSentinel[cst.BaseStatement] | cst.ClassDef:
        if not isinstance(self.function_around(original_node), cst.Module) or len(updated_node.bases) != 1 or updated_node.keywords:
            return updated_node
        if (names_in([updated_node]) & {"super"} and "__class__" in names_in([updated_node])) or updated_node.decorators:
            return updated_node
        base = self.code(updated_node.bases[0]).rstrip(", ")
        if base.split(".")[-1] in ("NamedTuple", "Enum", "Protocol", "Function", "TypedDict", "IntEnum"):
            return updated_node
        name = self.fresh(f"Base{updated_node.name.value}")
        self.changes += 1
        own = updated_node.with_changes(bases=[cst.Arg(cst.Name(name))], leading_lines=())
        first = stmt(f"class {name}({base}):\n    pass\n").with_changes(leading_lines=updated_node.leading_lines)  # type: ignore[union-attr]
        return cst.FlattenSentinel([first, own])


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    make: Callable[[cst.Module], Rewriter]


FORMS: list[Form] = [
    of("functions", one.name, one.make)
    for one in (
        _Entry("decorator", lambda module: Decorated(module, PLAIN, "{T}")),
        _Entry("decorator with an argument", lambda module: Decorated(module, NAMED, "{T}('part')")),
        _Entry("decorator that is a class", lambda module: Decorated(module, OBJECT, "{T}")),
        _Entry("*args and **kwargs passed on", PassedOn),
        _Entry("body in a nested function", Inner),
        _Entry("body in try and finally", lambda module: Guarded(module, "finally")),
        _Entry("body in try and except that raises", lambda module: Guarded(module, "except")),
        _Entry("body in nullcontext", lambda module: Guarded(module, "nullcontext")),
        _Entry("body in ExitStack", lambda module: Guarded(module, "stack")),
        _Entry("body in own context manager", lambda module: Guarded(module, "generator")),
        _Entry("body in a class with __enter__", lambda module: Guarded(module, "class")),
        _Entry("function as a static method", lambda module: InClass(module, "static")),
        _Entry("function in a trainer with a base class", lambda module: InClass(module, "trainer")),
        _Entry("function as __call__ of an object", lambda module: InClass(module, "call")),
        _Entry("function as a generator that is driven", Driven),
        _Entry("code of the module in main()", IntoMain),
        _Entry("body of main() at the top of the module", OutOfMain),
        _Entry("functions in a second file", lambda module: SecondFile(module, "from")),
        _Entry("functions in a second file, by its name", lambda module: SecondFile(module, "module")),
        _Entry("functions in a second file, all of it", lambda module: SecondFile(module, "star")),
        _Entry("base class in between", BaseClass),
    )
]
