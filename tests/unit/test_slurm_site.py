"""A cluster's file: what it may say, how it is found, what is said about mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymnast.config import read_environ
from gymnast.errors import ConfigError, NotFoundError
from gymnast.executors.site import Site, find_site, parse_site, read_site
from gymnast.sidecars.component import Mount

WHOLE = """
executor: slurm
host: me@login
ssh_options: -F /users/me/ssh config
partition: gpu
time: 12:00:00
nodes: 2
exclusive: true
memory: 64G
runtime: pyxis
container: gymnast
mounts: [/shared, "/a:/b:ro", {source: /c, target: /d}]
environment: {HF_HOME: /shared/hf}
setup: |
  module load cuda
  ulimit -n 65536
extra_sbatch: --constraint=h100 --nice
containers:
  gymnast: /images/gymnast.sqsh
  vllm: {image: /images/vllm.sqsh, mounts: ["/models:/models:ro"], workdir: /opt}
merge: {partition: cpu, time: 30}
"""


def write(folder: Path, text: str, name: str = "site.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_whole_file(tmp_path: Path) -> None:
    site = read_site(write(tmp_path, WHOLE))
    assert (site.name, site.executor, site.host) == ("site", "slurm", "me@login")
    assert site.ssh_options == ("-F", "/users/me/ssh", "config")
    assert site.resources.time == "12:00:00"  # to YAML this is the number 43200
    assert (site.resources.nodes, site.resources.exclusive, site.resources.memory) == (2, True, "64G")
    assert site.resources.extra_sbatch == ("--constraint=h100", "--nice")
    assert (site.merge.partition, site.merge.time) == ("cpu", "30")
    assert site.mounts == (Mount("/shared", "/shared"), Mount("/a", "/b", read_only=True), Mount("/c", "/d"))
    assert site.setup == ("module load cuda", "ulimit -n 65536")
    vllm = site.get_container("vllm")
    assert vllm is not None
    assert (vllm.image, vllm.workdir) == ("/images/vllm.sqsh", "/opt")
    assert vllm.mounts == (*site.mounts, Mount("/models", "/models", read_only=True))


SKILLS = """
executor: slurm
ssh_tunnel: {host: login.example.org, user: me, job_dir: /users/me/jobs, identity: /users/me/key}
account: proj
partition: batch
cpu_partition: cpu
job_name_prefix: ""
timeouts: {batch: 04:00:00, interactive: 02:00:00}
containers: {vllm: org/vllm:1, nemo-skills: /images/skills.sqsh}
mounts: [/lustre:/lustre]
env_vars: [HF_HOME=/lustre/hf=1, HF_TOKEN]
"""


def test_a_file_written_for_nemo_skills(tmp_path: Path) -> None:
    site = read_site(write(tmp_path, SKILLS))
    assert (site.host, site.ssh_options) == ("me@login.example.org", ("-i", "/users/me/key"))
    assert (site.resources.partition, site.resources.time, site.resources.account) == ("batch", "04:00:00", "proj")
    assert site.merge.partition == "cpu"
    assert site.environment == {"HF_HOME": "/lustre/hf=1"}
    assert site.runtime == "pyxis"
    container = site.get_container("nemo-skills")
    assert container is not None
    assert container.mounts == (Mount("/lustre", "/lustre"),)


def test_an_empty_file_is_a_site() -> None:
    assert parse_site({}, name="x") == Site(name="x")


def test_an_unknown_container_is_never_taken_for_an_image(tmp_path: Path) -> None:
    site = read_site(write(tmp_path, WHOLE))
    with pytest.raises(NotFoundError, match="there is no container 'vlm' at site") as caught:
        site.get_container("vlm")
    assert "did you mean 'vllm'?" in str(caught.value)
    with pytest.raises(NotFoundError):
        read_site(write(tmp_path, WHOLE.replace("container: gymnast", "container: /images/other.sqsh")))


def test_containers_need_a_runtime(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="runtime: pyxis"):
        read_site(write(tmp_path, WHOLE.replace("runtime: pyxis", "runtime: none")))


def test_every_unknown_key_is_named_with_its_line(tmp_path: Path) -> None:
    text = "partitoin: gpu\nmerge:\n  tiem: 3\ncontainers:\n  a: {imge: x}\n"
    with pytest.raises(ConfigError) as caught:
        read_site(write(tmp_path, text))
    message = str(caught.value)
    assert "line 1: unknown key 'partitoin' (did you mean 'partition'?)" in message
    assert "line 3: unknown key 'merge.tiem' (did you mean 'time'?)" in message
    assert "line 5: unknown key 'containers.a.imge' (did you mean 'image'?)" in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes: two", r"Expected `int \| null`"),
        ("runtime: docker", "runtime"),
        ("mounts: [relative:/x]", "a mount is /source:/target"),
        ("mounts: ['/a:/b:rx']", "a mount is /source:/target"),
        ("time: 1\ntime: 2", "duplicate key 'time'"),
        ("[a, b]", "a mapping"),
        ("a: [", "not valid YAML"),
    ],
)
def test_what_is_wrong_is_reported(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=said) as caught:
        read_site(path)
    assert str(path) in str(caught.value)


def test_a_name_is_looked_up_in_order(tmp_path: Path) -> None:
    first, second = tmp_path / "cluster_configs", tmp_path / "mine"
    write(second, "partition: second", "a.yaml")
    write(second, "partition: other", "bigcluster.yml")
    assert find_site("a", [first, second]).resources.partition == "second"
    write(first, "partition: first", "a.yaml")
    assert find_site("a", [first, second]).resources.partition == "first"
    assert find_site(str(second / "a.yaml"), []).resources.partition == "second"
    with pytest.raises(NotFoundError, match="did you mean 'bigcluster'"):
        find_site("bigclutser", [first, second])
    with pytest.raises(NotFoundError, match="there is no cluster file"):
        find_site("nowhere/a.yaml", [first])
    with pytest.raises(NotFoundError, match="write a file for it"):
        find_site("a", [tmp_path / "empty"])


def test_the_folders_come_from_the_environment() -> None:
    environ = read_environ({"HOME": "/h", "GYMNAST_CLUSTERS": "/x:/y"})
    assert [str(path) for path in environ.cluster_dirs] == [
        "cluster_configs",
        "/x",
        "/y",
        "/h/.config/gymnast/clusters",
    ]


def test_options_are_laid_over_the_site() -> None:
    site = parse_site({"partition": "a", "time": "1", "extra_sbatch": "--nice"}, name="x")
    over = site.resources.with_overrides(partition="b", time=None, exclusive=False, extra_sbatch=("--hold",))
    assert (over.partition, over.time, over.exclusive) == ("b", "1", False)
    assert over.extra_sbatch == ("--nice", "--hold")
