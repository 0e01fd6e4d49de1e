"""What the auditor keeps of a program: a tree of the things that matter, with the conditions under which each is reached.

`Program.nodes` is the flat list in the order of execution, one node for each time that a place is reached by another chain of
calls; `Program.tree` holds the same nodes under branches, loops and calls, for exploration.

Kinds of node, and what they carry (`target`; `args` by name; `detail`):

| kind | is | carries |
|---|---|---|
| init, destroy | init_process_group, destroy_process_group | args: backend, rank, world_size, device_id, ..; detail finally: bool |
| new-group | new_group and its like | args: ranks; detail: key of the group object |
| wrap | DistributedDataParallel(..) | target: the wrapper; args: module, device_ids, ..; detail style: ddp, apex, fsdp |
| forward | a call of a wrapper, or of its inner module | target: the wrapper; args: inputs; detail through: wrapper or module |
| backward | loss.backward() | target: the loss; its deps are forwards; args: engine, Accelerate's object that does it |
| step, zero-grad, unscale, clip | optimizer.step(), scaler.step(opt), .. | target: the optimizer |
| collective | a collective call | target: the tensor; args: group, root, op, async_op; detail op, hidden: bool, what |
| wait | a wait for an asynchronous operation | target: its handle, None where that is not known |
| early-use | a buffer is touched while an operation on it may run | target: handle; detail name, op, write, issued, sometimes |
| point-to-point | send, recv, isend, irecv, batch_isend_irecv | args: tensor, dst or src, group, tag; or ops; detail op |
| sync-flag | wrapper.require_backward_grad_sync = value | target: the wrapper; args: value |
| no-sync | a no_sync() block is entered; the nodes inside carry it | target: the wrapper |
| sampler, loader | DistributedSampler(..), DataLoader(..) | target: the object; args: dataset, sampler, shuffle, .. |
| set-epoch | sampler.set_epoch(e) | target: the sampler, where known; args: epoch |
| iterate | a for loop over a loader | target: the loader |
| iterator | iter(loader), where workers begin to fetch | target: the loader |
| save, load | torch.save, torch.load | args: obj, path, map_location; detail content: keys of a dict that is saved |
| load-state | x.load_state_dict(state) | target: x; args: state, strict, assign; detail unused: bool, nobody looks at the result |
| renamed-keys | a key of a dict is computed and set, or its prefix taken off | target: the dict |
| file | a file or folder is touched | args: path, content; detail safe: bool, what: write, append, output, read, mkdir, .. |
| file-content | something is written to an open file | target: the file; args: content |
| scaler | GradScaler(..), scaler.update() | target: the scaler; args: init_scale, ..; detail what: made, update |
| device | a place where a CUDA device is chosen | args: index (Value); detail via: set_device, device_ids, to, device |
| current-device | something is put on the process's current CUDA device: `.cuda()`, `.to("cuda")`, `device="cuda"` | |
| forced-device | an option that names a device, or `cpu`, is overwritten by the process's CUDA device | args: old, value |
| seed | torch.manual_seed and its like | args: seed; detail streams: of torch, cuda, numpy, random those that it starts |
| draw | random indices drawn from a whole set | detail what, library |
| own-draw | the same from a generator of the program's own, of which library is the name of the stream | detail what, library |
| optimizer | an optimizer is made | target: the optimizer; args: params, lr |
| scheduler, schedule-step | a learning-rate scheduler is made, stepped | target: the scheduler; args: T_max, total_steps, .. |
| requires-grad | requires_grad of parameters is set | target: their module or wrapper; args: value; detail part: only some |
| change | a module or parameter is put into a wrapped module, or changed there | target: owner; args: value, old; detail what |
| move | .to(..), .cuda(), .half() and their like | target: the module or wrapper; args: where; detail name |
| write | values of parameters are drawn anew or written in place | target: their module; detail what: drawn, written |
| scale | p.grad /= n, p.grad.mul_(x), loss / world_size | target: what is scaled; args: by; detail op |
| attribute | an attribute read on a wrapper that no wrapper has | target: the wrapper; detail name, sure: no other object there |
| report | a value of local data is printed, logged, given to a scheduler, compared with the best (choice) | args; detail what |
| prepare | loaders are handed to Accelerate or Fabric | target: its object; args; detail framework |
| split | random_split(..) | target: the data set; args: dataset, lengths, generator |
| random | numbers from a process's own generator, or (augments) a transform that draws them | detail what, library, augments |
| assert | assert, or `if not ..: raise` | args: test |
| floordiv | a // b, a //= b, int(a / b) | args: left, right; detail name of the target |
| spawn | mp.spawn(f, .., nprocs), Process(target=f); nodes in f carry the place in `calls` | args: nprocs, for spawn |
| local-rank-argument | an argparse option for the local rank | args: default; detail name, flags |
| parse-args | parser.parse_args() of the command line | detail strict: bool, flags: the options that it knows |
| environ | os.environ[name] = value | args: value; detail name |
| guard-function | a rank function tested as an object | target: the function; detail name, enters, body (first, last place) |
| absent | a name or attribute that some ranks do not have | detail name, binding; or choice, polarity, attribute where it is None |
| long-work | a call that may take minutes and that not all ranks make | detail what, seconds, first: main process first |
| jump | break, continue, return, raise, exit | detail what |
| call | a call that the auditor could not follow | detail name |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from ddp_audit.findings import Span
from ddp_audit.knowledge.framework import Answers
from ddp_audit.program.modules import Modules
from ddp_audit.program.values import (
    MISSING,
    UNIFORM,
    Obj,
    Taint,
    Value,
    World,
    defaults_in,
    differs,
    evaluate,
    holds,
    options,
    the_object,
    truth,
    worlds,
)


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """A condition on the way to a node: the node is reached where bool(test) is `polarity`.

    `via` is if, while, ifexp, early-exit (an arm before the node left), except, or loop.
    `against_default` says that with the program's own defaults this way is not taken. `depth` and `loops` count the calls and
    loops around the condition.
    """

    test: Value
    polarity: bool
    span: Span
    text: str
    via: str = "if"
    against_default: bool = False
    world_size: int | None = None
    depth: int = 0
    loops: int = 0

    @property
    def taint(self) -> Taint:
        """Why ranks can differ in this condition; empty where they cannot."""
        return differs(self.test, worlds(self.world_size))

    def admits(self, world: World) -> bool | None:
        """Whether a rank passes; None where that is not computable."""
        holds = truth(self.test, world)
        return None if holds is None else holds == self.polarity

    def ranks(self) -> str:
        """Who passes, in words: 'only rank 0', 'all ranks but rank 0', 'some ranks'."""
        said = {w.rank: holds(self.test, w) for w in worlds(self.world_size) if w.world_size == (self.world_size or 4)}
        answers = {rank: None if holding is None else holding == self.polarity for rank, holding in said.items()}
        if not answers or None in answers.values():
            return "some ranks"
        inside = [rank for rank, passes in answers.items() if passes]
        if inside == [0]:
            return "only rank 0"
        if inside == [0, 2] and self.world_size is None:  # two nodes of two ranks each
            return "only the first rank of each node"
        if 0 not in inside and len(inside) == len(answers) - 1:
            return "all ranks but rank 0"
        if len(inside) == len(answers):
            return "all ranks"
        numbers = ", ".join(map(str, inside))
        return f"only rank{'s' * (len(inside) > 1)} {numbers} of {len(answers)}" if inside else "no rank"

    def describe(self) -> str:
        """The guard for a report: `master_process: only rank 0 enters`."""
        verb = "goes on" if self.via == "early-exit" else "enters"
        text = self.text if self.polarity else f"not ({self.text})"
        if not self.taint:
            return text
        who = self.ranks()
        if who == "some ranks":
            return f"{text}: depends on {' and '.join(sorted(self.taint))}"
        return f"{text}: {who} {verb}" if "rank 0" in who and "all" not in who else f"{text}: {who}"


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop around a node. `over` is the iterable or the condition, `count` the number of iterations where it is known."""

    span: Span
    kind: str  # for, while, comprehension
    over: Value
    text: str
    count: Value | None = None
    taint: Taint = UNIFORM  # why the number of iterations can differ between ranks
    epochs: bool = False  # looks like a loop over epochs
    leaf: str = ""  # name of the leaf expression that stands for the index of a for loop


