"""Factors that a loss carries before its backward and should not, each in a sentence: worlds, windows, and both at once."""

from __future__ import annotations

from ddp_audit.tree.nodes import Backward, Node, Program
from ddp_audit.tree.questions import MEAN, Loss, is_made_of_window, is_window_itself, loss_of, window_of
from ddp_audit.tree.values import Const, Unknown, Value, World, evaluate


def scaled_by_world(loss: Loss) -> str:
    """What is wrong with a loss that is divided or multiplied by the world size; empty where it may be right."""
    down = loss.worlds < 0
    if not down and loss.reduced != MEAN:
        return ""
    power = "" if abs(loss.worlds) == 1 else f" to the power of {abs(loss.worlds)}"
    does = "divided by" if down else "multiplied by"
    by = f"the number of ranks{power}"
    return (
        f"The loss is {does} the world size{power}, although DDP averages already: the gradients are too "
        f"{'small' if down else 'large'} by {by}."
    )


def scaled_by_window(program: Program, backward: Node, loss: Loss) -> str:
    """What is wrong with how often the loss is divided by the number of accumulated micro-batches; empty where nothing is."""
    window = None if loss.opaque or loss.reduced != MEAN else window_of(program, backward)
    if window is None:
        return ""
    if any(_is_of_all_ranks(divisor, window) for divisor in loss.divisors):
        return (
            "The loss is divided by the micro-batches of all ranks and DDP averages again: the gradients are too small by the "
            "number of ranks."
        )
    count = sum(is_window_itself(divisor, window) for divisor in loss.divisors)
    count += sum(is_made_of_window(factor, window) for factor in loss.factors)
    if count == 1 or (count == 0 and (loss.divisors or loss.factors)):
        return ""
    name = _name(window, "the window")
    if count == 0:
        return (
            f"The gradients of {name} micro-batches are added and no loss is divided by {name}: each step uses {name} times the "
            "gradient."
        )
    return f"The loss is divided by {name} {count} times before this backward, so the gradient is that much too small."


def _is_of_all_ranks(divisor: Value, window: Value) -> bool:
    """Whether a divisor is the window of one rank times the number of ranks, as a total that was divided for the window is."""
    for size in (2, 4, 8):
        total, own = (evaluate(value, World(0, size, size)) for value in (divisor, window))
        if not isinstance(total, (int, float)) or not isinstance(own, (int, float)) or not own or total != own * size:
            return False
    return True


def divided_before_engine(backward: Backward) -> str:
    """What is wrong with a loss that is divided by the window before Accelerate does so; empty where it is not."""
    engine = backward.args["engine"]
    by = engine.by if isinstance(engine, Unknown) else None
    window = by.argument("gradient_accumulation_steps") if by is not None else None
    if window is None or (isinstance(window, Const) and window.value in (None, 1) and window.default is None):
        return ""
    if not any(is_window_itself(divisor, window) for divisor in loss_of(backward.target).divisors):
        return ""
    return (
        f"The loss is divided by {_name(window, 'its number of micro-batches')}, and Accelerator.backward divides by its "
        "gradient_accumulation_steps again, so the gradient is too small."
    )


def _name(window: Value, otherwise: str) -> str:
    if isinstance(window, Const) and not window.text.isidentifier():
        return str(window.value)
    return f"`{window.text}`" if window.text else otherwise
