"""Which names there are at a place: whether a statement has surely run before another, and what a name was given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import libcst as cst

from ddp_audit.fix.tree import FixNotApplicable, Step, Tree, bindings, dotted, walk, written

_COUNTING = ("range", "trange", "count")


def has_run(made: Sequence[Step], way: Sequence[Step]) -> bool:
    """Whether the statement that one way leads to has surely run where another begins: it stands before it in a block around."""
    return any(step.block is made[-1].block and made[-1].index < step.index for step in way)


def scope_of(tree: Tree, way: Iterable[Step]) -> cst.CSTNode:
    """The innermost function around the last step of a way, else the module."""
    functions = [step.statement for step in list(way)[:-1] if isinstance(step.statement, cst.FunctionDef)]
    return functions[-1] if functions else tree.module


def names_in(node: cst.CSTNode) -> set[str]:
    """Every name that occurs in a node; not those of attributes, nor of keywords of calls."""
    parts = list(walk(node))
    others = {id(part.attr) for part in parts if isinstance(part, cst.Attribute)}
    others |= {id(part.keyword) for part in parts if isinstance(part, cst.Arg)}
    return {part.value for part in parts if isinstance(part, cst.Name) and id(part) not in others}


def given(tree: Tree, way: Sequence[Step]) -> Iterator[tuple[str, cst.BaseExpression]]:
    """Names that have surely one value at the end of a way, and the expression that they were given, the nearest first."""
    for depth in range(len(way) - 1, -1, -1):
        step = way[depth]
        if depth and isinstance(way[depth - 1].statement, cst.ClassDef):
            continue  # the names of a class body are not seen in its methods
        scope = scope_of(tree, way[: depth + 1])
        for earlier in reversed(step.block.body[: step.index]):
            if isinstance(earlier, cst.SimpleStatementLine) and len(earlier.body) == 1:
                small = earlier.body[0]
                if isinstance(small, cst.Assign) and len(small.targets) == 1:
                    name = dotted(small.targets[0].target)
                    if name is not None and sum(bound == name for bound in bindings([scope])) == 1:
                        yield name, small.value
        if isinstance(step.block, cst.Module):
            return


def epoch_loop(tree: Tree, line: int) -> tuple[cst.For, str]:
    """The for statement that begins in a line, and the plain name that it gives to the epoch. Raises Refused."""
    way = tree.path_to(line)
    loop = way[-1].statement if way else None
    if not isinstance(loop, cst.For) or tree.position(loop).start.line != line:
        raise FixNotApplicable("the loop over epochs is not a for statement of this file")
    if not isinstance(loop.target, cst.Name) or loop.target.value == "_":
        raise FixNotApplicable("the loop over epochs has no plain name for the epoch")
    counts = any(isinstance(part, cst.Name) and part.value in _COUNTING for part in walk(loop.iter))
    if not counts and "epoch" not in loop.target.value.lower():
        raise FixNotApplicable(f"{loop.target.value} need not be a number")
    if not isinstance(loop.body, cst.IndentedBlock):
        raise FixNotApplicable("the loop over epochs stands on one line")
    if loop.target.value in written([loop.body]):
        raise FixNotApplicable(f"{loop.target.value} is changed inside the loop")
    return loop, loop.target.value
