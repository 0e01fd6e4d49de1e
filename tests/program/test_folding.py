"""Operations on constants: equal to what CPython gives, or refused before anything large is made; in both interpreters."""

from __future__ import annotations

import ast
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddp_audit.explore.exact import Job, predict
from ddp_audit.explore.exact.values import Unknown
from ddp_audit.folding import MOST_BITS, MOST_ITEMS, MOST_TEXT, TooLarge, fold, weigh
from ddp_audit.program import lower
from ddp_audit.program.nodes import Seed
from ddp_audit.program.values import MISSING, World, evaluate
from ddp_audit.source.project import Project

_TWICE: list[Any] = [1]
_TWICE_TOO: list[Any] = [1]
for _ in range(60):
    _TWICE, _TWICE_TOO = [_TWICE, _TWICE], [_TWICE_TOO, _TWICE_TOO]

LARGE: list[tuple[Any, ...]] = [
    ("*", "a", 10**10), ("*", b"a", 10**10), ("*", [0], 10**10), ("*", 10**9, (1, 2)), ("*", 10**2400, 10**2400),
    ("**", 10**63, 10**9), ("<<", 1, 10**12), ("pow", 3, 10**2000, 10**2400 + 7), ("round", 5, -(10**9)),
    ("%", "%1000000000d", 3), ("%", "%*d", (10**9, 3)), ("%", "%.*f", (10**9, 3.0)), ("%", "%(a%b)1000000000d", {"a%b": 3}),
    ("%", b"%1000000000d", 3), ("%", "%s" * 60000, ("a" * 60000,)), ("%", "%s", _TWICE),
    (".format", "{:>1000000000}", 3), (".format", "{0:>{1}}", 3, 10**9), (".format", "{0}" * 9000, "a" * 9000),
    ("format", 3, "1000000000"), ("format", 3, "\u0661\u0660\u0660\u0660\u0660\u0660\u0660\u0660"), ("format", "a", "0>99999999"),
    (".ljust", "a", 10**9), (".rjust", b"a", 10**9), (".zfill", "a", 10**9), (".center", "a", 10**9),
    (".expandtabs", "\t" * 100, 10**9), (".replace", "a" * 60000, "a", "b" * 60000), (".replace", "a" * 60000, "", "b" * 60000),
    (".join", "a" * 60000, ["b"] * 60000), (".translate", "a" * 60000, {97: "b" * 1000}), (".encode", "a" * 60000, "utf-32"),
    ("bytes", 10**10), ("bytearray", 10**10), (".to_bytes", 5, 10**10), ("int", "9" * 10**6), ("int", "f" * 10**5, 16),
    ("list", range(10**10)), ("sorted", range(10**10)), ("sum", range(10**10)), (".extend", [], range(10**9)),
    ("[]=", [1], slice(0, 0), range(10**9)), (".fromkeys", {}, range(10**9)), (".union", set(), range(10**9)),
    ("in", 0.5, range(10**12)), (".index", range(10**12), "a"), ("==", _TWICE, _TWICE_TOO), ("<", _TWICE, _TWICE_TOO),
    ("in", _TWICE, [_TWICE_TOO]), (".count", [_TWICE], _TWICE_TOO), ("str", _TWICE), ("repr", _TWICE), ("max", [_TWICE, _TWICE_TOO]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(LARGE)), ids=lambda number: f"{number} {LARGE[number][0]}")
def test_a_large_result_is_refused_before_it_is_made(number: int) -> None:
    operation = LARGE[number]
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            fold(*operation)
        assert tracemalloc.get_traced_memory()[1] < 16 * 1024 * 1024
    finally:
        tracemalloc.stop()


SMALL: list[tuple[tuple[Any, ...], Any]] = [
    (("%", "step %5d of 100000: %s%%", (3, "x")), "step     3 of 100000: x%"), (("%", "100% of", ()), TypeError),
    ((".format", "{:>5}|{!r}|{}", 3, "b", 1.5), "    3|'b'|1.5"), ((".format", "{a:{w}}", ), KeyError),
    (("**", 2, 100), 2**100), (("**", 2, -1), 0.5), (("**", 1, 10**300), 1), (("*", "a", -5), ""), (("*", 0, 10**2000), 0),
    (("<<", 0, 10**12), 0), (("pow", 3, 100, 7), 4), (("in", 5, range(10**12)), True), (("round", 2.5), 2),
    (("int", "-0x1f", 16), -31), (("[]", [1, 2], 5), IndexError), ((".join", ",", ("a", "b")), "a,b"), (("//", 1, 0), ZeroDivisionError),
    ((".encode", "ä"), b"\xc3\xa4"), ((".format", "{0.real}", 3), TypeError), (("id", 3), TypeError), ((".__class__", 3), TypeError),
    ((".encode", "a", "punycode"), TypeError), (("sum", [1, 2.5]), 3.5), (("len", range(10**12)), 10**12),
]  # fmt: skip


