"""Policy servers as components: what is started where, on which GPUs, with which arguments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.errors import NotFoundError, UserError
from gymnast.sidecars.policy_server import (
    ServerSpec,
    make_server_component,
    parse_server_kind,
    served_model_name,
    split_arguments,
)


def wanted(**given_: Any) -> ServerSpec:
    return ServerSpec(**{"kind": "vllm", "model": "org/m", "gpus": 8, **given_})


def option(words: tuple[str, ...], name: str) -> str | None:
    return words[words.index(name) + 1] if name in words else None


def test_all_gpus_of_a_node_are_one_server_unless_configured_otherwise() -> None:
    component = make_server_component(wanted())
    assert component.command[:3] == ("vllm", "serve", "org/m")
    assert option(component.command, "--tensor-parallel-size") == "8"
    assert option(component.command, "--host") == "{host}"
    assert option(component.command, "--port") == "{port}"
    assert (component.tasks, component.gpus_per_task, component.addresses) == (1, 8, 1)
    assert component.ready is not None
    assert component.ready.path == "/health"


def test_replicas_fill_every_node() -> None:
    component = make_server_component(wanted(tensor_parallel=2, nodes=3))
    assert (component.nodes, component.tasks_per_node, component.gpus_per_task, component.addresses) == (3, 4, 2, 12)
    assert component.restarts == 3
    fewer = make_server_component(wanted(replicas=2, nodes=3))
    assert (fewer.tasks_per_node, fewer.gpus_per_task) == (2, 4)
    assert option(fewer.command, "--tensor-parallel-size") == "4"


def test_pipeline_parallel_within_a_node() -> None:
    component = make_server_component(wanted(tensor_parallel=2, pipeline_parallel=2))
    assert (component.tasks_per_node, component.gpus_per_task) == (2, 4)
    assert option(component.command, "--pipeline-parallel-size") == "2"


def test_a_model_larger_than_a_node_is_one_server_over_nodes() -> None:
    component = make_server_component(wanted(tensor_parallel=8, pipeline_parallel=2, nodes=2))
    assert (component.nodes, component.tasks_per_node, component.gpus_per_task) == (2, 1, 8)
    assert component.addresses == 1
    assert component.restarts == 0  # a part of it cannot be started again alone
    for words in (component.command, component.rest_command):
        assert option(words, "--nnodes") == "2"
        assert option(words, "--node-rank") == "{task}"
        assert option(words, "--master-addr") == "{head}"
        assert option(words, "--master-port") == "{head_port}"
    assert "--headless" in component.rest_command
    assert "--headless" not in component.command


def test_sglang_over_nodes_runs_the_same_words_everywhere() -> None:
    component = make_server_component(wanted(kind="sglang", tensor_parallel=16, nodes=2))
    assert component.command == component.rest_command
    assert option(component.command, "--dist-init-addr") == "{head}:{head_port}"
    assert option(component.command, "--tp-size") == "16"
    assert option(component.command, "--model-path") == "org/m"


def test_vllms_own_data_parallel_mode_is_one_address() -> None:
    here = make_server_component(wanted(data_parallel=4))
    assert option(here.command, "--data-parallel-size") == "4"
    assert option(here.command, "--tensor-parallel-size") == "2"
    assert (here.tasks, here.gpus_per_task, here.addresses) == (1, 8, 1)
    spread = make_server_component(wanted(data_parallel=16, nodes=2, tensor_parallel=1))
    assert option(spread.command, "--data-parallel-size-local") == "8"
    assert option(spread.rest_command, "--data-parallel-start-rank") == "{task*8}"
    assert "--headless" in spread.rest_command
    assert spread.addresses == 1


def test_remote_code_is_trusted_only_when_asked() -> None:
    assert "--trust-remote-code" not in make_server_component(wanted()).command
    assert "--trust-remote-code" in make_server_component(wanted(trust_remote_code=True)).command
    twice = make_server_component(wanted(trust_remote_code=True, arguments=("--trust-remote-code",))).command
    assert twice.count("--trust-remote-code") == 1


def test_what_the_user_says_of_sizes_and_names_is_not_said_again() -> None:
    arguments = split_arguments("-tp 4 --served-model-name=short --dtype auto")
    component = make_server_component(wanted(arguments=arguments))
    assert "--tensor-parallel-size" not in component.command
    assert component.command[-5:] == arguments
    assert component.command.count("--served-model-name") == 0
    assert served_model_name(wanted(arguments=arguments)) == "short"
    assert served_model_name(wanted(arguments=("--served-model-name", "other"))) == "other"
    assert served_model_name(wanted()) == "org/m"


def test_any_command_serves() -> None:
    component = make_server_component(
        wanted(kind="command", gpus=0, command=("serve", "{model}", "--listen", "{host}:{port}"), arguments=("-v",))
    )
    assert component.command == ("serve", "org/m", "--listen", "{host}:{port}", "-v")
    assert component.gpus_per_task == 0
    assert component.ready is not None
    assert component.ready.path == "/v1/models"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tensor_parallel": 3, "pipeline_parallel": 4}, "does not fill"),
        ({"tensor_parallel": 4, "replicas": 3}, "3 replicas of 4 GPUs"),
        ({"replicas": 9}, "9 replicas"),
        ({"data_parallel": 3, "nodes": 2}, "evenly"),
        ({"data_parallel": 16, "tensor_parallel": 1}, "need 16 GPUs"),
        ({"data_parallel": 2, "replicas": 2}, "exclude each other"),
        ({"kind": "command"}, "needs a command"),
        ({"nodes": 0}, "cannot hold"),
    ],
)
def test_layouts_that_cannot_be_are_refused_in_words(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        make_server_component(wanted(**options))


def test_a_misspelt_type_is_an_error_with_a_suggestion() -> None:
    assert parse_server_kind("openai-compatible") == "command"
    with pytest.raises(NotFoundError, match="vlm") as caught:
        parse_server_kind("vlm")
    assert "'vllm'" in str(caught.value)


@given(
    gpus=st.integers(1, 16),
    nodes=st.integers(1, 4),
    tensor=st.none() | st.integers(1, 16),
    pipeline=st.integers(1, 4),
    replicas=st.none() | st.integers(1, 8),
    parts=st.none() | st.integers(1, 32),
    kind=st.sampled_from(["vllm", "sglang"]),
)
def test_no_layout_uses_a_gpu_twice(
    gpus: int, nodes: int, tensor: int | None, pipeline: int, replicas: int | None, parts: int | None, kind: str
) -> None:
    try:
        component = make_server_component(
            wanted(
                kind=kind,
                gpus=gpus,
                nodes=nodes,
                tensor_parallel=tensor,
                pipeline_parallel=pipeline,
                replicas=replicas,
                data_parallel=parts,
            )
        )
    except UserError:
        return
    assert 1 <= component.tasks_per_node * component.gpus_per_task <= gpus
    assert component.nodes == nodes
