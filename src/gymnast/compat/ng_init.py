"""`gym env init --environment` and `--benchmark`: a config, data and a manifest for a new or an existing server.

Without a verifier to reuse, the server is one of our templates. Writes nothing if a file is already there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import yaml

from gymnast.authoring.scaffold import KINDS, scaffold
from gymnast.compat.ng_arguments import FieldError, Fields
from gymnast.compat.ng_components import AGENTS, RESOURCES, servers_of
from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.authoring.scaffold import Kind
    from gymnast.config import Config

PROFILE: Final = "custom-gym-verifier"
_FOLDERS: Final = {"environment": "environments", "benchmark": "benchmarks"}
_PREPARE: Final = '''"""Creates the rows of the benchmark {name} from its source."""

import json
from pathlib import Path

FOLDER = Path(__file__).parent / "data"


def prepare():
    """Write one row per task; returns the path of the file."""
    target = FOLDER / "{name}_benchmark.jsonl"
    with (FOLDER / "source.jsonl").open() as source, target.open("w") as out:
        for line in source:
            row = json.loads(line)  # change the rows of your source here
            out.write(json.dumps(row) + "\\n")
    return target
'''


@dataclass(frozen=True, slots=True)
class Verifier:
    """The server that scores a workload, in its config."""

    server: str
    """Its implementation."""
    instance: str
    agent: str
    agent_instance: str
    config: str
    domain: str
    rows: str
    """Its example rows."""


@dataclass(frozen=True, slots=True)
class RewardRange:
    """What rewards mean."""

    low: float = 0.0
    high: float = 1.0
    higher_is_better: bool = True


def init_workload(config: Config, kind: str, name: str) -> int:
    """Create an environment or a benchmark of this name."""
    fields = Fields(config)
    reuse, reward = fields.optional("reuse_verifier"), _reward(config)
    if (reuse is None) != (reward is None):
        raise UserError(
            "--reuse-verifier, --reward-range and --higher-is-better or --lower-is-better need each other",
            next="add those that are missing",
        )
    form = cast("Kind", fields.one_of("kind", KINDS)) if fields.optional("kind") else KINDS[0]
    new = scaffold(name, form)
    files = {f"{RESOURCES}/{name}/{path}": text for path, text in new.files.items()} if reuse is None else {}
    verifier = _verifier(config, reuse) if reuse else _new_verifier(name, files)
    files |= _workload_files(kind, name, verifier, reward or RewardRange())
    _write(files)
    folder = f"{_FOLDERS[kind]}/{name}"
    print(f"\nnext  gym env validate --{kind} {name}")
    print(f"      edit what is in {folder}")
    return 0


def _reward(config: Config) -> RewardRange | None:
    limits, higher = config.values.get("reward_range"), config.values.get("higher_is_better")
    if limits is None and higher is None:
        return None
    is_pair = isinstance(limits, list) and [type(value) in {int, float} for value in limits] == [True, True]
    if not isinstance(limits, list) or not is_pair or limits[0] >= limits[1]:
        raise FieldError(f"reward_range must be two numbers, the lower one first, not {limits!r}")
    if not isinstance(higher, bool):
        raise UserError("a reward range needs --higher-is-better or --lower-is-better")
    return RewardRange(float(limits[0]), float(limits[1]), higher)


def _verifier(config: Config, name: str) -> Verifier:
    """The server in the checkout, or among those that ship, that has this name."""
    from gymnast.compat.ng_catalog import ConfigReader
    from gymnast.compat.ng_listing import find_config

    path = find_config(config.roots, "resources-servers", name)
    file = config.roots.require(path, "the config")
    rows = config.roots.find(f"{RESOURCES}/{name.partition('/')[0]}/data/example.jsonl")
    return _read_verifier(ConfigReader()(file), path, rows.read_text() if rows else "")


def _new_verifier(name: str, files: Mapping[str, str]) -> Verifier:
    path = f"{RESOURCES}/{name}/configs/{name}.yaml"
    return _read_verifier(yaml.safe_load(files[path]), path, files[f"{RESOURCES}/{name}/data/example.jsonl"])


def _read_verifier(blocks: Any, path: str, rows: str) -> Verifier:
    servers, agents = list(servers_of(blocks, RESOURCES)), list(servers_of(blocks, AGENTS))
    if not servers or not agents:
        raise UserError("the config has no resources server with an agent", where=path, next="reuse another verifier")
    (instance, server, settings), (agent_instance, agent, _) = servers[0], agents[0]
    domain = str(settings.get("domain") or "other")
    return Verifier(server, instance, agent, agent_instance, path, domain, rows)


def _workload_files(kind: str, name: str, verifier: Verifier, reward: RewardRange) -> dict[str, str]:
    folder = f"{_FOLDERS[kind]}/{name}"
    dataset: dict[str, Any] = {"name": name, "type": "example", "jsonl_fpath": f"{folder}/data/example.jsonl"}
    files = {f"{folder}/data/example.jsonl": verifier.rows}
    if kind == "benchmark":
        dataset |= {"type": "benchmark", "jsonl_fpath": f"{folder}/data/{name}_benchmark.jsonl"}
        dataset |= {"prepare_script": f"{folder}/prepare.py", "num_repeats": 1}
        files = {f"{folder}/data/source.jsonl": verifier.rows, f"{folder}/prepare.py": _PREPARE.format(name=name)}
    server, agent = f"{name}_resources_server", f"{name}_agent"
    reference = {"type": RESOURCES, "name": server}
    blocks = {
        "config_paths": [verifier.config],
        server: {"_inherit_from": verifier.instance},
        agent: {
            "_inherit_from": verifier.agent_instance,
            AGENTS: {verifier.agent: {"resources_server": reference, "datasets": [dataset]}},
        },
    }
    files[f"{folder}/config.yaml"] = yaml.safe_dump(blocks, sort_keys=False)
    if kind == "environment":  # a benchmark's would need a prompt template, and rows without prompts
        manifest = _manifest(name, verifier, dataset, reward)
        files[f"{folder}/manifest.yaml"] = yaml.safe_dump(manifest, sort_keys=False)
    return files


def _manifest(name: str, verifier: Verifier, dataset: Mapping[str, Any], reward: RewardRange) -> dict[str, Any]:
    """What NeMo Gym's catalog lists, valid there as it is."""
    return {
        "name": name,
        "version": "0.1.0",
        "kind": "environment",
        "integration_profile": PROFILE,
        "domain": verifier.domain,
        "description": "TODO",
        "modality": "text",
        "licensing": "unknown",
        "authors": ["TODO"],
        "reward": {"range": [reward.low, reward.high], "higher_is_better": reward.higher_is_better},
        "determinism": "unknown",
        "resources_server": verifier.server,
        "agent_server": verifier.agent,
        "datasets": [dict(dataset)],
        "model_server": "policy_model",
    }


def _write(files: Mapping[str, str]) -> None:
    conflicts = [path for path, text in files.items() if Path(path).exists() and Path(path).read_text() != text]
    if conflicts:
        raise UserError(
            f"{conflicts[0]} already exists with different content", next="choose another name, or remove it"
        )
    for path, text in sorted(files.items()):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
        print(path)
