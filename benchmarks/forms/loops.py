"""A `for` as another loop over the same items."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst
from libcst import matchers as m

from forms.form import Form, Rewriter, Statement, as_statements, bound_in, expr, flat, holding, jumps, names_in, of, stmt

Done = cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]
Change = Callable[["Loops", cst.For, cst.For], "list[Statement] | None"]
EACH = "def {n}(items):\n    for item in items:\n        yield item\n"
DELEGATED = "def {n}(items):\n    yield from items\n"
ITERATOR = """class {n}:
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)

    def __len__(self):
        return len(self.items)
"""
NEXT = """class {n}:
    def __init__(self, items):
        self.items = iter(items)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.items)
"""


class Loops(Rewriter):
    """Rewrites each `for` without an else."""

    def __init__(self, module: cst.Module, change: Change) -> None:
        super().__init__(module)
        self.change = change
        self.defined = ""

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> Done:
        if updated_node.orelse is not None or updated_node.asynchronous or self.in_class_body(original_node):
            return updated_node
        done = self.change(self, original_node, updated_node)
        if done is None:
            return updated_node
        self.changes += 1
        return flat(updated_node, *done)

    def helper(self, text: str, stem: str) -> str:
        """The name of a definition at the top."""
        if not self.defined:
            self.defined = self.fresh(stem)
            self.top(text.format(n=self.defined))
        return self.defined


def over(text: str, top: str = "", stem: str = "each", imports: tuple[str, ...] = ()) -> Change:
    """The same loop over another iterable: {it} is the present one, {n} what `top` defines."""

    def change(loops: Loops, original: cst.For, updated: cst.For) -> list[Statement]:
        loops.need(*imports)
        name = loops.helper(top, stem) if top else ""
        return [updated.with_changes(iter=expr(text.format(it=loops.code(updated.iter), n=name)), leading_lines=())]

    return change


def enumerated(loops: Loops, original: cst.For, updated: cst.For) -> list[Statement]:
    """`for place, x in enumerate(..)`."""
    target = f"{loops.fresh('place')}, ({loops.code(updated.target)})"
    return [holding(f"for {target} in enumerate({loops.code(updated.iter)}):\n    pass\n", as_statements(updated.body))]


def zipped(loops: Loops, original: cst.For, updated: cst.For) -> list[Statement]:
    """`for x, number in zip(.., itertools.count())`."""
    loops.need("itertools")
    target = f"({loops.code(updated.target)}), {loops.fresh('number')}"
    return [
        holding(f"for {target} in zip({loops.code(updated.iter)}, itertools.count()):\n    pass\n", as_statements(updated.body)),
    ]


def by_next(loops: Loops, original: cst.For, updated: cst.For) -> list[Statement]:
    """`while True`, next() and StopIteration."""
    source = loops.fresh("source")
    take = stmt(f"try:\n    {loops.code(updated.target)} = next({source})\nexcept StopIteration:\n    break\n")
    return [
        stmt(f"{source} = iter({loops.code(updated.iter)})"),
        holding("while True:\n    pass\n", [take, *as_statements(updated.body)]),
    ]


def by_default(loops: Loops, original: cst.For, updated: cst.For) -> list[Statement] | None:
    """`while (x := next(source, end)) is not end`."""
    if not isinstance(updated.target, cst.Name):
        return None
    source, end = loops.fresh("source"), loops.fresh("end")
    test = f"({updated.target.value} := next({source}, {end})) is not {end}"
    return [
        stmt(f"{source} = iter({loops.code(updated.iter)})"),
        stmt(f"{end} = object()"),
        holding(f"while {test}:\n    pass\n", as_statements(updated.body)),
    ]


def _count(loops: Loops, updated: cst.For) -> str | None:
    """What `range` of a loop is given, where it is one thing."""
    it = updated.iter
    if m.matches(it, m.Call(func=m.Name("range"), args=[m.Arg(keyword=None)])) and isinstance(updated.target, cst.Name):
        return loops.code(it.args[0].value)  # type: ignore[union-attr]
    return None


def counted(loops: Loops, original: cst.For, updated: cst.For) -> list[Statement] | None:
    """A `while` that counts up."""
    count = _count(loops, updated)
    if count is None:
        return None
    at, most = loops.fresh("at"), loops.fresh("most")
    body = [stmt(f"{loops.code(updated.target)} = {at}"), stmt(f"{at} += 1"), *as_statements(updated.body)]
    return [stmt(f"{at}, {most} = 0, {count}"), holding(f"while {at} < {most}:\n    pass\n", body)]


def counted_down(loops: Loops, original: cst.For, updated: cst.For) -> list[Statement] | None:
    """A `while` on a counter of what is left."""
    count = _count(loops, updated)
    if count is None:
        return None
    left, most = loops.fresh("left"), loops.fresh("most")
    body = [stmt(f"{loops.code(updated.target)} = {most} - {left}"), stmt(f"{left} -= 1"), *as_statements(updated.body)]
    return [stmt(f"{left} = {most} = {count}"), holding(f"while {left} > 0:\n    pass\n", body)]


def endless(loops: Loops, original: cst.For, updated: cst.For) -> list[Statement] | None:
    """`while True` that breaks at the end."""
    count = _count(loops, updated)
    if count is None:
        return None
    at, most = loops.fresh("at"), loops.fresh("most")
    leave = stmt(f"if {at} >= {most}:\n    break\n")
    body = [leave, stmt(f"{loops.code(updated.target)} = {at}"), stmt(f"{at} = {at} + 1"), *as_statements(updated.body)]
    return [stmt(f"{most} = {count}"), stmt(f"{at} = 0"), holding("while True:\n    pass\n", body)]


def counter(loops: Loops, original: cst.For, updated: cst.For) -> list[Statement] | None:
    """`itertools.count` with a break."""
    count = _count(loops, updated)
    if count is None:
        return None
    loops.need("itertools")
    most, at = loops.fresh("most"), loops.fresh("at")
    leave = stmt(f"if {at} == max({most}, 0):\n    break\n")
    body = [leave, stmt(f"{loops.code(updated.target)} = {at}"), *as_statements(updated.body)]
    return [stmt(f"{most} = {count}"), holding(f"for {at} in itertools.count():\n    pass\n", body)]


def ranged(text: str) -> Change:
    """Another iterable in place of range(count)."""

    def change(loops: Loops, original: cst.For, updated: cst.For) -> list[Statement] | None:
        count = _count(loops, updated)
        if count is None:
            return None
        return [updated.with_changes(iter=expr(text.format(count=count)), leading_lines=())]

    return change


def _outside(loops: Loops, original: cst.For) -> set[str]:
    """The names that the function around a loop, or the module, uses outside of it."""
    around = loops.function_around(original)
    used: set[str] = set()

    class Others(cst.CSTVisitor):
        def on_visit(self, node: cst.CSTNode) -> bool:
            if isinstance(node, cst.Name):
                used.add(node.value)
            return node is not original

    around.visit(Others())
    return used


def _own(loops: Loops, original: cst.For) -> bool:
    """Whether what a pass binds stays in it, and it is left at its end alone."""
    body = as_statements(original.body)
    plain, other = bound_in([*body])
    plain |= names_in([original.target])
    return not other and not jumps(body) and not plain & _outside(loops, original)


def passes_in_function(loops: Loops, original: cst.For, updated: cst.For) -> list[Statement] | None:
    """A pass in a nested function."""
    if not _own(loops, original) or not isinstance(updated.target, cst.Name):
        return None
    name = loops.fresh("one_pass")
    run = holding(f"def {name}({updated.target.value}):\n    pass\n", as_statements(updated.body))
    return [run, stmt(f"for {updated.target.value} in {loops.code(updated.iter)}:\n    {name}({updated.target.value})\n")]


def passes_by_callbacks(loops: Loops, original: cst.For, updated: cst.For) -> list[Statement] | None:
    """A pass in a callback that stands in a list."""
    made = passes_in_function(loops, original, updated)
    if made is None:
        return None
    run, target = made[0], loops.code(updated.target)
    assert isinstance(run, cst.FunctionDef)
    listed, one = loops.fresh("callbacks"), loops.fresh("callback")
    loop = f"for {target} in {loops.code(updated.iter)}:\n    for {one} in {listed}:\n        {one}({target})\n"
    return [run, stmt(f"{listed} = [{run.name.value}]"), stmt(loop)]


def passes_by_map(loops: Loops, original: cst.For, updated: cst.For) -> list[Statement] | None:
    """A pass in a function that a comprehension calls."""
    made = passes_in_function(loops, original, updated)
    if made is None:
        return None
    run, target = made[0], loops.code(updated.target)
    assert isinstance(run, cst.FunctionDef)
    return [run, stmt(f"[{run.name.value}({target}) for {target} in {loops.code(updated.iter)}]")]


def comprehended(loops: Loops, original: cst.For, updated: cst.For) -> list[Statement] | None:
    """A comprehension for a loop of one expression; extend() for one of append()."""
    body = as_statements(updated.body)
    if len(body) != 1 or not _own(loops, original) or not m.matches(body[0], m.SimpleStatementLine(body=[m.Expr(m.Call())])):
        return None
    call = body[0].body[0].value  # type: ignore[union-attr]
    head = f"for {loops.code(updated.target)} in {loops.code(updated.iter)}"
    if m.matches(call, m.Call(func=m.Attribute(m.Name(), m.Name("append")), args=[m.Arg()])):
        return [stmt(f"{loops.code(call.func.value)}.extend([{loops.code(call.args[0].value)} {head}])")]  # type: ignore[union-attr]
    return [stmt(f"[{loops.code(call)} {head}]")]  # type: ignore[union-attr]


def _form(name: str, change: Change) -> Form:
    return of("loops", name, lambda module: Loops(module, change))


FORMS: list[Form] = [
    _form("enumerate", enumerated),
    _form("zip with a count", zipped),
    _form("while with next and StopIteration", by_next),
    _form("while with next and a default", by_default),
    _form("own generator", over("{n}({it})", EACH)),
    _form("own generator that delegates", over("{n}({it})", DELEGATED)),
    _form("own iterable", over("{n}({it})", ITERATOR, "Items")),
    _form("own iterator", over("{n}({it})", NEXT, "Items")),
    _form("iter()", over("iter({it})")),
    _form("generator expression", over("(item for item in {it})")),
    _form("itertools.chain", over("itertools.chain({it})", imports=("itertools",))),
    _form("islice without an end", over("itertools.islice({it}, None)", imports=("itertools",))),
    _form("while that counts up", counted),
    _form("while that counts down", counted_down),
    _form("endless while with a break", endless),
    _form("itertools.count with a break", counter),
    _form("range with a start and a step", ranged("range(0, {count}, 1)")),
    _form("list of a range", ranged("[*range({count})]")),
    _form("pass in a nested function", passes_in_function),
    _form("pass as a callback", passes_by_callbacks),
    _form("pass called by a comprehension", passes_by_map),
    _form("comprehension", comprehended),
]
