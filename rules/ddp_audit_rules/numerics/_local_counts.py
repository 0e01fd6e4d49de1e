"""Counts of what is in one rank's batch that a loss is divided by, or takes its mean over."""

from __future__ import annotations

import re

from ddp_audit.patterns import pattern
from ddp_audit.tree.values import DATA, RANDOM, Bound, Const, Expr, Made, Unknown, Value, behind, operation_of
from ddp_audit_rules.facts.losses import Loss

_SELECTION = pattern(
    r"mask|valid|keep|posit|\bpos\b|\bfg\b|foreground|ignore|pad|matched|num_(box|pos|tok|tgt|target|valid)", re.IGNORECASE
)
_COMPARISONS = (
    "==", "!=", "<", ">", "<=", ">=", "not", "&", "|", "eq", "ne", "gt", "lt", "ge", "le", "torch.isfinite", "torch.isnan",
)  # fmt: skip
_COUNTS = ("sum", "count_nonzero", "torch.sum", "torch.count_nonzero", "builtins.sum")
_PARTS = ("[]", "masked_select", "torch.masked_select")
_IGNORED = -100  # the default of ignore_index
_WITH_IGNORED = ("cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss")
_PUTS = ("[]=", "masked_fill", "masked_fill_", "torch.masked_fill", "where", "torch.where", "torch.nn.utils.rnn.pad_sequence")
_SHAPES = pattern(r"\.(shape|numel\(\)|size\([^)]*\)|nelement\(\))|batch_size|block_size|seq_len")


def local_count(loss: Loss) -> tuple[Value, bool] | None:
    """The count of this rank's own that the loss is divided by, and whether it surely is one; None without one."""
    for divisor in loss.divisors:
        if (loss.summed or loss.reduced == "sum") and _counts_selected(divisor):
            return divisor, True
    for operand in loss.averaged:
        if isinstance(operand, Unknown) and operand.by is not None and operand.by.name in _PARTS:
            index = operand.by.args[-1]
            if _is_selection(index):
                return index, True
    if loss.reduced == "mean" and _leaves_out(loss):
        return Const(value=None, text="labels that are not left out"), True
    ignored = loss.named.get("ignore_index")
    if ignored is not None and loss.reduced == "mean":
        return Const(value=None, text="labels without ignore_index"), False
    return None


def _leaves_out(loss: Loss) -> bool:
    """Whether the labels are given the number that the loss function leaves out, where something in them is true."""
    if loss.labels is None or not loss.function.endswith(_WITH_IGNORED):
        return False
    ignored = loss.named.get("ignore_index", Const(value=_IGNORED))
    if not isinstance(ignored, Const):
        return False
    for value in behind(loss.labels):
        made = value.by if isinstance(value, Unknown) else None
        if made is not None and made.name in _PUTS:
            given = [*made.args[1:], *(v for _, v in made.named)]
            if any(isinstance(v, Const) and type(v.value) is int and v.value == ignored.value for v in given):
                return True
    return False


def _counts_selected(divisor: Value) -> bool:
    """Whether a divisor counts elements by what is in them: a sum over a mask or a comparison, of all dimensions."""
    for value in behind(divisor):
        if operation_of(value) not in _COUNTS or not isinstance(value, Unknown) or value.by is None:
            continue
        by: Made = value.by
        if by.name == "builtins.sum":
            return bool(value.taint & {DATA, RANDOM}) and not _SHAPES.search(value.text)
        if len(by.args) == 1 and by.argument("dim") is None and by.argument("axis") is None:
            return _is_selection(by.args[0])
    return False


def _is_selection(value: Value) -> bool:
    """Whether a value says of each element whether it counts."""
    if isinstance(value, (Const, Expr)) and operation_of(value) == "slice":
        return False
    for inner in behind(value):
        if operation_of(inner) in _COMPARISONS:
            return True
        if isinstance(inner, (Unknown, Bound)) and _SELECTION.search(inner.text):
            return True
    return False
