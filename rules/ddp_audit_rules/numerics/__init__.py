"""What a loss, a norm or a metric means over all ranks: DDP8xx."""
