"""The parts of a job's sidecar: specs, ports, GPUs, addresses, and that it runs where Gymnast is not."""

from __future__ import annotations

import ast
import asyncio
import io
import json
import socket
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.endpoints.health import HealthMonitor
from gymnast.endpoints.replicas import Replicas
from gymnast.errors import ConfigError, NotFoundError
from gymnast.sidecars.component import Component, ReadyCheck
from gymnast.sidecars.packing import build_sidecar_spec, pack_sidecar, read_job_spec, sort_by_needs, write_job_files
from gymnast.sidecars.sidecar.host_environment import gpu_share, host_names
from gymnast.sidecars.sidecar.job_registry import JobRegistry, read_addresses, read_death_notes, tail_log
from gymnast.sidecars.sidecar.port_lease import lease_port
from gymnast.sidecars.sidecar.readiness import backoff_intervals
from gymnast.sidecars.sidecar.spec import fill_placeholders, read_sidecar_spec
from gymnast.wire.addresses import expand_base_urls, make_url_reader
from gymnast.wire.http_client import HttpClient
from tests.helpers.waiting import eventually

READY = ReadyCheck()


def component(name: str, *needs: str, **given_: Any) -> Component:
    return Component(name, ("run", name), needs=needs, **given_)


# --- specs -----------------------------------------------------------------------------------------------------------


def test_places_are_filled_in_and_other_braces_stay() -> None:
    places = {"port": "80", "task": "3", "addresses:policy": "addresses:///j", "host:a-b": "n1"}
    assert fill_placeholders('{port} {"port": 1} {task*4} {addresses:policy} {host:a-b} {}', places) == (
        '80 {"port": 1} 12 addresses:///j n1 {}'
    )
    with pytest.raises(ValueError, match="gpus"):
        fill_placeholders("{gpus}", places)


@given(st.text(), st.dictionaries(st.sampled_from(["port", "host", "folder"]), st.text(), min_size=3))
def test_text_without_places_is_left_alone(text: str, places: dict[str, str]) -> None:
    assert fill_placeholders(text.replace("{", "("), places) == text.replace("{", "(")


def test_what_is_written_is_what_a_sidecar_reads(tmp_path: Path) -> None:
    policy = component("policy", tasks_per_node=2, ready=READY, restarts=1, gpus_per_task=2, environment={"A": "1"})
    main = Component("collect", ("go", "{addresses:policy}"), needs=("policy",), is_main=True)
    ordered = write_job_files(tmp_path, [main, policy])
    assert [one.name for one in ordered] == ["policy", "collect"]
    order = read_sidecar_spec(tmp_path / "collect.json")
    assert (order.needs, order.is_main, order.bind) == ({"policy": 2}, True, "127.0.0.1")
    assert order.needs_deadline_s > READY.deadline_s
    assert read_sidecar_spec(tmp_path / "policy.json").ready is not None
    assert [one.name for one in read_job_spec(tmp_path).components] == ["policy", "collect"]
    old = json.loads((tmp_path / "policy.json").read_text())
    (tmp_path / "policy.json").write_text(json.dumps({**old, "schema_version": 99}))
    with pytest.raises(ValueError, match="version 99"):
        read_sidecar_spec(tmp_path / "policy.json")


