"""The state of an interpreted run of one rank: what it issued, what was assumed, where it stands."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ddp_audit import folding
from ddp_audit.events import COLLECTIVE, Event, Site
from ddp_audit.explore.exact import calls, totals
from ddp_audit.explore.exact.contents import is_local
from ddp_audit.explore.exact.values import (
    Class,
    Cut,
    Error,
    Function,
    Instance,
    Lib,
    Method,
    Module,
    Native,
    Raised,
    Scope,
    Tensor,
    Unknown,
)
from ddp_audit.machine.join import JoinBlock
from ddp_audit.machine.process_group import Groups
from ddp_audit.source.paths import place_of

if TYPE_CHECKING:
    from ddp_audit.explore.exact.built import Built
    from ddp_audit.explore.exact.interpreter import Interpreter
    from ddp_audit.knowledge.stubs import Stub
    from ddp_audit.source.files import SourceFile
    from ddp_audit.source.project import Project

_MOST_MADE = 8_000_000  # elements of containers and characters of texts that the operations of one run make
_MOST_WORK = 100_000_000  # elements and characters that they look at
_GROWS = frozenset({".extend", ".update"})
_SMALL = 64  # elements of a value that is always made
_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
MAX_DEPTH = 30  # calls of project functions within one another


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a run is cut: `steps` optimizer steps, `events` collectives, `ticks` statements; `unknown_loop` iterations of a loop
    whose length is not known, or two windows and a part of one where it repeats itself after some. Without `strides` every pass of
    a loop is played (see `stride`)."""

    steps: int | None = None
    events: int = 2_000
    ticks: int = 400_000
    unknown_loop: int = 3
    strides: bool = True


ASSUMED_TORCH = (2, 13)  # where nobody says which: the version that the model of DDP follows
EARLIER_TORCH = (1, 13)  # a version without what scripts ask for, to see whether the answer matters
VERSION = ("torch", 0, "version")  # the key of the assumption


class _Rank:
    """Stands for the number of each rank, as the value of an option that a launcher passes."""

    def __str__(self) -> str:
        return "the rank"


RANK = _Rank()


@dataclass(frozen=True, slots=True)
class OpenOption:
    """An option of the command line that nobody set. `choices` are its other values, where the script lists them."""

    default: Any
    choices: tuple[Any, ...] = ()
    is_switch: bool = False
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """What is known of the machine that ran the job.

    `torch` is the text of its version (`2.13.0+cpu`). `kind_at` says what stood at a path when the run began: `file`, `folder`,
    empty for nothing, None where that is not known. `unpickle` gives the plain values of such a file, and raises OSError or
    ValueError.
    """

    torch: str = ""
    kind_at: Callable[[str], str | None] | None = None
    unpickle: Callable[[str], Any] | None = None


@dataclass(slots=True)
class Frame:
    """A call under way: its file, its function, and the line that it is in."""

    source: SourceFile
    function: str
    line: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class Assumption:
    """A choice where the program leaves it open: the place, its text, how it was taken, and whether ranks may differ there."""

    path: str
    line: int
    text: str
    taken: str
    local: bool


