"""The checks before a job: devices, addresses, group, communication, and whether every rank has the same source, data and settings.

`launcher.run_preflight` is the entrance on each node: it lets the launchers of all nodes meet (`rollcall`), starts the job's own
command with `probe` in place of the script, and puts together what the ranks wrote (`verdicts`, `report`).
`python -m ddp_audit.preflight` is the entrance where the launcher cannot be wrapped. The user's script is read and never imported.
"""
