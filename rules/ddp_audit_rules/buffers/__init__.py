"""What the forward of a wrapper sends, and batch statistics of one rank: DDP4xx."""
