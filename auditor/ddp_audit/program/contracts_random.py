"""Random numbers: which calls seed a process's own generators or draw from them, where modules, data sets and transforms do."""

from __future__ import annotations

import ast
from functools import partial
from typing import TYPE_CHECKING

from ddp_audit.knowledge.functions import named
from ddp_audit.knowledge.kinds import is_kind, kinds
from ddp_audit.knowledge.libraries import augments
from ddp_audit.program import lookup
from ddp_audit.program.contracts import Contract, Contracts, generic
from ddp_audit.program.made import behind
from ddp_audit.program.model import RandomSite
from ddp_audit.program.names import called, kind_of_class
from ddp_audit.program.nodes import RandomNumbers, RandomStateRestored, Seed
from ddp_audit.program.order import in_order, unordered
from ddp_audit.program.sites import sites_of_modules
from ddp_audit.program.state import ClassInfo
from ddp_audit.program.values import RANDOM, RANK, UNIFORM, Bound, Const, Ext, Made, Obj, Taint, Unknown, Value
from ddp_audit.source.paths import place_of

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

CONTRACTS = Contracts()

DRAWS = named("draws")  # by full name: numbers, or indices


def library_of(function: Value) -> str:
    """The full name of a library's function, empty where it is none."""
    return function.name if isinstance(function, Ext) else ""


OWN_GENERATORS = frozenset(named("generator"))
_UNSEEDED = 67_280_421_310_721  # c10/core/GeneratorImpl.h: what every torch.Generator() starts from


def stream_of(generator: Value | None) -> str:
    """The stream of a generator that the program made itself, by the place where it did; empty where it is not known."""
    for value in behind(generator) if generator is not None else ():
        if isinstance(value, Unknown) and value.by is not None and value.by.name in OWN_GENERATORS:
            at = value.by.argument("at")
            return f"generator of {place_of(at.value.path, at.value.line, at.value.column)}" if isinstance(at, Const) else ""
    return ""


