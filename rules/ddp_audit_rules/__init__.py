"""The rules of ddp-audit, one module each, named by its slug. `ddp_audit.rule.load_rules` finds them by walking this package.

The module of a rule holds its page, its findings and the verdict of a run on them. What it looks for is found in a module with an
underscore, of which most serve one rule. These serve several:

* `_training`: wrappers, the optimizers that work on them, gradients that the program reduces itself
* `_always`, `_regions`, `_writers`, `_one_node`: which jobs and which ranks get to a place, together or one by one
* `_unshared`, `_streams`, `_lengths`: which data, random numbers and numbers of steps the ranks have alike
* `_losses`, `_accumulation`: how a loss was scaled, and windows of micro-batches
* `_model_parts`, `_loaded_states`, `_cuda`: parts of a model, loaded checkpoints, devices
* `_evidence`, `_parted`: what a recorded run tells witnesses
"""
