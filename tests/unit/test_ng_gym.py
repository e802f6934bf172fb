"""`gymnast gym …`: words and options of the newer command line, as keys; then the same commands, on real runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymnast.compat.gym_entry import run_gym
from gymnast.compat.gym_parser import describe_command, list_commands, translate
from gymnast.compat.gym_table import COMMANDS
from gymnast.compat.ng import run_words, run_work
from gymnast.compat.ng_arguments import FieldError, NgArguments
from gymnast.config.roots import Roots
from gymnast.errors import UserError
from tests.helpers.commands import Outcome
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl

Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(line: str) -> NgArguments:
    return translate(line.split(), lambda search_dirs: Roots(search_dirs, Path.cwd()))[1]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("eval profile --inputs I --rollouts R", {"materialized_inputs_jsonl_fpath": "I", "rollouts_jsonl_fpath": "R"}),
        (
            "eval run -a A -i I -o O --limit 3 --num-repeats=4 --concurrency 8 --resume --disable-aggregation",
            {
                "agent_name": "A",
                "input_jsonl_fpath": "I",
                "output_jsonl_fpath": "O",
                "limit": 3,
                "num_repeats": 4,
                "num_samples_in_parallel": 8,
                "resume_from_cache": True,
                "disable_aggregation": True,
            },
        ),
        (
            "eval run --temperature 0.5 --top-p 0.9 --max-output-tokens 64 --no-serve",
            {
                "responses_create_params": {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 64},
                "no_serve": True,
            },
        ),
        ("eval aggregate -i a-*.jsonl -o x.jsonl", {"input_glob": "a-*.jsonl", "output_jsonl_fpath": "x.jsonl"}),
        (
            "dataset collate --mode example_validation --output-dir D --download",
            {"mode": "example_validation", "output_dirpath": "D", "should_download": True},
        ),
        ("dataset download --repo-id o/n --revision v1", {"repo_id": "o/n", "version": "v1", "revision": "v1"}),
        ("env test --resources-server mcqa", {"entrypoint": "resources_servers/mcqa"}),
        ("env init --resources-server quiz --kind tools", {"entrypoint": "resources_servers/quiz", "kind": "tools"}),
        (
            "eval run --conc 4 -iin.jsonl --temp=0.5",
            {
                "num_samples_in_parallel": 4,
                "input_jsonl_fpath": "in.jsonl",
                "responses_create_params": {"temperature": 0.5},
            },
        ),
        ("-v list models", {"kind": "models", "verbose": True}),
        (
            "env init --environment x --reward-range 0 2 --lower-is-better",
            {
                "scaffold_environment": "x",
                "reward_range": [0.0, 2.0],
                "higher_is_better": False,
            },
        ),
        ("env packages --outdated --json", {"outdated": True, "json": True}),
        ("list agents simple_agent", {"kind": "agents", "component_name": "simple_agent"}),
        ("search judge", {"query": "judge"}),
        ("search --json --search-dir agents models judge", {"kind": "models", "json": True, "query": "judge"}),
        ("search environments judge", {"kind": "environments", "query": "judge"}),
        ("list environments --modality text", {"kind": "environments", "filter": {"modality": "text"}}),
    ],
)
def test_options_stand_for_keys(line: str, values: dict[str, Any]) -> None:
    assert asked(line).values == values


def test_names_become_config_files_in_the_order_given(here: Path) -> None:
    (here / "benchmarks" / "quiz").mkdir(parents=True)
    (here / "benchmarks" / "quiz" / "config.yaml").touch()
    found = asked(
        "env start --config a.yaml --benchmark quiz --environment mcqa --resources-server math_with_judge/dapo17k "
        "--model-type scripted_model/demo -m M --model-url http://h/v1 --model-api-key K --search-dir . +x=1 ++y.z=2"
    )
    assert found.config_paths == (
        "a.yaml",
        "benchmarks/quiz/config.yaml",
        "resources_servers/mcqa/configs/mcqa.yaml",
        "resources_servers/math_with_judge/configs/dapo17k.yaml",
    )
    assert (found.model_type, found.model, found.model_url) == ("scripted_model/demo", "M", "http://h/v1")
    assert found.values == {"policy_api_key": "K"}
    assert found.words == ("+x=1", "++y.z=2")
    assert found.search_dirs == (Path(),)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("evl run", "unknown command 'gym evl run'"),
        ("eval run --inptu I", "no option --inptu"),
        ("eval run --limit many", "invalid value 'many' for --limit"),
        ("eval run --input", "--input needs a value"),
        ("eval run --resume=yes", "--resume takes no value"),
        ("eval run stray", "unexpected argument 'stray'"),
        ("search", "needs query"),
        ("dataset upload --storage ftp", "invalid value 'ftp' for --storage"),
        ("env init --environment x --reward-range 0", "--reward-range needs 2 values"),
        ("env init --environment x --profile mine", "invalid value 'mine' for --profile"),
        ("env init --environment x --benchmark y", "--benchmark and --environment are mutually exclusive"),
        ("env init --environment x --higher-is-better --lower-is-better", "are mutually exclusive"),
        ("env init --re x", "could be --resources-server or --reuse-verifier or --reward-range"),
        ("env validate x --sync=yes", "--sync takes no value"),
    ],
)
def test_what_is_not_known_is_said(line: str, said: str) -> None:
    with pytest.raises(FieldError, match=said):
        asked(line)


def test_unknown_names_have_suggestions() -> None:
    with pytest.raises(FieldError) as refused:
        asked("eval run --resources-server mcq")
    assert "'mcqa'" in str(refused.value.next)
    with pytest.raises(FieldError, match="unknown model 'vlm_model'"):
        asked("eval run --model-type vlm_model")


def test_every_command_and_option_can_be_explained() -> None:
    assert len(list(list_commands())) == len(COMMANDS)
    for name, command in COMMANDS.items():
        lines = list(describe_command(name))
        assert all(any(line.strip().startswith(option) for line in lines) for option in command.options)


def test_a_whole_evaluation_with_the_newer_words(invoke: Callable[..., Outcome], here: Path) -> None:
    """As typed in a shell: collect, profile, re-verify, aggregate."""
    write_jsonl(here / "in.jsonl", example_rows("mcqa"))
    picks = ("--resources-server", "mcqa", "--model-type", "scripted_model/demo")
    words = ("-a", "mcqa_simple_agent", "-i", "in.jsonl", "-o", "x.jsonl", "--num-repeats", "2", "--temperature", "0.5")
    done = invoke("gymnast", "gym", "eval", "run", *picks, *words)
    assert done.code == 0, done.err
    assert len(read_jsonl(here / "x.jsonl")) == 10
    assert read_jsonl(here / "x_materialized_inputs.jsonl")[0]["responses_create_params"]["temperature"] == 0.5


def test_later_steps_of_an_evaluation(here: Path, capsys: Said) -> None:
    write_jsonl(here / "in.jsonl", example_rows("mcqa"))
    picks = ["--resources-server", "mcqa", "--model-type", "scripted_model/demo"]
    assert run_gym([*["eval", "run", "-a", "mcqa_simple_agent", "-i", "in.jsonl", "-o", "x.jsonl"], *picks]) == 0
    assert run_gym(["eval", "profile", "--inputs", "x_materialized_inputs.jsonl", "--rollouts", "x.jsonl"]) == 0
    assert run_gym(["eval", "reverify", *picks, "--rollouts", "x.jsonl", "-o", "y.jsonl", "--concurrency", "2"]) == 0
    assert len(read_jsonl(here / "y.jsonl")) == 5
    assert run_gym(["eval", "aggregate", *picks, "-i", "x.jsonl", "-o", "z.jsonl"]) == 0
    assert json.loads((here / "z_aggregate_metrics.json").read_text())[0]["agent_ref"] == {"name": "mcqa_simple_agent"}
    assert run_gym(["eval", "reverify", "--rollouts", "x.jsonl", "--append"]) == 2
    assert "append needs judge_failed_only" in capsys.readouterr().err


def test_environments_are_picked_by_their_manifests(here: Path, capsys: Said) -> None:
    for name, lifecycle in (("new", "active"), ("old", "deprecated"), ("bare", None)):
        folder = here / "environments" / name
        folder.mkdir(parents=True)
        (folder / "config.yaml").touch()
        if lifecycle:
            (folder / "manifest.yaml").write_text(f"name: {name}\nmodality: text\nlifecycle: {lifecycle}\n")

    def listed(*words: str) -> list[str]:
        assert run_gym(["list", "environments", *words]) == 0
        return [line.split()[0] for line in capsys.readouterr().out.splitlines()]

    assert listed("--lifecycle", "active") == ["new"]
    assert listed("--modality", "text") == ["new", "old"]
    assert listed("--status", "experimental") == ["new", "old"]
    bare = listed("--status", "no-manifest")
    assert "bare" in bare
    assert "resources_servers/mcqa" in bare


def test_looking_commands(capsys: Said) -> None:
    assert run_gym([]) == 1
    assert "gymnast gym eval run" in capsys.readouterr().out
    assert run_gym(["--version"]) == 0
    assert run_gym(["eval", "run", "--help"]) == 0
    assert "sets num_samples_in_parallel" in capsys.readouterr().out
    assert run_gym(["env", "validate", "mcqa"]) == 0
    assert run_gym(["env", "resolve", "--resources-server", "mcqa"]) == 0
    assert "policy_model:" in capsys.readouterr().out
    assert run_gym(["list", "models", "--json"]) == 0
    assert {"vllm_model", "scripted_model/demo"} <= {one["name"] for one in json.loads(capsys.readouterr().out)}
    assert run_gym(["list", "resources-servers", "nope"]) == 1
    assert run_gym(["search", "resources-servers", "blackjack"]) == 0
    assert capsys.readouterr().out.startswith("blackjack")
    assert run_gym(["eval", "submit", "--config", "x.yaml"]) == 1
    assert "cannot read the job file" in capsys.readouterr().err


def test_everything_that_can_be_run_is_listed_as_an_environment(here: Path, capsys: Said) -> None:
    agent = "{a_agent: {responses_api_agents: {simple_agent: {datasets: [{name: d, type: TYPE, num_repeats: 4}]}}}"
    server = ", a: {resources_servers: {a: {domain: math, description: sums}}}}"
    files = {
        "environments/shop/config.yaml": "{}",
        "benchmarks/sums/config.yaml": agent.replace("TYPE", "benchmark") + "}",
        "benchmarks/suite/configs/hard.yaml": agent.replace("TYPE", "benchmark") + "}",
        "benchmarks/suite/shared.yaml": "{note: no dataset here}",
        "resources_servers/a/configs/a.yaml": agent.replace("TYPE", "train") + server,
        "resources_servers/a/configs/bare.yaml": "{" + server.removeprefix(", "),
        "resources_servers/shop/configs/shop.yaml": agent.replace("TYPE", "train") + server,
        "resources_servers/torn/configs/torn.yaml": "{",
    }
    for path, text in files.items():
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        (here / path).write_text(text)

    def listed(kind: str) -> dict[str, Any]:
        assert run_gym(["list", kind, "--json"]) == 0
        return {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}

    benchmarks = listed("benchmarks")
    assert list(benchmarks) == ["suite/configs/hard", "sums"]
    assert (benchmarks["sums"]["agent_name"], benchmarks["sums"]["num_repeats"]) == ("a_agent", 4)
    every = listed("environments")
    assert {"shop", "sums", "suite/configs/hard", "resources_servers/a"} <= set(every)
    assert not {"resources_servers/shop", "resources_servers/a/bare"} & set(every)
    found = every["resources_servers/a"]
    assert [found[key] for key in ("kind", "status", "domain", "version")] == [
        "environment",
        "no-manifest",
        "math",
        None,
    ]


def test_one_component_is_shown_with_what_is_known_of_it(capsys: Said) -> None:
    assert run_gym(["list", "resources-servers", "mcqa", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["name", "type", "domain", "description", "details", "usage_example"]
    assert (found["type"], found["details"]["config"].endswith("mcqa.yaml")) == ("resources server", True)
    assert run_gym(["list", "agents", "simple_agent"]) == 0
    assert capsys.readouterr().out.startswith("simple_agent  (agent)")
    assert run_gym(["list", "benchmarks", "resources_servers/mcqa"]) == 1
    assert "gym list environments" in capsys.readouterr().err
    assert run_gym(["search", "agents", "simpel"]) == 0
    assert "simple_agent" in capsys.readouterr().out


def test_agents_say_how_they_are_composed(here: Path, capsys: Said) -> None:
    configs = {"alone": "{agent_framework: x}", "paired": "{resources_server: {name: r}, description: d}", "odd": "5"}
    for name, block in configs.items():
        folder = here / "responses_api_agents" / name / "configs"
        folder.mkdir(parents=True)
        (folder / f"{name}.yaml").write_text(f"{{i: {{responses_api_agents: {{{name}: {block}}}}}}}")
    assert run_gym(["list", "agents", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert "odd" not in listed  # neither a config of an agent nor an app.py
    assert (listed["alone"]["pattern"], listed["alone"]["variants"]) == ("B (self-contained)", ["alone"])
    assert (listed["paired"]["self_contained"], listed["paired"]["description"]) == (False, "d")


@pytest.mark.parametrize("program", ["gym", "ng"])
def test_commands_are_named_as_they_were_called(program: str, capsys: Said) -> None:
    """Help for `gym` listed `gymnast gym …`."""
    assert run_gym([], program) == 1
    assert run_gym(["env"], program) == 1
    assert run_gym(["env", "init", "--help"], program) == 0
    assert "gymnast gym" not in capsys.readouterr().out
    assert run_gym(["env", "init", "a", "b"], program) == 2
    assert f"see {program} env init --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("eval run --limit many", "a whole number"),
        ("eval run --temperature hot", "a number"),
        ("env init --reward-range 0 high", "numbers"),
        ("dataset upload --storage s3", "hf or gitlab"),
        ("env test a --kind model", "environment or benchmark"),
    ],
)
def test_a_wrong_value_says_what_is_expected(line: str, expected: str) -> None:
    with pytest.raises(FieldError) as caught:
        asked(line)
    assert caught.value.next == f"expected {expected}"


def test_a_run_without_rows_names_the_options_that_name_them(capsys: Said) -> None:
    assert (
        run_gym(["eval", "run", "--resources-server", "mcqa", "--model-url", "http://127.0.0.1:9/v1", "-m", "m"]) == 2
    )
    assert "pass --input FILE or --split train|" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        ("choose one: --head URL", "choose one: ++head_server.port=PORT (and host)"),
        ("use it, or pass --head-port auto", "use it, or pass ++head_server.port=0"),
        ("continue without them: --skip-bad-rows", "continue without them: +skip_bad_rows=true"),
        ("run again with --resume --retry-failed", "run again with --resume +retry_failed=true"),
    ],
)
def test_hints_name_fields_instead_of_options_that_these_commands_lack(hint: str, shown: str, capsys: Said) -> None:
    def fail() -> int:
        raise UserError("no", next=hint)

    assert run_work(fail) == 1
    assert capsys.readouterr().err.rstrip().endswith(f"next:  {shown}")


def test_help_versions_and_groups(capsys: Said) -> None:
    assert run_gym(["env"]) == 1
    assert "gymnast gym env start" in capsys.readouterr().out
    assert run_gym(["env", "--help"]) == 0
    assert run_gym(["--version", "--json"]) == 0
    assert run_gym(["--json"]) == 1
    info = json.loads(capsys.readouterr().out.splitlines()[-len(list(list_commands())) - 1])
    assert {"nemo_gym", "gymnast", "python", "dependencies", "system"} <= set(info)


def test_environments_and_benchmarks_are_created_and_run(here: Path, capsys: Said) -> None:
    assert run_gym(["env", "init", "--environment", "shop"]) == 0
    assert run_gym(["env", "init", "--environment", "shop"]) == 0  # nothing changes
    reuse = ["--reuse-verifier", "mcqa", "--reward-range", "0", "1", "--higher-is-better"]
    assert run_gym(["env", "init", "--benchmark", "sums", *reuse]) == 0
    assert run_gym(["env", "validate", "shop"]) == 0
    assert run_gym(["env", "validate", "sums", "--kind", "benchmark"]) == 0
    assert run_gym(["list", "environments", "--status", "experimental"]) == 0
    assert "\nshop " in capsys.readouterr().out
    assert run_gym(["env", "publish", "shop"]) == 1
    assert "is not filled in: authors, description" in capsys.readouterr().err
    (here / "environments" / "shop" / "config.yaml").write_text("{}")
    assert run_gym(["env", "init", "--environment", "shop"]) == 1
    assert "already exists with different content" in capsys.readouterr().err
    for wrong in (["--reuse-verifier", "mcqa"], [*reuse[2:]], ["--reuse-verifier", "nope", *reuse[2:]]):
        assert run_gym(["env", "init", "--environment", "other", *wrong]) == 1
    assert not (here / "environments" / "other").exists()


def test_ng_commands_take_the_options_of_gym(here: Path, capsys: Said) -> None:
    write_jsonl(here / "in.jsonl", example_rows("mcqa"))
    words = ["--resources-server", "mcqa", "--model-type", "scripted_model/demo", "-i", "in.jsonl", "-o", "x.jsonl"]
    assert run_work(lambda: run_words("ng_collect_rollouts", words)) == 0
    assert len(read_jsonl(here / "x.jsonl")) == 5
    assert run_work(lambda: run_words("ng_list_benchmarks", ["--json"])) == 0
    assert run_work(lambda: run_words("ng_validate", ["mcqa"])) == 0
    assert run_work(lambda: run_words("ng_upload_dataset_to_hf", ["+delete_from_gitlab=true"])) == 2
    assert "+dataset_name=… is required" in capsys.readouterr().err


def test_bad_rows_may_be_skipped_by_a_field(here: Path, capsys: Said) -> None:
    """The message that refuses them named an option of `gymnast collect`."""
    write_jsonl(here / "in.jsonl", [*example_rows("mcqa"), {"agent_ref": {"name": "nobody"}}])
    words = ["--resources-server", "mcqa", "--model-type", "scripted_model/demo", "-i", "in.jsonl", "-o", "x.jsonl"]
    assert run_gym(["eval", "run", *words]) == 1
    assert "continue without them: +skip_bad_rows=true" in capsys.readouterr().err
    assert run_gym(["eval", "run", *words, "+skip_bad_rows=true"]) == 1  # one rollout is missing
    assert len(read_jsonl(here / "x.jsonl")) == 5
    assert "once the cause is fixed: --resume +retry_failed=true" in capsys.readouterr().err
