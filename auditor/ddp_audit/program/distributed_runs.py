"""Which conditions ask 'is this a distributed run': those that decide whether the program sets one up.

A job of several ranks is what an audit is for, so the arm of a condition that makes the process group, wraps a model or shards a
loader is the one that is taken, and so it is wherever the same setting is asked again. What a setting is called says nothing.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ddp_audit.program.state import FunctionInfo
from ddp_audit.program.values import Const, Ext, Func, Unknown, Value, options

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering
    from ddp_audit.source.files import SourceFile

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "is": operator.is_, "is not": operator.is_not,
}  # fmt: skip
_NAMES: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip
_SPAWNS = frozenset({"spawn", "start_processes"})
_MAKERS = frozenset({"init_process_group", "DistributedDataParallel", "DistributedSampler"})


@dataclass(frozen=True, slots=True)
class Setting:
    """A question to a setting: its name without the object that holds it, a comparison with a constant, and the answer asked for.

    `args.several`, `self.several` and `several` are one setting that is handed on.
    """

    name: str
    op: str = ""
    constant: Any = None
    wanted: bool = True

    def holds(self, value: Any) -> bool | None:
        """Whether the question is answered as asked for where the setting has a value; None where Python cannot compare them."""
        try:
            answer = bool(value) if not self.op else bool(_COMPARE[self.op](value, self.constant))
        except TypeError:
            return None
        return answer == self.wanted

    def samples(self, other: Setting) -> list[Any]:
        """Values that the setting may have, on both sides of the constants of two questions."""
        constants = [question.constant for question in (self, other) if question.op]
        numbers = [c for c in constants if isinstance(c, (int, float)) and not isinstance(c, bool)]
        if numbers:
            return [number + distance for number in numbers for distance in (-1, 0, 1, 8)]
        return [None, True, False, "", "another", *(c for c in constants if isinstance(c, str))]


def setting(test: ast.expr) -> Setting | None:
    """What a condition asks a setting; None for any other condition."""
    match test:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return Setting(name)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[], keywords=[]):
            return Setting(f"{name}()")
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            asked = setting(inner)
            return None if asked is None else replace(asked, wanted=not asked.wanted)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _NAMES:
            asked = setting(left)
            try:
                constant = ast.literal_eval(right)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                return None
            plain = isinstance(constant, (bool, int, float, str, type(None)))
            return None if asked is None or asked.op or not plain else Setting(asked.name, _NAMES[type(op)], constant)
    return None


def deciding(source: SourceFile) -> Mapping[str, Setting]:
    """The settings that decide in a file whether the run is a distributed one, with what they say where it is."""
    return source.fact("deciding", source.tree, lambda _: _deciding(source))


def _deciding(source: SourceFile) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    dropped: set[str] = set()
    for node in ast.walk(source.tree):
        if not isinstance(node, (ast.If, ast.IfExp)):
            continue
        asked = setting(node.test)
        then, orelse = (node.body, node.orelse) if isinstance(node, ast.If) else ([node.body], [node.orelse])
        arms = arms_make(source, node.test, then, orelse)
        if asked is None or arms[0] == arms[1]:
            continue
        said = asked if arms[0] else replace(asked, wanted=not asked.wanted)
        if found.setdefault(said.name, said) != said:
            dropped.add(said.name)
    return {name: said for name, said in found.items() if name not in dropped}


def arms_make(source: SourceFile, test: ast.expr, then: Sequence[ast.AST], orelse: Sequence[ast.AST]) -> tuple[bool, bool]:
    """Whether each arm of a condition sets up a distributed run, by itself or by a function of the file."""
    return source.fact("arms", test, lambda _: (_makes(then, _making(source)), _makes(orelse, _making(source))))


def _making(source: SourceFile) -> frozenset[str]:
    """How a file calls what sets up a distributed run: torch's functions and classes, and its own that lead to one of them."""
    return source.fact("making", source.tree, _names_that_make)


def _names_that_make(tree: ast.AST) -> frozenset[str]:
    makes = set(_MAKERS)
    users: dict[str, list[str]] = {}  # by what is used: the functions and classes that use it
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(names=imported):
                makes.update(alias.asname for alias in imported if alias.asname and alias.name in _MAKERS)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name() | ast.Attribute() as value):
                users.setdefault(_called(value), []).append(name)
            case ast.FunctionDef(name=name, body=body) | ast.AsyncFunctionDef(name=name, body=body):
                for used in {_called(used) for part in body for used in _used(part)}:
                    users.setdefault(used, []).append(name)
            case ast.ClassDef(name=name, bases=bases):
                for base in bases:
                    users.setdefault(_called(base), []).append(name)
    queue = list(makes)
    while queue:
        new = set(users.get(queue.pop(), ())) - makes
        makes |= new
        queue += new
    return frozenset(makes - {""})


