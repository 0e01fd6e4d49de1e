"""The oracle of the interpreters: random programs under CPython, one thread a rank, against what the audit predicts.

`oracle.py` is the command. `grammar.py` draws programs, `standin.py` runs them with a stand-in for torch that records events,
`compare.py` asks the engines and says where they differ.
"""