class AnswersToAnything:
    """A value of the interpreter that has items and no end, as sys.modules has."""

    def __getitem__(self, key: object) -> object:
        return None


@pytest.mark.parametrize("name", ["in", "not in"])
def test_what_cannot_be_asked_is_not_walked(name: str) -> None:
    with pytest.raises(TypeError):
        fold(name, 5, AnswersToAnything())


@pytest.mark.parametrize(("operation", "wanted"), SMALL, ids=lambda part: str(part)[:40])
def test_a_small_result_is_what_python_gives(operation: tuple[Any, ...], wanted: Any) -> None:
    if isinstance(wanted, type) and issubclass(wanted, Exception):
        with pytest.raises(wanted):
            fold(*operation)
    else:
        assert fold(*operation) == wanted


def test_a_container_is_weighed_as_often_as_it_is_met() -> None:
    inner = [1, 2, 3]
    assert weigh([inner, inner]) == 1 + 2 + 6
    with pytest.raises(TooLarge):
        weigh(_TWICE)


# ---- expressions at random, with numbers that are small, or that make something large of what they are put to

_NUMBERS = st.sampled_from(
    ["0", "1", "2", "3", "7", "-1", "-3", "64", "100", "2.5", "1e9", "10**9", "10**63", "(1 << 300)", "4999"]
)
_TEXTS = st.sampled_from(
    ["''", "'a'", "'ab'", "'%d'", "'%s'", "'%5d'", "'%099999999d'", "'{}'", "'{:>9}'", "'{:>{}}'", "b'x'", "'\\t'"]
)
_LISTS = st.sampled_from(["[]", "[0]", "[1, 2]", "(1,)", "['a', 'b']", "range(9)", "range(10**12)", "{1: 2}", "{1, 2}"])
_OPERATORS = st.sampled_from(
    ["+", "-", "*", "/", "//", "%", "**", "<<", ">>", "&", "|", "^", "==", "!=", "<", ">=", "in", "not in"]
)
_METHODS = st.sampled_from(["format", "ljust", "rjust", "zfill", "center", "replace", "join", "expandtabs", "count", "split", "upper",
                            "encode", "index", "extend", "union", "bit_length", "to_bytes", "hex", "get", "startswith"])  # fmt: skip
_BUILTINS = st.sampled_from(["int", "float", "str", "len", "abs", "bool", "round", "bytes", "list", "tuple", "sum", "min", "max", "sorted",
                             "pow", "divmod", "repr", "hex", "format"])  # fmt: skip


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, _OPERATORS, inner).map(lambda parts: f"({' '.join(parts)})"),
        st.tuples(inner, _METHODS, st.lists(inner, max_size=2)).map(lambda p: f"({p[0]}).{p[1]}({', '.join(p[2])})"),
        st.tuples(_BUILTINS, st.lists(inner, min_size=1, max_size=2)).map(lambda p: f"{p[0]}({', '.join(p[1])})"),
        inner.map(lambda text: f"(-{text})"),
    )


EXPRESSIONS = st.recursive(st.one_of(_NUMBERS, _TEXTS, _LISTS), _grown, max_leaves=6)
_SIGNS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**", ast.LShift: "<<",
    ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.GtE: ">=",
    ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


