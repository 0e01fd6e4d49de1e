"""What holds for every rule of the package: its page is whole, and says what a run of its example shows."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_origin, get_type_hints

import pytest

from ddp_audit.findings import SEVERITIES
from ddp_audit.report.pages import in_words, page_of
from ddp_audit.rule import Rule, load_rules

RULES = load_rules()
CASES = Path(__file__).parents[1] / "cases"
# The outcomes of tests/cases/README.md.
RANKS = r"(all|\d+(,\d+)*)"
OUTCOME = re.compile(
    rf"clean|hang {RANKS}|abort {RANKS}|error {RANKS}: .+|gradients-local|parameters-differ|buffers-differ|same-samples|same-order"
    r"|wrong-factor \d+(\.\d+)?|reductions \d+|device \d+|all-on-device \d+|shows .+|not-run .+"
)


def attributes() -> list[str]:
    """The class attributes that make the page of a rule."""
    return [name for name, hint in get_type_hints(Rule).items() if "ClassVar" in str(get_origin(hint) or hint)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_page_is_whole(rule: Rule) -> None:
    assert {"summary", "outcome", "bad", "good"} <= set(attributes())
    missing = [name for name in attributes() if not str(getattr(rule, name, "")).strip()]
    assert not missing
    assert re.fullmatch(r"DDP\d{3}", rule.code) and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rule.name)
    assert rule.level in SEVERITIES
    page = page_of(rule)
    said = in_words(rule.outcome)
    assert said[0].isupper() and said.endswith(".") and said in page.markdown() and said in " ".join(page.text().split())
    assert page.to_json()["outcome"] == rule.outcome


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_examples_are_programs(rule: Rule) -> None:
    assert rule.bad != rule.good
    for program in (rule.bad, rule.good):
        assert ast.get_docstring(ast.parse(program)), "an example begins with what it does"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_outcome_is_in_the_words_of_the_cases(rule: Rule) -> None:
    assert all(OUTCOME.fullmatch(part) for part in rule.outcome.split("; ")), rule.outcome


def test_codes_and_names_are_unique() -> None:
    assert len({rule.code for rule in RULES}) == len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_has_cases(rule: Rule) -> None:
    names = [path.name for path in (CASES / rule.code.lower()).glob("*/*.py")]
    assert "bad.py" in names and "fixed.py" in names
    assert any(name.startswith("alike") for name in names)
