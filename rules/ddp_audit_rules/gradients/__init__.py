"""Which gradients are reduced, and when: DDP1xx."""
