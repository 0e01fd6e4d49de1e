"""Calls of libraries that communicate by themselves and are not modelled: what a run does after one is not predicted.

A prediction that passed over them would say that a script of such a library sends nothing.
"""

from __future__ import annotations

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