@dataclass(frozen=True, slots=True, eq=False)
class NoSync:
    """A no_sync() block. With a `test` it is one only where bool(test) is `polarity` (`no_sync() if .. else nullcontext()`)."""

    wrapper: Obj | None
    span: Span
    test: Value | None = None
    polarity: bool = True


@dataclass(slots=True, eq=False)
class Node:
    """One thing that matters; see the table above."""

    kind: str
    span: Span
    function: str
    text: str
    number: int
    target: Value | None = None
    args: Mapping[str, Value] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)
    guards: tuple[Guard, ...] = ()
    loops: tuple[Loop, ...] = ()
    calls: tuple[Span, ...] = ()  # places of the calls that led here, outermost first
    grad: bool | None = True  # gradients on; None where unknown
    no_sync: tuple[NoSync, ...] = ()  # no_sync() blocks around
    tries: tuple[Span, ...] = ()  # `try` blocks around

    @property
    def object(self) -> Obj | None:
        """The object that the node acts on, where it is one."""
        return the_object(self.target)

    @property
    def place(self) -> str:
        """Where it is, for reports: `train.py:94`."""
        return self.span.place

    @property
    def is_called(self) -> bool:
        """Whether the script comes here; a function that nothing calls has callers that are not known."""
        return self.function == "<module>" or bool(self.calls)

    @property
    def rank_guards(self) -> tuple[Guard, ...]:
        """Guards in which ranks can differ."""
        return tuple(g for g in self.guards if g.taint)

    def reached_by(self, world: World) -> bool | None:
        """Whether a rank gets here, as far as its guards say: False where one of them excludes it, None where one is unknown."""
        answers = [g.admits(world) for g in self.guards if g.taint]
        if False in answers:
            return False
        return None if None in answers else True