def _makes(parts: Iterable[ast.AST], makes: Container[str]) -> bool:
    return any(_called(used) in makes for part in parts for used in _used(part))


def _used(part: ast.AST) -> Iterator[ast.expr]:
    """What is called where a statement or expression runs, or handed to a call, as a worker is to what spawns it."""
    for call in _calls(part):
        if _called(call.func) not in ("isinstance", "issubclass"):
            yield call.func
            yield from (*call.args, *(keyword.value for keyword in call.keywords))


def _used_names(part: ast.AST) -> list[ast.Name]:
    return [used for used in _used(part) if isinstance(used, ast.Name)]


def _calls(part: ast.AST) -> Iterator[ast.Call]:
    """The calls that run where a statement or expression does."""
    queue = [part]
    while queue:
        node = queue.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Call):
            yield node
        queue.extend(ast.iter_child_nodes(node))


def _called(function: ast.expr) -> str:
    """The last part of a dotted name; empty for any other expression."""
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def makes_elsewhere(lw: Lowering, statements: Sequence[ast.AST]) -> bool:
    """Whether an arm uses a function of another project file that sets up a distributed run."""
    used = [part for statement in statements for part in lw.here.source.fact("used names", statement, _used_names)]
    if not used:
        return False
    lw.muted += 1
    found = [option for part in used for option in options(lw.eval(part))]
    lw.muted -= 1
    return any(isinstance(f, Func) and f.definition.name in _making(f.definition.frame.source) for f in found)


def spawns_instead(
    lw: Lowering, source: SourceFile, test: ast.expr, then: Sequence[ast.AST], orelse: Sequence[ast.AST]
) -> bool | None:
    """Which arm spawns the ranks, where the other calls the same worker for one rank that is written there (`worker(0, ..)`).

    Each rank would be that one if several processes came to the call, so that it is the way of a run without others.
    """
    if not source.fact("spawns", test, lambda _: any(_called(call.func) in _SPAWNS for call in _calls_of((*then, *orelse)))):
        return None
    for arm, other, taken in ((then, orelse, True), (orelse, then, False)):
        workers = [worker for call in _calls_of(arm) for worker in _handed_to_spawn(lw, call)]
        if workers and any(_for_one_rank(lw, call, worker) for call in _calls_of(other) for worker in workers):
            return taken
    return None


def _calls_of(statements: Sequence[ast.AST]) -> list[ast.Call]:
    return [call for statement in statements for call in _calls(statement)]


def _handed_to_spawn(lw: Lowering, call: ast.Call) -> list[FunctionInfo]:
    """The functions of the project that a call of `torch.multiprocessing.spawn` starts in processes of their own."""
    if _called(call.func) not in _SPAWNS or not _is_spawn(_looked_up(lw, call.func)):
        return []
    named = next((keyword.value for keyword in call.keywords if keyword.arg == "fn"), None)
    worker = call.args[0] if call.args else named
    found = [] if worker is None else options(_looked_up(lw, worker))
    return [f.definition for f in found if isinstance(f, Func) and isinstance(f.definition, FunctionInfo)]


def _is_spawn(function: Value) -> bool:
    return isinstance(function, Ext) and function.name.startswith("torch.multiprocessing.")


def _for_one_rank(lw: Lowering, call: ast.Call, worker: FunctionInfo) -> bool:
    """Whether a call gives the first parameter of a worker, which spawn fills with the rank, a number or the device that is set."""
    if not any(isinstance(f, Func) and f.definition.node is worker.node for f in options(_looked_up(lw, call.func))):
        return False
    parameters = [*worker.node.args.posonlyargs, *worker.node.args.args]
    name = parameters[0].arg if parameters else ""
    given = call.args[0] if call.args else next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    asked = _looked_up(lw, given.func) if isinstance(given, ast.Call) else None
    value = None if given is None else _looked_up(lw, given)
    made = asked.name if isinstance(asked, Ext) else value.by.name if isinstance(value, Unknown) and value.by is not None else ""
    if made == "torch.cuda.current_device":
        return True
    return isinstance(value, Const) and value.default is None and isinstance(value.value, int) and not isinstance(value.value, bool)


def _looked_up(lw: Lowering, expression: ast.expr) -> Value:
    if isinstance(expression, ast.Call):
        return Unknown()
    lw.muted += 1
    value = lw.eval(expression)
    lw.muted -= 1
    return value


def is_taken(lw: Lowering, test: ast.expr) -> bool | None:
    """What a condition is in a distributed run, where it asks a setting that decides whether there is one."""
    asked = setting(test)
    if asked is None:
        return None
    said = lw.deciding.get(asked.name)
    if said is None:
        return None
    answers = {asked.holds(value) for value in asked.samples(said) if said.holds(value)}
    return answers.pop() if len(answers) == 1 else None
