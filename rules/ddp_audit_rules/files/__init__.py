"""What ranks write and read, and checkpoints: DDP7xx."""
