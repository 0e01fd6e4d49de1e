# 12 sequences of 1,024 tokens, 40 times an update over all processes
batch_size = 12
block_size = 1024
gradient_accumulation_steps = 5 * 8
