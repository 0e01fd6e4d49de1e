"""Which processes of a job reach a place that touches a file: shared by the rules on checkpoints and files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddp_audit.knowledge.libraries import file_locks
from ddp_audit.tree.nodes import (
    Backward,
    Check,
    Collective,
    FileContent,
    FileTouch,
    Guard,
    Init,
    Node,
    Prepare,
    Program,
    Spawn,
    Wrap,
)
from ddp_audit.tree.questions import always_runs, hints_at, is_kind, says, speaks_of
from ddp_audit.tree.values import FILES, RANK, Const, Expr, Items, Unknown, Value, World, holds, path_key, worlds

SEVERAL, ONE_A_NODE, ONE = "several", "one a node", "one"


def is_distributed(program: Program) -> bool:
    """Whether the script itself sets up a job of several processes, without a framework that decides who writes."""
    own = program.has(Init) or (program.has(Wrap) and program.has(Backward))
    return own and program.executed and not program.frameworks.decides_writers


def is_job(program: Program) -> bool:
    """Whether the statements of the script run on several processes, those of a framework that prepares what it is given too."""
    prepared = program.has(Prepare) and program.executed and not program.frameworks.decides_writers
    return prepared or is_distributed(program)


def who(program: Program, node: Node) -> str:
    """How many ranks of one job may get to a node: SEVERAL, ONE_A_NODE, ONE; empty where that is not known."""
    if _before_spawn(program, node):
        return ONE
    size = program.world_size
    one_node = worlds(size) if size is not None else [w for w in worlds() if w.world_size == 2]
    answers = [_passes(node.guards, world) for world in one_node]
    if sum(answer is True for answer in answers) > 1:
        return SEVERAL
    if sum(answer is not False for answer in answers) > 1:
        return ""
    if size is not None:
        return ONE
    answers = [_passes(node.guards, world) for world in worlds() if world.world_size == 4]
    return ONE_A_NODE if sum(answer is not False for answer in answers) > 1 else ONE


def refuses_several(program: Program, node: Node) -> bool:
    """Whether the script has ended before a node where it is started as several processes: `assert not args.distributed`."""
    for check in program.of(Check):
        test = check.test.formula if isinstance(check.test, Const) else check.test
        if check.number < node.number and isinstance(test, Expr) and test.op == "not" and always_runs(program, check):
            asked = test.args[0]
            default = asked.default if isinstance(asked, Const) else None
            if says(asked.text if default is None else default.name, "job-of-several"):
                return True
    return False


def passes(node: Node, world: World) -> bool | None:
    """Whether a rank gets to a node as far as its rank decides; None where that is not known."""
    return _passes(node.guards, world)


def _passes(guards: Iterable[Guard], world: World) -> bool | None:
    answer: bool | None = True
    for guard in guards:
        test = guard.test
        if RANK not in test.taint:
            continue
        held = holds(test, world)
        if held is None:
            answer = None if RANK in test.taint else answer
        elif held != guard.polarity:
            return False
    return answer


def _before_spawn(program: Program, node: Node) -> bool:
    """Whether a place runs in the process that starts the others, and in it alone."""
    spawns = list(program.of(Spawn))
    if not spawns or any(spawn.span in node.calls for spawn in spawns):
        return False
    # The other arm of `if spawn: .. else: worker(..)` is a job that a launcher started.
    arms = {(guard.span, not guard.polarity) for spawn in spawns for guard in spawn.guards}
    return not any((guard.span, guard.polarity) in arms for guard in node.guards)


def path_of(node: FileTouch) -> Value | None:
    """The path that a save, load or file node touches; None where it is not a file on disk."""
    path = node.args.get("path")
    while isinstance(path, Unknown) and path.by is not None and path.by.name == "open":
        path = path.by.args[0]
    return None if is_kind(path, "in-memory") else path


def is_of_each_rank(path: Value) -> bool:
    """Whether a path reads as one of each process's own: made of its rank, or of a name that says so."""
    key = path_key(path)
    names = [name for piece in key or () for name in str(piece).split("/")]  # of folders and files
    return RANK in path.taint or key is None or any(says(name, "of-one-rank") for name in names)


def is_checked(node: Node) -> bool:
    """Whether a node is reached under a look at the files, such as `if not exists(path)`."""
    return any(FILES in guard.test.taint for guard in node.guards)


def defaults_that_decide(node: Node) -> list[str]:
    """Options whose defaults make conditions on ranks let several through, as `name = value`."""
    found: dict[str, None] = {}
    for guard in node.guards:
        if RANK in guard.test.taint and not guard.taint:
            found.update(dict.fromkeys(_open_operands(guard.test)))
    return list(found)


def _open_operands(test: Value) -> Iterator[str]:
    match test:
        case Expr(op="and" | "or" | "not", args=args):
            for arg in args:
                yield from _open_operands(arg)
        case Const(default=default, formula=formula) if default is not None and default.origin == "default":
            if formula is None:
                yield f"{default.name} = {test.value}"
            else:
                yield from _open_operands(formula)


def contents(program: Program, node: FileTouch) -> list[Value]:
    """What is written to the file that a node opens or saves."""
    found = [node.args[name] for name in ("obj", "content") if name in node.args]
    for written in program.of(FileContent):
        target = written.target
        by = target.by if isinstance(target, Unknown) else None
        at = by.argument("at") if by is not None else None
        if isinstance(at, Const) and at.value == node.span and written.content is not None:
            found.append(written.content)
    return found


def plain(value: Value) -> str:
    """A path for a message."""
    if isinstance(value, Const) and value.value:
        return f"'{value.value}'"
    if isinstance(value, Const) and value.default is not None:
        return f"the path of `{value.default.name}`"
    return f"`{value.text}`" if value.text and not isinstance(value, Items) else "one path"


def in_turn(program: Program, node: Node) -> bool:
    """Whether ranks go one after the other here: behind a guarded barrier, a lock, or a helper that lets one go first."""
    for before in program.of(Collective):
        if before.number < node.number and before.rank_guards and not set(before.rank_guards) <= set(node.guards):
            return True
    return speaks_of(program, *file_locks(), path=node.span.path) or hints_at(program, "one-goes-first", path=node.span.path)
