"""What torch does, as a machine: DDP and its process group, without torch."""
