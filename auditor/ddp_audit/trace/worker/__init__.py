"""The part of the tracer that lives inside training processes.

It imports the standard library, torch and `ddp_audit.events`, and issues no collective, draws no random number and changes no
tensor. Anything that goes wrong in it ends the tracing of that rank with one line on stderr, and never the training.

`boot` decides whether this process is a rank to trace, `tracer` holds its state, `hook` records collectives at torch's
dispatcher, `patches` records everything else, `frames` finds the user's lines, `ring` writes the file, and `watch` is the
thread that notes which collectives have returned. `layout` describes the bytes of the file.
"""
