"""Optimizers of an interpreted run: their steps, their groups with settings given or by default, schedulers and scalers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ddp_audit import events as ev
from ddp_audit.explore.exact import calls, settings, training
from ddp_audit.explore.exact.contents import tensors_in
from ddp_audit.explore.exact.values import Native, Unknown
from ddp_audit.knowledge import functions

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

_SCHEDULED = ("lr", "momentum", "betas", "weight_decay")  # what one or another of torch's schedulers changes


class ParamGroup(dict[str, Any]):
    """One group. A setting that is not known to be there is unknown; so is what a scheduler changes, once there is one."""

    is_scheduled = False
    given: Mapping[str, Any] = MappingProxyType({})  # the settings at the beginning

    def __missing__(self, key: str) -> Unknown:
        return Unknown(f"the setting {key} of an optimizer")

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, Unknown("a scheduled setting") if self.is_scheduled and key in _SCHEDULED else value)

    def get(self, key: str, default: Any = None) -> Any:
        """As a subscript: that a setting is not there is never known."""
        return self[key]

    def schedule(self) -> None:
        """From now on a scheduler changes the settings."""
        if not self.is_scheduled:
            super().__setitem__("initial_lr", self["lr"])
        self.is_scheduled = True
        for key in _SCHEDULED:
            if key in self:
                self[key] = None


def groups_of(name: str, given: Any, args: list[Any], kwargs: dict[str, Any]) -> list[ParamGroup]:
    """The groups of an optimizer `name`, made with `given` parameters and the arguments behind them."""
    known = {key: value for key, value in functions.defaults(f"torch.optim.{name}").items() if key != "params"}
    settings = {**known, **dict(zip(known, args, strict=False)), **kwargs}
    if not all(isinstance(key, str) and key.isidentifier() for key in settings):  # what is given with ** is not known
        settings = {}
    parts = [part for part in given if isinstance(part, dict)] if isinstance(given, list) else []
    made = [ParamGroup({**settings, **part}) for part in parts or [{"params": given}]]
    for group in made:
        group.given = dict(group)
    return made


@dataclass(slots=True, eq=False)
class Optimizer:
    """An optimizer. `params` is None where they are not known."""

    params: list[Any] | None
    groups: list[ParamGroup]
    made: tuple[str, int] = ("", 0)  # path and line

    def attribute(self, it: Interpreter, name: str) -> Any:
        """An attribute or a method of an optimizer."""
        match name:
            case "step":
                return Native(lambda *args, **kwargs: self.step(it, args[0] if args else kwargs.get("closure")))
            case "zero_grad":
                return Native(lambda none=True, **k: training.zero_grad(it, self.params, k.get("set_to_none", none) is not False))
            case "param_groups":
                return self.groups
            case "state" | "defaults":
                return {}
            case "state_dict":
                return Native(lambda: Unknown("a state"))
            case "add_param_group":
                return Native(lambda group: self._add(group))
        return Native(lambda *args, **kwargs: None)

    def _add(self, group: Any) -> None:
        more = list(tensors_in(group))
        settings = {key: value for key, value in self.groups[0].items() if key != "params"} if self.groups else {}
        self.groups.append(ParamGroup({**settings, **(group if isinstance(group, dict) else {})}))
        if self.params is not None:
            self.params += more

    def step(self, it: Interpreter, closure: Any = None) -> Any:
        """An optimizer step: which gradients are LOCAL at it."""
        result = calls.call(it, closure, [], {}) if closure is not None else None
        inside = None if self.params is None else {id(p) for p in self.params}
        local: list[str] = []
        for wrapper in it.wrappers:
            mine = {name for identity, name in wrapper.names.items() if inside is None or identity in inside}
            local += [name for name in wrapper.ddp.step() if not wrapper.names or name in mine]
        settings.of_step(it, self)
        it.mark(ev.STEP, local=list(dict.fromkeys(local)))
        it.stepped()
        return result


def optimizer(it: Interpreter, name: str, args: list[Any], kwargs: dict[str, Any]) -> Optimizer:
    """`torch.optim.<name>(params, ..)`."""
    given = args[0] if args else kwargs.get("params", Unknown())
    params = given if isinstance(given, list) else None
    flat: list[Any] | None = None
    if params is not None and not any(isinstance(p, Unknown) for p in params):
        flat = list(tensors_in(params)) or None
    it.optimizers += 1
    named = {key: value for key, value in kwargs.items() if key != "params"}
    place = (it.frames[-1].source.path, it.frames[-1].line) if it.frames else ("", 0)
    return Optimizer(flat, groups_of(name, given, args[1:], named), place)


def scheduler(args: list[Any], kwargs: dict[str, Any]) -> Unknown:
    """`torch.optim.lr_scheduler.X(optimizer, ..)`."""
    scheduled = args[0] if args else kwargs.get("optimizer")
    for group in scheduled.groups if isinstance(scheduled, Optimizer) else ():
        group.schedule()
    return Unknown("a scheduler")


@dataclass(slots=True, eq=False)
class Scaler:
    """A GradScaler: it issues nothing, and its step is the optimizer's."""

    def attribute(self, it: Interpreter, name: str) -> Any:
        """An attribute or a method of a scaler."""
        if name == "scale":
            return Native(lambda value: value)
        if name == "step":
            return Native(lambda chosen, *args: chosen.step(it, *args) if isinstance(chosen, Optimizer) else None)
        if name in ("get_scale", "state_dict"):
            return Native(lambda: Unknown(name))
        return Native(lambda *args, **kwargs: None)


__all__ = ["Optimizer", "ParamGroup", "Scaler", "groups_of", "optimizer", "scheduler"]
