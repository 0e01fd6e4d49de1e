"""Where the rank comes from and how it is compared."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst
from libcst import matchers as m

from forms.form import Form, Rewriter, expr, of

GET_RANK = m.Call(func=m.Attribute(value=m.Name() | m.Attribute(), attr=m.Name("get_rank")), args=[])


class Source(Rewriter):
    """Another place that the rank comes from, for each `dist.get_rank()`."""

    def __init__(self, module: cst.Module, text: str, top: str = "", imports: tuple[str, ...] = ()) -> None:
        super().__init__(module)
        self.text, self.top_text, self.imports = text, top, imports
        self.defined = ""

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if not m.matches(updated_node, GET_RANK) or self.code(updated_node) != "dist.get_rank()":
            return updated_node
        self.need(*self.imports)
        if self.top_text and not self.defined:
            self.defined = self.fresh("own_place")
            self.top(self.top_text.format(n=self.defined))
        self.changes += 1
        return expr(self.text.format(n=self.defined))


class Compared(Rewriter):
    """Another way to compare a rank with a number. A rank is a call of get_rank, or a variable that gets nothing else."""

    def __init__(self, module: cst.Module, change: Callable[[str, str, bool], str | None]) -> None:
        super().__init__(module)
        self.change = change

    def _is_rank(self, node: cst.BaseExpression) -> bool:
        if m.matches(node, GET_RANK):
            return True
        if not isinstance(node, cst.Name):
            return False
        scope = self.scope_of(node)
        found = list(scope[node.value]) if scope is not None else []  # type: ignore[index]
        return bool(found) and all(self._gets_rank(getattr(one, "node", None)) for one in found)

    def _gets_rank(self, node: cst.CSTNode | None) -> bool:
        if not isinstance(node, cst.Name):
            return False
        target = self.parent(node)
        assign = self.parent(target)
        return isinstance(target, cst.AssignTarget) and isinstance(assign, cst.Assign) and m.matches(assign.value, GET_RANK)

    def leave_Comparison(self, original_node: cst.Comparison, updated_node: cst.Comparison) -> cst.BaseExpression:
        shape = m.Comparison(comparisons=[m.ComparisonTarget(m.Equal() | m.NotEqual(), m.Integer())])
        if not m.matches(updated_node, shape) or not self._is_rank(original_node.left):
            return updated_node
        target = updated_node.comparisons[0]
        equal = isinstance(target.operator, cst.Equal)
        text = self.change(self.code(updated_node.left), self.code(target.comparator), equal)
        if text is None:
            return updated_node
        self.changes += 1
        return expr(f"({text})")


def _chained(left: str, number: str, equal: bool) -> str:
    return f"{number} <= {left} <= {number}" if equal else f"not {number} <= {left} <= {number}"


def _text(left: str, number: str, equal: bool) -> str:
    return f"str({left}) {'==' if equal else '!='} '{number}'"


def _member(left: str, number: str, equal: bool) -> str:
    return f"{left} {'in' if equal else 'not in'} ({number},)"


def _swapped(left: str, number: str, equal: bool) -> str:
    return f"{number} {'==' if equal else '!='} {left}"


def _truth(left: str, number: str, equal: bool) -> str | None:
    return None if number != "0" else f"not {left}" if equal else f"bool({left})"


def _order(left: str, number: str, equal: bool) -> str | None:
    return None if number != "0" else f"{left} < 1" if equal else f"{left} > 0"


def _formatted(left: str, number: str, equal: bool) -> str:
    return f'f"rank{{{left}}}" {"==" if equal else "!="} "rank{number}"'


READ_BEFORE = ("DDP608",)
FORMS: list[Form] = [
    of("ranks", "from the environment", lambda o: Source(o, "int(os.environ['RANK'])", "", ("os",)), READ_BEFORE, own_launch=True),
    of("ranks", "from getenv", lambda o: Source(o, "int(os.getenv('RANK', '0'))", "", ("os",)), READ_BEFORE, own_launch=True),
    of("ranks", "from a helper", lambda o: Source(o, "{n}()", "def {n}():\n    return dist.get_rank()\n")),
    of(
        "ranks",
        "from a helper with a fallback",
        lambda o: Source(
            o,
            "{n}()",
            "def {n}():\n    if not dist.is_available() or not dist.is_initialized():\n        return 0\n    return dist.get_rank()\n",
        ),
        READ_BEFORE,
    ),
    of(
        "ranks",
        "from a property",
        lambda o: Source(
            o,
            "{n}.rank",
            "class _Place:\n    @property\n    def rank(self):\n        return dist.get_rank()\n\n\n{n} = _Place()\n",
        ),
    ),
    of("ranks", "of the group of all", lambda o: Source(o, "dist.get_rank(dist.group.WORLD)")),
    of("ranks", "through a text", lambda o: Source(o, "int(str(dist.get_rank()))")),
    of("ranks", "compared by a chain", lambda o: Compared(o, _chained)),
    of("ranks", "compared as text", lambda o: Compared(o, _text)),
    of("ranks", "compared as a formatted text", lambda o: Compared(o, _formatted)),
    of("ranks", "compared by membership", lambda o: Compared(o, _member)),
    of("ranks", "compared from the right", lambda o: Compared(o, _swapped)),
    of("ranks", "compared by truth", lambda o: Compared(o, _truth)),
    of("ranks", "compared by order", lambda o: Compared(o, _order)),
]
