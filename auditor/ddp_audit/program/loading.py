"""Passes over data: which loops train on what a loader yields, which sampler it has, and whether ranks share the data out."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ddp_audit.program.code import speaks_of
from ddp_audit.program.model import Loop, Node, Program
from ddp_audit.program.nodes import Backward, CallNode, Iterate, LoaderMade
from ddp_audit.program.state import ClassInfo
from ddp_audit.program.values import RANK, Const, Items, Obj, Value, constant, options, truth, worlds

_SHARDS = ("rank", "world_size", "num_replicas", "shard")
DISTRIBUTED = "DistributedSampler"


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """A loop that trains on a loader: each iteration takes a batch and runs `backward` (maybe under conditions).

    `around` are the loops around it, outermost first. With `taken` batches are taken by next() and no loop ends with the data.
    """

    loader: Obj
    made: LoaderMade | None  # the DataLoader(..) call
    iterate: Iterate
    loop: Loop
    around: tuple[Loop, ...]
    backward: Backward
    taken: bool


def loaders_in(over: Value | None) -> list[Obj]:
    """The loaders that a loop over a value takes batches from: the value itself, or what enumerate, zip or a generator hold."""
    if over is None:
        return []
    found: list[Obj] = []
    for option in options(over):
        match option:
            case Obj(kind="loader"):
                found.append(option)
            case Obj(kind="enumerate", info=Value() as inner):
                found += loaders_in(inner)
            case Obj(kind="zip", info=list() as parts):
                found += [loader for part in parts for loader in loaders_in(part)]
            case Obj(kind="generator", info=(Value() as source, _)):
                found += loaders_in(source)
    return found


def training_passes(program: Program) -> list[Pass]:
    """Every loop over a loader with a backward in it, one for a loop and loader, in order."""
    made = {n.object.key: n for n in program.of(LoaderMade) if n.object is not None}
    iterates = [n for n in program.of(Iterate) if n.object is not None and n.object.kind == "loader"]
    found: dict[tuple[int, object], Pass] = {}
    for backward in program.of(Backward):
        for depth, loop in enumerate(backward.loops):
            around = backward.loops[:depth]
            over = {loader.key for loader in loaders_in(loop.over)}
            for iterate in iterates:
                assert iterate.object is not None
                key = iterate.object.key
                head = iterate.span.path == loop.span.path and loop.span.line <= iterate.span.line <= loop.span.end_line
                opened = key in over and head and iterate.loops == around and not iterate.text.startswith("next(")
                taken = bool(iterate.loops) and iterate.loops[-1] is loop and _is_taken_for(iterate, backward)
                if opened or taken:
                    new = Pass(iterate.object, made.get(key), iterate, loop, around, backward, taken)
                    found.setdefault((id(loop), key), new)
    return list(found.values())


def endless_passes(program: Program) -> list[Pass]:
    """Loops over a loader that a generator begins again and again (`while True: for batch in loader: yield batch`).

    What takes the batches is somewhere else, so the pass is that of the first backward.
    """
    made = {n.object.key: n for n in program.of(LoaderMade) if n.object is not None}
    backwards = list(program.of(Backward))
    found: list[Pass] = []
    for iterate in program.of(Iterate):
        loader, around = iterate.object, iterate.loops
        if loader is None or loader.kind != "loader" or not around or not backwards or iterate.text.startswith("next("):
            continue
        endless = around[-1].kind == "while" and isinstance(around[-1].over, Const) and bool(around[-1].over.value)
        if endless and not any(around[-1] in backward.loops for backward in backwards):
            found.append(Pass(loader, made.get(loader.key), iterate, around[-1], around, backwards[0], False))
    return found


def trains(program: Program) -> bool:
    """Whether a DDP model is trained: a backward of a forward through a wrapper."""
    return any(
        forward.through == "wrapper" for backward in program.of(Backward) for forward in program.forwards_of(backward.target)
    )


def _is_taken_for(iterate: Node, backward: Node) -> bool:
    """Whether a batch that next() takes is on the way to a backward: under no condition of its own, with gradients on."""
    on_the_way = all(any(mine is theirs for theirs in backward.guards) for mine in iterate.guards)
    return iterate.text.startswith("next(") and iterate.grad is not False and on_the_way


def samplers_of(loader: LoaderMade) -> list[Value]:
    """What the loader's sampler and batch sampler may be; empty where it is given none."""
    values = [loader.args[name] for name in ("sampler", "batch_sampler") if name in loader.args]
    found = [option for value in values for option in options(value)]
    return [value for value in found if not (isinstance(value, Const) and value.value is None)]


def shuffles(arguments: dict[str, Value] | CallNode) -> bool | None:
    """Whether a DistributedSampler shuffles, which it does by default; None where that is not known."""
    given = arguments.args if isinstance(arguments, CallNode) else arguments
    if "shuffle" not in given:
        return None if "**" in given else True
    value = constant(given["shuffle"])
    return bool(value) if isinstance(value, (bool, int)) else None


