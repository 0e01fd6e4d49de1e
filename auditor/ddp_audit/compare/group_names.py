"""What people know of a process group: its members, what its maker called it, and the line that made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ddp_audit.compare.explain import rank_list
from ddp_audit.events import DEFAULT_GROUP, Site

_MESH = "mesh_"  # before the name of a dimension, in torch/distributed/device_mesh.py


class GroupFacts(NamedTuple):
    """Of one group; `description` is torch's `group_desc`, empty where nobody gave one."""

    ranks: tuple[int, ...]
    description: str = ""
    site: Site | None = None

    @property
    def text(self) -> str:
        """`the group of ranks 0 and 1 (mesh dimension dp, made at train.py:5)`."""
        dimension = self.description.removeprefix(_MESH)
        described = f"mesh dimension {dimension}" if dimension != self.description else self.description
        known = [described] if described else []
        known += [f"made at {self.site}"] if self.site is not None else []
        more = ", ".join(known)
        return f"the group of {rank_list(self.ranks)}{f' ({more})' if more else ''}"


def note_group(known: dict[str, GroupFacts], detail: Mapping[str, object], stack: Sequence[Site]) -> None:
    """Takes what a GROUP event says of its group."""
    name, ranks, description = detail.get("name"), detail.get("ranks"), detail.get("desc")
    if isinstance(name, str) and name and isinstance(ranks, list) and ranks and detail.get("action") != "destroy":
        facts = GroupFacts(tuple(ranks), description if isinstance(description, str) else "", next(iter(stack), None))
        known[name] = richer(known.get(name), facts)


def richer(known: GroupFacts | None, more: GroupFacts) -> GroupFacts:
    """What two sources say of one group. A name that comes back with other ranks is that of a new group."""
    if known is None or known.ranks != more.ranks:
        return more
    return GroupFacts(known.ranks, known.description or more.description, known.site or more.site)


def group_text(name: str, known: Mapping[str, GroupFacts]) -> str:
    """A group in a sentence."""
    if name == DEFAULT_GROUP:
        return "the default group"
    return known[name].text if name in known else f"group {name}"
