"""Where a condition is kept before an `if` asks for it: a variable, an attribute, a container, a function, an object."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import libcst as cst

from forms.form import Form, Rewriter, Unfit, expr, flat, is_main_guard, jumps, names_in, of, stmt


@dataclass(frozen=True, slots=True)
class Holder:
    """How a condition is kept and asked for. In the texts {n} is a fresh name, {T} what `top` defines, {test} the condition."""

    name: str
    bind: str
    ask: str
    top: str = ""
    imports: tuple[str, ...] = ()


HOLDERS = [
    Holder("in a variable", "{n} = {test}", "{n}"),
    Holder("in a variable with a type", "{n}: bool = bool({test})", "{n}"),
    Holder("negated in a variable", "{n} = not ({test})", "not {n}"),
    Holder("in two variables", "{n} = {test}\n{n}_again = {n}", "{n}_again"),
    Holder("as a ternary", "{n} = True if {test} else False", "{n} is True"),
    Holder("as a number", "{n} = int(bool({test}))", "{n} == 1"),
    Holder("as text", "{n} = 'yes' if {test} else 'no'", "{n} == 'yes'"),
    Holder("as text of a number", "{n} = str(int(bool({test})))", "{n} == '1'"),
    Holder("in a dict", "{n} = {{'due': {test}, 'name': 'one'}}", "{n}['due']"),
    Holder("in a dict, by get", "{n} = dict(due={test})", "{n}.get('due', False)"),
    Holder("in a key that is set", "{n} = {{}}\n{n}['due'] = {test}", "{n}['due']"),
    Holder("in a list", "{n} = [None, {test}]", "{n}[1]"),
    Holder("in a tuple that is unpacked", "{n}, {n}_rest = ({test}, 5)", "{n}"),
    Holder("as membership of a set", "{n} = set()\nif {test}:\n    {n}.add('due')", "'due' in {n}"),
    Holder("as the length of a list", "{n} = ['due'] if {test} else []", "len({n}) > 0"),
    Holder("by any()", "{n} = any([{test}])", "{n}"),
    Holder("by all()", "{n} = all((True, {test}))", "{n}"),
    Holder("in an attribute", "{n} = {T}()\n{n}.due = {test}", "{n}.due", "class {T}:\n    due = False\n"),
    Holder(
        "in an attribute that __init__ sets",
        "{n} = {T}({test})",
        "{n}.due",
        "class {T}:\n    def __init__(self, due):\n        self.due = due\n",
    ),
    Holder(
        "behind a property",
        "{n} = {T}({test})",
        "{n}.due",
        "class {T}:\n    def __init__(self, due):\n        self._due = due\n\n    @property\n    def due(self):\n        return self._due\n",
    ),
    Holder(
        "behind a method",
        "{n} = {T}({test})",
        "{n}.is_due()",
        "class {T}:\n    def __init__(self, due):\n        self._due = due\n\n    def is_due(self):\n        return bool(self._due)\n",
    ),
    Holder(
        "behind __bool__",
        "{n} = {T}({test})",
        "{n}",
        "class {T}:\n    def __init__(self, due):\n        self._due = due\n\n    def __bool__(self):\n        return bool(self._due)\n",
    ),
    Holder(
        "in a dataclass",
        "{n} = {T}(due={test})",
        "{n}.due",
        "@dataclasses.dataclass\nclass {T}:\n    due: bool\n    name: str = 'one'\n",
        ("dataclasses",),
    ),
    Holder(
        "in a frozen dataclass with a property",
        "{n} = {T}({test})",
        "{n}.is_due",
        "@dataclasses.dataclass(frozen=True)\nclass {T}:\n    due: bool\n\n    @property\n    def is_due(self) -> bool:\n        return self.due\n",
        ("dataclasses",),
    ),
    Holder(
        "in a namedtuple",
        "{n} = {T}({test}, 'one')",
        "{n}.due",
        "{T} = collections.namedtuple('{T}', 'due name')\n",
        ("collections",),
    ),
    Holder(
        "in a NamedTuple",
        "{n} = {T}(name='one', due={test})",
        "{n}.due",
        "class {T}(typing.NamedTuple):\n    name: str\n    due: bool = False\n",
        ("typing",),
    ),
    Holder("in a SimpleNamespace", "{n} = types.SimpleNamespace(due={test})", "{n}.due", "", ("types",)),
    Holder(
        "in a closure",
        "{n} = {T}({test})",
        "{n}()",
        "def {T}(due):\n    def ask():\n        return due\n\n    return ask\n",
    ),
    Holder("in a partial", "{n} = functools.partial(bool, {test})", "{n}()", "", ("functools",)),
    Holder("in a partial in a dict", "{n} = {{'due': functools.partial(bool, {test})}}", "{n}['due']()", "", ("functools",)),
    Holder("in a lambda", "{n} = lambda: {test}", "{n}()"),
    Holder("in a lambda in a dict", "{n} = {{'due': lambda: {test}}}", "{n}['due']()"),
    Holder("in a threading.Event", "{n} = threading.Event()\nif {test}:\n    {n}.set()", "{n}.is_set()", "", ("threading",)),
    Holder(
        "as the level of a logger",
        "{n} = logging.getLogger('{n}')\n{n}.setLevel(logging.INFO if {test} else logging.ERROR)",
        "{n}.isEnabledFor(logging.INFO)",
        "",
        ("logging",),
    ),
    Holder(
        "in an Enum",
        "{n} = {T}.DUE if {test} else {T}.IDLE",
        "{n} is {T}.DUE",
        "class {T}(enum.Enum):\n    IDLE = 0\n    DUE = 1\n",
        ("enum",),
    ),
    Holder("in an object or None", "{n} = {T}() if {test} else None", "{n} is not None", "class {T}:\n    pass\n"),
    Holder(
        "from a function of it", "{n} = {T}({test})", "{n}", "def {T}(due):\n    if due:\n        return True\n    return False\n"
    ),
    Holder(
        "returned with others",
        "{n}, {n}_name = {T}({test})",
        "{n}",
        "def {T}(due):\n    return bool(due), 'one'\n",
    ),
]


def may_move(test: cst.CSTNode) -> bool:
    """Whether a condition may be asked for at another place right before: it binds nothing and waits for nothing."""
    return not jumps([test]) and "super" not in names_in([test]) and not _binds(test)


def _binds(node: cst.CSTNode) -> bool:
    found: list[cst.CSTNode] = []

    class Walrus(cst.CSTVisitor):
        def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
            found.append(node)

    node.visit(Walrus())
    return bool(found)


class Ifs(Rewriter):
    """Rewrites each `if` that is no elif, no check of `__name__` and not in the body of a class."""

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        parent = self.parent(original_node)
        if (isinstance(parent, cst.If) and parent.orelse is original_node) or is_main_guard(original_node):
            return updated_node
        if not may_move(original_node.test) or self.in_class_body(original_node):
            return updated_node
        done = self.rewritten(original_node, updated_node)
        self.changes += done is not updated_node
        return done

    @abstractmethod
    def rewritten(self, original: cst.If, updated: cst.If) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        """What stands in the place of one."""


class Held(Ifs):
    """Keeps each condition in a holder."""

    def __init__(self, module: cst.Module, holder: Holder) -> None:
        super().__init__(module)
        self.holder = holder
        self.defined = ""

    def rewritten(self, original: cst.If, updated: cst.If) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        """The statements that keep the condition, and the `if` that asks for it."""
        self.need(*self.holder.imports)
        if not self.defined:
            self.defined = self.fresh("Turn" if "class" in self.holder.top else "turn_of")
            self.top(self.holder.top.format(T=self.defined))
        name = self.fresh("due")
        words = {"n": name, "T": self.defined, "test": f"({self.code(updated.test)})"}
        bind = cst.parse_module(self.holder.bind.format(**words)).body
        asked = expr(self.holder.ask.format(**words))
        space = cst.SimpleWhitespace(" ")
        return flat(updated, *bind, updated.with_changes(test=asked, whitespace_before_test=space, leading_lines=()))


class Predicate(Ifs):
    """Moves each condition into a function that is given the local variables which it reads."""

    def __init__(self, module: cst.Module, kind: str) -> None:
        super().__init__(module)
        self.kind = kind

    def rewritten(self, original: cst.If, updated: cst.If) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        """The `if` that calls the function."""
        try:
            given = self.free_locals(original.test)
        except Unfit:
            return updated
        test, names = self.code(updated.test), ", ".join(given)
        if self.kind == "property":
            if "self" in given or not given:
                return updated
            name = self.fresh("Turn")
            keeps = "".join(f"        self.{one} = {one}\n" for one in given)
            opens = "".join(f"        {one} = self.{one}\n" for one in given)
            self.top(
                f"class {name}:\n    def __init__(self, {names}):\n{keeps}\n    @property\n    def due(self):\n{opens}        return {test}\n"
            )
            asked = f"{name}({names}).due"
        elif self.kind == "early":
            name = self.fresh("is_due")
            self.top(f"def {name}({names}):\n    if not ({test}):\n        return False\n    return True\n")
            asked = f"{name}({names})"
        elif self.kind == "nested":
            name = self.fresh("is_due")
            return flat(updated, stmt(f"def {name}():\n    return {test}\n"), updated.with_changes(test=expr(f"{name}()")))
        else:
            name = self.fresh("is_due")
            self.top(f"def {name}({names}):\n    return {test}\n")
            asked = f"{name}({', '.join(f'{one}={one}' for one in given)})"
        return updated.with_changes(test=expr(asked), whitespace_before_test=cst.SimpleWhitespace(" "))


FORMS: list[Form] = [
    *(of("holders", f"condition {one.name}", lambda module, one=one: Held(module, one)) for one in HOLDERS),
    of("holders", "condition in a predicate", lambda module: Predicate(module, "function")),
    of("holders", "condition in a predicate with two returns", lambda module: Predicate(module, "early")),
    of("holders", "condition in a nested predicate", lambda module: Predicate(module, "nested")),
    of("holders", "condition in a property that computes it", lambda module: Predicate(module, "property")),
]
