"""The progress log of a run, and its checkpoints."""

import torch


class ProgressLog:
    """One line an epoch, in memory and in a file."""

    def __init__(self, folder):
        self.path = folder / "progress.txt"
        self.lines = []

    def add(self, epoch, loss):
        self.lines.append((epoch, loss))
        with self.path.open("a") as file:
            file.write(f"{epoch} {loss:.5f}\n")

    def state_dict(self):
        return {"lines": self.lines}


def save_checkpoint(state, path, is_main):
    """Keeps everything that is needed to go on from here."""
    if not is_main:
        return
    content = {"model": state.model.module.state_dict(), "optimizer": state.optimizer.state_dict(), "epoch": state.epoch}
    content["log"] = state.log.state_dict()
    partial = path.with_suffix(".partial")
    torch.save(content, partial)
    partial.rename(path)
