"""Calls of libraries that communicate by themselves and are not modelled: what a run does after one is not predicted.

A prediction that passed over them would say that a script of such a library sends nothing.
"""

from __future__ import annotations

import ast
import builtins
import functools
import sys
from typing import Any

from ddp_audit.explore.exact.values import Class, Function, Lib, Method, Unknown

# Which names of a package run a training, or send, by themselves. The rest of the package is taken for harmless.
_RUNNERS: dict[str, tuple[str, ...]] = {
    "accelerate": ("Accelerator", "PartialState", "AcceleratorState"),
    "lightning": ("Trainer", "Fabric", "LightningCLI"),
    "pytorch_lightning": ("Trainer", "LightningCLI"),
    "lightning_fabric": ("Fabric",),
    "transformers": ("Trainer",),
    "trl": ("Trainer",),
    "sentence_transformers": ("Trainer",),
    "deepspeed": ("initialize", "init_distributed", "init_inference"),
    "colossalai": ("launch", "launch_from_torch", "Booster"),
    "composer": ("Trainer",),
    "horovod": ("init",),
    "ignite": ("Parallel", "auto_model", "initialize"),
    "fairscale": ("FullyShardedDataParallel", "ShardedDataParallel", "OSS"),
    "apex": ("DistributedDataParallel", "DistributedFusedAdam", "DistributedFusedLAMB"),
    "ray": ("TorchTrainer", "prepare_model"),
    "bagua": ("with_bagua",),
    "byteps": ("init",),
}
_TORCH: dict[str, tuple[str, ...]] = {
    "torch.distributed.optim": ("ZeroRedundancyOptimizer", "PostLocalSGDOptimizer", "DistributedOptimizer"),
    "torch.distributed.tensor": ("distribute_tensor", "distribute_module", "parallelize_module", "full_tensor", "DTensor"),
    "torch.distributed.algorithms.model_averaging": ("PeriodicModelAverager", "HierarchicalModelAverager"),
    "torch.distributed.pipelining": ("PipelineStage", "ScheduleGPipe", "Schedule1F1B", "ScheduleInterleaved1F1B"),
    "torch.distributed.rpc": ("init_rpc", "rpc_sync", "rpc_async", "remote"),
}


# Packages that send nothing between ranks, whatever of them is called. Any other that is not modelled may.
_SEND_NOTHING = sys.stdlib_module_names | frozenset({
    "PIL", "absl", "albumentations", "apex", "click", "colorama", "cv2", "easydict", "einops", "filelock", "fire", "h5py",
    "hydra", "imageio", "joblib", "jsonargparse", "lmdb", "loguru", "matplotlib", "mlflow", "networkx", "nltk", "numba",
    "numpy", "omegaconf", "pandas", "prettytable", "psutil", "pyarrow", "pydantic", "pynvml", "pytz", "regex", "requests",
    "rich", "scipy", "seaborn", "sentencepiece", "simple_parsing", "six", "skimage", "sklearn", "soundfile", "sympy",
    "tabulate", "tensorboard", "tensorboardX", "termcolor", "thop", "tiktoken", "timm", "tokenizers", "torchaudio",
    "torchinfo", "torchsummary", "torchtext", "torchvision", "tqdm", "typer", "typing_extensions", "wandb", "yacs", "yaml",
})  # fmt: skip
_SEND = ("timm.utils.distributed", "timm.utils.reduce_tensor", "timm.utils.distribute_bn")
_MOST_CALLS = 60  # that are looked at in a function that a library is given


@functools.lru_cache(maxsize=4096)
def may_send(name: str) -> bool:
    """Whether a call of something of a library, by its full name, may send something that no model here issues."""
    if name.startswith("torch."):
        return bool(unfollowed(name))
    return (name.partition(".")[0] not in _SEND_NOTHING and not name.startswith("builtins.")) or name.startswith(_SEND)


def may_act(value: Any) -> bool:
    """Whether a function of the project, called by a library at a time that is not known, may send something or leave the run.

    It may where it calls anything but functions of libraries that send nothing, or of the project that do not either.
    """
    return _acts(value, set())


def _acts(value: Any, seen: set[int]) -> bool:
    function = value.function if isinstance(value, Method) else value
    if not isinstance(function, Function):
        return True
    if id(function) in seen:
        return False
    seen.add(id(function))
    made = [node for node in ast.walk(function.node) if isinstance(node, ast.Call)]
    return len(made) > _MOST_CALLS or any(_call_acts(node, function, seen) for node in made)


def _call_acts(node: ast.Call, function: Function, seen: set[int]) -> bool:
    names: list[str] = []
    target: ast.expr = node.func
    while isinstance(target, ast.Attribute):
        names.insert(0, target.attr)
        target = target.value
    if not isinstance(target, ast.Name):
        return not isinstance(target, (ast.Constant, ast.JoinedStr))
    scope = function.scope
    while scope.parent is not None and target.id not in scope.variables:
        scope = scope.parent
    found = scope.variables.get(target.id)
    if isinstance(found, Unknown):
        return not found.quiet
    if found is None and hasattr(builtins, target.id):
        found = Lib(f"builtins.{target.id}")
    if isinstance(found, Lib):
        full = ".".join((found.name, *names))
        return full.startswith("torch.distributed") or full in ENDS or may_send(full)
    return names != [] or isinstance(found, Class) or _acts(found, seen)


ENDS = frozenset({"sys.exit", "builtins.exit", "builtins.quit", "os._exit", "os.abort", "os.kill"})


@functools.lru_cache(maxsize=4096)
def unfollowed(name: str) -> str:
    """What is not followed after a call of `name` (a whole name of a library, such as `lightning.Trainer`); empty where all is."""
    last = name.rsplit(".", 1)[-1]
    for package, names in _TORCH.items():
        if name.startswith(f"{package}.") and last in names:
            return f"what {name} sends is not followed"
    root = name.partition(".")[0]
    if any(last == known or (known == "Trainer" and last.endswith("Trainer")) for known in _RUNNERS.get(root, ())):
        return f"{name} communicates by itself, and what is sent from there on is not followed"
    return ""
