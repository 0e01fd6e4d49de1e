# class: unmatched-collective
# outcome: not-run accelerate is not installed
# needs: accelerate
"""Distillation with Accelerate; the accelerate config selects DeepSpeed."""

import argparse
import os
import shutil

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logger = get_logger(__name__)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", default="out_lcm")
    parser.add_argument("--checkpointing_steps", type=int, default=10)
    parser.add_argument("--checkpoints_total_limit", type=int, default=2)
    args = parser.parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=2, mixed_precision="bf16")
    unet = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 8))
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-5)
    data = DataLoader(TensorDataset(torch.randn(256, 8)), batch_size=4, shuffle=True)
    unet, optimizer, data = accelerator.prepare(unet, optimizer, data)
    global_step = 0
    for epoch in range(2):
        for (latents,) in data:
            with accelerator.accumulate(unet):
                loss = nn.functional.mse_loss(unet(latents), latents)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                global_step += 1
                if global_step % args.checkpointing_steps == 0:
                    if accelerator.is_main_process:
                        old = sorted(d for d in os.listdir(args.output_dir) if d.startswith("checkpoint"))
                        for name in old[: -args.checkpoints_total_limit]:
                            shutil.rmtree(os.path.join(args.output_dir, name))
                    save_path = os.path.join(args.output_dir, f"checkpoint-{global_step}")
                    accelerator.save_state(save_path)
                    if accelerator.is_main_process:
                        logger.info(f"Saved state to {save_path}")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(unet)
    accelerator.end_training()


if __name__ == "__main__":
    main()
