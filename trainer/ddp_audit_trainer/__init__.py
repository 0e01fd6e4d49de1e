"""The reference trainer: a small GPT trained with DDP, right by default, with hazards on demand."""
