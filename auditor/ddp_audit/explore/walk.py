"""One rank's way through a lowered program: which arms it takes, how often it loops, and the events that come of it.

Conditions that rank and world size decide are decided as that rank would. Conditions that are unknown but equal on all ranks go by
the scenario, the same way on every rank. Loops run a few times: enough for a steady state and the last iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ddp_audit import events as ev
from ddp_audit.events import Event, Site
from ddp_audit.explore.turns import turning_points
from ddp_audit.findings import Span
from ddp_audit.machine.ddp import Ddp
from ddp_audit.machine.errors import MachineError
from ddp_audit.machine.graph import Handle
from ddp_audit.machine.module import BufferSpec, ModuleSpec, ParamSpec
from ddp_audit.machine.process_group import ProcessGroup
from ddp_audit.program.meaning import name_of
from ddp_audit.program.model import Branch, CallItem, Guard, Item, LoopItem, Node, Program, TryItem
from ddp_audit.program.nodes import Backward, Collective, Forward, Jump, Step, SyncFlag, Wrap, ZeroGrad
from ddp_audit.program.values import MISSING, Const, Value, World, evaluate, holds, loop_leaves, truth

MAX_EVENTS = 2_000
_LONGEST = 10**9  # iterations of a loop whose length is not known
_MOST_TURNS = 4  # iterations of a loop that are run for the sake of its conditions

# Sizes that stand for a model whose sizes are not known: what matters is that parameters, buffers and maps differ in size.
NOMINAL_PARAMETERS = (ParamSpec("weight", 1_048_576), ParamSpec("bias", 1_024))
NOMINAL_BUFFERS = (BufferSpec("buffer", 4_096),)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is assumed where the program leaves it open.

    `decide` answers an open condition by its place and the number of times that this rank has asked it (None: the `otherwise`
    answer). `iterations` bounds loops of unknown length, `inner` those inside another loop. `buffers` says whether wrapped modules
    have buffers, `grad` overrides the gradient mode at chosen places, `stop_after` ends the run after that many optimizer steps.
    """

    decide: Callable[[Span, int], bool | None] = lambda place, count: None
    otherwise: bool = False
    iterations: int = 3
    inner: int = 2
    buffers: bool = True
    stop_after: int | None = None
    without: frozenset[Span] = frozenset()  # places of forwards that are not made


