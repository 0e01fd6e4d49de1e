"""ddp-audit: finds hazards of DistributedDataParallel training in source, and confirms them in a traced run."""

__version__ = "0.1.0"
