"""Places in the classes of modules and data sets, gathered for each module with those of the modules inside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ddp_audit.program.model import BufferWrite, RandomSite
from ddp_audit.program.state import ClassInfo

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

_Site = TypeVar("_Site", BufferWrite, RandomSite)


def sites_of_modules(lw: Lowering, in_class: Callable[[ClassInfo], list[_Site]]) -> dict[tuple[object, ...], list[_Site]]:
    """What `in_class` finds in the class of each module and of those inside it, by the module's key, in the order of the source.

    A class is looked through once; modules without a place are left out.
    """
    by_class = {id(info): info for info in lw.classes_of.values()}
    of_class = {number: in_class(info) for number, info in by_class.items()}
    own: dict[tuple[object, ...], list[_Site]] = {key: of_class[id(info)] for key, info in lw.classes_of.items()}
    own = {key: sites for key, sites in own.items() if sites}
    found: dict[tuple[object, ...], list[_Site]] = {}
    for root in {*own, *lw.children} if own else ():
        inside = {site for key in lw.program.modules.inside(root) for site in own.get(key, ())}
        if inside:
            found[root] = sorted(inside, key=lambda site: (site.span.path, site.span.line, site.span.column))
    return found
