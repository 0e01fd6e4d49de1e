"""The mutants of the audited modules: which there are, which of them a sample takes, and what is known of them.

Positions and changes are those of Cosmic Ray's operators, of which the telling ones are taken: a comparison at its border or turned
round, `and` for `or`, a condition denied, a number one off, a loop that never runs, another arithmetic sign. Words are left as they
are: a message with another word in it is no fault that a test of meaning finds. So are numbers from 1,000 on, which bound the
effort. At one place one mutant is drawn.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    "auditor/ddp_audit/explore/exact/*.py",
    "auditor/ddp_audit/compare/*.py",
    "auditor/ddp_audit/trace/attempts.py",
    "auditor/ddp_audit/trace/columns.py",
    "auditor/ddp_audit/trace/headers.py",
    "auditor/ddp_audit/trace/rank_file.py",
    "auditor/ddp_audit/trace/records.py",
    "auditor/ddp_audit/trace/standing.py",
    "auditor/ddp_audit/trace/store.py",
)
_KNOWN = Path(__file__).resolve().parent / "same_meaning.tsv"
_BOUND = 1000
_OPERATORS = (
    "AddNot",
    "NumberReplacer",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ZeroIterationForLoop",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_USub_UAdd",
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBinaryOperator_Mul_Add",
    "ReplaceBinaryOperator_FloorDiv_Mul",
    "ReplaceBinaryOperator_Mod_Add",
    "ReplaceBinaryOperator_BitAnd_BitOr",
    "ReplaceBinaryOperator_BitOr_BitAnd",
    "ReplaceBinaryOperator_BitXor_BitOr",
    "ReplaceBinaryOperator_LShift_RShift",
    "ReplaceBinaryOperator_RShift_LShift",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_Lt_GtE",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_LtE_Gt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_Gt_LtE",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_GtE_Lt",
)


@dataclass(frozen=True)
class Mutant:
    """One change of one module. `before` and `after` are the first line that it changes, without indentation."""

    module: str
    operator: str
    occurrence: int
    first: int
    last: int
    before: str
    after: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from others, also after lines have moved."""
        return (self.module, self.before, self.after)

    def code(self) -> str:
        """The module's text with the change."""
        found = _mutated((ROOT / self.module).read_text(encoding="utf-8"), self.operator, self.occurrence)
        assert found is not None
        return found


def sample(pieces: Sequence[int], of: int) -> list[Mutant]:
    """Some of the `of` pieces of all mutants, in an order that is drawn once and for all."""
    places: dict[tuple[str, int, int, int, int], tuple[str, str, int, tuple[int, int]]] = {}
    for path in modules():
        for place, drawn in _places(path).items():
            places[(path, *place)] = drawn
    drawn = sorted(places, key=lambda place: _mixed(place[0], places[place][0], place[1:]))
    found = [_described(places[place], place) for piece in pieces for place in drawn[piece - 1 :: of]]
    return [mutant for mutant in found if _compiles(mutant)]


def find(module: str, operator: str, before: str, after: str) -> Mutant | None:
    """A mutant that was made before, wherever its line is now; None where there is no such line any more."""
    text = (ROOT / module).read_text(encoding="utf-8")
    if before not in text:
        return None
    positions = cosmic_ray.plugins.get_operator(f"core/{operator}")().mutation_positions
    places = [where for node in ast_nodes(get_ast(text)) for where in positions(node)]
    lines = text.splitlines()
    for occurrence, (start, end) in enumerate(places):
        if before in (line.strip() for line in lines[start[0] - 1 : end[0]]):
            found = _described((text, operator, occurrence, (start[0], end[0])), (module, *start, *end))
            if found.key == (module, before, after):
                return found
    return None


def modules() -> list[str]:
    """The paths of the modules, from the root of the repository."""
    return sorted({str(path.relative_to(ROOT)) for pattern in MODULES for path in ROOT.glob(pattern)})


def runs_at_import(module: str, line: int) -> bool:
    """Whether a line runs when its module is imported: it is in no function."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))
    bodies = ((node.body[0].lineno, node.end_lineno or 0) for node in functions if isinstance(node.body, list))
    return not any(first <= line <= last for first, last in bodies)


def same_meaning() -> dict[tuple[str, str, str], str]:
    """Mutants that mean the same as the code, with the reason."""
    rows = [line.split("\t") for line in _KNOWN.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {(module, before, after): why for module, before, after, why in rows}


def _places(path: str) -> dict[tuple[int, int, int, int], tuple[str, str, int, tuple[int, int]]]:
    text = (ROOT / path).read_text(encoding="utf-8")
    left_out = _left_out(text)
    tree = get_ast(text)
    nodes = list(ast_nodes(tree))
    at: dict[tuple[int, int, int, int], list[tuple[str, int]]] = {}
    for name in _OPERATORS:
        operator = cosmic_ray.plugins.get_operator(f"core/{name}")()
        positions = (where for node in nodes for where in operator.mutation_positions(node))
        for occurrence, (start, end) in enumerate(positions):
            if not any(first <= start and end <= last for first, last in left_out):
                at.setdefault((*start, *end), []).append((name, occurrence))
    drawn = {}
    for place, changes in at.items():
        operator_name, occurrence = min(changes, key=lambda change: _mixed(path, change[0], (*place, change[1])))
        drawn[place] = (path, operator_name, occurrence, (place[0], place[2]))
    return {place: (text, name, occurrence, lines) for place, (_, name, occurrence, lines) in drawn.items()}


def _compiles(mutant: Mutant) -> bool:
    try:
        compile(mutant.code(), mutant.module, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _described(drawn: tuple[str, str, int, tuple[int, int]], place: tuple[str, int, int, int, int]) -> Mutant:
    text, operator, occurrence, (first, last) = drawn
    mutated = _mutated(text, operator, occurrence)
    assert mutated is not None
    old, new = text.splitlines(), mutated.splitlines()
    line = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), first - 1)
    return Mutant(place[0], operator, occurrence, first, last, old[line].strip(), new[line].strip() if line < len(new) else "")


@functools.lru_cache(maxsize=2048)
def _mutated(text: str, operator: str, occurrence: int) -> str | None:
    found: str | None = mutate_code(text, cosmic_ray.plugins.get_operator(f"core/{operator}")(), occurrence)
    return found


def _mixed(path: str, operator: str, place: tuple[int, ...]) -> bytes:
    return hashlib.sha256(repr((path, operator, place)).encode()).digest()


def _left_out(text: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations, decorators of classes and bounds of effort stand: nothing of meaning is there."""
    found: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and abs(node.value) >= _BOUND:
            found.append(((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)))
        parts = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cast":
            parts.append(node.args[0])
        if isinstance(node, ast.keyword) and node.arg == "strict":  # whether zip() says that lengths differ: they do not
            parts.append(node)
        if isinstance(node, ast.ClassDef):  # how a data class is made
            parts.extend(node.decorator_list)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            parts.append(node)
        for part in parts:
            if isinstance(part, ast.AST):
                found.append(((part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)))
    return found
