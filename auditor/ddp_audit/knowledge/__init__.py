"""What libraries do, written once: data files that a person reads and extends, and the questions that the rest of the tool asks.

`frameworks/*.toml` describe training frameworks (see `framework.py`). Nothing here looks at a user's program: an answer is the same
for all of them, and what it means for one is decided where it is asked.
"""
