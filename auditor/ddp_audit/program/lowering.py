"""From source to `Program`: the statements.

The lowering runs the script once, abstractly: both arms of a condition that is not known, a loop in its steady state, calls of
project functions inlined. What matters becomes a `Node` with the guards, loops and calls on its way. Nothing of the audited
code is executed. Expressions are in `expressions.py`, calls in `calls.py`, what libraries do in `contracts.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddp_audit.findings import Span
from ddp_audit.knowledge.libraries import may_send
from ddp_audit.program import (
    async_ops,
    changes,
    conditions,
    contexts,
    contracts_config,
    distributed_runs,
    exits,
    expressions,
    flow,
    iteration,
    lists,
    lookup,
    names,
    presence,
    unrolled,
)
from ddp_audit.program.classes import make_class
from ddp_audit.program.contracts_records import as_items
from ddp_audit.program.differing import differs
from ddp_audit.program.functions import QuietCall, run_decorators
from ddp_audit.program.guards import NoSync
from ddp_audit.program.implied import without_implied
from ddp_audit.program.imports import bind_name
from ddp_audit.program.matched import as_branches
from ddp_audit.program.meaning import says
from ddp_audit.program.model import BufferSite, Guard, Item, Loop, Node, Program
from ddp_audit.program.nodes import Check, FloorDivision, Jump, LoadState
from ddp_audit.program.operations import operation, why_too_large
from ddp_audit.program.registry import CONTRACTS
from ddp_audit.program.slots import Key, Slots
from ddp_audit.program.state import ClassInfo, Frame, FunctionInfo
from ddp_audit.program.values import (
    RANK,
    Const,
    Func,
    Unknown,
    Value,
    conjuncts,
    defaults_in,
    named,
    truth,
    worlds,
)
from ddp_audit.source.files import SourceFile
from ddp_audit.source.project_hints import ProjectHints

if TYPE_CHECKING:
    from ddp_audit.program.observation import Observer
    from ddp_audit.program.uses import Looking
    from ddp_audit.source.project import Project

MAX_NODES = 6_000  # nodes of one program
MAX_STEPS = 25_000  # statements and calls lowered
LEFTOVER_STEPS = 10_000  # of these, in functions that nothing calls

_JUMPS = {ast.Break: "break", ast.Continue: "continue", ast.Return: "return", ast.Raise: "raise"}


_ODD_JOBS = tuple(world for size in (3, 5, 7) for world in worlds(size))


class _Way:
    """Calls that lead to a place, as a part of keys: hashed without a look at the places."""


class Lowering:
    """The abstract run of one entry. `overrides` are configuration values that the job at hand is given, by name."""

    here: Frame  # the frame that is running

    def __init__(
        self,
        project: Project,
        world_size: int | None,
        overrides: Mapping[str, Any],
        defaults_hold: bool = False,
        hints: ProjectHints | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.project = project
        self.observer = observer
        self.program = Program(entry="", world_size=world_size)
        self.worlds = worlds(world_size)
        self.overrides = overrides
        self.hints = hints or ProjectHints()
        self.contracts = CONTRACTS
        self.expressions = expressions.HINTED if self.hints.names or self.hints.stubs else expressions.KINDS
        self.defaults_hold = defaults_hold
        self.state = self.root = Slots()
        self.block: list[Item] = self.program.tree
        self.guards: list[Guard] = []
        self.kept_guards: dict[tuple[Guard, ...], tuple[Guard, ...]] = {}  # what `conditions` answered
        self.loops: list[Loop] = []
        self.left: list[exits.Left] = []  # loops and calls that are running
        self.calls: list[Span] = []
        self.ways: dict[tuple[Span, ...], object] = {}
        self.active: list[Any] = []  # definitions being inlined, innermost last
        self.tries: list[Span] = []
        self.no_sync: list[NoSync] = []
        self.grad: bool | None = True
        self.muted = 0
        self.probed: list[list[Guard]] | None = None  # ways to the probe, while a decorator is looked into
        self.decorators: dict[tuple[Any, ...], list[Guard]] = {}  # what a decorator asks, by its definition and frame
        self.steps = 0
        self.most_steps = MAX_STEPS
        self.forward_of: int | None = None  # the forward node of the wrapper whose module's forward is being followed
        self.modules: dict[str, Frame] = {}
        self.inlined: set[int] = set()  # id() of definitions that were reached
        self.children = self.program.modules.children  # module objects inside module objects
        self.constructor_base: int | None = None  # guards before the outermost module constructor that is running
        self.constructing: dict[tuple[Any, ...], int] = {}  # guards before the constructor of each object, by key
        self.kept: dict[tuple[Any, ...], Value] = {}  # objects of which nothing is known but an attribute, by their place
        self.premises: list[tuple[Value, bool]] = []  # what had to hold for the job to become a distributed one
        self.assumed: dict[str, bool] = {}  # conditions that were settled by what they guard, by text
        self.deciding: dict[str, distributed_runs.Setting] = {}  # settings that decide whether the run is distributed
        self.parsers: dict[tuple[Any, ...], dict[str, Value]] = {}  # argparse options by parser
        self.refused: set[str] = set()  # the kinds of results that were too large to be computed
        self.flags: dict[tuple[Any, ...], list[str]] = {}  # the spellings of those options
        self.given_to_base: dict[tuple[Any, ...], dict[str, Value]] = {}  # what a library's base was made with, by object
        self.frame_count = 0
        self.wrapped = self.program.modules.wrapped  # wrapper by the key of its inner module
        self.call_counts: dict[int, int] = {}  # calls inlined, by id() of the definition
        self.communicating: set[int] = set()  # id() of definitions in which a collective or a wrapper was met
        self.classes_of: dict[tuple[Any, ...], ClassInfo] = {}  # of the modules and data sets that were made
        self.own_buffers: dict[tuple[Any, ...], dict[Span, BufferSite]] = {}  # by key of the module that registers them
        self.defined: dict[tuple[Any, str], ast.stmt] = {}  # where a module global was last bound to a constant
        self.libraries: set[str] = set()
        self.calling = ""  # the library function of which the contract runs
        self.forced: dict[tuple[Any, ...], Value] = {}  # imports that were put off, by their key, once looked at
        self.effects = 0  # counts what calls did other than returning a value
        self.quiet_calls: dict[int, QuietCall] = {}  # by id() of the definition
        self.looking: Looking | None = None  # set during a look inside a wrapped model
        self.holders: set[tuple[Any, ...]] = set()  # keys of objects with a wrapper in an attribute
        self.flying: dict[Key, None] = {}  # slots of buffers that an asynchronous operation was given
        self.handed: tuple[ast.AST | None, dict[int, Key] | None] = (None, None)  # those that the last call returned
        self.bindings: dict[Key, presence.Binding] = {}  # of variables and attributes that only some ranks assign
        self.main_first = 0  # contexts around that let one process through before the others
        self.asking = False  # whether an attribute is looked up with a default, so that it may be missing
        self.exit_stacks: dict[tuple[Any, ...], int] = {}  # guards around each contextlib.ExitStack, by key

    # ---- places and nodes

    def way(self) -> object:
        """The calls that lead here, as an object that is equal to itself alone; keys of objects have it as a part."""
        return self.ways.setdefault(tuple(self.calls), _Way())

    def span(self, node: Any) -> Span:
        """The place of an ast node in the running file."""
        return self.here.source.span(node)

    def text(self, node: ast.AST) -> str:
        """The source of a node on one line, cut at 160 characters."""
        return names.source_text(self.here.source, node)

    def emit(self, node: ast.AST, made: Node) -> int | None:
        """Adds a node, made where `node` stands; its number, or None in a muted pass or over budget."""
        self.effects += made.counts
        if self.muted:
            return None
        if len(self.program.nodes) >= MAX_NODES:
            self.limit(f"more than {MAX_NODES} relevant operations", unread=True)
            return None
        made.span, made.function, made.text, made.number = self.span(node), self.here.name, self.text(node), len(self.program.nodes)
        made.guards, made.loops, made.calls = self.conditions(), tuple(self.loops), tuple(self.calls)
        made.grad, made.no_sync, made.tries = self.grad, tuple(self.no_sync), tuple(self.tries)
        made.in_finally = made.in_join = False
        self.program.nodes.append(made)
        self.block.append(made)
        return made.number

    def conditions(self) -> tuple[Guard, ...]:
        """The guards on the way to what is running, without those that others settle."""
        guards = tuple(self.guards)
        kept = self.kept_guards.get(guards)
        if kept is None:
            kept = self.kept_guards[guards] = without_implied(guards, self.worlds)
        return kept

    def limit(self, what: str, *, unread: bool = False) -> None:
        """Notes a bound that was hit. `unread`: what comes here was not read, though it may be what other ranks do elsewhere."""
        if what not in self.program.limits:
            self.program.limits.append(what)
        number = len(self.program.nodes)
        if unread and not self.muted and self.program.unread[-1:] != [number] and any(g.test.taint for g in self.guards):
            self.program.unread.append(number)

    def note_library(self, name: str) -> None:
        """Notes that a library is imported."""
        self.libraries.add(name)

    def in_question(self, name: str) -> bool:
        """Whether a library call that has no contract might communicate, by its name."""
        return says(name, "might-communicate") and (name.startswith("torch.distributed.") or may_send(name))

    def eval(self, node: ast.expr | None) -> Value:
        """The value of an expression."""
        if node is None:
            return Const(value=None)
        kind = self.expressions.get(type(node))
        if kind is None:
            return Unknown()
        value = kind(self, node)
        if self.observer is not None:
            self.observer.expression(self, node, value)
        reason = why_too_large(value)
        if reason and reason not in self.refused:
            self.refused.add(reason)
            self.limit(f"{reason}, at line {node.lineno}, is not computed")
        return value

    # ---- variables and attributes

    def assign_name(self, name: str, value: Value) -> None:
        """Binds a variable of the running frame, or of the one around it where it was declared global or nonlocal."""
        frame = self.here.of(name)
        self.effects += frame is not self.here
        presence.bound(self, (frame.id, name))
        self.state[(frame.id, name)] = value

    def assign(self, target: ast.expr, value: Value) -> None:
        """Binds an assignment target."""
        async_ops.rebound(self, target)
        match target:
            case ast.Name(id=name):
                old = self.state.get((self.here.of(name).id, name))
                lookup.note_forced_device(self, target, old, value)
                kept = named(value, name) if not isinstance(value, Const) else value
                self.here.rebound.add(name)
                self.assign_name(name, kept)
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                for element, part in zip(elts, iteration.parts(as_items(self, value), elts), strict=True):
                    self.assign(element.value if isinstance(element, ast.Starred) else element, part)
            case ast.Attribute(value=owner, attr=attr):
                lookup.assign_attribute(self, target, self.eval(owner), attr, value)
            case ast.Subscript(value=owner, slice=index):
                async_ops.touch(self, owner, target, write=True)
                iteration.assign_item(self, target, owner, self.eval(index), value)
            case ast.Starred(value=inner):
                self.assign(inner, Unknown(taint=value.taint))

    def _configured(self, target: ast.expr, value: Value, node: ast.stmt) -> Value:
        """A module global's constant, or what the job at hand sets it to."""
        if isinstance(target, ast.Name) and isinstance(value, Const) and self.here.module is None and not self.muted:
            self.defined[(self.here.id, target.id)] = node
            if target.id in self.overrides and isinstance(value.value, (int, float, str, bool)):
                return contracts_config.option(self, target.id, value.value, self.here, node)
        return value

    # ---- conditions

    def known(self, test: Value) -> bool | None:
        """What a condition says on all ranks of all jobs looked at, if that is one answer and no open default decides it."""
        if any(d.origin == "default" for d in defaults_in(test)) and not self.defaults_hold:
            return None
        first = truth(test, self.worlds[0])
        asked = self.worlds[1:]
        if self.program.world_size is None and flow.asks_a_remainder(test):
            asked = (*asked, *_ODD_JOBS)  # of which the number that most counts are divisible by is not part
        return first if first is not None and all(truth(test, world) == first for world in asked) else None

    def guard(self, test: Value, polarity: bool, node: ast.AST, via: str) -> Guard:
        """A guard for one arm of a condition."""
        against = False
        text = self.text(node)
        if not self.defaults_hold and not test.taint:
            found = list(defaults_in(test))
            said = truth(test, self.worlds[0]) if found and all(d.open for d in found) else None
            against = said is not None and said != polarity
        taken = distributed_runs.is_taken(self, node) if isinstance(node, ast.expr) and not test.taint else None
        against = against or (taken is not None and taken != polarity)
        size, depth, loops = self.program.world_size, len(self.calls), len(self.loops)
        return Guard(test, polarity, self.span(node), text, via, against, size, depth, loops)

    def guards_of(self, test: Value, polarity: bool, node: ast.expr, via: str) -> list[Guard]:
        """The guards for one arm of a condition, all at the place of the whole.

        The parts that ranks answer alike, those that rest on data or files of their own, and those that ask for the rank stand
        apart, these last: an option that is off by default, a setting that is not known, or a file hides nothing of who gets here.
        """
        parts = conjuncts(test, polarity)
        kinds = [0 if not part.taint else 2 if RANK in part.taint else 1 for part, _ in parts]
        if len(set(kinds)) == 1:
            return [self.guard(test, polarity, node, via)]
        nodes = conditions.operands(node, polarity)
        if len(nodes) != len(parts):
            nodes = [node] * len(parts)
        found = [self.guard(*part, at, via) for part, at, kind in zip(parts, nodes, kinds, strict=True) if not kind]
        for wanted in (1, 2):
            own = [(part, at) for part, at, kind in zip(parts, nodes, kinds, strict=True) if kind == wanted]
            if len(own) == 1:
                found.append(self.guard(*own[0][0], own[0][1], via))
            elif own:
                joined = [value if answer == polarity else operation("not", value) for (value, answer), _ in own]
                found.append(self.guard(operation("and" if polarity else "or", *joined), polarity, node, via))
        whole = self.span(node)
        return [replace(guard, span=whole, part_of=polarity) for guard in found]

    def settled(self, test: ast.expr, value: Value, then: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> bool | None:
        """Whether a condition may be taken as decided: by its value, or because one arm makes the job a distributed one."""
        known = self.known(value)
        if known is not None:
            return known
        taken = self.assumption(test)
        if taken is not None:
            return taken
        if differs(value, self.worlds):
            return None
        taken = distributed_runs.is_taken(self, test)
        if taken is not None:
            return taken
        source = self.here.source
        then_makes, else_makes = distributed_runs.arms_make(source, test, then, orelse)
        if not then_makes and not else_makes:
            then_makes, else_makes = (distributed_runs.makes_elsewhere(self, arm) for arm in (then, orelse))
        spawned = distributed_runs.spawns_instead(self, source, test, then, orelse)
        if spawned is not None:
            then_makes, else_makes = spawned, not spawned
        if then_makes != else_makes and not conditions.is_impossible(self, value, then_makes):
            self.assumed[self.text(test)] = then_makes
            self.premises += conjuncts(value, then_makes)
            return then_makes
        return conditions.premised(self, value)

    def assumption(self, test: ast.expr) -> bool | None:
        """What a condition was taken to be before, so that one of its arms makes the job a distributed one."""
        text = self.text(test)
        opposite = text.removeprefix("not ") if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else f"not {text}"
        if text in self.assumed:
            return self.assumed[text]
        if opposite in self.assumed:
            return not self.assumed[opposite]
        return None

    # ---- blocks

    def run_block(self, statements: Iterable[ast.stmt]) -> str | None:
        """Lowers statements in order. Returns how the block left (return, raise, break, ..) if no way through it goes on."""
        for statement in statements:
            self.steps += 1
            if self.steps > self.most_steps:
                whole = self.most_steps == MAX_STEPS
                spent = f"{MAX_STEPS} steps" if whole else f"{LEFTOVER_STEPS} steps in functions that nothing calls"
                self.limit(f"more than {spent}", unread=True)
                return None
            left = self.statement(statement)
            if left:
                return left
        return None

    def _expression(self, value: ast.expr) -> str | None:
        """Lower an expression that stands as a statement: a call that may set a mode, or end the process."""
        result = self.eval(value)
        last = self.program.nodes[-1] if self.program.nodes else None
        if last is not None and isinstance(last, LoadState) and last.span == self.span(value):
            last.unused = True
        if contexts.sets_gradients(result):
            effect = contexts.context_effect(result)
            self.grad = effect == "enable_grad" if effect else None
        return "exit" if names.leaves(self, value, result) else None

    def statement(self, node: ast.stmt) -> str | None:
        """Lowers one statement."""
        if self.observer is not None:
            self.observer.statement(self, node)
        match node:
            case ast.Expr(value=ast.ListComp() | ast.SetComp() as loops):
                return self.statement(self.here.source.fact("as loops", loops, unrolled.as_loops))
            case ast.Expr(value=value):
                return self._expression(value)
            case ast.Assign(targets=targets, value=value):
                result = self.eval(value)
                for target in targets:
                    self.assign(target, self._configured(target, result, node))
                    async_ops.take_over(self, target, value)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self.assign(target, self._configured(target, self.eval(value), node))
            case ast.AugAssign():
                self.augmented(node)
            case ast.If():
                return flow.branch(self, node)
            case ast.For() | ast.AsyncFor():
                return flow.for_loop(self, node)
            case ast.While():
                return flow.while_loop(self, node)
            case ast.With() | ast.AsyncWith():
                return flow.with_block(self, node)
            case ast.Try():
                return flow.try_block(self, node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                decorators = tuple(run_decorators(self, node))
                info = FunctionInfo(node.name, node, self.here, None, decorators)
                self.assign_name(node.name, Func(definition=info, text=node.name))
            case ast.ClassDef():
                self.assign_name(node.name, make_class(self, node))
            case ast.Return(value=value):
                result = self.eval(value)
                async_ops.returned(self, value)
                self.here.returns.append((tuple(self.guards[self.here.guard_base :]), result))
                self.emit(node, Jump(what="return", value=result))
                exits.note(self, "return")
                return "return"
            case ast.Raise(exc=exc):
                raised = None if exc is None else self.eval(exc)
                if exc is not None and names.leaves_by_raising(self, node, exc):
                    return "exit"
                self.emit(node, Jump(what="raise", raised=raised))
                return "raise"
            case ast.Break() | ast.Continue():
                self.emit(node, Jump(what=_JUMPS[type(node)]))
                exits.note(self, _JUMPS[type(node)])
                return _JUMPS[type(node)]
            case ast.Assert(test=test):
                asked = self.eval(test)
                self.emit(node, Check(test=asked))
                if conditions.never_holds(self, test, asked):
                    self.emit(node, Jump(what="raise"))
                    return "raise"
            case ast.Global(names=declared):
                self.here.globals.update(declared)
            case ast.Nonlocal(names=declared):
                self.here.nonlocals.update(declared)
            case ast.Import() | ast.ImportFrom():
                bind_name(self, node)
            case ast.Delete(targets=targets):
                for target in targets:
                    if isinstance(target, ast.Attribute):
                        lookup.forget_child(self, self.eval(target.value), target.attr)
                    if isinstance(target, ast.Name):
                        del self.state[(self.here.id, target.id)]
            case ast.Match(subject=subject, cases=cases):
                name = f"match {node.lineno}:{node.col_offset}"  # no name that a program can have
                branches = as_branches(node, name)
                if branches is None:
                    self.eval(subject)
                    flow.alternatives(self, [case.body for case in cases], node)
                else:
                    self.assign_name(name, self.eval(subject))
                    return self.run_block(branches)
        return None

    def augmented(self, node: ast.AugAssign) -> None:
        """`a //= b` and its like."""
        left, right = self.eval(node.target), self.eval(node.value)
        async_ops.touch(self, node.target, node, write=True)
        async_ops.touch(self, node.value, node)
        op = names.OPERATORS.get(type(node.op), "?")
        result = operation(op, left, right, text=self.text(node.target))
        if op == "//":
            self.emit(node, FloorDivision(left=left, right=right, name=self.text(node.target)))
        elif op in ("/", "*"):
            changes.note_scale(self, node, left, op, right)
        elif op == "+":
            result = changes.joined_parameters(left, right) or lists.extended(self, left, right) or result
        elif op == "|":
            result = lists.united(self, left, right) or result
        self.assign(node.target, result)

    # ---- modules and leftovers

    def run_module(self, source: SourceFile, main: bool) -> Frame:
        """Lowers the top level of a file once; its frame. A module being imported again is the same frame."""
        known = self.modules.get(source.abspath)
        if known is not None:
            return known
        frame = Frame(id=("module", source.path), source=source, name="<module>")
        if not self.modules:
            self.here = frame
        self.modules[source.abspath] = frame
        self.program.sources[source.path] = source.lines
        for name, said in distributed_runs.deciding(source).items():
            self.deciding.setdefault(name, said)
        self.program.documents[source.path] = source.text
        self.program.files[source.path] = source
        self.root[(frame.id, "__name__")] = Const(value="__main__" if main else source.module)
        self.root[(frame.id, "__file__")] = Const(value=source.path)
        saved = (self.here, self.guards, self.grad, self.state)
        self.here, self.guards, self.grad, self.state = frame, [], True, self.root
        muted, self.muted = self.muted, 0 if main else self.muted + 1
        self.run_block(source.tree.body)
        self.muted = muted
        self.here, self.guards, self.grad, self.state = saved
        return frame