TICKS_OF_AN_EVENT = 2  # what it costs to make an event and to match it, in statements
ALWAYS = -1  # as the time at which an open condition is taken the other way
ASSUMED, BOUNDED, OPAQUE, INFERRED = "assumed", "bounded", "opaque", "inferred"


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why what a rank does after its first `at` events may not be what a real run does.

    `kind` is assumed (an open condition, whose place is `key`), bounded (a loop of unknown length was cut), opaque (what may send
    was not followed) or inferred (an exception that no statement of the program raises). `since` is the number of events before the
    loop that was cut.
    """

    kind: str
    at: int
    what: str
    key: tuple[str, int, str] | None = None
    since: int | None = None
    place: tuple[str, int] | None = field(default=None, compare=False)  # where it is, for reports

    @property
    def begun(self) -> int:
        """The number of events before what is not known began."""
        return self.at if self.since is None else self.since


@dataclass(frozen=True, slots=True)
class Taken:
    """How a rank took a condition at its `count`-th time."""

    path: str
    line: int
    text: str
    count: int
    answer: bool

    @property
    def key(self) -> tuple[str, int, str, int]:
        """The same for every rank that asks it for the same time."""
        return self.path, self.line, self.text, self.count


@dataclass(slots=True)
class State:
    """The state of one rank. `overrides` are configuration values by name."""

    project: Project
    rank: int
    world_size: int
    limits: Limits = field(default_factory=Limits)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    machine: Machine = field(default_factory=Machine)
    torch: tuple[int, int] | None = None  # the version that the program runs with, where somebody said which
    stubs: Mapping[str, Stub] = field(default_factory=dict)  # what the user describes of libraries, by full name
    describing: list[str] = field(default_factory=list)  # the descriptions whose expressions are under way
    without: frozenset[tuple[str, int]] = frozenset()  # lines of forwards through a wrapper that send nothing
    events: list[Event] = field(default_factory=list)
    assumptions: dict[tuple[str, int, str], Assumption] = field(default_factory=dict)
    bounds: dict[str, None] = field(default_factory=dict)  # what was not followed to its end, in order
    notes: dict[str, None] = field(default_factory=dict)  # what a reader should know of the run, in order
    raised: str = ""
    cut: str = ""  # why the run was followed no further; empty where it ended
    uncertain: int | None = None  # number of events before the first loop that was cut short
    doubts: dict[tuple[str, str], Doubt] = field(default_factory=dict)  # the first of each kind and text
    grouped: bool = False  # whether a process group was made
    optimizers: int = 0
    options: dict[str, OpenOption] = field(default_factory=dict)  # of the command line, by name
    built: list[Built] = field(default_factory=list)  # constructor calls of wrappers
    wanted: int = 0  # ranks that the program needs, where it has too few
    inferred: bool = False  # whether the exception that ended it is one that the interpreter inferred
    astray: bool = False  # something was called that may send what is not followed
    grad: bool = True
    module_depth: int = 0
    used: list[Any] = field(default_factory=list)  # uses of parameters in the forward under way
    wrappers: list[Any] = field(default_factory=list)
    settings: dict[Any, list[Any]] = field(default_factory=dict)  # of steps, by settings.Setting: each value that it took
    asked_early: int = 0  # times that the program found no process group
    early_uses: dict[Any, tuple[str, int]] = field(default_factory=dict)  # of early.Early numbers, by early.Read: the first of each
    summed_again: dict[Any, Any] = field(default_factory=dict)  # totals.SummedAgain with the totals.Reduction before it, by place
    initialized: bool = False
    frames: list[Frame] = field(default_factory=list)
    modules: dict[str, Scope] = field(default_factory=dict)
    result: Any = None
    ticks: int = 0
    steps: int = 0
    collectives: int = 0
    works: int = 0  # calls that returned at once, counted to number their handles
    groups: Groups = field(init=False)
    handling: list[Raised] = field(default_factory=list)
    # Functions with their arguments, and where they were registered.
    at_exit: list[tuple[Any, list[Any], dict[str, Any], tuple[SourceFile, int]]] = field(default_factory=list)
    tries: list[tuple[ast.Try, Scope]] = field(default_factory=list)  # whose bodies run
    environment: dict[str, str] = field(default_factory=dict)
    contrary: Mapping[tuple[str, int, str], int] = field(default_factory=dict)  # open conditions: when to take them otherwise
    shortened: int = 0  # counts walks over something whose length is not known
    losses: int = 0  # counts what was not followed: calls of unknowns, open conditions, loops of unknown length
    guards: list[Taken] = field(default_factory=list)  # conditions around the statement that runs, across calls
    answers: dict[tuple[str, int, str, int], bool] = field(default_factory=dict)  # every condition, as it was taken
    lines: set[tuple[str, int]] = field(default_factory=set)  # of the statements that ran
    moments: dict[tuple[str, int, str, int], int] = field(default_factory=dict)  # the number of events before each of them
    last_if: Taken | None = None  # how the if statement that ran last was taken
    windows: list[tuple[int, int]] = field(default_factory=list)  # for loops under way: their period in iterations, their line
    remainders: dict[int, list[ast.expr]] = field(default_factory=dict)  # by id() of the loop: what its body takes a remainder of
    visits: dict[int, int] = field(default_factory=dict)  # by id() of the condition
    # Forwards of each join block, by the group and the number of the block in it, as whether they are synchronized.
    joins: dict[tuple[str, int], list[bool]] = field(default_factory=dict)
    blocks: Mapping[tuple[str, int], JoinBlock] | None = None  # the same of all ranks, where a first run of them has shown it
    # What the root of each wrapper takes for its rebuilt buckets, by the group and the number of the wrapper in it.
    rebuilds: dict[tuple[str, int], Sequence[Sequence[int]]] = field(default_factory=dict)
    effects: int = 0  # counts changes of objects: a forward without any may be remembered
    modes: int = 0  # counts calls of train() and eval()
    flags: dict[int, tuple[int, Module, tuple[bool, ...]]] = field(default_factory=dict)  # training flags, by id() of the module
    remembered: dict[Any, Any] = field(default_factory=dict)  # forwards of modules, by module, modes and shapes of what goes in
    keys: dict[int, tuple[str, int, str]] = field(default_factory=dict)  # of open conditions, by id() of their expression
    asked: dict[tuple[str, int, str], int] = field(default_factory=dict)
    made: int = 0  # elements and characters that operations made
    work: int = 0  # elements and characters that they looked at, apart from what is nested in containers
    effort_before: int = field(default_factory=lambda: folding.Effort.parts)  # what all runs before had looked at of that
    line: int = 0  # of the statement that runs
    too_large: set[str] = field(default_factory=set)  # the kinds of values that were not computed for their size
    generators: list[Any] = field(default_factory=list)  # that stand still (generators.Running)
    running: list[set[ast.AST]] = field(default_factory=list)  # the functions that ran in each pass that is watched (stride)

    def __post_init__(self) -> None:
        self.groups = Groups(self.rank, self.world_size)
        rank, size = str(self.rank), str(self.world_size)
        self.environment = {
            "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1", "ROLE_RANK": rank, "ROLE_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_RUN_ID": "none",
        }  # fmt: skip

    @property
    def whole(self) -> Interpreter:
        """The interpreter that this is the state of."""
        return cast("Interpreter", self)

    def tick(self) -> None:
        """Counts a statement. Raises Cut where there were too many."""
        self.ticks += 1
        self.within_ticks()

    def within_ticks(self) -> None:
        """Raises Cut where too many statements were counted."""
        if self.ticks > self.limits.ticks:
            raise Cut(f"more than {self.limits.ticks:,} statements ran")

    def fold(self, name: str, *args: Any, **named: Any) -> Any:
        """What `folding.fold` gives; an unknown where that is too large, or the run has made too much already.

        Raises Cut where the operations of the run have looked at too much, and where one would make its first argument too large.
        """
        looked_at = sum(len(value) for value in args if isinstance(value, _SIZED))
        self.work += looked_at
        if self.work + folding.Effort.parts - self.effort_before > _MOST_WORK:
            raise Cut("operations on long values took too much work")
        try:
            result = folding.fold(name, *args, **named)
        except folding.TooLarge as reason:
            if name in folding.CHANGES:
                raise Cut(f"{reason} is not computed") from None
            return self.refused(str(reason), *args)
        size = len(result) if isinstance(result, _SIZED) else looked_at - len(args[0]) if name in _GROWS else 0
        if size > _SMALL and name in _GROWS and self.made + size > _MOST_MADE:
            raise Cut(f"more than {_MOST_MADE:,} elements and characters were made")
        if size > _SMALL and self.made + size > _MOST_MADE:
            return self.refused(f"more than {_MOST_MADE:,} elements and characters in all", *args)
        self.made += size
        return result

    def makes(self, size: int) -> None:
        """Counts elements that are made. Raises Cut where the operations of the run have made too many."""
        self.made += size
        if self.made > _MOST_MADE:
            raise Cut(f"more than {_MOST_MADE:,} elements and characters were made")

    def refused(self, what: str, *args: Any) -> Unknown:
        """An unknown in place of a value that is too large, which is noted once for each kind."""
        if what not in self.too_large:
            self.too_large.add(what)
            place = place_of(self.frames[-1].source.path, self.line) if self.frames else "the program"
            self.bounds.setdefault(f"{what}, at {place}, is not computed")
        return Unknown(what, is_local(*args))

    def bound(self, what: str, since: int | None = None, place: tuple[str, int] | None = None) -> None:
        """Notes a bound that was hit: from here on a real run may do something else.

        `since` is the number of events before a loop that was cut short; where it issued none, what follows still holds. `place` is
        that of the loop.
        """
        if since is None and self.frames:
            what = f"{place_of(self.frames[-1].source.path, self.frames[-1].line)}: {what}"
        self.bounds.setdefault(what)
        self.astray = self.astray or since is None
        self.doubt(OPAQUE if since is None else BOUNDED, what, None if place is None else (*place, "loop"), since)
        if self.uncertain is None and (since is None or len(self.events) > since):
            self.uncertain = len(self.events)

    def doubt(self, kind: str, what: str, key: tuple[str, int, str] | None = None, since: int | None = None) -> None:
        """Notes that what follows rests on something that is not known."""
        if (kind, what) not in self.doubts:
            place = key[:2] if key is not None else (self.frames[-1].source.path, self.frames[-1].line) if self.frames else None
            self.doubts[kind, what] = Doubt(kind, len(self.events), what, key, since, place)

    def torch_version(self) -> tuple[int, int]:
        """The version of torch, which is assumed where nobody named one."""
        if self.torch is not None:
            return self.torch
        self.doubt(ASSUMED, f"torch {ASSUMED_TORCH[0]}.{ASSUMED_TORCH[1]} (target-torch names another)", VERSION)
        return EARLIER_TORCH if VERSION in self.contrary else ASSUMED_TORCH

    def opaque(self, what: str) -> None:
        """Notes a call that may send something and was not followed."""
        place = place_of(self.frames[-1].source.path, self.frames[-1].line) if self.frames else ""
        self.doubt(OPAQUE, f"what {what} does is not followed ({place})")

    def enough(self, window: int) -> int:
        """Iterations of a loop of unknown length: a steady state, and the part of a window that a last one can be."""
        return max(self.limits.unknown_loop, 2 * window + 1 if window > 1 else 0)

    def ran(self, times: int, place: str) -> str:
        """The bound that such a loop is."""
        part = f": two windows of {times // 2} and a part of a third" if times > self.limits.unknown_loop else ""
        return f"a loop of unknown length ran {times} times{part} ({place})"

    def note(self, what: str) -> None:
        """Notes something about the run, with the place that it is in."""
        self.notes.setdefault(f"{place_of(self.frames[-1].source.path, self.frames[-1].line)}: {what}")

    # ---- events

    def at(self, node: ast.AST) -> None:
        """Says which call is being made, for the places of events."""
        frame = self.frames[-1]
        frame.line = getattr(node, "lineno", frame.line)
        frame.end = getattr(node, "end_lineno", None) or frame.line

    def emit(self, made: list[Event]) -> None:
        """Adds events at the place that the program is in."""
        self.ticks += TICKS_OF_AN_EVENT * len(made)
        site = Site(self.frames[-1].source.path, self.frames[-1].line, self.frames[-1].function)
        stack = tuple(Site(f.source.path, f.line, f.function) for f in reversed(self.frames))
        end = self.frames[-1].end
        for event in made:
            if event.site is not None:  # code of the project's own issued it, inside what torch does
                self.events.append(event)
                continue
            detail = {**event.detail, "end_line": end} if end > site.line else event.detail
            if self.guards:
                detail = {**detail, "guards": tuple(self.guards)}
            self.events.append(
                Event(
                    event.kind, event.op, event.group, event.index, event.origin, event.numel, event.dtype, event.root,
                    event.reduce_op, site, stack, 0.0, detail,
                )
            )  # fmt: skip
            self.collectives += event.kind == COLLECTIVE
        if self.collectives > self.limits.events:
            raise Cut(f"there were more than {self.limits.events:,} collectives")

    def mark(self, kind: str, **detail: Any) -> None:
        """Adds an event that is not a collective."""
        self.emit([Event(kind, detail=detail)])

    def took(self, node: ast.expr, known: bool) -> Taken:
        """Notes how a condition was taken at this time."""
        count = self.visits.get(id(node), 0)
        self.visits[id(node)] = count + 1
        taken = Taken(*self.place(node), count, known)
        self.answers[taken.key] = known
        self.moments[taken.key] = len(self.events)
        return taken

    def stepped(self) -> None:
        """Counts an optimizer step."""
        self.steps += 1
        if self.limits.steps is not None and self.steps >= self.limits.steps:
            raise Cut(f"{self.steps} optimizer steps are enough")

    # ---- conditions

    def truth(self, value: Any, node: ast.expr, prefer: bool = False) -> bool:
        """Whether a condition holds; `prefer` is how it is taken where that is not known."""
        known = self.known_truth(value)
        return self.assume(node, prefer, value) if known is None else known

    def known_truth(self, value: Any) -> bool | None:
        """Whether a value is true; None where that is not known."""
        if isinstance(value, (Unknown, Tensor)):
            totals.compared(value)
            return value.truth if isinstance(value, Unknown) else None
        if isinstance(value, Module) and value.held is not None:
            return bool(value.held) or (None if value.opaque else False)
        if isinstance(value, (Instance, Module)) and isinstance(value.cls, Class):
            for name in ("__bool__", "__len__"):
                method = value.cls.find(name)
                if isinstance(method, Function):
                    result = calls.call(self.whole, Method(method, value), [], {})
                    return None if isinstance(result, (Unknown, Tensor)) else bool(result)
            return True
        if isinstance(value, (Module, Class, Function, Method, Lib, Native, Error)):
            return True
        length = getattr(value, "length", None)
        if callable(length):
            size = length(self.whole)
            return None if not isinstance(size, int) else size > 0
        try:
            return bool(value)
        except Exception:
            return None

    def place(self, node: ast.expr) -> tuple[str, int, str]:
        """File, line and text of a condition of the running file."""
        key = self.keys.get(id(node))
        if key is None:
            source = self.frames[-1].source
            if node.end_lineno == node.lineno and source.line(node.lineno).isascii():
                text = source.line(node.lineno)[node.col_offset : node.end_col_offset][:120]
            else:
                text = " ".join(ast.unparse(node).split())[:120]
            key = self.keys[id(node)] = (source.path, node.lineno, text)
        return key

    def assume(self, node: ast.expr, preferred: bool, value: Any, *, for_good: bool = True) -> bool:
        """How an open condition is taken, which is noted; `for_good`: the value keeps that answer where it is asked again."""
        key = self.place(node)
        if key not in self.assumptions:
            taken = "true" if preferred != (self.contrary.get(key) == ALWAYS) else "false"
            self.assumptions[key] = Assumption(*key, taken, is_local(value))
            self.doubt(ASSUMED, f"{key[0]}:{key[1]} {key[2]}: {taken}", key)
        self.losses += 1
        asked = self.asked.get(key, 0)
        self.asked[key] = asked + 1
        answer = preferred != (self.contrary.get(key) in (asked, ALWAYS))
        if for_good and isinstance(value, Unknown):
            value.truth = answer
        return answer

    def supposes(self, key: tuple[str, int, str], taken: str) -> bool:
        """Whether something that no condition asks for is as it is `taken`; noted as an open condition is."""
        if key not in self.assumptions:
            self.assumptions[key] = Assumption(*key, taken, False)
            self.doubt(ASSUMED, f"{key[0]}:{key[1]} {key[2]}: {taken}", key)
        return key not in self.contrary

    @contextmanager
    def frame(self, source: SourceFile, function: str) -> Iterator[None]:
        """A call of a project function under way. Raises Cut where calls are nested too deeply."""
        if len(self.frames) > MAX_DEPTH:
            raise Cut(f"calls are nested deeper than {MAX_DEPTH}")
        self.frames.append(Frame(source, function))
        try:
            yield
        finally:
            self.frames.pop()
