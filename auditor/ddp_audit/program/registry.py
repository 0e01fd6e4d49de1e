"""Every contract that the lowering knows. Where two files have one for the same name, that of the later file counts."""

from __future__ import annotations

from ddp_audit.program import (
    contracts_config,
    contracts_data,
    contracts_files,
    contracts_frameworks,
    contracts_groups,
    contracts_modules,
    contracts_python,
    contracts_random,
    contracts_records,
    contracts_reports,
    contracts_schedules,
    contracts_states,
    contracts_torch,
    inside,
)
from ddp_audit.program.contracts import Contracts

_FILES = (
    contracts_records,
    contracts_random, contracts_data, contracts_files, contracts_reports, contracts_frameworks, contracts_python, contracts_groups,
    contracts_torch, contracts_schedules, contracts_states, contracts_modules, contracts_config, inside,
)  # fmt: skip


def _merged() -> Contracts:
    found = Contracts()
    for file in _FILES:
        found.names.update(file.CONTRACTS.names)
        found.methods.update(file.CONTRACTS.methods)
        found.kinds.update(file.CONTRACTS.kinds)
        found.families += file.CONTRACTS.families
    return found


CONTRACTS = _merged()