@dataclass(slots=True, eq=False)
class Branch:
    """Both arms of a condition that is not known to be equal and constant on all ranks."""

    guard: Guard  # of the then-arm
    then: list[Item]
    orelse: list[Item]


@dataclass(slots=True, eq=False)
class LoopItem:
    """A loop with its body, lowered once in its steady state."""

    loop: Loop
    body: list[Item]


@dataclass(slots=True, eq=False)
class CallItem:
    """A call of a project function, inlined. `return` in the body leaves it."""

    span: Span
    function: str
    body: list[Item]


@dataclass(frozen=True, slots=True)
class Caught:
    """A handler of a try statement: its place, `except RuntimeError as e` without the name, and how every way through it leaves."""

    span: Span
    text: str
    left: str  # raise, exit, continue, break, return; empty where some way goes on


@dataclass(slots=True, eq=False)
class TryItem:
    """A try statement: body, one block a handler, and the finally block."""

    span: Span
    body: list[Item]
    handlers: list[list[Item]]
    final: list[Item]
    caught: list[Caught] = field(default_factory=list)


Item = Node | Branch | LoopItem | CallItem | TryItem


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A configuration value by name: an overridable module global, an argparse option, or a field of a config dataclass."""

    value: Any
    path: str
    line: int
    origin: str  # default, config-file, launch, set


@dataclass(frozen=True, slots=True, eq=False)
class BufferSite:
    """A register_buffer call (or a layer that has buffers, such as BatchNorm) inside a module, with its own guards."""

    name: str
    span: Span
    guards: tuple[Guard, ...]
    owner: str  # class that registers it
    layer: str = ""  # library layer that brings it, e.g. torch.nn.BatchNorm2d; empty for register_buffer


@dataclass(frozen=True, slots=True)
class BufferWrite:
    """A place in a module's forward that fills a buffer with what is computed from the input."""

    name: str
    span: Span
    owner: str  # class that registers it
    method: str


@dataclass(frozen=True, slots=True)
class RandomSite:
    """A place in a method of a module or data set where numbers are drawn from a process's own generator."""

    what: str  # full name of the function: torch.randn
    span: Span
    method: str


