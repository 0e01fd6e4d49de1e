"""What people and other programs read: of an audit, of a comparison of ranks, and of a predicted run. Nothing is decided here.

Audits: `full`, `concise`, `grouped`, `markdown` and `text` for people, of `causes`; `json`, `json_lines`, `sarif`, `github`,
`gitlab`, `junit`, `rdjson` and `azure` for programs; `summary` and `console` are what they share. `pages` are those of rules.
Comparisons: `trace_text`, `trace_json`, `page` (HTML), `perfetto`, `parquet`, of what `selection` chooses, and `log_lines`.
Predictions: `run_text`, `run_json`, and `sides` for a prediction next to its record. `columns` is what reports in columns share.
"""
