"""The table of failure kinds holds in both directions: every kind is produced somewhere, and whatever explains
failures (doctor, trainers, docs) knows every kind and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymnast.doctor.load_table import load_table
from gymnast.doctor.read_failures import flavor_of
from gymnast.doctor.rules.kind_table import TABLE
from gymnast.doctor.rules.registry import RULES
from gymnast.doctor.signatures import SIGNATURES
from gymnast.train.causes import cause_of
from gymnast.types.events import InstanceDied
from gymnast.types.failure import KINDS, FailureDetail, FailureKind, Layer, Stage
from gymnast.types.job import JobState
from gymnast.wire.endpoint_errors.causes import Cause

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "gymnast"
READERS = ("doctor", "train", "profile", "report", "checks", "cli")
"""These read failures and produce none: a kind that only they name never happens."""
PROCESS_KINDS = {
    FailureKind.OUT_OF_MEMORY,
    FailureKind.WORKER_DIED,
    FailureKind.INSTANCE_DIED,
    FailureKind.AGENT_UNREACHABLE,
    FailureKind.ENVIRONMENT_UNREACHABLE,
}
BODIES = (
    *("", "null", "Internal Server Error", "<html>502</html>", '{"error": "x"}', '{"detail": "Not Found"}'),
    *("maximum model length is 10", "xgrammar: bad schema", "WorkCrashedError: gone", "zero-length body"),
    *("model_auth: 401", "model_unreachable: refused", "model_rejected: 400"),
)
MESSAGES = ("", "failed", "exit code -9", "stream ended early", "model_not_found: 404", "model_timeout: 60 s")


def trees(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE)
        if path.name != "failure.py" and (name.parts[0] in folders if folders else name.parts[0] not in READERS):
            yield name, ast.parse(path.read_text())


def produced_kinds(tree: ast.Module) -> Iterator[str]:
    """The members of FailureKind that a module names other than to compare with them."""
    compared = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.Compare) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="FailureKind"), attr=name) if id(node) not in compared:
                yield name


def test_every_kind_is_produced_somewhere() -> None:
    produced = {name for _, tree in trees() for name in produced_kinds(tree)}
    assert {kind.name for kind in FailureKind} - produced == set()


def test_kinds_are_named_by_the_enum() -> None:
    """A literal could name a kind that does not exist. Words that mean something else as well are left out."""
    others = (
        {rule.id for rule in RULES} | SIGNATURES.keys() | {*JobState, *Cause} | {InstanceDied.__struct_config__.tag}
    )
    kinds = {kind.value for kind in FailureKind if "_" in kind.value} - others
    assert len(kinds) > 30
    literal = [
        f"{path}:{node.lineno} {node.value}"
        for path, tree in trees(*(path.name for path in SOURCE.iterdir()))
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in kinds
    ]
    assert not literal


def test_a_kind_that_does_not_exist_is_not_written() -> None:
    detail = FailureDetail("no_such_kind", Stage.AGENT, "from a plugin")  # type: ignore[arg-type]
    assert detail.kind is FailureKind.UNKNOWN


def test_the_table_of_kind_rules_names_known_kinds_only() -> None:
    """An unknown value would be read as `unknown`, as in a file of a newer version."""
    named = {kind for rule in load_table("kinds").values() for kind in rule["kinds"]}
    assert named <= {kind.value for kind in FailureKind}


def test_the_failure_table_has_every_kind_once() -> None:
    assert list(KINDS) == list(FailureKind)


def test_the_rules_of_doctor_cover_every_kind_and_no_other() -> None:
    assert {kind for rule in TABLE for kind in rule.kinds} == set(FailureKind)


@pytest.mark.parametrize("kind", FailureKind)
def test_doctor_has_a_rule_for_every_flavor_of_a_kind(kind: FailureKind) -> None:
    rules = [rule for rule in TABLE if kind in rule.kinds]
    flavors = {flavor_of(kind, message, body) for message in MESSAGES for body in BODIES}
    assert {
        flavor for flavor in flavors if not any(rule.flavors is None or flavor in rule.flavors for rule in rules)
    } == set()


def test_doctor_names_no_kind_and_no_rule_that_does_not_exist() -> None:
    rules = {rule.id for rule in RULES} | SIGNATURES.keys()
    kinds = {kind.value for kind in FailureKind}
    for path, tree in trees("doctor"):
        for node in ast.walk(tree):
            match node:
                case ast.keyword(arg="explains", value=value):
                    named = {leaf.value for leaf in ast.walk(value) if isinstance(leaf, ast.Constant)}
                    assert named <= rules, path
                case ast.Compare(left=ast.Attribute(attr="kind"), comparators=[ast.Constant(value=str(name))]):
                    assert name in kinds, f"{path}:{node.lineno}"


@pytest.mark.parametrize("kind", FailureKind)
def test_trainers_blame_a_killed_process_only_for_what_a_killed_process_causes(kind: FailureKind) -> None:
    cause = cause_of(kind)
    assert ("OOM killer" in (cause.what if cause else "")) == (kind in PROCESS_KINDS)


def test_the_docs_explain_every_kind_and_no_other() -> None:
    page = (ROOT / "docs" / "failures.md").read_text()
    assert re.findall(r"^### (\S+)$", page, re.MULTILINE) == [kind.value for kind in FailureKind]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [layer.value for layer in Layer]


def test_links_to_a_kind_lead_to_it() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert set(re.findall(r"failures\.md#([\w-]+)", page.read_text())) <= set(FailureKind), page
