"""Fixing sources: one codemod a module, applied in rounds, each of which is audited again. libcst is imported here alone."""
