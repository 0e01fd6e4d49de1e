"""The language server: findings as diagnostics while one writes. `session.py` audits, `protocol.py` speaks the protocol."""
