# expects: nothing
# outcome: not-run transformers is not installed
"""The trainer makes the loader with a sampler of its own."""

import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        row = torch.full((8,), index % 16)
        return {"input_ids": row, "labels": row}


def main():
    model = AutoModelForCausalLM.from_pretrained("tiny")
    arguments = TrainingArguments("out", num_train_epochs=2, gradient_accumulation_steps=4)
    trainer = Trainer(model=model, args=arguments, train_dataset=Tokens())
    trainer.train()
    if trainer.is_world_process_zero():
        trainer.save_model()


if __name__ == "__main__":
    main()
