# expects: nothing
# outcome: clean
# needs: transformers
"""The trainer makes the loader with a sampler of its own."""

import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        row = torch.full((8,), index % 16)
        return {"input_ids": row, "labels": row}


def main():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1))
    arguments = TrainingArguments(os.environ["CASE_FOLDER"], num_train_epochs=2, gradient_accumulation_steps=4, use_cpu=True)
    trainer = Trainer(model=model, args=arguments, train_dataset=Tokens())
    trainer.train()
    if trainer.is_world_process_zero():
        trainer.save_model()


if __name__ == "__main__":
    main()
