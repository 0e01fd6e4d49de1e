"""Launch commands and batch arithmetic: what a job will be, read without starting it."""

from ddp_audit.launch.command import read_command, world_launch
from ddp_audit.launch.documents import documented_launches
from ddp_audit.launch.model import Launch, LaunchError, ProseClaim
from ddp_audit.launch.named import named_launch

__all__ = ["Launch", "LaunchError", "ProseClaim", "documented_launches", "named_launch", "read_command", "world_launch"]