def _folded(node: ast.expr) -> Any:
    """An expression by `fold` alone, from the inside out."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=elts) | ast.List(elts=elts) | ast.Set(elts=elts):
            kind: Any = {ast.Tuple: tuple, ast.List: list, ast.Set: set}[type(node)]
            return kind([_folded(e) for e in elts])
        case ast.Dict(keys=keys, values=values):
            return {_folded(k): _folded(v) for k, v in zip(keys, values, strict=True) if k is not None}
        case ast.BinOp(left=left, op=op, right=right):
            return fold(_SIGNS[type(op)], _folded(left), _folded(right))
        case ast.Compare(left=left, ops=[sign], comparators=[right]):
            return fold(_SIGNS[type(sign)], _folded(left), _folded(right))
        case ast.UnaryOp(operand=operand):
            return fold("neg", _folded(operand))
        case ast.Call(func=ast.Attribute(value=owner, attr=attr), args=args):
            return fold(f".{attr}", _folded(owner), *map(_folded, args))
        case ast.Call(func=ast.Name(id="range"), args=args):
            return range(*map(_folded, args))
        case ast.Call(func=ast.Name(id=name), args=args):
            return fold(name, *map(_folded, args))
    raise AssertionError(ast.dump(node))


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (one == other or repr(one) == repr(other))


@settings(max_examples=1500, deadline=None)
@given(EXPRESSIONS)
def test_folding_an_expression_gives_what_python_gives_or_nothing(text: str) -> None:
    tracemalloc.start()
    try:
        found = _folded(ast.parse(text, mode="eval").body)
    except Exception:  # refused, or an error, which is raised by Python too or no matter
        return
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64 * 1024 * 1024
    assert _same(found, eval(text))  # every part of it is small, since each was made
    if isinstance(found, int):
        assert found.bit_length() <= MOST_BITS
    elif hasattr(found, "__len__") and not isinstance(found, range):
        assert len(found) <= max(MOST_TEXT, MOST_ITEMS)


_FEW = st.sampled_from(["0", "1", "2", "3", "7", "10", "-1", "2.5"])
_SMALL_LISTS = st.sampled_from(["[0]", "[1, 2]", "(1,)", "['a', 'b']", "range(9)"])
_SMALL_TEXTS = st.sampled_from(["'a'", "'%d'", "'%5s'", "'{}'", "'{:>9}'", "b'x'", "'12'"])
SMALL_EXPRESSIONS = st.recursive(st.one_of(_FEW, _SMALL_TEXTS, _SMALL_LISTS), _grown, max_leaves=3)


@settings(max_examples=1500, deadline=None)
@given(SMALL_EXPRESSIONS)
def test_what_is_small_in_python_is_folded(text: str) -> None:
    try:
        wanted = eval(text)
    except Exception:
        with pytest.raises(Exception):  # noqa: B017  perhaps another, where a method is looked up before its arguments are computed
            _folded(ast.parse(text, mode="eval").body)
        return
    try:
        found = _folded(ast.parse(text, mode="eval").body)
    except TypeError as refused:
        assert "not computed" in str(refused) or "sum of other things" in str(refused) or "number of elements" in str(refused)
        return
    assert _same(found, wanted)


# ---- the interpreters

_SCRIPT = """\
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
value = {}
torch.manual_seed(value)
"""


def _by_lowering(folder: Path, text: str) -> Any:
    (folder / "train.py").write_text(_SCRIPT.format(text), encoding="utf-8")
    project = Project([folder / "train.py"])
    (seed,) = lower(project, project.entries[0]).of(Seed)
    return evaluate(seed.seed, World(1, 2, 2))


def _by_running(folder: Path, text: str) -> Any:
    (folder / "train.py").write_text(_SCRIPT.format(text), encoding="utf-8")
    project = Project([folder / "train.py"])
    run = Job(project, project.entries[0]).run(0)
    return next(iter(run.modules.values())).variables.get("value", MISSING)


@pytest.mark.parametrize("read", [_by_lowering, _by_running])
@settings(max_examples=150, deadline=None)
@given(text=EXPRESSIONS)
def test_each_interpreter_gives_what_python_gives_or_nothing(
    read: Any, tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    found = read(tmp_path_factory.getbasetemp(), text)
    if found is MISSING or isinstance(found, Unknown) or type(found) not in (int, float, str, bytes, bool):
        return
    try:
        _folded(ast.parse(text, mode="eval").body)
    except (TooLarge, TypeError):
        return  # then it was computed of less than its parts, and Python may take for ever
    except Exception:
        return
    assert _same(found, eval(text))


POWERS = "a = 10**63\nb = a**63\nc = b**63\nd = c**63\ne = d**63\nif e == 3:\n    dist.barrier()\n"
DOUBLED = "s = 'a' * 1000\n" + "s = s + s\n" * 40 + "if len(s) == 5:\n    dist.barrier()\n"
LISTS = "s = [0]\n" + "s = s + s\n" * 40 + "if len(s) == 5:\n    dist.barrier()\n"
NESTED = "s = [0]\nt = [0]\n" + "s = [s, s]\nt = [t, t]\n" * 60 + "if s == t or s in t or str(s) == 'a':\n    dist.barrier()\n"
WRITTEN = "s = 'a'\n" + "s = f'{s}{s}'\n" * 60 + "if s == 'b':\n    dist.barrier()\n"
BY_RANK = "s = dist.get_rank() + 10**60\n" + "s = s * s\n" * 60 + "if s == 3:\n    dist.barrier()\n"
GROWN = "s = [1]\nfor i in range(10**7):\n    s += s\nif len(s) == 3:\n    dist.barrier()\n"
FILLED = "s = {}\nfor i in range(10**7):\n    s[i] = 'a' * 60000 + str(i)\nif len(s) == 3:\n    dist.barrier()\n"
ITERATED = "s = list(zip(range(10**9), range(10**9)))\nt = [*range(10**9)]\na, b = range(10**9)\nprint(*range(10**9))\n"


@pytest.mark.parametrize("text", [POWERS, DOUBLED, LISTS, NESTED, WRITTEN, BY_RANK, GROWN, FILLED, ITERATED])
def test_a_short_script_makes_nothing_large(tmp_path: Path, text: str) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n" + text, encoding="utf-8")
    tracemalloc.start()
    try:
        project = Project([script])
        program = lower(project, project.entries[0])
        run = predict(Job(project, project.entries[0]))
        assert tracemalloc.get_traced_memory()[1] < 128 * 1024 * 1024
    finally:
        tracemalloc.stop()
    said = [*program.limits, *run.bounds, *run.cut.values()]
    assert any("is not computed" in one or "were made" in one or "statements ran" in one for one in said), said


LARGE_NUMBERS: list[tuple[Any, ...]] = [
    ("math.factorial", 10**7), ("math.comb", 10**7, 5 * 10**6), ("math.perm", 10**8), ("math.perm", 10**8, 10**7),
    ("math.prod", range(1, 10**9)), ("math.prod", [10**2000] * 5), ("math.lcm", 10**2000, 10**2000 + 1), ("math.fsum", range(10**10)),
]  # fmt: skip


@pytest.mark.parametrize("operation", LARGE_NUMBERS, ids=lambda operation: str(operation[0]))
def test_a_large_number_of_math_is_refused(operation: tuple[Any, ...]) -> None:
    with pytest.raises(TooLarge):
        fold(*operation)


def test_small_numbers_of_math_are_computed() -> None:
    assert fold("math.factorial", 20) == 2432902008176640000 and fold("math.comb", 52, 5) == 2598960
    assert fold("math.prod", [2, 3, 4]) == 24 and fold("math.lcm", 4, 6) == 12 and fold("math.log2", 8) == 3.0
    assert fold("math.comb", 10**6, 10**6 - 1) == 10**6 and fold("math.perm", 5) == 120 and fold("math.sqrt", 16) == 4.0
    for wrong in (("math.sqrt", "a"), ("math.prod", [[[1]]]), ("math.nothing", 1)):
        with pytest.raises(TypeError):
            fold(*wrong)


DEEP = "import os\na = ()\n" + "a = (a, a)\n" * 200
SHORT_FOR_MUCH = [
    DEEP + "d = {a: 1}\nx = 1\n", DEEP + "d = {a, 1}\nx = 1\n", DEEP + "d = set([a])\nx = 1\n", DEEP + "d = dict([(a, 1)])\nx = 1\n",
    DEEP + "d = {}\ntry:\n    del d[a]\nexcept KeyError:\n    pass\nx = 1\n", DEEP + "d = {k: 1 for k in [a]}\nx = 1\n",
    DEEP + "d = os.environ[a]\nx = 1\n", "b = ()\n" + "b = (b, b)\n" * 200 + DEEP + "d = sorted([a, b])\nx = 1\n",
    DEEP + "class K:\n    k = a\nmatch {1: 2}:\n    case {K.k: 2}:\n        d = 1\nx = 1\n",
    'import os\np = "a"\nfor i in range(60):\n    p = os.path.join(p, p)\nx = 1\n',
    "import math\np = 3\nfor i in range(40):\n    p = math.factorial(p)\n    q = math.prod([p, p])\nx = 1\n",
]  # fmt: skip


@pytest.mark.parametrize("text", SHORT_FOR_MUCH, ids=range(len(SHORT_FOR_MUCH)))
def test_a_value_that_stands_for_much_is_no_key_and_no_path(text: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(text + "import torch\n")
    project = Project([str(path)])
    tracemalloc.start()
    try:
        run = predict(Job(project, project.entries[0], 1))
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024 * 1024
    finally:
        tracemalloc.stop()
    assert "error in ddp-audit" not in str(run.cut)


def test_zipped_lists_are_counted_by_what_they_hold(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("v = list(zip(*[range(10**9)] * 400))\n")
    project = Project([str(path)])
    run = predict(Job(project, project.entries[0], 1))
    assert "elements and characters were made" in str(run.cut)
