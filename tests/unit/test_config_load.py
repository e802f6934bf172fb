"""Configuration: sources, precedence, directives, interpolation, instances; every value with its origin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gymnast.config import Config, load_config, read_environ
from gymnast.config.explain import explain_key
from gymnast.errors import ConfigError, NotFoundError

Configure = Callable[..., Config]


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return name


def problems(config: Config) -> str:
    return "\n".join(str(problem) for problem in config.problems)


# --- sources and precedence ------------------------------------------------------------------------------------------


def test_later_files_override_earlier_ones_subtree_by_subtree(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "x: {one: 1, two: 2}\nlist: [1, 2]")
    b = write(tmp_path, "b.yaml", "x: {two: 22, three: 33}\nlist: [3]")
    values = configure(config_paths=[a, b]).values
    assert values["x"] == {"one": 1, "two": 22, "three": 33}
    assert values["list"] == [3]


def test_a_file_overrides_what_it_pulls_in_at_any_depth(tmp_path: Path, configure: Configure) -> None:
    write(tmp_path, "deep.yaml", "k: deep\nonly_deep: 1")
    write(tmp_path, "mid.yaml", "config_paths: [deep.yaml]\nk: mid")
    top = write(tmp_path, "top.yaml", "k: top\nconfig_paths: [mid.yaml]")
    config = configure(config_paths=[top])
    assert (config.values["k"], config.values["only_deep"]) == ("top", 1)
    assert config.values["config_paths"] == ["deep.yaml", "mid.yaml", "top.yaml"]


def test_env_yaml_beats_files_initial_beats_env_yaml_overrides_beat_all(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "one: file\ntwo: file\nthree: file\nfour: file")
    write(tmp_path, "env.yaml", "two: env\nthree: env\nfour: env")
    config = configure("++four=cli", config_paths=[a], initial={"three": "initial", "four": "initial"})
    assert [config.values[key] for key in ("one", "two", "three", "four")] == ["file", "env", "initial", "cli"]


def test_config_paths_may_come_from_env_yaml_and_use_its_variables(tmp_path: Path, configure: Configure) -> None:
    write(tmp_path, "a.yaml", "a: 1")
    write(tmp_path, "b.yaml", "b: 2")
    write(tmp_path, "env.yaml", "mine: [a.yaml, b.yaml]\nconfig_paths: [a.yaml]")
    assert "b" not in configure().values
    assert configure("+config_paths=${mine}").values["b"] == 2


def test_a_file_listed_twice_is_loaded_once_and_reported(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "a: 1")
    config = configure(config_paths=[a, a])
    assert config.values["config_paths"] == ["a.yaml"]
    assert any("twice" in note for note in config.notes)


def test_paths_are_looked_up_in_extra_roots_then_here_then_the_hub(tmp_path: Path) -> None:
    extra, here = tmp_path / "extra", tmp_path / "here"
    for folder, text in ((extra, "where: extra"), (here, "where: here")):
        write(folder, "resources_servers/mcqa/configs/mcqa.yaml", text)
    path = ["resources_servers/mcqa/configs/mcqa.yaml"]
    environ = read_environ({"NEMO_GYM_EXTRA_ROOTS": str(extra)})
    assert load_config(config_paths=path, environ=environ, cwd=here).values["where"] == "extra"
    assert load_config(config_paths=path, environ=read_environ({}), cwd=here).values["where"] == "here"
    elsewhere = load_config(config_paths=path, environ=read_environ({}), cwd=tmp_path, stub_policy=True)
    assert elsewhere.instances["mcqa"].implementation == "mcqa"
    searched = load_config(config_paths=path, environ=environ, search_dirs=[here], cwd=tmp_path)
    assert searched.values["where"] == "here"


def test_yaml_reads_as_omegaconf_reads_it(tmp_path: Path, configure: Configure) -> None:
    a = write(
        tmp_path, "a.yaml", "exp: 1e-3\ndate: 2026-01-02\nanchor: &x {a: 1}\nuse: {<<: *x, b: 2}\nyes_text: 'yes'"
    )
    values = configure(config_paths=[a]).values
    assert values["exp"] == 0.001
    assert values["date"] == "2026-01-02"
    assert values["use"] == {"a": 1, "b": 2}
    assert values["yes_text"] == "yes"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1, 2", "a.yaml:1"),
        ("a: 1\na: 2", "duplicate key 'a' (first on line 1)"),
        ("- just\n- a list", "a configuration file must be a mapping"),
        ("a:\n\t- tab", "a.yaml:2"),
    ],
)
def test_bad_yaml_is_reported_with_its_place(tmp_path: Path, configure: Configure, text: str, said: str) -> None:
    assert said in problems(configure(config_paths=[write(tmp_path, "a.yaml", text)]))


def test_all_problems_are_reported_at_once(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "must: ???\nalso:\n  this: ???")
    bad = write(tmp_path, "bad.yaml", "x: [")
    config = configure("~nothing", "missing=1", config_paths=[a, bad, "nowhere.yaml"])
    text = problems(config)
    for said in (
        "'must' needs a value",
        "'also.this' needs a value",
        "bad.yaml:1",
        "nowhere.yaml",
        "nothing",
        "missing",
    ):
        assert said in text
    with pytest.raises(ConfigError) as caught:
        config.require_valid()
    assert len(caught.value.problems) == len(config.problems) == 6


def test_a_misspelt_config_path_suggests_the_right_one(configure: Configure) -> None:
    assert "mcqa/configs/mcqa.yaml" in problems(configure(config_paths=["resources_servers/mcqa/configs/mcqua.yaml"]))


# --- overrides -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("+a=1", "a", 1),
        ("++a.b=2", "a", {"b": 2}),
        ("+a=[x,y]", "a", ["x", "y"]),
        ("+a=[]", "a", []),
        ("+a={b:1,c:[2]}", "a", {"b": 1, "c": [2]}),
        ("+a='1,2'", "a", "1,2"),
        ('+a="quoted text: with, commas"', "a", "quoted text: with, commas"),
        ("+a=null", "a", None),
        ("+a=true", "a", True),
        ("+a=1e-3", "a", 0.001),
        ("+a=http://host:8000/v1", "a", "http://host:8000/v1"),
        ("+a=", "a", ""),
    ],
)
def test_overrides_follow_hydras_grammar(configure: Configure, override: str, key: str, value: object) -> None:
    assert configure(override).values[key] == value


def test_a_plus_override_may_replace_a_file_value(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "x: {y: 1, z: 2}")
    assert configure("+x.y=5", config_paths=[a]).values["x"] == {"y": 5, "z": 2}


def test_a_plain_override_changes_only_what_exists(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "learning: 1")
    assert configure("learning=2", config_paths=[a]).values["learning"] == 2
    text = problems(configure("lerning=2", config_paths=[a]))
    assert "write '+lerning=2'" in text
    assert "did you mean 'learning'" in text


def test_tilde_deletes_a_file_key(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "x: {y: 1, z: 2}")
    assert configure("~x.y", config_paths=[a]).values["x"] == {"z": 2}
    assert "no 'xx' in the configuration" in problems(configure("~xx", config_paths=[a]))


def test_list_elements_can_be_overridden(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "items: [{n: 1}, {n: 2}]")
    assert configure("++items.1.n=5", config_paths=[a]).values["items"] == [{"n": 1}, {"n": 5}]
    assert "no list element" in problems(configure("++items.7.n=5", config_paths=[a]))


@pytest.mark.parametrize("override", ["+a=1,2", "+a=choice(1,2)", "+a=range(1,3)"])
def test_sweeps_are_refused(configure: Configure, override: str) -> None:
    with pytest.raises(ConfigError, match="sweep"):
        configure(override)


def test_unparseable_overrides_are_all_named(configure: Configure) -> None:
    with pytest.raises(ConfigError) as caught:
        configure("+a=[1", "+b={", "justtext")
    assert len(caught.value.problems) == 3


# --- directives ------------------------------------------------------------------------------------------------------


def test_inherit_from_moves_the_source_and_merges_over_it(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "base: {x: 1, deep: {y: 2, z: 3}}\nuse: {_inherit_from: base, deep: {z: 33}}")
    assert configure(config_paths=[a]).values["use"] == {"x": 1, "deep": {"y": 2, "z": 33}}
    assert "base" not in configure(config_paths=[a]).values


@pytest.mark.parametrize("directive", ["inherit_from", "swap_key"])
def test_value_directives_move(tmp_path: Path, configure: Configure, directive: str) -> None:
    a = write(tmp_path, "a.yaml", f"base: {{x: 1}}\none: ${{{directive}:base}}\ntwo: ${{{directive}:base.x}}")
    values = configure(config_paths=[a]).values
    assert (values["one"], values["two"]) == ({"x": 1}, 1)
    assert "base" not in values


def test_copy_leaves_the_source(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "base: {x: 1}\none: {_copy: base, y: 2}\ntwo: ${copy:base}")
    values = configure(config_paths=[a]).values
    assert values["base"] == values["two"] == {"x": 1}
    assert values["one"] == {"x": 1, "y": 2}


def test_several_users_may_take_the_same_source(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "base: {x: 1}\none: {_inherit_from: base}\ntwo: {_inherit_from: base, x: 2}")
    values = configure(config_paths=[a]).values
    assert (values["one"], values["two"]) == ({"x": 1}, {"x": 2})


def test_chains_are_followed_whatever_the_order(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "c: {_inherit_from: b, z: 3}\nb: {_inherit_from: a, y: 2}\na: {x: 1}")
    assert configure(config_paths=[a]).values["c"] == {"x": 1, "y": 2, "z": 3}


def test_delete_key_before_and_after_inheritance(tmp_path: Path, configure: Configure) -> None:
    a = write(
        tmp_path,
        "a.yaml",
        "base: {x: 1, y: 2}\nuse: {_inherit_from: base, _delete_key: 'x, own', own: 5, kept: 6}",
    )
    assert configure(config_paths=[a]).values["use"] == {"y": 2, "kept": 6}
    b = write(tmp_path, "b.yaml", "base: {x: 1}\nuse: {_inherit_from: base, _delete_key: nope, here: 1}")
    assert "'nope'" in problems(configure(config_paths=[b]))
    c = write(tmp_path, "c.yaml", "use: {_delete_key: nope, here: 1}")
    assert configure(config_paths=[c]).values["use"] == {"here": 1}


def test_inheriting_from_nothing_and_in_a_circle(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "base_block: {x: 1}\nuse: {_inherit_from: base_blok}")
    assert "did you mean 'base_block'" in problems(configure(config_paths=[a]))
    b = write(tmp_path, "b.yaml", "one: {_inherit_from: two}\ntwo: {_inherit_from: one}")
    assert "circular inheritance: two -> one -> two" in problems(configure(config_paths=[b]))


# --- interpolation ---------------------------------------------------------------------------------------------------

SERVER = """
policy_model:
  responses_api_models:
    vllm_model: {entrypoint: app.py, base_url: "${policy_base_url}", api_key: "${oc.env:TEST_KEY}", model: "${name}"}