class _Left(Exception):
    """Leaves blocks: break, continue, return, or the end of the process."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


@dataclass(slots=True)
class Walk:
    """The run of one rank. `events` are its predicted events, `raised` the text of the call that stopped it, if one did."""

    program: Program
    world: World
    scenario: Scenario
    events: list[Event] = field(default_factory=list)
    raised: str = ""
    truncated: bool = False
    _wrappers: dict[object, Ddp] = field(default_factory=dict)
    _handles: dict[int, tuple[Ddp, Handle]] = field(default_factory=dict)
    _asked: dict[Span, int] = field(default_factory=dict)
    _atoms: dict[str, int] = field(default_factory=dict)
    _tests: dict[Span, list[Value]] = field(default_factory=dict)  # conditions on the index of a loop, by the loop
    _depth: int = 0
    _steps: int = 0

    def run(self) -> list[Event]:
        """Walks the whole program; its events."""
        try:
            self._block(self.program.tree)
        except _Left:
            pass
        except MachineError as error:
            self.events += self._placed(error.events, None)
            self.raised = str(error)
        return self.events

    # ---- blocks

    def _block(self, items: Iterable[Item]) -> None:
        for item in items:
            if len(self.events) > MAX_EVENTS:
                self.truncated = True
                raise _Left("exit")
            match item:
                case Node():
                    self._node(item)
                case Branch():
                    self._block(item.then if self._enters(item.guard) else item.orelse)
                case LoopItem():
                    self._loop(item)
                case CallItem():
                    self._call(item)
                case TryItem():
                    self._try(item)

    def _call(self, item: CallItem) -> None:
        try:
            self._block(item.body)
        except _Left as left:
            if left.what != "return":
                raise

    def _try(self, item: TryItem) -> None:
        try:
            self._block(item.body)
        finally:
            self._block(item.final)

    def _loop(self, item: LoopItem) -> None:
        self._depth += 1
        for index in self._indices(item):
            if item.loop.leaf:
                self._atoms[item.loop.leaf] = index
            try:
                self._block(item.body)
            except _Left as left:
                if left.what == "break":
                    break
                if left.what != "continue":
                    raise
        self._depth -= 1

    def _indices(self, item: LoopItem) -> list[int]:
        """The iterations to run: all of a short loop; of a long one the first, the last, and those that its conditions name."""
        bound = self.scenario.iterations if self._depth == 1 else self.scenario.inner
        loop = item.loop
        count = MISSING if loop.count is None else evaluate(loop.count, self._here())
        length = count if isinstance(count, int) and not isinstance(count, bool) else None
        if length is not None and length <= bound + 1:
            return list(range(length))
        ends = [*range(bound)] if length is None else [*range(bound), length - 1]
        return sorted({*ends, *self._turning(item, _LONGEST if length is None else length, ends)})

    def _turning(self, item: LoopItem, count: int, taken: list[int]) -> list[int]:
        """The first iteration for each set of answers of the conditions in a loop's body that no iteration taken gives."""
        leaf = item.loop.leaf
        if not leaf:
            return []
        if (tests := self._tests.get(item.loop.span)) is None:
            tests = self._tests[item.loop.span] = [test for test in _tests_in(item.body) if leaf in loop_leaves(test)]
        if not tests:
            return []
        atoms = dict(self._atoms)
        # Every rank runs the same iterations, whatever conditions it asks for itself.
        ranks = [replace(self.world, rank=rank, atoms=atoms) for rank in range(self.world.world_size)]

        def answers(index: int) -> tuple[bool | None, ...]:
            at = [replace(world, atoms={**atoms, leaf: index}) for world in ranks]
            return tuple(truth(test, world) for test in tests for world in at)

        seen = {answers(index) for index in taken}
        found: list[int] = []
        for index in sorted({point for world in ranks for point in turning_points(tests, leaf, count, world)}):
            if (given := answers(index)) not in seen and len(found) < _MOST_TURNS:
                seen.add(given)
                found.append(index)
        return found

    def _here(self) -> World:
        return replace(self.world, atoms=dict(self._atoms))

    def _enters(self, guard: Guard) -> bool:
        """Whether this rank takes the then-arm of a condition."""
        known = truth(guard.test, self._here())
        if known is not None and not (isinstance(guard.test, Const) and guard.test.default is not None):
            return known == guard.polarity
        parted = holds(guard.test, self._here()) if guard.taint else None
        count = self._asked.get(guard.span, 0)
        self._asked[guard.span] = count + 1
        if parted is False:
            return not guard.polarity  # the arm that a false condition takes
        chosen = self.scenario.decide(guard.span, count)
        if chosen is None:
            chosen = known if known is not None else self.scenario.otherwise
        return chosen == guard.polarity

    # ---- nodes

    def _node(self, node: Node) -> None:
        match node:
            case Wrap(style="ddp"):
                wrapper = self._wrapper(node)
                self._emit(node, wrapper.construct())
            case SyncFlag() if node.object is not None and node.object.key in self._wrappers:
                value = truth(node.value, self._here())
                self._wrappers[node.object.key].require_backward_grad_sync = value is not False
            case Forward():
                self._forward(node)
            case Backward():
                self._backward(node)
            case Step():
                local = sorted({name for wrapper in self._wrappers.values() for name in wrapper.step()})
                self._mark(node, ev.STEP, local=local)
                self._steps += 1
                if self._steps == self.scenario.stop_after:
                    raise _Left("exit")
            case ZeroGrad():
                for wrapper in self._wrappers.values():
                    wrapper.zero_grad()
            case Collective():
                self._emit(node, _collective(node, self._here()))
            case Jump(what=what):
                raise _Left("exit" if what == "raise" else what)

    def _wrapper(self, node: Wrap) -> Ddp:
        options = {name: evaluate(value, self._here()) for name, value in node.args.items() if name in _OPTIONS}
        buffers = NOMINAL_BUFFERS if self.scenario.buffers else ()
        made = Ddp(ModuleSpec(NOMINAL_PARAMETERS, buffers), **{k: v for k, v in options.items() if v is not MISSING})
        assert node.object is not None
        self._wrappers[node.object.key] = made
        return made

    def _forward(self, node: Forward) -> None:
        wrapper = self._wrappers.get(node.object.key) if node.object is not None else None
        if wrapper is None or node.span in self.scenario.without:
            return
        grad = node.grad is not False
        if node.through == "module":
            result = wrapper.module_forward(grad=grad)
        else:
            before = wrapper.require_backward_grad_sync
            if any(block.test is None or truth(block.test, self._here()) == block.polarity for block in node.no_sync):
                wrapper.require_backward_grad_sync = False
            result = wrapper.forward(grad=grad)
            wrapper.require_backward_grad_sync = before
            self._mark(node, ev.FORWARD, grad=grad)
        self._handles[node.number] = (wrapper, result.handle)
        self._emit(node, result.events)

    def _backward(self, node: Backward) -> None:
        by_wrapper: dict[int, tuple[Ddp, list[Handle]]] = {}
        for number in sorted(node.target.deps if node.target is not None else ()):
            if number in self._handles:
                wrapper, handle = self._handles[number]
                by_wrapper.setdefault(id(wrapper), (wrapper, []))[1].append(handle)
        self._mark(node, ev.BACKWARD)
        for wrapper, handles in by_wrapper.values():
            live = [h for h in handles if h.grad and not h.is_freed]
            if live:
                self._emit(node, wrapper.backward(live))

    def _emit(self, node: Node, made: Iterable[Event]) -> None:
        self.events += self._placed(made, node)

    def _placed(self, made: Iterable[Event], node: Node | None) -> list[Event]:
        if node is None:
            return list(made)
        return [replace(event, site=_site(node), stack=_stack(node)) for event in made]

    def _mark(self, node: Node, kind: str, **detail: object) -> None:
        self.events.append(Event(kind, site=_site(node), stack=_stack(node), detail=detail))


