"""What a program's numbers become under a launch: values with their origin, divisions by the world size, what checks them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ddp_audit.findings import Span
from ddp_audit.launch.model import Launch
from ddp_audit.launch.overrides import Override, fold, overrides_of
from ddp_audit.launch.overrides import Unknown as Unknowable
from ddp_audit.program.code import code_within
from ddp_audit.program.model import Branch, CallItem, Guard, Item, LoopItem, Node, Program, TryItem, first_of_each_place
from ddp_audit.program.nodes import Check, FloorDivision
from ddp_audit.program.values import MISSING, Const, Default, Expr, Unknown, Value, World, defaults_in, evaluate
from ddp_audit.source import dependency_log
from ddp_audit.source.paths import place_of

if TYPE_CHECKING:
    from ddp_audit.rule import Context


@dataclass(frozen=True, slots=True)
class Number:
    """A number of the configuration, with where it came from."""

    name: str
    value: Any
    where: str
    path: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.name} = {_plain(self.value)} ({self.where})"


@dataclass(frozen=True, slots=True)
class Divisibility:
    """A test in the script that `left % right` is 0, where `right` depends on the world size; with the source of both."""

    node: Check
    left: Value
    right: Value
    test: Value
    left_text: str
    right_text: str


class Job:
    """A program under one launch. Values of the launch's own arguments and config files go before the program's defaults.

    For the launch that the user named the program was lowered with them; for a documented one they are put in here.
    """

    def __init__(self, program: Program, launch: Launch | None) -> None:
        self.program = program
        self.launch = launch
        self.overrides: dict[str, Override] = {}
        if launch is not None and starts(launch, program.entry):
            self.overrides = overrides_of(launch, config_folders(program))
            for alias, name in program.aliases.items():
                if alias in self.overrides:
                    self.overrides.setdefault(name, self.overrides[alias])

    @property
    def world_size(self) -> int | None:
        return None if self.launch is None else self.launch.world_size

    def world(self, rank: int = 0) -> World | None:
        """The view of one rank, None where the world size is open."""
        if self.launch is None or self.launch.world_size is None:
            return None
        size, local = self.launch.world_size, self.launch.nproc_per_node
        return World(rank, size, local if isinstance(local, int) and size % local == 0 else size)

    def value(self, value: Value) -> Any:
        """What a value is on rank 0, or MISSING."""
        world = self.world()
        return MISSING if world is None else evaluate(self._substituted(value), world)

    def holds(self, test: Value) -> bool | None:
        """Whether a condition holds on rank 0; None where that is not computable."""
        result = self.value(test)
        return None if result is MISSING else bool(result)

    def reaches(self, node: Node) -> bool | None:
        """Whether rank 0 gets to a node: False where a guard excludes it, None where one is not computable."""
        answers = [self.admits(guard) for guard in node.guards]
        if False in answers:
            return False
        return None if None in answers else True

    def leads_to(self, node: Node) -> bool | None:
        """As `reaches`, with the checks of a remainder by the world size taken to hold: they guard the division that is asked."""
        guards = [guard for guard in node.guards if not any(depends_on_world(by) for _, by in remainders(guard.test))]
        answers = [self.admits(guard) for guard in guards]
        if False in answers:
            return False
        return None if None in answers else True

    def admits(self, guard: Guard) -> bool | None:
        """Whether rank 0 passes a guard."""
        holds = self.holds(guard.test)
        return None if holds is None else holds == guard.polarity

    def numbers(self, *values: Value) -> list[Number]:
        """The configuration values that values were computed from, once each, as this job sets them."""
        found = [self.number(default) for value in values for default in defaults_in(value)]
        return list(dict.fromkeys(number for number in found if number is not None))

    def number(self, default: Default | str) -> Number | None:
        """A configuration value by name, with its origin; None where it is not known."""
        name = default if isinstance(default, str) else default.name
        override = self._override(name)
        config = self.program.config.get(name)
        explicit = config is not None and config.origin != "default"
        if override is not None and not (explicit and config is not None and config.value != override.value):
            return Number(name, override.value, override.where, override.path or "", override.line or 0)
        if config is not None:
            origin = {"set": "given by --set"}.get(config.origin, config.origin)
            if config.origin == "config-file":
                origin = f"{place_of(config.path, config.line)}, given by --config-file"
            if explicit:
                return Number(name, config.value, origin)
            return Number(name, config.value, f"{place_of(config.path, config.line)}, default", config.path, config.line)
        return None

    def _override(self, name: str) -> Override | None:
        return self.overrides.get(name) or self.overrides.get(name.rpartition(".")[2])

    def _sets_numbers(self) -> bool:
        """Whether the launch sets some configuration value to another number than its default."""
        return any(
            type(override.value) is not bool
            and isinstance(override.value, int | float | Unknowable)
            and (config := self.program.config.get(name)) is not None
            and config.value != override.value
            for name, override in self.overrides.items()
        )

    def _substituted(self, value: Value) -> Value:
        """The value with the launch's settings in the place of open defaults."""
        if self.launch is None or self.launch.named:
            return value
        if isinstance(value, Const) and value.default is not None and value.default.open:
            config = self.program.config.get(value.default.name)
            override = self._override(value.default.name)
            if config is None or config.value != value.value:
                # Computed from defaults, of which a constant remembers one: the launch may set another of them.
                return Unknown(text=value.text) if self._sets_numbers() else value
            if override is None:
                return value
            if not isinstance(override.value, int | float | str | bool):
                return Unknown(text=value.text)
            return Const(value=override.value, text=value.text)
        if isinstance(value, Expr) and value.args:
            return replace(value, args=tuple(self._substituted(arg) for arg in value.args))
        return value


