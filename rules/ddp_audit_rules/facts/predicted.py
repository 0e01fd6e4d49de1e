"""What the rules on the predicted run share: the place of a line, and the option that the main line takes as on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddp_audit.findings import Finding, Option, Span
from ddp_audit.rule import Context

if TYPE_CHECKING:
    from ddp_audit.explore.main_line import Flip

_SCALARS = (str, int, float, bool, type(None))


def span_of_line(context: Context, path: str, line: int) -> Span:
    """Return the range of a line's text."""
    lines = context.lines(path)
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    start = len(text) - len(text.lstrip()) + 1
    return Span(path, line, start, line, max(start, len(text.rstrip()) + 1))


def on_main_line(found: Finding, flips: Sequence[Flip]) -> Finding:
    """Return the finding with what the main line takes otherwise than the defaults, if anything."""
    if flips:
        found.confidence = "likely"
        found.explanation += f" The run takes {' and '.join(flip.text for flip in flips)}, to come to the training."
        found.option = _option_of(flips)
    return found


def _option_of(flips: Sequence[Flip]) -> Option | None:
    """The option that is taken otherwise than its default, where it is the only thing."""
    settings = {name: value for flip in flips for name, value in flip.settings.items()}
    if len(flips) != 1 or not settings:
        return None
    ((name, value),) = settings.items()
    default = flips[0].default
    shown = [part if isinstance(part, _SCALARS) else str(part) for part in (default, value)]
    return Option(name, shown[0], shown[1])
