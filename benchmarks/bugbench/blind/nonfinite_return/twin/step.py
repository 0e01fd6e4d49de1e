"""One step of pre-training."""

import torch
import torch.distributed as dist


class Pretrainer:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer
        self.steps = 0

    def masked_loss(self, signals, lengths):
        mask = torch.arange(signals.shape[1])[None, :] < lengths[:, None]
        error = (self.model(signals) - signals.nan_to_num(posinf=1e38)).square().mean(-1)
        return (error * mask).sum(), mask.sum()

    def training_step(self, signals, lengths):
        self.optimizer.zero_grad()
        loss, frames = self.masked_loss(signals, lengths)

        # a damaged recording must not spoil the weights
        damaged = (~torch.isfinite(loss.detach())).float()
        dist.all_reduce(damaged, op=dist.ReduceOp.MAX)
        if damaged.item() > 0:
            return None

        all_frames = frames.clone().float()
        dist.all_reduce(all_frames)
        loss = loss * dist.get_world_size() / all_frames
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.steps += 1
        return loss.item()