"""


def test_interpolation_and_environment(tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-123456")
    a = write(tmp_path, "a.yaml", SERVER + "\nname: ${part}-7b\npart: qwen\npolicy_base_url: http://h/v1")
    settings = configure(config_paths=[a]).instances["policy_model"].settings
    assert (settings["base_url"], settings["api_key"], settings["model"]) == ("http://h/v1", "sk-123456", "qwen-7b")


def test_unresolved_interpolations_name_both_keys(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEST_KEY", raising=False)
    text = problems(configure(config_paths=[write(tmp_path, "a.yaml", SERVER + "\npolicy_base_ulr: x")]))
    assert "policy_model.responses_api_models.vllm_model.base_url" in text
    assert "did you mean 'policy_base_ulr'" in text
    assert "environment variable TEST_KEY" in text
    assert "++name=VALUE" in text


def test_a_broken_interpolation_that_nobody_uses_is_a_warning(tmp_path: Path, configure: Configure) -> None:
    config = configure(config_paths=[write(tmp_path, "a.yaml", "unused: ${nothing}")])
    assert not config.problems
    assert "unused" in config.warnings[0]


# --- instances -------------------------------------------------------------------------------------------------------


def instance(text: str) -> str:
    return f"thing:\n  resources_servers:\n    mcqa: {{entrypoint: app.py, domain: knowledge{text}}}\n"


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        (instance(", domain2: x").replace("domain: knowledge, ", ""), "needs a 'domain'"),
        (instance("").replace("knowledge", "knowlege"), "did you mean 'knowledge'"),
        (instance("").replace("mcqa:", "mcq:"), "did you mean 'mcqa'"),
        (instance("").replace("app.py", "ap.py"), "has no 'ap.py'"),
        (instance("").replace("resources_servers", "resource_servers"), "did you mean 'resources_servers'"),
        (instance(", port: 99999"), "0 to 65535"),
        (instance(", runs_in: chidl"), "did you mean 'child'"),
        (instance(", num_workers: 0"), "num_workers"),
        (instance(", ref: {type: resources_servers, name: thingg}"), "did you mean 'thing'"),
        (instance(", ref: {type: resource_servers, name: thing}"), "did you mean 'resources_servers'"),
        (instance(", ref: {type: responses_api_models, name: thing}"), "which is a resources server"),
        (instance("") + "  responses_api_agents: {}\n", "has one kind"),
        (instance("") + "    other: {entrypoint: app.py}\n", "one implementation"),
        (instance(", url: 'ftp://x'"), "http:// or https://"),
        (instance(", datasets: {}"), "must be a list"),
    ],
)
def test_wrong_instances_are_explained(tmp_path: Path, configure: Configure, yaml: str, said: str) -> None:
    assert said in problems(configure(config_paths=[write(tmp_path, "a.yaml", yaml)]))


def test_error_on_almost_servers_false_skips_them(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "error_on_almost_servers: false\n" + instance("").replace("knowledge", "nonsense"))
    config = configure(config_paths=[a])
    assert not config.problems
    assert not config.instances
    assert any("nonsense" in warning for warning in config.warnings)


def test_a_mapping_without_entrypoint_is_a_variable_block(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "mine:\n  resources_servers: {template: {domain: math}}")
    config = configure(config_paths=[a])
    assert not config.instances
    assert not config.problems


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{name: d, type: train, jsonl_fpath: x}", "needs a 'license'"),
        ("{name: d, type: train, jsonl_fpath: x, license: Apache 2}", "did you mean 'Apache 2.0'"),
        ("{name: d, type: trian, jsonl_fpath: x}", "did you mean 'train'"),
        ("{type: example, jsonl_fpath: x}", "needs 'name'"),
        ("{name: d, type: example, jsonl_fpath: x, num_repeats: 0}", "num_repeats"),
        ("{name: d, type: example, jsonl_fpat: x}", "did you mean 'jsonl_fpath'"),
        ("{name: d, type: example, jsonl_fpath: x, source: {type: huggingface}}", "needs 'repo_id'"),
        ("{name: d, type: example, jsonl_fpath: x, source: {type: web}}", "gitlab or huggingface"),
        (
            "{name: d, type: example, jsonl_fpath: x, source: {type: huggingface}, gitlab_identifier: {a: 1}}",
            "use either 'source' or the older identifiers, not both",
        ),
    ],
)
def test_wrong_datasets_are_explained(tmp_path: Path, configure: Configure, entry: str, said: str) -> None:
    assert said in problems(configure(config_paths=[write(tmp_path, "a.yaml", instance(f", datasets: [{entry}]"))]))


def test_every_shipped_config_is_valid(configure: Configure) -> None:
    from gymnast.config.roots import BUILTIN
    from gymnast.runtime.loader import check_settings

    paths = sorted(str(path.relative_to(BUILTIN)) for path in BUILTIN.glob("*/*/configs/*.yaml"))
    assert len(paths) >= 9
    given = ["++policy_base_url=http://h/v1", "++policy_api_key=k", "++policy_model_name=m"]
    script = "++policy_model.responses_api_models.scripted_model.script=json:loads"
    for path in paths:
        overrides = [*given, script] if path.endswith("scripted_model.yaml") else given
        if "/genrm_" in path:
            overrides = [*given, "++genrm_model_name=m"]
        config = configure(*overrides, config_paths=[path], stub_policy=True)
        assert not config.problems, path
        assert not [problem for found in config.instances.values() for problem in check_settings(found)], path


# --- secrets and origins ---------------------------------------------------------------------------------------------


def test_secrets_are_masked_and_harmless_keys_are_not(tmp_path: Path, configure: Configure) -> None:
    a = write(
        tmp_path,
        "a.yaml",
        "policy_api_key: sk-secret\nhf_token: hf-secret\nnested: {openai_default_headers: {X-Api-Key: s3cret!}}\n"
        "list_of_keys: [one-secret]\nmax_output_tokens: 512\ntokenizer: Qwen/Qwen3\nurl: http://user:pass@host/v1\n"
        "empty_key: ''\nkey_flag: true",
    )
    shown = configure(config_paths=[a]).masked_values()
    assert "secret" not in str(shown)
    assert "s3cret" not in str(shown)
    assert "pass" not in str(shown["url"])
    assert (shown["max_output_tokens"], shown["tokenizer"], shown["empty_key"]) == (512, "Qwen/Qwen3", "")
    assert shown["key_flag"] is True


def test_an_instance_with_a_secret_sounding_name_is_still_shown(configure: Configure) -> None:
    config = configure("+key_model.responses_api_models.scripted_model.entrypoint=app.py", "++token_x=abc")
    assert config.masked_values()["key_model"]["responses_api_models"]["scripted_model"]["entrypoint"] == "app.py"
    assert config.masked_values()["token_x"] == "****"


def test_origins_say_file_and_line_or_override_and_what_was_replaced(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "x:\n  y: 1\n  z: ${x.y}\nbase: {q: 1}\nuse: {_inherit_from: base}")
    b = write(tmp_path, "b.yaml", "\nx: {y: 2}")
    config = configure("++x.y=3", config_paths=[a, b])
    entry = explain_key(config, "x.y")[0]
    assert entry["value"] == 3
    assert entry["origin"] == "override '++x.y=3'"
    assert [(older["origin"], older["value"]) for older in entry["replaced"]] == [("b.yaml:2", 2), ("a.yaml:2", 1)]
    interpolated = explain_key(config, "x.z")[0]
    assert (interpolated["value"], interpolated["written"]) == (3, "${x.y}")
    assert "taken from 'base' at a.yaml:5" in explain_key(config, "use.q")[0]["origin"]
    with pytest.raises(NotFoundError, match=r"^no 'x\.yy' in the configuration"):
        explain_key(config, "x.yy")


def test_explain_masks_secrets_in_values_and_history(tmp_path: Path, configure: Configure) -> None:
    a = write(tmp_path, "a.yaml", "policy_api_key: old-secret")
    assert "secret" not in str(
        explain_key(configure("++policy_api_key=new-secret", config_paths=[a]), "policy_api_key")
    )


def test_the_scrubber_blanks_known_secrets_bearer_tokens_and_passwords(configure: Configure) -> None:
    scrub = configure("+policy_api_key=sk-abcdef", "+short_key=abc").scrubber.scrub
    assert scrub("key sk-abcdef in text") == "key **** in text"
    assert scrub("abc stays, too short to blank") == "abc stays, too short to blank"
    assert scrub("Authorization: Bearer xyz12345") == "Authorization: Bearer ****"
    assert scrub("http://me:hunter2@host/") == "http://me:****@host/"


def test_a_record_keeps_ordinary_words_even_if_they_are_keys(configure: Configure) -> None:
    config = configure("+policy_api_key=sk-4fQ9zT", "+other_key=secret", "+stop_token='<|im_end|>'")
    line = b'{"text": "a secret, sk-4fQ9zT, not-needed <|im_end|>"}'
    assert config.scrubber.scrub_line(line) == b'{"text": "a secret, ****, not-needed <|im_end|>"}'


def test_a_header_is_masked_if_its_value_cannot_be_ordinary_text(configure: Configure) -> None:
    config = configure(
        "+extra_headers={Accept: application/json, X-Tenant: q7Zk20pLw, Authorization: 'Basic c2VjcmV0OjEyMw=='}"
    )
    line = b'{"text": "application/json q7Zk20pLw Basic c2VjcmV0OjEyMw=="}'
    assert config.scrubber.scrub_line(line) == b'{"text": "application/json **** Basic ****"}'


@pytest.mark.parametrize("value", ["/data/josé/tasks.jsonl", "/tmp/a folder é/x.jsonl", "日本語", "naïve (draft), é"])
def test_values_beyond_ascii_need_no_quotes(configure: Callable[..., Config], value: str) -> None:
    assert configure(f"+note={value}").values["note"] == value
    assert configure(f"+note='{value}'").values["note"] == value


def test_lists_beyond_ascii_are_read_by_the_grammar(configure: Callable[..., Config]) -> None:
    assert configure("+notes=['é', 2]").values["notes"] == ["é", 2]