def test_a_job_on_several_nodes_listens_on_all_addresses() -> None:
    parts = [component("policy", ready=READY, nodes=2), component("collect", "policy", is_main=True)]
    assert build_sidecar_spec(parts[1], parts, bind="0.0.0.0")["bind"] == "0.0.0.0"


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            [component("a", "b", is_main=True), component("b", "a", ready=READY)],
            "cycle|it needs 'a', which has no ready",
        ),
        ([component("a", "polcy", is_main=True), component("policy", ready=READY)], "did you mean 'policy'"),
        ([component("a", is_main=True), component("a")], "duplicate component name 'a'"),
        ([component("a"), component("b")], "exactly one main"),
        ([component("a", "b", is_main=True), component("b")], "it needs 'b', which has no ready check"),
        (
            [Component("a", ("{url:b}",), is_main=True), component("b", ready=READY)],
            "the address of 'b' without need",
        ),
        ([component("a b", is_main=True)], "invalid component name 'a b'"),
    ],
)
def test_jobs_that_cannot_start_are_refused_in_words(parts: list[Component], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        sort_by_needs(parts)


# --- packing ---------------------------------------------------------------------------------------------------------


def test_the_sidecar_is_the_same_file_every_time() -> None:
    assert pack_sidecar() == pack_sidecar()


def packed_sources() -> list[tuple[str, str]]:
    with zipfile.ZipFile(io.BytesIO(pack_sidecar())) as packed:
        return [(name, packed.read(name).decode()) for name in packed.namelist()]


@pytest.mark.parametrize(("name", "source"), packed_sources(), ids=lambda value: value if len(value) < 80 else "")
def test_the_sidecar_needs_only_an_old_python_and_its_library(name: str, source: str) -> None:
    tree = ast.parse(source, feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    modules = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    packed = {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path, _ in packed_sources()}
    for module in modules:
        assert module in packed or module.split(".")[0] in sys.stdlib_module_names, f"{name} imports {module}"


# --- ports and GPUs --------------------------------------------------------------------------------------------------


def test_two_leases_are_two_ports_and_one_of_a_dead_process_is_free(tmp_path: Path) -> None:
    first, second = lease_port("127.0.0.1", tmp_path), lease_port("127.0.0.1", tmp_path)
    assert first.port != second.port
    assert {path.name for path in tmp_path.iterdir()} == {str(first.port), str(second.port)}
    first.release()
    assert not (tmp_path / str(first.port)).exists()
    (tmp_path / str(second.port)).write_text("999999999 1\n")
    second.release()
    assert not list(tmp_path.iterdir())


@given(per_task=st.integers(1, 8), tasks=st.integers(1, 8), data=st.data())
def test_replicas_of_a_node_share_no_gpu(per_task: int, tasks: int, data: st.DataObject) -> None:
    visible = data.draw(st.none() | st.permutations([str(number) for number in range(per_task * tasks)]))
    shares = [gpu_share(visible, place, per_task, tasks, bound=False) for place in range(tasks)]
    assert all(len(share) == per_task for share in shares)
    assert len({gpu for share in shares for gpu in share}) == per_task * tasks


def test_gpus_that_slurm_bound_to_a_task_are_its_own_and_too_few_are_an_error() -> None:
    assert gpu_share(["0", "1"], 3, 2, 4, bound=True) == ["0", "1"]
    with pytest.raises(ValueError, match="only 2 are visible"):
        gpu_share(["0", "1"], 1, 2, 2, bound=False)


def test_host_names_resolve() -> None:
    assert all(socket.gethostbyname(name) for name in host_names())


def test_pauses_grow_up_to_the_longest() -> None:
    ready = read_ready(first=0.5, longest=4.0)
    found = [pause for pause, _ in zip(backoff_intervals(ready), range(10), strict=False)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0.5, 4.0)


def read_ready(*, first: float, longest: float) -> Any:
    from gymnast.sidecars.sidecar.spec import Ready

    return Ready("/", 10.0, first, longest)


# --- addresses -------------------------------------------------------------------------------------------------------


def publish(folder: Path, task: int, port: int) -> JobRegistry:
    registry = JobRegistry(folder, "policy", task)
    registry.publish({"url": f"http://n{task}:{port}", "host": f"n{task}", "port": port, "task": task})
    return registry


def test_published_addresses_are_base_urls_while_they_are_there(tmp_path: Path) -> None:
    url = f"addresses://{tmp_path}/addresses/policy"
    with pytest.raises(NotFoundError, match="no policy server"):
        expand_base_urls(url)
    registries = [publish(tmp_path, task, 8000 + task) for task in (2, 10, 0)]
    assert expand_base_urls(url) == ["http://n0:8000/v1", "http://n2:8002/v1", "http://n10:8010/v1"]
    assert [address["task"] for address in read_addresses(tmp_path, "policy")] == [0, 2, 10]
    refresh = make_url_reader(["http://fixed/v1", url])
    assert refresh is not None
    registries[0].withdraw()
    assert refresh() == ["http://fixed/v1", "http://n0:8000/v1", "http://n10:8010/v1"]
    assert make_url_reader("http://fixed/v1") is None
    (tmp_path / "addresses" / "policy" / "0.json").write_text("{")  # half there, as network filesystems may show it
    assert refresh() == ["http://fixed/v1", "http://n10:8010/v1"]


def test_death_notes_are_in_the_order_of_deaths(tmp_path: Path) -> None:
    for at, name in ((2.0, "b"), (1.0, "a")):
        JobRegistry(tmp_path, name, 0).write_death_note({"component": name, "at": at})
    assert [note["component"] for note in read_death_notes(tmp_path)] == ["a", "b"]


def test_the_end_of_a_log_has_the_error_that_much_talk_came_after(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("fine\nKeyError: 'chatcmpl-1'\n" + "shutting down\n" * 60)
    assert "  | KeyError: 'chatcmpl-1'\nlast lines of" in tail_log(log)
    assert "fine" not in tail_log(log)
    assert "KeyError" not in tail_log(log, start=30)
    assert "cannot read" in tail_log(tmp_path / "none")


class Call:
    rollout_id = None

    def __init__(self, session: str) -> None:
        self.session_id = session


def test_replicas_follow_what_is_published() -> None:
    replicas = Replicas(["http://a", "http://b"], clock=lambda: 100.0)
    at_b = next(call for call in (Call(str(n)) for n in range(100)) if replicas.choose(call).base_url == "http://b")  # type: ignore[arg-type]
    b = replicas.choose(at_b)  # type: ignore[arg-type]
    replicas.update(["http://a", "http://c"])
    assert {replica.base_url for replica in replicas.all} == {"http://a", "http://c"}
    moved = replicas.choose(at_b)  # type: ignore[arg-type]
    assert moved.base_url != "http://b"
    replicas.update(["http://a", "http://b"])
    assert b in replicas.all
    assert b.is_up(100.0)
    assert replicas.choose(at_b).base_url in {"http://a", "http://b"}  # type: ignore[arg-type]
    replicas.update([])  # nobody answers at the moment: the last ones stay
    assert len(replicas.all) == 2


async def test_a_replica_leaves_rotation_with_its_address_and_comes_back_with_it(
    tmp_path: Path, http: HttpClient
) -> None:
    async def well(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):  # the client has closed the connection
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    servers = [await asyncio.start_server(well, "127.0.0.1", 0) for _ in range(2)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    registries = [JobRegistry(tmp_path, "policy", task) for task in range(2)]
    for registry, port in zip(registries, ports, strict=True):
        registry.publish({"url": f"http://127.0.0.1:{port}"})
    url = f"addresses://{tmp_path}/addresses/policy"
    replicas = Replicas(expand_base_urls(url))
    watch = HealthMonitor(
        replicas, http, (), interval_s=0.02, timeout_s=2.0, reads_load=False, refresh=make_url_reader(url)
    )
    gone, stays = replicas.all
    watch.start()
    try:
        registries[0].withdraw()
        await eventually(lambda: replicas.all == [stays])
        assert not gone.is_up(replicas.clock())
        registries[0].publish({"url": f"http://127.0.0.1:{ports[0]}"})
        await eventually(lambda: replicas.all == [gone, stays])
        assert gone.is_up(replicas.clock())
    finally:
        await watch.stop()
        for server in servers:
            server.close()