@dataclass(slots=True)
class Inside:
    """The forward of a wrapped model, lowered by itself (see `inside.py`).

    `followed` are the modules whose own forward was followed; all that is inside another module counts as used with it. `called`
    says that the arguments are those of a forward of the program; `asked` are the attributes that it reads, also where it is
    not known what they are, as where the defaults make none. `result` is what it returns.
    """

    nodes: list[Node]
    followed: set[tuple[Any, ...]]
    called: bool
    asked: set[str]
    result: Value | None = None


@dataclass(slots=True)
class Program:
    """One entry script, lowered. `limits` says what was given up on (depth, budget), for the report."""

    entry: str
    nodes: list[Node] = field(default_factory=list)
    tree: list[Item] = field(default_factory=list)
    config: dict[str, ConfigValue] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)  # other spellings of options, without dashes, to their names in `config`
    buffers: dict[tuple[Any, ...], list[BufferSite]] = field(default_factory=dict)  # by key of the module object
    inside: dict[tuple[Any, ...], Inside] = field(default_factory=dict)  # by key of the wrapper
    modules: Modules = field(default_factory=Modules)  # the module objects, what is inside what, what is wrapped
    frameworks: Answers = field(default_factory=Answers)  # what the frameworks do that the audited files import
    sources: dict[str, list[str]] = field(default_factory=dict)  # lines of each file that was read, by path
    documents: dict[str, str] = field(default_factory=dict)  # whole text of each file, by path
    random_sites: dict[tuple[Any, ...], list[RandomSite]] = field(default_factory=dict)  # by key of a module or data set
    buffer_writes: dict[tuple[Any, ...], list[BufferWrite]] = field(default_factory=dict)  # by key of a module
    contents: dict[tuple[Any, ...], dict[str, Value]] = field(default_factory=dict)  # attributes of data sets, by their key
    world_size: int | None = None
    limits: list[str] = field(default_factory=list)
    passed_by: set[tuple[str, int, int]] = field(default_factory=set)  # arms that this job does not take: path, first and last line
    executed: bool = True  # False where the entry is a library file whose functions were lowered one by one

    def of(self, *kinds: str) -> Iterator[Node]:
        """The nodes of some kinds, in order."""
        return (n for n in self.nodes if n.kind in kinds)

    def has(self, *kinds: str) -> bool:
        """Whether there is a node of one of some kinds."""
        return any(n.kind in kinds for n in self.nodes)

    def node(self, number: int) -> Node:
        """A node by its number, as `deps` of a value name forwards."""
        return self.nodes[number]

    def forwards_of(self, value: Value | None) -> list[Node]:
        """The forward nodes that a loss was computed from."""
        return [] if value is None else [self.nodes[n] for n in sorted(value.deps)]

    def wraps(self) -> dict[tuple[Any, ...], Node]:
        """Wrap nodes by the key of their wrapper."""
        return {n.object.key: n for n in self.of("wrap") if n.object is not None}

    def buffers_of(self, wrap: Node) -> list[BufferSite]:
        """Buffers registered inside the wrapped module, as far as its constructor could be followed."""
        modules = [o for o in options(wrap.args["module"]) if isinstance(o, Obj)] if "module" in wrap.args else []
        return [site for module in modules for site in self.buffers.get(module.key, [])]

    def takes(self, path: str, line: int) -> bool:
        """Whether a line is outside of every arm that this job is known not to take."""
        return not any(path == where and first <= line <= last for where, first, last in self.passed_by)

    def line(self, path: str, line: int) -> str:
        """The text of a line without its indentation, empty where there is none."""
        lines = self.sources.get(path, [])
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def first_of_each_place(nodes: Iterable[Node]) -> list[Node]:
    """One node a place: the first that was reached there."""
    seen: dict[Span, Node] = {}
    for node in nodes:
        seen.setdefault(node.span, node)
    return list(seen.values())


def common_start(one: Sequence[object], other: Sequence[object]) -> int:
    """With how many equal elements two sequences begin: the calls that lead to two nodes, or the loops around them."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


__all__ = [
    "MISSING", "Branch", "BufferSite", "BufferWrite", "CallItem", "ConfigValue", "Guard", "Item", "Loop", "LoopItem", "Node",
    "Program",
    "RandomSite", "TryItem",
    "common_start", "defaults_in", "evaluate", "first_of_each_place",
]  # fmt: skip
