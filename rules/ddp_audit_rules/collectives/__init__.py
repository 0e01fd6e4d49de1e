"""Which rank issues which collective, in which order: DDP2xx."""
