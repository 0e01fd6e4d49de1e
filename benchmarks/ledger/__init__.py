"""The ledger of losses: what the two readings of public training scripts do not know and had to know, by its first cause.

`matters` says which statements decide something, `runs` and `programs` find the deciding unknowns of a predicted run and of the
program that the rules ask, and `ledger` counts them over many scripts.
"""
