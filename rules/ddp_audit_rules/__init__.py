"""The rules of ddp-audit, in a folder for each family. `ddp_audit.rule.load_rules` finds them by walking this package.

The module of a rule has its slug for a name and holds its page, its findings and the verdict of a run on them. A module with an
underscore holds what the rules next to it look for. What several families ask stands in `facts`:

* `training`: wrappers, the optimizers that work on them, gradients that the program reduces itself
* `one_node`, `writers`: which jobs and which ranks get to a place, together or one by one
* `loaded_states`, `recorded_uses`: loaded checkpoints, what is read where
* `predicted`, `parted`, `evidence`: what the predicted run proves and what a recorded run tells `verify`
"""
