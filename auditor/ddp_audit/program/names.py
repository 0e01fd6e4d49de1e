"""What a name alone stands for, and small helpers on source text. The names are those of `knowledge/words.toml`.

Names decide only where no value is known: a parameter called `rank` of a function that nothing calls, an attribute `local_rank`
of a configuration object that could not be followed.
"""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING

from ddp_audit.knowledge import words
from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program.nodes import Jump
from ddp_audit.program.operations import operation
from ddp_audit.program.state import ClassInfo
from ddp_audit.program.values import (
    Const,
    Ext,
    Unknown,
    Value,
    leaf,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering
    from ddp_audit.source.files import SourceFile

OPERATORS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
    ast.Invert: "invert", ast.Not: "not", ast.USub: "neg", ast.And: "and", ast.Or: "or",
}  # fmt: skip

_LEAVES = ("rank", "local_rank", "node_rank", "world_size", "local_world_size")  # what the meanings with `named-` before them name
ENVIRONMENT = {
    "RANK": "rank", "LOCAL_RANK": "local_rank", "WORLD_SIZE": "world_size", "LOCAL_WORLD_SIZE": "local_world_size",
    "GROUP_RANK": "node_rank", "NODE_RANK": "node_rank", "SLURM_PROCID": "rank", "SLURM_LOCALID": "local_rank",
    "SLURM_NTASKS": "world_size", "SLURM_NPROCS": "world_size", "SLURM_NODEID": "node_rank", "SLURM_NNODES": "nnodes",
    "OMPI_COMM_WORLD_RANK": "rank", "OMPI_COMM_WORLD_LOCAL_RANK": "local_rank", "OMPI_COMM_WORLD_SIZE": "world_size",
    "PMI_RANK": "rank", "PMI_SIZE": "world_size",
}  # fmt: skip


@functools.lru_cache(maxsize=16_384)
def by_name(name: str) -> Value | None:
    """What a name stands for where its value is not known: a rank-like leaf, a main-process predicate, or nothing."""
    if not name.isidentifier():
        return None
    kind = next((kind for kind in _LEAVES if words.says(name, f"named-{kind}")), None)
    if kind is not None:
        return leaf(kind)
    if words.says(name, "named-main-process"):
        return operation("==", leaf("local_rank" if words.says(name, "local") else "rank"), Const(value=0), text=name)
    return None


def called(node: ast.Call) -> str:
    """The source of what is called: `torch.distributed.barrier`."""
    return written(node.func)


def written(node: ast.expr) -> str:
    """`ast.unparse`, without its machinery for a dotted name."""
    parts: list[str] = []
    inner = node
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    if not isinstance(inner, ast.Name):
        return ast.unparse(node)
    parts.append(inner.id)
    return ".".join(reversed(parts))


def source_text(source: SourceFile, node: ast.AST) -> str:
    """The source of a node on one line, cut at 160 characters."""
    known = source.facts.get(("text", node))
    return source.fact("text", node, lambda asked: _source_text(source, asked)) if known is None else known


def _source_text(source: SourceFile, node: ast.AST) -> str:
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0) or 0
    if not first:
        return ""
    lines = source.lines[first - 1 : last]
    if not lines:
        return ""
    start, end = node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
    if not source.text.isascii():
        start = len(lines[0].encode()[:start].decode(errors="ignore"))
        end = len(lines[-1].encode()[:end].decode(errors="ignore"))
    if len(lines) == 1:
        return lines[0][start:end][:160]
    return " ".join([lines[0][start:].strip(), *(line.strip() for line in lines[1:-1]), lines[-1][:end].strip()])[:160]


def leaves(lowering: Lowering, node: ast.expr, value: Value) -> bool:
    """Whether an expression statement ends the process: sys.exit(), os._exit(), exit()."""
    if (
        not isinstance(node, ast.Call)
        or not isinstance(value, Unknown)
        or value.by is None
        or not is_kind(value.by.name, "ends-process")
    ):
        return False
    lowering.emit(node, Jump(what="exit", code=lowering.eval(node.args[0]) if node.args else None))
    return True


def leaves_by_raising(lowering: Lowering, node: ast.Raise, raised: ast.expr) -> bool:
    """Whether a raise statement ends the process as sys.exit() does: it raises SystemExit, as a class or with an exit code."""
    call = raised if isinstance(raised, ast.Call) else None
    target = raised if call is None else call.func
    if not isinstance(target, ast.Name):
        return False
    found = lowering.eval(target)
    if not isinstance(found, Ext) or found.name != "builtins.SystemExit":
        return False
    lowering.emit(node, Jump(what="exit", code=lowering.eval(call.args[0]) if call is not None and call.args else None))
    return True


def kind_of_class(info: ClassInfo) -> str:
    """What objects of a project class are to the auditor, by their library bases."""
    bases = info.outside_bases()
    if any(b.startswith("torch.nn.parallel") and b.endswith("DistributedDataParallel") for b in bases):
        return "ddp-subclass"
    if any(b.startswith(("torch.nn.", "timm.")) or b.endswith((".Module", "LightningModule", "PreTrainedModel")) for b in bases):
        return "module"
    if any(b.endswith("IterableDataset") for b in bases):
        return "iterable-dataset"
    if any(b.endswith("Dataset") for b in bases):
        return "dataset"
    if any(b.endswith(("Sampler", "BatchSampler")) for b in bases):
        return "sampler"
    if any(b.startswith("torch.optim") for b in bases):
        return "optimizer"
    return "instance"