def _own_generator(name: str) -> Contract:
    """A generator of the program's own: with a seed it draws what the seed says, the same on all ranks if that is."""

    def call(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = [*args, *kwargs.values()]
        if name == "torch.Generator":  # whose argument is a device
            seed: Value = Const(value=_UNSEEDED)
        else:
            seed = given[0] if given else Unknown(taint=frozenset({RANDOM}))
        if isinstance(seed, Unknown) and seed.by is not None and seed.by.name.startswith("numpy.random."):  # PCG64(seed)
            seed = seed.by.args[0] if seed.by.args else Unknown(taint=frozenset({RANDOM}))
        if isinstance(seed, Const) and seed.value is None:
            seed = Unknown(taint=frozenset({RANDOM}))
        made = Made(name, tuple(args), (*kwargs.items(), ("at", Const(value=lw.span(node)))))
        value = Unknown(taint=UNIFORM if name == "torch.Generator" else seed.taint, text=lw.text(node), by=made)
        lw.emit(node, Seed(seed=seed, streams=frozenset({stream_of(value)})))
        return value

    return call


CONTRACTS.names.update({name: _own_generator(name) for name in OWN_GENERATORS})


def _seed_own(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`generator.manual_seed(3)`, which gives the generator back."""
    stream = stream_of(bound.receiver)
    if not stream:
        return None
    given = args[0] if args else next(iter(kwargs.values()), Unknown(taint=frozenset({RANDOM})))
    lw.emit(node, Seed(seed=given, streams=frozenset({stream})))
    return Unknown(taint=bound.receiver.taint | given.taint, text=lw.text(node), by=Made(bound.name, (bound.receiver, given)))


CONTRACTS.methods.update(manual_seed=_seed_own, seed=_seed_own)


def _restored(stream: str) -> Contract:
    def call(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        state = args[0] if args else next(iter(kwargs.values()), Unknown())
        lw.emit(node, RandomStateRestored(state=state, stream=stream))
        return Const(value=None)

    return call


CONTRACTS.names.update({name: _restored(stream) for name, stream in named("restores").items()})


def note_random(lw: Lowering, node: ast.Call, name: str, kwargs: dict[str, Value]) -> None:
    """Notes a draw, unless it is from a generator that the call names."""
    generator = kwargs.get("generator")
    if generator is None or (isinstance(generator, Const) and generator.value is None):
        lw.emit(node, RandomNumbers(what=called(node), stream=name.split(".")[0], augments=False))


def _draw(name: str) -> Contract:
    taint: Taint = UNIFORM if name.startswith("torch.") else frozenset({RANDOM})

    def call(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        note_random(lw, node, name, kwargs)
        return generic(args, kwargs, lw.text(node), taint, name)

    return call


CONTRACTS.names.update((name, _draw(name)) for name, what in DRAWS.items() if what == "numbers")


def _in_place(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`noise.bernoulli_()`; its value is what any other method's would be."""
    note_random(lw, node, "torch", kwargs)
    return None


CONTRACTS.methods.update(dict.fromkeys(kinds()["draws-into"], _in_place))


def _shuffle(name: str) -> Contract:
    def call(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        note_random(lw, node, name, kwargs)
        plain = bool(args) and not (isinstance(args[0], Obj) and args[0].kind != "range")
        if plain and isinstance(node.args[0], (ast.Name, ast.Attribute)):
            made = Made(name, (args[0],), (("at", Const(value=lw.span(node))),))
            lw.assign(node.args[0], Unknown(taint=args[0].taint | {RANDOM}, deps=args[0].deps, by=made))
        return Const(value=None)

    return call


CONTRACTS.names.update({name: _shuffle(name) for name in named("shuffles")})


def _seed(streams: tuple[str, ...]) -> Contract:
    def call(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = args[0] if args else next((kwargs[name] for name in ("seed", "a") if name in kwargs), None)
        if given is None:  # each process takes one from the system, but Lightning's releases differ in that
            given = Unknown() if streams == _ALL else Unknown(taint=frozenset({RANDOM}))
        by_rank = kwargs.get("device_specific", Const(value=False))
        if not isinstance(by_rank, Const) or by_rank.value:  # Accelerate adds the number of the process
            given = Unknown(taint=given.taint | {RANK}, text=given.text)
        lw.emit(node, Seed(seed=given, streams=frozenset(streams)))
        return Unknown()

    return call


_ALL = ("random", "numpy", "torch", "cuda")
CONTRACTS.names.update({name: _seed(tuple(streams)) for name, streams in named("seeds").items()})


def _sort(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`files.sort()`: what was in any order is in one now."""
    target = node.func.value if isinstance(node.func, ast.Attribute) else None
    if isinstance(target, (ast.Name, ast.Attribute)) and unordered(bound.receiver) is not None:
        lw.assign(target, in_order(bound.receiver))
    return None


CONTRACTS.methods["sort"] = _sort


def transform(lw: Lowering, node: ast.Call, name: str) -> None:
    """Notes that a transform is made which draws: `transforms.RandomCrop(32)`."""
    if augments(name):
        lw.emit(node, RandomNumbers(what=called(node), stream="torch", augments=True))


def random_sites(lw: Lowering) -> dict[tuple[object, ...], list[RandomSite]]:
    """The draws in the methods of each module and data set of the project, with those of the modules inside it."""
    return sites_of_modules(lw, partial(_in_class, lw))


def contents(lw: Lowering) -> dict[tuple[object, ...], dict[str, Value]]:
    """What the attributes of each data set of the project held at the end, by its key."""
    return {key: lw.root.of(key) for key, info in lw.classes_of.items() if kind_of_class(info) != "module"}


def _in_class(lw: Lowering, info: ClassInfo) -> list[RandomSite]:
    """Draws in what a class runs for each batch or sample, and in the methods of its own that this calls."""
    reached = {name for name in info.methods if is_kind(name, "runs-each-time")}
    queue = list(reached)
    sites: list[RandomSite] = []
    while queue:
        method = info.methods[queue.pop()]
        for node in ast.walk(method):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                if node.attr in info.methods and node.attr not in reached:
                    reached.add(node.attr)
                    queue.append(node.attr)
            elif isinstance(node, ast.Call) and not any(k.arg == "generator" for k in node.keywords):
                name = lookup.full_name(lw, info.frame, node.func)
                if name in DRAWS:
                    sites.append(RandomSite(name, info.frame.source.span(node), method.name))
    return sites
