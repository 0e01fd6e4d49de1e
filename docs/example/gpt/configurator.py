"""Overrides the globals of train.py from the command line."""

import sys

for argument in sys.argv[1:]:
    if argument.endswith(".py"):
        exec(open(argument).read())
