"""The part of the tracer that lives inside training processes.

It imports the standard library, torch and `ddp_audit.events`, and issues no collective, draws no random number and changes no
tensor. Anything that goes wrong in it ends the tracing of that rank with one line on stderr, and never the training.

`boot` decides whether this process is a rank to trace, `tracer` holds its state, `hook` records collectives at torch's
dispatcher, `patches` and `wrappers` record everything else, `frames` finds the user's lines, with `markers`. `native` does in C++
what comes by in every step. `ring` writes the file, whose bytes `layout` describes. `watch` is the thread that notes which
collectives have returned, `node` asks for all ranks of a host, and `locked` tells the line of a process in which no Python runs.

Evidence of silent faults: `fingerprint` hashes; `state_sampler` reads parameters, gradients and optimizers; `factor`, `evidence`,
`evaluations`, `buffers`, `orders` and `places` for one fault each. `api_hooks` records what single rules of the audit ask for.
"""
