"""The rules of ddp-audit, one module each, named by its slug. `ddp_audit.rule.load_rules` finds them by walking this package."""
