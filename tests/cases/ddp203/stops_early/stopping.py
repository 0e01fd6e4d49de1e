"""Decides when training has seen enough."""


class EarlyStopping:
    """Counts the evaluations that brought nothing better."""

    def __init__(self, patience):
        self.patience, self.best, self.waited = patience, float("inf"), 0

    def should_stop(self, loss):
        """Notes one evaluation; whether it was one too many."""
        if loss < self.best:
            self.best, self.waited = loss, 0
        else:
            self.waited += 1
        return self.waited >= self.patience
