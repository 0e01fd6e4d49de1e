"""The comparison of ranks: of a recorded run, of a predicted one, and of one with the other.

`run` is a recorded run and what may be asked of it, `sequence` what is compared of an event. `align` compares collectives event by
event, `bulk` does the same on columns of numbers for many ranks, `live` while a run is recorded; `messages` and `partners` do it
for sends and receives. `absent`, `crossed`, `branches` and `ended` look into ranks that are missing, met by chance, or have left.
Silent faults: `silent`, `unequal`, `drift`, `evaluated`, `factors`, over `faults` and `peers`. `predicted` holds a prediction
against a record. `verdict` puts all of it together; `explain`, `explain_messages`, `logs` and `log_texts` find the words.
"""
