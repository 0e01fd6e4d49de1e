"""The fix that gives each rank a random stream of its own for training (DDP308)."""

from __future__ import annotations

import libcst as cst

from ddp_audit.findings import Finding
from ddp_audit.fix.arguments import keyword_of
from ddp_audit.fix.imports import Imports
from ddp_audit.fix.scopes import given, scope_of
from ddp_audit.fix.tree import FixNotApplicable, Statement, Step, Tree, bindings, dotted, read, split_blank, touched, walk, written

# First word of a fix's detail: where the new seed goes. Then the stream, the line of the loop or spawn, and the seed's number.
BEFORE_LOOP, IN_SPAWNED = "before-loop", "in-spawned"
_SEEDS = {"torch": "torch.manual_seed", "numpy": "numpy.random.seed", "random": "random.seed"}


def seeded_by_rank(tree: Tree, finding: Finding) -> cst.Module:
    """`torch.manual_seed(seed + rank)` before the loop that trains, or in the function that is spawned."""
    how, *words = (finding.fix.detail if finding.fix is not None else "").split()
    if how == BEFORE_LOOP:
        stream, line, number = words[0], int(words[1]), words[2]
        return _before_loop(tree, finding, stream, line, number)
    if how == IN_SPAWNED:
        return _in_spawned(tree, finding, int(words[0]))
    raise FixNotApplicable("where training begins is not known")


def _before_loop(tree: Tree, finding: Finding, stream: str, line: int, number: str) -> cst.Module:
    way = tree.path_to(line)
    loop = way[-1] if way else None
    if loop is None or not isinstance(loop.statement, cst.For | cst.While):
        raise FixNotApplicable("the loop that trains stands in a statement with others")
    seed = _seed_at(tree, finding)
    text = tree.module.code_for_node(seed) if seed is not None else ""
    if seed is None or not (isinstance(seed, cst.Integer) or _holds(tree, finding, seed, way)):
        if number == "-":
            raise FixNotApplicable("the seed is not known where training begins")
        text = number
    imports = Imports(tree, line)
    root = _SEEDS[stream].rpartition(".")[0]
    function = imports.wanted(_SEEDS[stream], root)
    new = cst.parse_statement(f"{function}({text} + {_rank(tree, way, imports)})")
    blank, comments = split_blank(loop.statement.leading_lines)
    body = list(loop.block.body)
    both = [_leading(new, blank), loop.statement.with_changes(leading_lines=comments)]
    return imports.put_into(tree.with_block(loop.block, [*body[: loop.index], *both, *body[loop.index + 1 :]]))


def _seed_at(tree: Tree, finding: Finding) -> cst.BaseExpression | None:
    """What the seed of the finding is set to, where that is a plain number or name."""
    call = tree.at(cst.Call, finding)
    values = [arg.value for arg in call.args if arg.star == "" and (arg.keyword is None or arg.keyword.value in ("seed", "a"))]
    if not values or not (isinstance(values[0], cst.Integer) or dotted(values[0]) is not None):
        return None
    return values[0]


def _holds(tree: Tree, finding: Finding, seed: cst.BaseExpression, way: list[Step]) -> bool:
    """Whether the name that a seed has is there, and the same, at the end of a way in the same function."""
    start = tree.path_to(finding.span.line)
    shared = next((step for step in way for other in start if step.block is other.block and other.index < step.index), None)
    if shared is None or scope_of(tree, start) is not scope_of(tree, way):
        return False
    first = next(step for step in start if step.block is shared.block)
    return touched(read([seed]), written(shared.block.body[first.index : shared.index])) is None