_OPTIONS = ("find_unused_parameters", "static_graph", "broadcast_buffers", "forward_sync_buffers", "init_sync")


def _tests_in(items: Iterable[Item]) -> Iterator[Value]:
    """The conditions in a block, those of the loops in it included."""
    for item in items:
        match item:
            case Branch():
                yield item.guard.test
                yield from _tests_in(item.then)
                yield from _tests_in(item.orelse)
            case LoopItem() | CallItem():
                yield from _tests_in(item.body)
            case TryItem():
                yield from _tests_in(item.body)
                yield from _tests_in(item.final)


def _site(node: Node) -> Site:
    return Site(node.span.path, node.span.line, node.function)


def _stack(node: Node) -> tuple[Site, ...]:
    return (_site(node), *(Site(c.path, c.line) for c in reversed(node.calls)))


def _collective(node: Collective, world: World) -> list[Event]:
    """The events of a user's collective; a hidden one stands as a single event of its own name."""
    op = node.op
    if "group" in node.args and not (isinstance(node.args["group"], Const) and node.args["group"].value is None):
        return []
    group = ProcessGroup()
    root = _int(node.args.get("src", node.args.get("dst")), world)
    reduce_op = _reduce_op(node.args.get("op"))
    match op:
        case "all_reduce":
            return group.all_reduce(reduce_op=reduce_op)
        case "broadcast":
            return group.broadcast(root=root)
        case "reduce":
            return group.reduce(root=root, reduce_op=reduce_op)
        case "all_gather" | "all_gather_into_tensor" | "all_gather_single":
            return group.all_gather()
        case "gather" | "scatter":
            return group.gather(root=root) if op == "gather" else group.scatter(root=root)
        case "barrier" | "monitored_barrier":
            return group.barrier()
        case "all_gather_object":
            return group.all_gather_object()
        case "gather_object":
            return group.gather_object(root=root)
        case "broadcast_object_list":
            return group.broadcast_object_list(root=root)
    return [Event(ev.COLLECTIVE, op=op)]


def _int(value: Value | None, world: World) -> int | None:
    found = MISSING if value is None else evaluate(value, world)
    return found if isinstance(found, int) else None


def _reduce_op(value: Value | None) -> str | None:
    if value is None:
        return "sum"
    return name_of(value).rsplit(".", 1)[-1].lower() or None


Decisions = Mapping[Span, Callable[[int], bool]]
