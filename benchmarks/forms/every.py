"""Every form."""

from __future__ import annotations

from forms import calls, conditions, data, functions, holders, imports, loops, names, ranks, state
from forms.form import Form

FORMS: list[Form] = [
    form for family in (names, imports, conditions, holders, ranks, loops, calls, functions, state, data) for form in family.FORMS
]
