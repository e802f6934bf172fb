"""Guesses the class of a failure from the nouns in its message, for messages that no signature knows.

Programs differ in their sentences, but they name the same things: a registry, a partition, a driver, a key. The guess
is reported as one, with low confidence.
"""

from __future__ import annotations

import re
from typing import Final

_STRONG: Final = 2
_MIN_SCORE: Final = 2


def _words(strong: str, weak: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    return re.compile(rf"(?i)(?<![\w-])(?:{strong})(?![\w])"), re.compile(rf"(?i)(?<![\w-])(?:{weak})(?![\w])")


CLASSES: Final = {
    "disk_full": _words(r"no space left|disk full|disk is full|enospc|out of disk", r"space|disk|inodes?|write|quota"),
    "cuda_oom": _words(
        r"(?:cuda|gpu|vram|hbm|kv[- ]cache)\b.{0,60}\b(?:memory|oom)|(?:memory|oom)\b.{0,40}\b(?:cuda|gpu|vram|kv[- "
        r"]cache)",
        r"allocat\w+|gib|mib",
    ),
    "oom_kill": _words(r"out of memory|oom|enomem|memory limit|memory pressure", r"memory|ram|rss|swap|allocat\w+"),
    "gpu_missing": _words(
        r"(?:gpus?|cuda|nvidia|nvml|rocm|hip|xpu|npu)\b.{0,60}\b(?:not|no|missing|unavailable|driver|visible|initiali[sz]e\w*)"
        r"|(?:no|missing|driver|detect\w*|find)\b.{0,30}\b(?:gpus?|cuda|nvidia|nvml|rocm)",
        r"driver|devices?",
    ),
    "gpu_fault": _words(
        r"cuda\w*|gpus?|nvlink|nvswitch|cublas\w*|cudnn\w*|hbm|ecc|rocm|hip|xid|pcie", r"devices?|kernel|driver"
    ),
    "collective_failed": _words(
        r"nccl|rccl|gloo|mpi\w*|pmix|ucx|infiniband|ibv?_\w+|rdma|all_?reduce|rendezvous|c10d|orte|process group"
        r"|torchrun|mlx5\w*",
        r"ranks?|peers?|world size|workers?|barrier|broadcast",
    ),
    "container": _words(
        r"docker|podman|containerd?|registry|enroot|pyxis|apptainer|singularity|squashfs|oci|runc|image pull"
        r"|dockerfile|compose",
        r"images?|pull|layers?|tag|volumes?|manifest",
    ),
    "scheduler_refused": _words(
        r"sbatch|srun|salloc|slurm\w*|munge|qos|kubelet|kubectl|kube-\w+|pods?|namespace|autoscaler|placement group"
        r"|qsub|bsub"
        r"|admission webhook|error from server|deployments?|statefulsets?|helm|cgroups?",
        r"partition|quota|nodes?|jobs?|requested|limit|account|resources|schedul\w+|credential",
    ),
    "storage_lost": _words(
        r"nfs|lustre|gpfs|mmfs\w*|beegfs|ceph\w*|stale file|file ?systems?|i/o error|unmount\w*|fsck|weka\w*",
        r"mount\w*|disk|storage|inodes?|blocks?|journal",
    ),
    "access_denied": _words(
        r"api[_ -]?keys?|credentials?|unauthorized|forbidden|permission denied|access denied|authenticat\w+|host key"
        r"|ssh|kerberos|iam",
        r"tokens?|log ?in|logged|permission|keys?|certificate|verification|signature|expired|password",
    ),
    "install_mismatch": _words(
        r"dependenc\w+|pip|conda|incompatib\w+|linker|ld|collect2|abi|wheels?|shared object|requirements?|cmake"
        r"|ninja|gcc|nvcc|rustc|glibc\w*",
        r"versions?|install\w*|packages?|librar\w+|imports?|module|compil\w+|symbols?|built|build|header|upgrade|toolchain",
    ),
    "upstream_failed": _words(
        r"upstreams?|haproxy|envoy|traefik|load ?balancer|reverse proxy|bad gateway|nginx|ingress",
        r"backends?|proxy|gateway|servers?",
    ),
    "tls": _words(r"tls|ssl|handshake|certificates?|x509", r"protocol|cipher|verify|trust\w*"),
    "service_down": _words(
        r"redis|postgres\w*|mysql|mariadb|mongo\w*|kafka|rabbitmq|elasticsearch|opensearch|minio|etcd|zookeeper|sqlite\w*|database|s3",
        r"connect\w*|sockets?|broker|queue|refused|reset|unreachable|service|unavailable|timed? ?out|retries",
    ),
    "engine_exception": _words(
        r"vllm\w*|sglang|tensorrt\w*|trtllm|engine ?core|inference server|kv[- ]cache|llama\.cpp|ggml|safetensors"
        r"|mllm|lmdeploy"
        r"|flash[- ]?attention|text_generation\w*|llama\w*|gguf|turbomind|shard-manager|tokenizer|vocabulary|lora",
        r"engine|model|weights|checkpoint|tokenizer|scheduler|shards?|batch|prefill|decode|attention",
    ),
    "bad_setting": _words(
        r"unknown (?:option|argument|flag|key)|invalid (?:option|argument|value|config\w*|flag)|config(?:uration)? "
        r"(?:file|key|error)|yaml|toml",
        r"arguments?|options?|flags?|settings?|parameters?|config\w*|values?|overrides?|environment variables?"
        r"|script|missing|required|expected",
    ),
}
"""Words that name a class on their own, and words that support it. The order breaks ties."""


def guess_class(message: str) -> str | None:
    """The finding whose things a message names, or None."""
    scores = {name: _score(strong, weak, message) for name, (strong, weak) in CLASSES.items()}
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] >= _MIN_SCORE else None


def _score(strong: re.Pattern[str], weak: re.Pattern[str], message: str) -> int:
    named = {match[0].casefold() for match in strong.finditer(message)}
    supporting = {match[0].casefold() for match in weak.finditer(message)}
    return (_STRONG * len(named) + len(supporting)) if named else 0
