"""The cache of audits: what would be looked at again is not, and comes out the same.

`reports` keeps what whole commands printed, and prints it again as long as stat says that nothing changed. `runs` keeps whole
audits, for a run in which nothing changed; it imports no more than that needs. `entries` keeps the results of single entries, for a
run in which something did. `files` is what all of them write and the latter two read.
"""
