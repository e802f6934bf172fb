"""Which part of a rollout the author of an environment wrote, by its config and the agent's entry file.

The file is parsed, not imported. The evidence is in the words of NeMo Gym's own reports.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gymnast.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.config import Config, Instance


def infer_profile(agent: Instance, driver: str | None, config: Config) -> tuple[str, str]:
    """Which part of a rollout the author wrote, by the config and the agent's entry file, and what shows it."""
    if driver:
        return "external-rollout-driver", "rollout_collection_driver is configured"
    if agent.implementation == "simple_agent":
        return "custom-gym-verifier", "selected agent implementation is simple_agent"
    path = config.roots.find(f"{agent.kind}/{agent.implementation}/{agent.entrypoint}")
    try:
        tree = parse_file(path, "the agent's entry file") if path is not None else None
    except DataError:
        tree = None
    if tree is None:
        return "unknown", f"agent entrypoint could not be inspected: {path or agent.entrypoint}"
    server = _server_class(tree)
    if server is None:
        return "unknown", "agent server class could not be identified"
    return _profile_of(server)


def _profile_of(server: ast.ClassDef) -> tuple[str, str]:
    methods = [node for node in server.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    responses = next((method for method in methods if method.name == "responses"), None)
    if responses is None:
        if any("SimpleAgent" in {getattr(base, "id", None), getattr(base, "attr", None)} for base in server.bases):
            return "custom-gym-verifier", "agent inherits the default SimpleAgent responses() behavior"
        return "unknown", "agent server does not declare an inspectable responses() behavior"
    body = [
        node for node in responses.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    if _delegates(body, responses.name):
        return "unknown", "agent responses() still delegates to the default Gym behavior"
    if len(body) == 1 and _is_not_implemented(body[0]):
        return "external-agent-loop", "agent responses() raises NotImplementedError"
    if any(_is_not_implemented(node) for node in ast.walk(responses)):
        return "unknown", "agent responses() behavior depends on runtime configuration"
    return "custom-gym-agent-loop", "agent overrides responses() with measured behavior"


def _server_class(tree: ast.Module) -> ast.ClassDef | None:
    """The class whose `run_webserver` the file calls."""
    names = {
        node.func.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "run_webserver"
        and isinstance(node.func.value, ast.Name)
    }
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in names]
    return classes[0] if len(classes) == 1 else None


def _delegates(body: list[ast.stmt], method: str) -> bool:
    """Whether it only returns `super().METHOD(…)`."""
    value = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    value = value.value if isinstance(value, ast.Await) else value
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr != method:
        return False
    owner = value.func.value
    return isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super"


def _is_not_implemented(node: ast.AST) -> bool:
    if not isinstance(node, ast.Raise) or node.exc is None:
        return False
    error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return isinstance(error, ast.Name) and error.id == "NotImplementedError"


def parse_file(path: Path, what: str) -> ast.Module:
    """The syntax tree of a Python file."""
    try:
        return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except (OSError, UnicodeError, SyntaxError, ValueError) as error:
        raise DataError(f"cannot read {what}: {error}", where=str(path)) from error
