"""The traced run, from the bytes that a rank writes to the events that are compared.

`worker` is what lives inside the traced processes, `boot` how it gets there. Outside of them `launcher` starts the command and
watches it, in a `folder` that nodes may share, with `processes` for their end; `build` compiles the native kernel, and `errors`
and `locked` read what processes leave next to their traces.

Readers: `store` (whole runs, or while they live), `columns` with `definition_table` and `event_layout` (many ranks), over
`records`; `attempts` finds what was recorded before a restart; `flight_recorder` and `dumps` read files of the Flight Recorder.
"""