def starts(launch: Launch, entry: str) -> bool:
    """Whether a launch starts the script `entry`, as far as its name says; a launch without a script starts any.

    A launch that the entry itself documents is also its own where the script it names is not there: files get renamed.
    """
    if launch.script is None:
        return True
    name = launch.script.rpartition(".")[2] + ".py" if launch.is_module else PurePosixPath(launch.script).name
    own = PurePosixPath(entry)
    return name == own.name or (
        launch.path == entry and not dependency_log.exists(Path(own.parent, name)) and not dependency_log.exists(launch.script)
    )


def launch_span(context: Context, launch: Launch) -> Span:
    """The place of a launch that was found in a file: its lines, to the end of the last one."""
    path, line, last = launch.path or "", launch.line or 1, launch.end_line or launch.line or 1
    lines = context.lines(path)
    column = launch.column or 1
    return Span(path, line, column, last, len(lines[last - 1]) + 1 if 0 < last <= len(lines) else column)


def config_folders(program: Program) -> list[Path]:
    """The folders below which a script's config files are looked for: the working directory and the script's own."""
    return [Path.cwd(), Path(program.entry).parent]


def depends_on_world(value: Value) -> bool:
    """Whether a value is computed from the world size, or from the number of devices of a node."""
    if isinstance(value, Expr):
        if not value.args:
            return value.op in ("world_size", "device_count", "local_world_size")
        return any(depends_on_world(arg) for arg in value.args)
    return False


def divisibility_checks(program: Program) -> list[Divisibility]:
    """The asserts, and ifs that raise, that test a remainder by the world size; one a place."""
    found: list[Divisibility] = []
    for node in first_of_each_place(program.of(Check)):
        test = node.test
        texts = _remainder_texts(node.text)
        pairs = list(remainders(test))
        for index, (left, right) in enumerate(pairs):
            if depends_on_world(right) and not depends_on_world(left):
                left_text, right_text = texts[index] if len(texts) == len(pairs) else (left.text, right.text)
                found.append(Divisibility(node, left, right, test, left_text, right_text))
    return found


