"""Log lines of classes of faults, by the vocabulary that programs share, not by one program's message. Data only.

A line says which class its fault belongs to even if it was never seen before: `version … not found (required by …)` is
an installation that does not fit, whatever the library is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from gymnast.doctor.signature_rows import Row

_SMALLER: Final = r"(?:greater|larger|longer|higher|bigger|more|smaller|less|fewer|lower)"
CLASSES: Final[tuple[Row, ...]] = (
    (
        *("gpu_missing", Layer.INFRA, 91),
        (
            r"(?i:failed to infer device type|no cuda[- ](?:gpus?|capable device)|driver on your system is too old"
            r"|driver version is insufficient|driver/library version mismatch|failed to initialize nvml"
            r"|could not select device driver|nvidia-container-cli: |lib(?:cuda|nvidia-ml)\.so\S* ?:? cannot open"
            r"|nvidia-smi has failed|no (?:gpus?|devices?) (?:were |was |is |are )?(?:found|detected|available|visible)"
            r"|cuda initialization: |gpu/nvml: failed|found no nvidia driver|cudaGetDeviceCount|total available gpus"
            r"|cuda (?:is )?not available)"
        ),
        "the program sees no usable GPU",
        "the driver is missing or does not fit, or the GPUs are not passed to the job or container",
        (
            "run nvidia-smi in the same job or container; then request GPUs (--gres=gpu:N, docker --gpus all with the "
            "NVIDIA "
            "container toolkit) or fix the node's driver"
        ),
    ),
    (
        *("shared_memory", Layer.INFRA, 93),
        (
            r"(?i:shared memory \(shm\)|out of shared memory|insufficient shared memory|/dev/shm.{0,80}(?:full|space"
            r"|too small))"
        ),
        "shared memory ran out",
        "the container's shared memory is too small for the processes that use it",
        "give the container more (docker --shm-size=16g, --ipc=host; in Kubernetes an emptyDir with medium: Memory)",
    ),
    (
        *("process_limit", Layer.INFRA, 94),
        (
            r"(?i:can't start new thread|pthread_create failed|(?:fork|what\(\)): +(?:retry: )?resource temporarily"
            r"|cannot fork)"
        ),
        "no more threads or processes can be started",
        "the user's or the container's limit of processes is reached",
        "raise the limit (ulimit -u, pids_limit, TasksMax) or start fewer threads (OMP_NUM_THREADS=1); then --resume",
    ),
    (
        *("storage_lost", Layer.INFRA, 96),
        (
            r"LustreError: (?!.*(?:quota|No space))|Lustre: .*was lost|[Ss]tale (?:NFS )?file handle"
            r"|\[Errno 5\] Input/output error|nfs: server \S+ not responding|Transport endpoint is not connected"
            r"|EXT4-fs error|XFS .*(?:shutdown|corruption)|blk_update_request: I/O error|I/O error, dev "
        ),
        "a file system does not respond or lost its server",
        "the network storage (Lustre, NFS) or a disk failed under the program",
        "check the file system from that node (df, ls; ask the storage admins), then run again with --resume",
    ),
    (
        *("scheduler_refused", Layer.CONFIG, 90),
        (
            r"(?:sbatch|srun|salloc): error: (?:.*(?:submission failed|Unable to (?:allocate|create|satisfy)"
            r"|[Ii]nvalid |dependency problem|QOS"
            r"|can ?not be satisfied|not available|violates|Requested ))"
            r"|FailedScheduling|\d+/\d+ nodes are available|No available node types can fulfill"
            r"|[Ii]nsufficient (?:cpu|memory|nvidia\.com/gpu|ephemeral)|cannot be scheduled right now"
        ),
        "the scheduler does not accept or cannot place the job",
        "the request names an account, partition, QOS or resource that does not exist, is not allowed or is not free",
        (
            "correct the request or script (account, partition, QOS, GPUs, volumes, memory): sinfo -l, sacctmgr show "
            "assoc user=$USER, "
            "kubectl describe nodes, or ray status show what there is"
        ),
    ),
    (
        *("scheduler_down", Layer.INFRA, 88),
        (
            r"Unable to contact slurm controller|slurm_load_\w+ error|Socket timed out on send/recv"
            r"|Zero Bytes were transmitted or received|The connection to the server \S+ was refused"
        ),
        "the scheduler does not answer",
        "slurmctld or the cluster's API server is down, overloaded, or cannot be reached from this host",
        "check it (scontrol ping, kubectl cluster-info) and try again later; the scheduler's admins can tell more",
    ),
    (
        *("node_broken", Layer.INFRA, 89),
        (
            r"Prolog failed|Task launch for \S+ failed|Application launch failed|Node failure on|NodeNotReady"
            r"|task/cgroup: .*failed|low on resource: memory|Slurmd could not"
        ),
        "a node of the cluster does not work",
        "the node failed or could not start the job's processes",
        "resubmit without that node (sbatch --exclude=NODE), and tell the cluster's admins",
    ),
    (
        *("node_disk", Layer.INFRA, 95, r"low on resource: (?:ephemeral-storage|imagefs|nodefs)|DiskPressure"),
        "the node's disk is full",
        "the pod, or others on the node, used up the node's local disk",
        "write to a volume instead of the container's disk, or request ephemeral-storage; free disk space on the node",
    ),
    (
        *("access_denied", Layer.CONFIG, 87),
        (
            r"(?i:gated repo|GatedRepoError|RepositoryNotFoundError|access to model \S+ is restricted"
            r"|401 client error|403 client error|status code 40[13]|denied: requested access|access denied by server"
            r"|authentication required)"
        ),
        "access is refused",
        "a model, image, share or host needs a login, key or token that this process does not have",
        (
            "request access, and pass the key or token where the program runs (HF_TOKEN, docker login, an image pull "
            "secret, "
            "the export of a mounted share, known_hosts and keys for ssh)"
        ),
    ),
    (
        *("download_failed", Layer.INFRA, 86),
        (
            r"(?i:LocalEntryNotFoundError|couldn't connect to .{0,3}https?://|offline mode is enabled"
            r"|failed to (?:download|fetch|resolve) |cannot reach https?://|HTTPSConnectionPool\(host='(?:huggingface|cdn)"
            r"|network is unreachable|no route to host|(?:huggingface\.co|hf\.co|xethub|pypi\.org)\b.{0,200}(?:error"
            r"|failed|unavailable|exceeded|refused)"
            r"|(?:error|failed|unavailable)\b.{0,200}(?:huggingface\.co|hf\.co|pypi\.org))"
        ),
        "a download failed",
        "the host has no route to the internet or the hub, or the file is not in the local cache",
        (
            "download the model on a host with internet (hf download) and point the program to it, or set the proxy "
            "and "
            "HF_HOME; check the network from that node"
        ),
    ),
    (
        *("file_damaged", Layer.INFRA, 86),
        (
            r"(?i:HeaderTooLarge|InvalidHeader|MetadataIncompleteBuffer|error while deserializing"
            r"|PytorchStreamReader failed"
            r"|invalid load key|not a (?:zip|gzip) file|unexpected end of file|corrupt(?:ed)? |bad magic"
            r"|checksum (?:mismatch|does not match)|git-lfs\.github\.com)"
        ),
        "a file is damaged or incomplete",
        "a download or copy of the weights or data broke off, or the file is a Git LFS pointer",
        "compare the file's size and checksum with its source, delete it and download it again",
    ),
    (
        *("weights_mismatch", Layer.CONFIG, 87),
        (
            r"size mismatch for |Error\(s\) in loading state_dict|(?:Missing|Unexpected) key\(s\) in state_dict|shape "
            r"mismatch.*weight"
        ),
        "the weights do not fit the model",
        "the checkpoint belongs to another model or config, for example with another vocabulary size",
        "load the checkpoint with its own config.json and tokenizer, or convert it for this model",
    ),
    (
        *("model_unloadable", Layer.CONFIG, 85),
        (
            r"(?i:(?:unable|failed|failure|error|could not|cannot|can't)\b.{0,30}\bload(?:ing)?\b.{0,40}\b(?:model"
            r"|vocab\w*"
            r"|tokenizer|weights|checkpoint|adapter|lora)|missing tensor|weights\b.{0,20}\bload failed)"
        ),
        "a model's files cannot be loaded",
        (
            "a file of the model (weights, tokenizer, adapter) is missing, damaged or of another format than the "
            "program reads"
        ),
        (
            "compare the folder's files with the model's repository (weights, tokenizer, config.json), and download it "
            "again"
        ),
    ),
    (
        *("throttled", Layer.INFRA, 83),
        r"(?i:toomanyrequests|too many requests|rate limit|SlowDown|throttl\w+|reduce your request rate)",
        "a service limits the rate of requests",
        "more requests are sent than the service (a registry, a hub, an object store) allows",
        "log in (limits are higher then), send fewer requests at once, or use a mirror or cache; then try again",
    ),
    (
        *("install_mismatch", Layer.CONFIG, 88),
        (
            r"(?i:version `[\w.]+' not found|module\(s\) are unknown|EnvironmentNameNotFound"
            r"|undefined symbol|cannot open shared object file|no kernel image is "
            r"available|invalid device function|\bptxas\b"
            r"|sm_\d+.{0,40}not (?:defined|supported|compatible)|requires the .{1,40}(?:library|package|module)"
            r"|not compiled with|binary incompatib|numpy\.dtype size changed|does not recognize this architecture"
            r"|version mismatch: |is not compatible with (?:this|the)|built (?:for|with) (?:a )?(?:different|another"
            r"|other)"
            r"|exec format error|illegal instruction|failed to find c compiler|\.h: no such file or directory"
            r"|could not find (?:nvcc|cuda_home|ninja)|nvcc.{0,20}not found|ImportError: |requires a different "
            r"python|\bpip install\b"
            r"|requires (?:python|torch|cuda|transformers|numpy|a newer|at least version)|version tag does not match"
            r"|minimum required version|which is (?:older|less) than the|conflicting dependencies"
            r"|ResolutionImpossible|cannot find -l"
            r"|no matching manifest for|api version .{1,40}(?:too old|mismatch))"
        ),
        "installed programs or libraries do not fit each other or this machine",
        (
            "a package, image or compiled library was built for another version, CPU, GPU or system, or a build "
            "tool is "
            "missing"
        ),
        (
            "install matching versions (or rebuild the engine or extension) in one fresh image or venv; the message "
            "names the "
            "library, version or compiler that is missing"
        ),
    ),
    (
        *("bad_setting", Layer.CONFIG, 86),
        (
            r"(?i:(?:error|exception|invalid|value)\b.*(?:must (?:be|have|encode|provide|specify|not|match|equal)\b"
            rf"|is {_SMALLER} than|requires? --|is not (?:a )?(?:valid|supported|allowed|recognized|divisible)"
            r"|not supported|unsupported|only supported (?:on|for|with|by)|no longer (?:allowed|supported)|exceeds the"
            r"|cannot be (?:larger|greater|used (?:with|together)))"
            r"|\w(?:error|exception)\b: .*\brequires?\b|unknown (?:quantization|directive|argument|option|parser"
            r"|dtype|method"
            r"|backend|model type)|invalid (?:choice|value|argument)"
            r"|only supported on gpus with|chat template is no longer)"
        ),
        "a program refuses one of its settings",
        (
            "an argument, flag or option has a value that this model, hardware or version does not allow; the message "
            "says which"
        ),
        (
            "change the setting (argument, flag, dtype, parser, template) that the message names; --help lists valid "
            "values"
        ),
    ),
    (
        *("server_assert", Layer.MODEL_SERVING, 82),
        (
            r"\[TensorRT-LLM\]\[ERROR\]|TllmException|failed to load '[^']+' version|error: creating server:|Failed to "
            r"create executor"
        ),
        "the inference server cannot run its engine",
        (
            "an internal check failed: usually the engine was built with other settings or another version than the "
            "server's"
        ),
        (
            "rebuild the engine with the server's version and the same settings, then load the model again; its log "
            "has "
            "the rest"
        ),
    ),
    (
        *("collective_failed", Layer.INFRA, 84),
        (
            r"Watchdog caught collective operation timeout|NCCL WARN |NCCL error|ncclInternalError|ncclSystemError"
            r"|DistNetworkError|[Rr]endezvous\w*(?:Error| failed)|DistStoreError|TCPStore|client socket has timed "
            r"out|Gloo connect"
            r"|remote process exited or there was a network error|no socket interface found|ibv_poll_cq"
        ),
        "communication between GPUs or ranks failed (NCCL, torch.distributed)",
        "one rank died, hangs or cannot be reached; the others wait for it until they time out",
        (
            "find the rank that stopped first (its own log, the first line in time); if none did, check the network "
            "between the "
            "nodes: MASTER_ADDR and port, NCCL_SOCKET_IFNAME, NCCL_DEBUG=INFO, ibstat"
        ),
    ),
    (
        *("upstream_failed", Layer.MODEL_SERVING, 81),
        (
            r"while connecting to upstream|header from upstream|upstream prematurely closed|is DOWN, reason|has no "
            r"server available|no live upstreams|upstream connect error|backend .{1,40} is DOWN"
        ),
        "the proxy cannot reach the server behind it",
        "the upstream server is not running, closed the connection, or listens on another address",
        (
            "check that the upstream server runs and answers without the proxy (curl UPSTREAM/v1/models); its own log "
            "says why"
        ),
    ),
    (
        *("upstream_slow", Layer.THROUGHPUT, 82, r"upstream timed out|upstream request timeout|504 Gateway Time-?out"),
        "the proxy gives up on the server behind it",
        "replies take longer than the proxy's timeout: long generations, or a server that hangs",
        "raise the proxy's timeout (nginx: proxy_read_timeout 3600s) above the longest rollout, or lower --concurrency",
    ),
    (
        *("proxy_limit", Layer.CONFIG, 87),
        r"too large body|worker_connections are not enough|upstream sent too big header|request entity too large",
        "the proxy refuses requests because of its own limits",
        "the proxy's limit of body size, header size or connections is too low",
        (
            "raise the limit in the proxy's configuration (nginx: client_max_body_size, worker_connections, "
            "proxy_buffer_size)"
        ),
    ),
    (
        *("server_hang", Layer.MODEL_SERVING, 82),
        (
            r"Watchdog timeout|WORKER TIMEOUT|(?:Liveness|Readiness|Startup) probe failed|blocked for more than \d+ "
            r"seconds|heartbeat timeout"
        ),
        "a server stopped answering and was restarted or killed",
        "it hangs, is blocked by slow work, or starts slower than the probe allows",
        (
            "take a stack while it hangs (py-spy dump --pid PID) and read the server's log before the timeout; if "
            "it is "
            "only "
            "slow to start, raise the probe's or worker's timeout"
        ),
    ),
    (
        *("service_down", Layer.INFRA, 70),
        (
            r"(?i:(?:redis|postgres|psycopg|mysql|mongo|kafka|rabbit|amqp|elasticsearch|qdrant|milvus|sqlalchemy|asyncpg)"
            r".{0,200}(?:refused|failed|too many|out of|timed? ?out|unavailable|error \d+ connecting))"
        ),
        "a service that the program needs cannot be reached or used",
        "the database or queue is not running at that address, or has no free connections",
        (
            "check that the service runs and its address is right from that host; raise its connection limit or lower "
            "--concurrency"
        ),
    ),
    (
        *("clients_gone", Layer.THROUGHPUT, 58),
        (
            r"(?i:client (?:has )?(?:disconnect\w*|closed|went away)|ClientDisconnect|Aborted request|connection reset "
            r"by peer|broken pipe)"
        ),
        "clients disconnect before their requests are answered",
        "their deadline is shorter than the wait: too many requests at once, or generations that take too long",
        "lower --concurrency, or raise the client's deadline (the model's timeout_s); compare with the server's queue",
    ),
)
