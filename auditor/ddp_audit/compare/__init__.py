"""The comparison of ranks: of a recorded run, of a predicted one, and of one with the other.

`run` is a recorded run and what may be asked of it, `sequence` what is compared of an event. `align` compares collectives event
by event, `bulk` does the same on columns of numbers for many ranks, `live` while a run is recorded; `messages` and `p2p_matching`
do it for sends and receives. `missing_ranks`, `call_site_mismatch`, `branches` and `termination` look into ranks that are
missing, met by chance, or have left. Silent faults: `silent`, `unequal`, `replica_drift`, `evaluated`, `factors`, over `faults`
and `peers`. `predicted` checks a record against a prediction. `verdict` puts all of it together; `explain`, `explain_messages`,
`logs` and `log_texts` find the words.
"""
