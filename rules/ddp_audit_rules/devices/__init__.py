"""The device and the life of a rank: DDP6xx."""
