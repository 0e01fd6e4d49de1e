"""What rules ask: the nodes of a program, the values in it, and the questions on all of it.

A rule imports from the three modules here and from nothing inside of `ddp_audit.program`, so that what stands behind them can
change. docs/asking-the-program.md is their index, made from the docstrings.
"""
