"""The cache of audits: what would be looked at again is not, and comes out the same.

`runs` keeps whole audits, for a run in which nothing changed; it imports no more than that needs. `entries` keeps the results of
single entries, for a run in which something did. `files` is what both write and read.
"""
