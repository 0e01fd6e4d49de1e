"""Which samples, seeds and random numbers each rank gets: DDP3xx."""