def _in_spawned(tree: Tree, finding: Finding, line: int) -> cst.Module:
    seed = _seed_at(tree, finding)
    function, spawn = _spawned(tree, line)
    handed = seed is not None and _is_handed_over(seed, function, spawn) and not _is_conditional(tree, finding, line)
    if seed is None or not (handed or isinstance(seed, cst.Integer) or _is_constant(tree, seed)):
        raise FixNotApplicable("the seed is not known in what is spawned")
    imports = Imports(tree, tree.position(function).start.line)
    made = [node for node in walk(function.body) if imports.is_call_of(node, "torch.distributed.init_process_group")]
    if len(made) != 1:
        raise FixNotApplicable("what is spawned makes its group elsewhere")
    way = tree.path_to(tree.position(made[0]).start.line)
    rank = _rank(tree, way, imports, _rank_argument(made[0]))
    code = tree.module.code_for_node(seed)
    new = cst.parse_statement(f"{imports.wanted('torch.manual_seed', 'torch')}({code} + {rank})")
    body = list(way[-1].block.body)
    return imports.put_into(tree.with_block(way[-1].block, [*body[: way[-1].index + 1], new, *body[way[-1].index + 1 :]]))


def _is_handed_over(seed: cst.BaseExpression, function: cst.FunctionDef, spawn: cst.Call) -> bool:
    """Whether an object that holds the seed is handed to the function that is spawned, and has the same name in it."""
    root = (dotted(seed) or "").split(".")[0]
    given = keyword_of(spawn, "args")
    if given is None or not isinstance(given.value, cst.Tuple) or root in written([function.body]):
        return False
    places = [place for place, element in enumerate(given.value.elements, 1) if dotted(element.value) == root]
    parameters = [parameter.name.value for parameter in function.params.params]
    return len(places) == 1 and places[0] < len(parameters) and parameters[places[0]] == root


def _is_conditional(tree: Tree, finding: Finding, line: int) -> bool:
    """Whether the seed stands under a condition of its own, which may ask whether there is one, and not the spawn in a line."""
    shared = [step.statement for step in tree.path_to(line)]
    own = [step.statement for step in tree.path_to(finding.span.line) if not any(step.statement is one for one in shared)]
    return any(isinstance(statement, cst.If) for statement in own)


def _is_constant(tree: Tree, seed: cst.BaseExpression) -> bool:
    """Whether a name is given one value, by a statement of the module itself: a spawned process, which imports it, has it too."""
    name = dotted(seed)
    given_here = [
        statement
        for statement in tree.module.body
        if isinstance(statement, cst.SimpleStatementLine) and name in written([statement])
    ]
    return len(given_here) == 1 and sum(bound == name for bound in bindings([tree.module])) == 1


def _spawned(tree: Tree, line: int) -> tuple[cst.FunctionDef, cst.Call]:
    """The function of the module that the spawn in a line starts, and the call that spawns. Raises Refused."""
    for node in walk(tree.module):
        if isinstance(node, cst.Call) and tree.position(node).start.line == line and node.args:
            name = dotted(node.args[0].value)
            found = [part for part in tree.module.body if isinstance(part, cst.FunctionDef) and part.name.value == name]
            if len(found) == 1 and isinstance(found[0].body, cst.IndentedBlock):
                return found[0], node
    raise FixNotApplicable("what is spawned is not a function of this file")


def _rank_argument(statement: cst.CSTNode) -> str | None:
    """The plain name that a call of init_process_group is given as the rank."""
    values = [
        node.value
        for node in walk(statement)
        if isinstance(node, cst.Arg) and node.keyword is not None and node.keyword.value == "rank"
    ]
    return values[0].value if len(values) == 1 and isinstance(values[0], cst.Name) else None


def _rank(tree: Tree, way: list[Step], imports: Imports, known: str | None = None) -> str:
    """A name that holds the rank at the end of a way, or the call that asks for it."""
    if known is not None:
        return known
    for name, value in given(tree, way):
        if isinstance(value, cst.Call) and not value.args and imports.is_name_of(dotted(value.func), "torch.distributed.get_rank"):
            return name
    return f"{imports.wanted('torch.distributed.get_rank', 'torch.distributed')}()"


def _leading(statement: cst.SimpleStatementLine | cst.BaseCompoundStatement, lines: list[cst.EmptyLine]) -> Statement:
    return statement.with_changes(leading_lines=lines)
