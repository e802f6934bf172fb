"""Overrides that do nothing: a key that nothing reads is an error, and a field of a collection means its option."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymnast.config import Config, compose, read_environ
from gymnast.config.known_keys import RUN_KEYS
from gymnast.errors import UserError
from gymnast.rollouts.options import run_options


def load(*overrides: str, environments: tuple[str, ...] = ("mcqa",), model_type: str = "scripted_model") -> Config:
    return compose(
        read_environ({}),
        overrides=overrides,
        environments=environments,
        model_type=model_type,
        command_keys=RUN_KEYS,
    )


def problems(config: Config) -> str:
    return "\n".join(str(problem) for problem in config.problems)


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("+num_repeat=3", "did you mean 'num_repeats'"),
        ("+foo.bar=1", "nothing reads 'foo'"),
        ("++mcqa_simpel_agent.responses_api_agents.simple_agent.max_steps=3", "did you mean 'mcqa_simple_agent'?"),
        ("++head_server.prot=3", "did you mean 'port'?"),
        ("+head_server={prot:3}", "did you mean 'port'?"),
        ("+skills.paht=x", "did you mean 'path'?"),
        ("+temperature=0.5", "did you mean 'responses_create_params.temperature'?"),
        ("num_repeat=3", "did you mean 'num_repeats'"),
    ],
)
def test_a_top_level_override_that_nothing_reads_is_an_error_with_a_suggestion(override: str, hint: str) -> None:
    assert hint in problems(load(override))


@pytest.mark.parametrize(
    "overrides",
    [
        ("+mine=0.5", "++responses_create_params.temperature=${mine}"),
        ("+mine.deep=0.5", "++responses_create_params.temperature=${mine.deep}"),
        ("+block.max_steps=3", "++mcqa_simple_agent.responses_api_agents.simple_agent._copy=block"),
        ("+default_host=127.0.0.1",),
        ("limit=2",),
        ("+other.responses_api_models.scripted_model={entrypoint:app.py,replies:[x]}",),
        ("~mcqa_simple_agent.responses_api_agents.simple_agent.datasets",),
    ],
)
def test_a_key_that_a_block_uses_is_read(overrides: tuple[str, ...]) -> None:
    assert problems(load(*overrides)) == ""


def test_a_command_that_does_not_collect_does_not_take_the_fields_of_a_collection() -> None:
    config = compose(read_environ({}), overrides=["+num_repeats=3"], environments=["mcqa"], model_type="scripted_model")
    assert "nothing reads 'num_repeats'" in problems(config)


def test_a_secret_is_not_shown_by_the_error() -> None:
    text = problems(load("+my_api_key=hunter2"))
    assert "nothing reads 'my_api_key'" in text
    assert "hunter2" not in text


def test_a_server_that_may_read_any_key_makes_it_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "resources_servers" / "foreign"
    (folder / "configs").mkdir(parents=True)
    (folder / "app.py").write_text("from nemo_gym.global_config import get_global_config_dict\n")
    (folder / "configs" / "foreign.yaml").write_text(
        "foreign:\n  resources_servers:\n    foreign: {entrypoint: app.py, domain: other}\n"
    )
    monkeypatch.chdir(tmp_path)
    config = load("+my_own_key=3", environments=("foreign",))
    assert problems(config) == ""
    assert "nothing reads 'my_own_key'" in "\n".join(config.warnings)


@pytest.mark.parametrize("override", ["+uv_cache_dir=x", "++route_failures_to_sidecar=true"])
def test_keys_of_nemo_gym_that_change_nothing_here_are_a_warning(override: str) -> None:
    config = load(override)
    assert problems(config) == ""
    assert f"'{override}' has no effect in Gymnast" in config.warnings


def test_a_model_url_that_no_model_reads_is_a_warning() -> None:
    config = compose(
        read_environ({}), environments=["mcqa"], model_type="scripted_model", model_url="http://127.0.0.1:1/v1"
    )
    assert "--model-url has no effect: no configured model reads policy_base_url" in config.warnings


# --- fields of a collection ------------------------------------------------------------------------------------------


def rows(folder: Path) -> str:
    path = folder / "rows.jsonl"
    path.write_text('{"responses_create_params": {"input": "x"}}\n')
    return str(path)


def test_the_fields_of_ng_collect_rollouts_mean_the_options(tmp_path: Path) -> None:
    config = load(
        "+num_repeats=3",
        "+limit=2",
        "+num_samples_in_parallel=7",
        "+num_repeats_add_seed=true",
        "+resume_from_cache=true",
        "+disable_aggregation=true",
        f"+input_jsonl_fpath={rows(tmp_path)}",
        f"+output_jsonl_fpath={tmp_path}/out.jsonl",
    )
    options = run_options(config.require_valid(), output=None)
    assert (options.plan.repeats, options.plan.limit, options.plan.add_seed) == (3, 2, True)
    assert (options.engine.concurrency, options.existing, options.aggregate) == (7, "resume", False)
    assert options.output == tmp_path / "out.jsonl"
    assert options.source == tmp_path / "rows.jsonl"


def test_repeats_by_agent_are_a_field_too(tmp_path: Path) -> None:
    config = load("+num_repeats={mcqa_simple_agent:4,_default:1}").require_valid()
    options = run_options(config, output=tmp_path / "o.jsonl", source=rows(tmp_path))
    assert options.plan.repeats == {"mcqa_simple_agent": 4, "_default": 1}


def test_an_option_and_an_override_that_disagree_are_an_error(tmp_path: Path) -> None:
    config = load("+num_repeats=3").require_valid()
    with pytest.raises(UserError, match=r"--num-repeats and override '\+num_repeats=3' set different values"):
        run_options(config, output=tmp_path / "o.jsonl", source=rows(tmp_path), num_repeats=2)
    same = run_options(config, output=tmp_path / "o.jsonl", source=rows(tmp_path), num_repeats=3)
    assert same.plan.repeats == 3


@pytest.mark.parametrize(
    "override", ["+num_repeats=-1", "+limit=two", "+num_repeats={a:0}", "+resume_from_cache=maybe"]
)
def test_a_field_of_the_wrong_type_is_an_error(tmp_path: Path, override: str) -> None:
    with pytest.raises(UserError, match="must be"):
        run_options(load(override).require_valid(), output=tmp_path / "o.jsonl", source=rows(tmp_path))


def test_an_option_wins_over_a_field_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "env.yaml").write_text("num_repeats: 5\n")
    config = load().require_valid()
    assert run_options(config, output=tmp_path / "o.jsonl", source=rows(tmp_path)).plan.repeats == 5
    assert run_options(config, output=tmp_path / "o.jsonl", source=rows(tmp_path), num_repeats=2).plan.repeats == 2


def test_a_run_without_an_output_says_which_option_names_it(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        run_options(load().require_valid(), output=None, source=rows(tmp_path))
    assert caught.value.next == "pass --output FILE"


def test_an_unknown_key_is_one_problem_and_spaces_are_named() -> None:
    config = compose(read_environ({}), environments=["mcqa"], stub_policy=True, overrides=["num_repeat=3"])
    (problem,) = config.problems
    assert "num_repeat" in str(problem)
    with pytest.raises(UserError, match="write it without spaces: num_repeats=3"):
        compose(read_environ({}), environments=["mcqa"], stub_policy=True, overrides=["num_repeats = 3"])