def by_rank(value: Value | None) -> bool:
    """Whether a value differs between ranks by their rank: then it is a share of the data, or makes one."""
    if value is None:
        return False
    return RANK in value.taint or any(RANK in option.taint for option in options(value))


def shares_out(program: Program, value: Value) -> bool | None:
    """Whether a sampler or data set gives each rank its own part; None where that is not known."""
    answers = {_shares_out(program, option) for option in options(value)}
    if True in answers or by_rank(value):
        return True
    return None if None in answers else False


def _shares_out(program: Program, value: Value) -> bool | None:
    if by_rank(value):
        return True
    match value:
        case Const(value=None):
            return False
        case Items(items=items):
            return any(by_rank(item) for item in items)
        case Obj(kind="plain-sampler", info=dict() as given):
            return any(by_rank(v) for v in given.values())
        case Obj(kind="sampler", cls=cls) if cls == DISTRIBUTED:
            return True
        case Obj(cls=ClassInfo() as info):
            if speaks_of(info, *_SHARDS) or any(b.endswith(DISTRIBUTED) for b in info.outside_bases()):
                return True
            if any(_holds_share(held) for held in program.contents.get(value.key, {}).values()):
                return True
            if value.kind == "sampler" and any(_shares_out(program, part) for part in _samplers_inside(value)):
                return True
            return None if value.kind == "iterable-dataset" else _parts_share(program, value)
        case Obj(kind="range"):
            return False
        case Obj(kind="dataset"):
            return _parts_share(program, value)
    return None


def _holds_share(held: Value) -> bool:
    """Whether what an object keeps in an attribute is of its rank: a list of its own indices, a part of the files."""
    return by_rank(held) or any(isinstance(one, Items) and any(map(by_rank, one.items)) for one in options(held))


def _parts_share(program: Program, value: Obj) -> bool | None:
    """Of a data set made from others: whether one of them is shared out."""
    inner = [o for part in value.info or () for o in options(part) if isinstance(o, Obj) and o.kind == "dataset"]
    return any(_shares_out(program, part) for part in inner if part.key != value.key)


def _samplers_inside(value: Obj) -> list[Value]:
    """The samplers that one of the project was made with: it orders or groups what they yield."""
    found = [option for part in value.info or () for option in options(part)]
    return [option for option in found if isinstance(option, Obj) and option.kind in ("sampler", "plain-sampler")]


def draws_at_random(program: Program, value: Value) -> bool:
    """Whether a data set of the project pays no attention to the index that it is asked for: it draws its items itself."""
    for option in options(value):
        if isinstance(option, Obj) and isinstance(option.cls, ClassInfo):
            found = option.cls.find("__getitem__")
            if found is not None and (not _uses_index(found[1]) or _replaces_index(program, option, *found)):
                return True
    return False


def _uses_index(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = [a.arg for a in method.args.args[1:2]]
    return not names or any(isinstance(n, ast.Name) and n.id == names[0] for n in ast.walk(method) if n is not method)


def _replaces_index(program: Program, data: Obj, info: ClassInfo, method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a method draws another index before it has looked at the one that it was asked for."""
    spans = {site.span for site in program.random_sites.get(data.key, ()) if site.method == method.name}
    drawn = {id(n) for n in ast.walk(method) if isinstance(n, ast.Call) and info.frame.source.span(n) in spans} if spans else set()
    name = method.args.args[1].arg
    return bool(drawn) and _drawn_first(method.body, name, drawn, program.contents.get(data.key, {})) is True


def _drawn_first(body: list[ast.stmt], name: str, drawn: set[int], held: dict[str, Value]) -> bool | None:
    """Whether a block gives a name a drawn value before it reads it: False where it reads it first, None where it does neither."""
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)], value=made) if target == name and not _reads(made, name):
                return any(id(part) in drawn for part in ast.walk(made))
            case ast.If(test=test) if not _reads(test, name):
                answers = [_drawn_first(block, name, drawn, held) for block in _open_arms(statement, held)]
                if any(answer is not None for answer in answers):
                    return any(answers)
            case _ if _reads(statement, name):
                return False
    return None


def _open_arms(statement: ast.If, held: dict[str, Value]) -> list[list[ast.stmt]]:
    """The arms that a condition may let through, by what the object's attributes hold."""
    test, polarity = statement.test, True
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, polarity = test.operand, not polarity
    said: object = None
    if isinstance(test, ast.Attribute) and isinstance(test.value, ast.Name) and test.attr in held:
        said = truth(held[test.attr], worlds()[0])
    if said is None:
        return [statement.body, statement.orelse]
    return [statement.body if said is polarity else statement.orelse]


def _reads(code: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in ast.walk(code))
