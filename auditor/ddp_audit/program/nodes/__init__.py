"""The kinds of nodes of a program, one class each."""

from __future__ import annotations

from ddp_audit.program.nodes.base import CallNode, Node
from ddp_audit.program.nodes.communication import (
    Collective,
    Destroy,
    EarlyUse,
    Init,
    NewGroup,
    PointToPoint,
    Traffic,
    Wait,
)
from ddp_audit.program.nodes.data import (
    Draw,
    Drawing,
    Iterate,
    IteratorMade,
    LoaderMade,
    OwnDraw,
    Prepare,
    RandomNumbers,
    SamplerMade,
    Seed,
    SetEpoch,
    Split,
)
from ddp_audit.program.nodes.devices import CurrentDevice, DeviceChoice, ForcedDevice
from ddp_audit.program.nodes.files import FileAccess, FileContent, FileTouch, Load, Save
from ddp_audit.program.nodes.flow import AbsentName, AttributeOfNone, Check, FloorDivision, GuardFunction, Jump
from ddp_audit.program.nodes.job import EnvironmentSet, LocalRankOption, LongWork, ParseArguments, Spawn, UnfollowedCall
from ddp_audit.program.nodes.modules import (
    Checkpoint,
    LoadState,
    MissingAttribute,
    ModuleChange,
    ModuleUse,
    Move,
    ParameterWrite,
    RenamedKeys,
    RequiresGrad,
)
from ddp_audit.program.nodes.training import (
    Backward,
    Clip,
    Forward,
    NoSyncBlock,
    OptimizerMade,
    ReportedValue,
    Scale,
    ScalerCall,
    SchedulerMade,
    ScheduleStep,
    Step,
    SyncFlag,
    Unscale,
    Wrap,
    ZeroGrad,
)

__all__ = [
    "AbsentName", "AttributeOfNone", "Backward", "CallNode", "Check", "Checkpoint", "Clip", "Collective", "CurrentDevice",
    "Destroy", "DeviceChoice", "Draw", "Drawing", "EarlyUse", "EnvironmentSet", "FileAccess", "FileContent", "FileTouch",
    "FloorDivision", "ForcedDevice", "Forward", "GuardFunction", "Init", "Iterate", "IteratorMade", "Jump", "Load", "LoadState",
    "LoaderMade", "LocalRankOption", "LongWork", "MissingAttribute", "ModuleChange", "ModuleUse", "Move", "NewGroup",
    "NoSyncBlock", "Node", "OptimizerMade", "OwnDraw", "ParameterWrite", "ParseArguments", "PointToPoint", "Prepare",
    "RandomNumbers", "RenamedKeys", "ReportedValue", "RequiresGrad", "SamplerMade", "Save", "Scale", "ScalerCall",
    "ScheduleStep", "SchedulerMade", "Seed", "SetEpoch", "Spawn", "Split", "Step", "SyncFlag", "Traffic", "UnfollowedCall",
    "Unscale", "Wait", "Wrap", "ZeroGrad",
]  # fmt: skip
