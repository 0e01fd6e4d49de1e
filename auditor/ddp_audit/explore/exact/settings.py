"""What the steps of each rank use: settings of optimizers over wrapped parameters, and values that gradients are clipped to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact.contents import tensors_in
from ddp_audit.explore.exact.values import PLAIN, Unknown

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter
    from ddp_audit.explore.exact.optimizers import Optimizer

_COMPARED = ("lr", "weight_decay", "momentum", "betas", "eps", "dampening", "alpha")
_CLIPS = ("max_norm", "clip_value")
_MOST_CHANGES = 16  # of one setting that are kept


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: its name, where it was given, and the number of the group of parameters."""

    name: str
    path: str
    line: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class Unequal:
    """A setting that differs between ranks which train one model, with its values as text."""

    setting: Setting
    values: Mapping[int, str]


def of_step(it: Interpreter, optimizer: Optimizer) -> None:
    """Notes the settings of the groups that hold parameters of a wrapper, as a step finds them."""
    path, line = optimizer.made
    wrapped = {identity for wrapper in it.wrappers for identity in wrapper.names}
    for number, group in enumerate(optimizer.groups):
        if not any(id(param) in wrapped for param in tensors_in(group["params"])):
            continue
        for name in _COMPARED:
            if name in group:
                _note(it, Setting(name, path, line, number), group.given.get(name) if group.is_scheduled else group[name])


def of_clipping(it: Interpreter, name: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Notes what the gradients of wrapped parameters are clipped to."""
    option = "max_norm" if "norm" in name else "clip_value"
    wrapped = {identity for wrapper in it.wrappers for identity in wrapper.names}
    if args and it.frames and any(id(param) in wrapped for param in tensors_in(args[0])):
        value = args[1] if len(args) > 1 else kwargs.get(option)
        _note(it, Setting(option, it.frames[-1].source.path, it.frames[-1].line), value)


def unequal(runs: Mapping[int, Interpreter]) -> list[Unequal]:
    """The settings that differ between ranks: all are known, or one rank alone has drawn its own."""
    found = []
    everywhere = [set(it.settings) for it in runs.values()]
    for setting in next(iter(runs.values())).settings if len(runs) > 1 else ():
        if not all(setting in own for own in everywhere):
            continue
        for values in _side_by_side(runs, setting):
            known = [value for value in values if not isinstance(value, Unknown)]
            own = any(isinstance(value, Unknown) and value.local for value in values)
            if any(value != known[0] for value in known[1:]) or (known and own):
                found.append(Unequal(setting, dict(zip(runs, map(_shown, values), strict=True))))
                break
    return found + _clipped_alone(runs)


def _side_by_side(runs: Mapping[int, Interpreter], setting: Setting) -> Iterator[tuple[Any, ...]]:
    """The values that a setting had on all ranks, change by change.

    A rank that changes it less often kept its last value, where all have stepped equally often and every value is known.
    """
    held = [it.settings[setting] for it in runs.values()]
    is_known = not any(isinstance(value, Unknown) for one in held for value in one)
    alike = is_known and setting.name not in _CLIPS and len({it.steps for it in runs.values()}) == 1
    for number in range((max if alike else min)(map(len, held))):
        yield tuple(one[min(number, len(one) - 1)] for one in held)


def _clipped_alone(runs: Mapping[int, Interpreter]) -> list[Unequal]:
    """What gradients are clipped to on some ranks, where others that step too do not clip at all."""
    found = []
    for option in _CLIPS if all(it.steps for it in runs.values()) else ():
        own = {rank: [setting for setting in it.settings if setting.name == option] for rank, it in runs.items()}
        clipping = [rank for rank, settings in own.items() if settings]
        if clipping and len(clipping) < len(runs):
            setting = own[clipping[0]][0]
            shown = {rank: _shown(runs[rank].settings[own[rank][0]][0]) if own[rank] else "none" for rank in runs}
            found.append(Unequal(setting, shown))
    return found


def _note(it: Interpreter, setting: Setting, value: Any) -> None:
    plain = isinstance(value, PLAIN) or (isinstance(value, tuple) and all(isinstance(part, PLAIN) for part in value))
    values = it.settings.setdefault(setting, [])
    kept = value if plain or isinstance(value, Unknown) else Unknown("a value")
    if len(values) < _MOST_CHANGES and not (values and values[-1] == kept):
        values.append(kept)


def _shown(value: Any) -> str:
    return "a value of its own" if isinstance(value, Unknown) else f"{value!r:.40}"
