"""World size, batch arithmetic and launch commands: DDP5xx."""