def _remainder_texts(text: str) -> list[tuple[str, str]]:
    """Source of the operands of each `%` in a statement or condition, outermost first; empty where it does not parse."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        try:
            tree = ast.parse(f"{text.rstrip(': ')}:\n pass")
        except SyntaxError:
            return []
    found: list[tuple[str, str]] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            found.append((ast.unparse(node.left), ast.unparse(node.right)))
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return found


def remainders(test: Value) -> Iterator[tuple[Value, Value]]:
    """The operands of each `%` in a condition; also of what asks the same: `a // b * b == a`, and `a / b == int(a / b)`."""
    if isinstance(test, Expr):
        if test.op == "%" and len(test.args) == 2:
            yield test.args[0], test.args[1]
        if test.op in ("==", "!=") and len(test.args) == 2:
            for product, whole in (test.args, test.args[::-1]):
                yield from _multiplied_back(product, whole)
                yield from _rounded(product, whole)
        for arg in test.args:
            yield from remainders(arg)


def _multiplied_back(product: Value, whole: Value) -> Iterator[tuple[Value, Value]]:
    match product:
        case Expr(op="*", args=(left, right)):
            for quotient, times in ((left, right), (right, left)):
                match quotient:
                    case Expr(op="//", args=(dividend, divisor)) if dividend == whole and divisor == times:
                        yield dividend, divisor


def _rounded(rounded: Value, quotient: Value) -> Iterator[tuple[Value, Value]]:
    match rounded, quotient:
        case Expr(op="int", args=(Expr(op="/", args=(one, by)),)), Expr(op="/", args=(other, same)):
            if (one, by) == (other, same):
                yield one, by


def conditions(program: Program) -> list[Value]:
    """Every condition that the program tests: of asserts, of ifs, and of ifs on the way to something."""
    found = [node.test for node in program.of(Check)]
    found += [guard.test for node in program.nodes for guard in node.guards]
    found += [guard.test for guard in _branch_guards(program.tree, [])]
    return list({id(test): test for test in found}.values())


def assigned_number(program: Program, node: Node, name: str, value: Any) -> Number | None:
    """A constant by the assignment above a node, in its file, that gives a name this value; None where none is found."""
    code = [
        one for one in code_within(program, node.span.path, 1, node.span.line - 1) if isinstance(one, (ast.Assign, ast.AnnAssign))
    ]
    above = [(one.lineno, one.value) for one in code if one.value is not None and name in _plain_targets(one)]
    if not above or fold(above[-1][1], {}) != value:
        return None
    line = above[-1][0]
    return Number(name, value, f"{node.span.path}:{line}", node.span.path, line)


def _plain_targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _branch_guards(items: Sequence[Item], found: list[Guard]) -> list[Guard]:
    for item in items:
        if isinstance(item, Branch):
            found.append(item.guard)
            _branch_guards(item.then, found)
            _branch_guards(item.orelse, found)
        elif isinstance(item, LoopItem | CallItem):
            _branch_guards(item.body, found)
        elif isinstance(item, TryItem):
            for block in (item.body, *item.handlers, item.final):
                _branch_guards(block, found)
    return found


def division_parts(program: Program, node: FloorDivision) -> tuple[str, str, str]:
    """Source of a floordiv node: what it is assigned to (empty where to nothing that is seen), the dividend, the divisor."""
    target = str(node.name or "")
    if not target:
        assignment = re.match(r"([A-Za-z_][\w.\[\]]*)\s*(?::[^=]+)?=[^=]", program.line(node.span.path, node.span.line))
        target = assignment.group(1) if assignment else ""
    try:
        statement = ast.parse(node.text).body[0]
    except (SyntaxError, IndexError):
        return target, node.text, ""
    if isinstance(statement, ast.AugAssign):
        return target, ast.unparse(statement.target), ast.unparse(statement.value)
    value = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(value, ast.Call) and len(value.args) == 1:  # int(a / b)
        value = value.args[0]
    if isinstance(value, ast.BinOp):
        return target, ast.unparse(value.left), ast.unparse(value.right)
    if isinstance(value, ast.Call) and len(value.args) == 2:  # divmod(a, b)
        return target, ast.unparse(value.args[0]), ast.unparse(value.args[1])
    return target, node.text, ""


def _plain(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10_000 else str(value)
