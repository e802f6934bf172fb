"""Log lines that identify one fault, as Slurm, the kernel, vLLM, Ray, uvicorn, NeMo Gym or Gymnast write them."""

from __future__ import annotations

from typing import Final

from gymnast.types.failure import Layer

Row = tuple[str, Layer, int, str, str, str, str]
"""id, layer, weight, pattern, symptom, cause, next step."""

ROWS: Final[tuple[Row, ...]] = (
    (
        *("time_limit", Layer.INFRA, 95, r"DUE TO TIME LIMIT|DUE TO PREEMPTION|DUE TO NODE FAILURE"),
        "the scheduler ended the job",
        "the job reached its time limit, or lost its node",
        "request more time (sbatch --time), then finish the run: the same collect command with --resume",
    ),
    (
        *("oom_kill", Layer.INFRA, 100),
        (
            r"(?i:out of memory: killed process|oom[-_ ]?kill|memory cgroup out of memory|killed because memory ran out"
            r"|killed due to memory pressure|OutOfMemoryError: Task was killed|exceeded memory limit|\bMemoryError\b"
            r"|perhaps out of memory|ObjectStoreFullError"
            r"|cannot allocate memory|std::bad_alloc)"
        ),
        "memory ran out: a process was killed or could not continue",
        "the host, or the job's memory limit, has less memory than the run needs",
        "request more memory (sbatch --mem) or lower --concurrency, then run again with --resume",
    ),
    (
        *("job_cancelled", Layer.INFRA, 85),
        (
            r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT "
            r"(?!\S+ DUE TO (?:JOB REQUEUE|TIME LIMIT|PREEMPTION|NODE FAILURE))"
        ),
        "the job was cancelled",
        "a user (scancel) or the scheduler ended the job",
        "sacct -j ID --format=State,ExitCode shows which user did; resubmit it and finish the run with --resume",
    ),
    (
        *("disk_full", Layer.INFRA, 98, r"(?i:no space left on device|disk quota exceeded)"),
        "a file could not be written",
        "the disk, or your quota on it, is full",
        "free space (df -h, quota -s) or choose another --output, then run again with --resume",
    ),
    (
        *("fd_limit", Layer.INFRA, 97, r"(?i:too many open files|\bEMFILE\b)"),
        "files or sockets could not be opened",
        "the process's limit of open files is too low for this many connections",
        "raise it before starting (ulimit -n 65535) or lower --concurrency, then run again with --resume",
    ),
    (
        *("port_taken", Layer.INFRA, 90),
        (
            r"(?i:address already in use|port \d+ is already used|error while attempting to bind on address|EADDRINUSE"
            r"|port is already allocated|failed to listen on any|ports? .{0,40}already (?:in use|used))"
        ),
        "a server could not listen on its port",
        "another process is already listening there",
        "stop that process (ss -ltnp shows it) or choose another port (port 0 or --head-port auto picks a free one)",
    ),
    (
        *("cuda_oom", Layer.MODEL_SERVING, 92),
        (
            r"(?i:(?:cuda|gpu|hip)\b.{0,40}out of memory)|KV cache is needed|CUBLAS_STATUS_ALLOC_FAILED"
            r"|mem-fraction-static"
            r"|No available memory for the cache blocks|less than desired GPU memory utilization"
            r"|larger than the maximum number of tokens that can be stored in KV cache"
        ),
        "the model server has too little GPU memory",
        "weights and KV cache do not fit into the GPU's memory",
        (
            "lower --max-model-len, adjust --gpu-memory-utilization (vLLM) or --mem-fraction-static (SGLang), add "
            "GPUs, or "
            "free the GPU memory that others use (nvidia-smi)"
        ),
    ),
    (
        *("gpu_fault", Layer.INFRA, 88),
        (
            r"unhandled cuda error|ncclUnhandledCudaError|NVRM: Xid|uncorrectable ECC|has fallen off the bus|GPU is "
            r"lost"
            r"|(?:CUDA|HIP|XPU|NPU) error: (?!out of memory|no kernel image|invalid device function)"
            r"|CUBLAS_STATUS_(?!ALLOC)\w+|device-side assert"
        ),
        "a GPU failed",
        "a hardware or driver fault, or GPU code that accessed invalid memory",
        "exclude the node (sbatch --exclude), check nvidia-smi and dmesg there, and run again with --resume",
    ),
    (
        *("server_flag", Layer.CONFIG, 89, r"error: unrecognized arguments|error: argument --|No such option: "),
        "a command was started with an unknown argument",
        "a wrong or misspelt argument, often from another version",
        "correct the argument; the command's --help lists those of this version",
    ),
    (
        *("model_path", Layer.CONFIG, 89),
        (
            r"Repo id must be in the form|is not a local folder and is not a valid model identifier"
            r"|Invalid repository ID or local directory|does not appear to have a file named config\.json"
            r"|Can't load (?:the configuration|tokenizer) (?:of|for)"
        ),
        "the model server cannot find its model",
        "the model's path or name is wrong, or the path is not mounted where the server runs",
        "correct --model (the folder must contain config.json and be visible inside the container)",
    ),
    (
        *("model_length", Layer.CONFIG, 89, r"max_model_len \(\d+\) is greater than the derived max_model_len"),
        "the model server refuses its context length",
        "the requested context is longer than the model's",
        "lower --max-model-len to the value in the message",
    ),
    (
        *("command_missing", Layer.CONFIG, 87),
        (
            r"execve\(\): .*No such file or directory|: command not found$|(?<!\.h): No such file or directory$"
            r"|couldn't chdir to|can't open file|FileNotFoundError: |Could not import module"
        ),
        "a command or file does not exist",
        "it is not installed, not mounted, or not on the PATH where the job runs",
        "check the path where it runs (srun which COMMAND, ls FOLDER) and the container's mounts",
    ),
    (
        *("container", Layer.INFRA, 86),
        (
            r"pyxis: (?:couldn't|failed|container start)|enroot-\w+: error|\[ERROR\] .*(?:image|squashfs)"
            r"|FATAL: +(?:container creation failed|could not open image)|Error response from daemon|failed to "
            r"solve: |Cannot connect to the Docker daemon"
            r"|ErrImagePull|ImagePullBackOff|Failed to pull image|manifest unknown|CreateContainerConfigError"
            r"|FailedMount|couldn't find key \S+ in (?:ConfigMap|Secret)"
            r"|MountVolume|(?:secret|configmap|persistentvolumeclaim) \"[^\"]+\" not found|OCI runtime create failed"
        ),
        "the container did not start",
        "its image, registry access, volumes, secrets or mounts are missing",
        (
            "correct what the message names: the container daemon, the image and its registry, a volume, a secret or a "
            "mount; then start the "
            "container once by hand"
        ),
    ),
    (
        *("ray_down", Layer.INFRA, 84),
        (
            r"Failed to connect to GCS|has been marked dead because|ray\.exceptions\.(?:RaySystemError|NodeDiedError"
            r"|ActorDiedError|ActorUnavailableError|LocalRayletDiedError)|Raylet is terminated"
            r"|(?i:raylet|\bGCS\b).{0,80}(?i:is dead|has died|unable to|not respond|timed ?out)|(?i:unable to \w+ "
            r".{0,40}raylet)"
            r"|ConnectionError: Could not find any running Ray instance"
        ),
        "Ray lost a node or its head",
        "a Ray process died or cannot be reached",
        "check `ray status` and the raylet's log on the named node, then restart Ray",
    ),
    (
        *("engine_dead", Layer.MODEL_SERVING, 80),
        (
            r"EngineDeadError|Engine core initialization failed|EngineCore (?:encountered a fatal|failed to start|died)"
            r"|AsyncEngineDeadError|(?:Worker proc|Engine (?:core )?proc(?:ess)?)\b.{0,40}\bdied|MQEngineDeadError"
        ),
        "the inference server died",
        "vLLM's engine failed; the lines above show the error",
        "fix the first error in the EngineCore lines above, restart vLLM, then --resume",
    ),
    (
        *("tool_grammar", Layer.DATA_SCHEMA, 87),
        (
            r"(?i:(?:compil\w*|invalid|unsupported|not supported|fail\w*|error).{0,80}"
            r"(?:grammar|xgrammar|outlines|guided)"
            r"|(?:grammar|xgrammar|outlines|guided)\b.{0,80}(?:error|fail|not supported|unsupported|invalid|cannot))"
        ),
        "requests with tools are refused before anything is generated",
        "the inference server's constrained decoding cannot compile a tool's JSON schema",
        "gymnast check tools DATA.jsonl lists the schemas; correct them before changing the server or the agent",
    ),
    (
        *("inner_500_no_body", Layer.VERIFIER, 60),
        r"calling an inner server: (?:b''|b\"\"|b'\"\"')|calling an inner server: *$",
        "an inner server returned 500 without a reason",
        "the body of the inner error was lost on the way out",
        (
            "log the request boundaries: rerun one task with ++global_aiohttp_client_request_debug=True "
            "(--limit 1) and read the innermost [request-boundary] line"
        ),
    ),
    (
        *("verifier_exception", Layer.VERIFIER, 42, r"calling an inner server: b(?:'[^'\"]|'\"[^\"]|\"[^\"'])"),
        "an inner server raised an exception",
        "an exception in an environment or agent; the end of the line quotes it",
        "fix what the innermost body names; the server's own log has the traceback",
    ),
    (
        *("verify_schema", Layer.DATA_SCHEMA, 70),
        r"/verify[^\n]{0,40}\b422\b|422 Unprocessable|(?:'|\")type(?:'|\"): ?(?:'|\")missing(?:'|\"), ?(?:'|\")loc",
        "a server rejected request bodies (422)",
        "the rows lack fields that the environment's request model requires",
        "compare the fields named here with the environment's task model: gymnast check rows DATA --against ENV",
    ),
    (
        *("key_refused", Layer.CONFIG, 75),
        (
            r"(?i:refuses our key|needs a key, and none is set|invalid[ _]api[ _]key|incorrect api key"
            r"|\b401 unauthorized|authenticationerror)"
        ),
        "the endpoint rejects the API key",
        "policy_api_key is missing, wrong or expired",
        "set the right key (policy_api_key in env.yaml, or ++policy_api_key=…) and run again",
    ),
    (
        *("model_name_wrong", Layer.CONFIG, 74),
        r"(?i:the model `[^`]+` does not exist|['\"]model_not_found['\"]|\"?model\"? .{1,80} does not exist)",
        "the endpoint does not know the model",
        "the endpoint does not serve a model named policy_model_name",
        "use a name that GET <base URL>/models lists (policy_model_name)",
    ),
    (
        *("dns", Layer.INFRA, 72),
        (
            r"(?i:name or service not known|temporary failure in name resolution|getaddrinfo failed|host not found in "
            r"upstream|no such host|could not resolve host)"
        ),
        "a host name does not resolve",
        "the host name is wrong, or this node has no name server for it",
        "check the URL's host from the node itself: getent hosts NAME",
    ),
    (
        *(
            "tls",
            Layer.INFRA,
            72,
            r"(?i:certificate[ _]verify[ _]failed|SSLError|\[SSL[]:]|wrong[ _]version[ _]number)",
        ),
        "a TLS connection failed",
        "the certificate is not trusted here, or http and https are mixed up",
        "check the URL's scheme and the CA bundle (SSL_CERT_FILE)",
    ),
    (
        *("not_ready", Layer.MODEL_SERVING, 66),
        r"did not become ready within|was not ready within|Timed out waiting for .*(?:server|endpoint)",
        "a server did not become ready in time",
        "the endpoint or server is still starting, died while starting, or its URL is wrong",
        "read that server's log; if it only needs longer: ++model_endpoint_readiness_timeout_seconds=1800",
    ),
    (
        *("endpoint_down", Layer.MODEL_SERVING, 67),
        r"(?i:connection refused|cannot connect to host|connect call failed|ClientConnectorError|max retries exceeded)",
        "connections are refused",
        "nothing listens at that address: the server is not running, or the URL is wrong",
        "check that the endpoint runs and its URL is correct: curl <base URL>/models",
    ),
    (
        *("context_overflow", Layer.CONFIG, 55),
        r"maximum context length is \d+ tokens|longer than the maximum model length|exceeds the model's maximum",
        "prompts do not fit into the context",
        "the conversation plus the requested output is longer than the model's context",
        "lower max_output_tokens or the number of turns, or serve the model with a larger --max-model-len",
    ),
    (
        *("process_killed", Layer.INFRA, 78),
        (
            r"(?i:was killed by SIGKILL|\btask \d+: killed|^\S+: line \d+: +\d+ Killed|returned non-zero exit "
            r"status -9|(?:return|exit) ?code\W{1,4}-9\b|\bsignal 9\b"
            r"|exit code:? 137|exited with code -9|(?:^|\W)Killed\s*$)"
        ),
        "a process was killed (SIGKILL)",
        "usually the kernel or the job's memory limit; sometimes a user",
        (
            "look for the kernel's line (dmesg -T | grep -i 'killed process', or sacct -j ID --format=State,MaxRSS); "
            "if it was memory, request more or lower --concurrency, then --resume"
        ),
    ),
    (
        *("process_crashed", Layer.INFRA, 77),
        (
            r"Segmentation fault|core dumped|Bus error|Fatal Python error|was killed by SIG(?:SEGV|BUS|ABRT|ILL)"
            r"|Child process \[\d+\] died|SIG(?:SEGV|ABRT|BUS|ILL) received|(?:return|exit) ?code\W{1,4}-(?:4|6|7|8"
            r"|11)\b|\bsignal (?:4|6|7|8"
            r"|11)\b"
        ),
        "a process crashed",
        "native code (a driver, a tokenizer, a compiled verifier) crashed it",
        "read the preceding lines in that log; run the instance in its own process (runs_in: child)",
    ),
    (
        *("module_missing", Layer.CONFIG, 68, r"ModuleNotFoundError: No module named"),
        "a Python package is missing",
        "the environment or server needs a package that is not installed where it runs",
        "install it there, or give the instance its own venv (runs_in: venv with a requirements.txt)",
    ),
    (
        *("permission", Layer.INFRA, 63, r"PermissionError: |: Permission denied$|Read-only file system"),
        "a file cannot be opened or written",
        "it belongs to another user, or is mounted read-only",
        "change the owner, or choose another folder",
    ),
    (
        *("loop_blocked", Layer.THROUGHPUT, 58, r"the event loop has been blocked for \d+ s at "),
        "blocking code stalls everything else in a process",
        "blocking code (time.sleep, a long computation, a synchronous request) runs on the event loop",
        "move that work off the loop: await asyncio.to_thread(…), a ProcessPool, or runs_in: child for the instance",
    ),
    (
        *("config_key", Layer.CONFIG, 69),
        (
            r"InterpolationKeyError|MissingMandatoryValue|ConfigAttributeError|ConfigKeyError|Could not override"
            r"|yaml\.(?:parser|scanner|composer)\.\w+|TOMLDecodeError"
            r"|the configuration has \d+ problems"
        ),
        "the configuration cannot be used",
        "a key is missing, misspelt or has the wrong type, or the file is not valid YAML",
        (
            "correct the config file at the quoted line; gymnast config validate lists all problems, and gymnast "
            "config "
            "explain KEY shows where a value comes from"
        ),
    ),
    (
        *("task_refused", Layer.INFRA, 45, r"srun: error: .*Exited with exit code (?!75\b)[1-9]"),
        "a step of the job ended with an error",
        "the program itself failed; see the lines above",
        "read the preceding lines in the same log",
    ),
    (
        *("sandbox_failed", Layer.SANDBOX, 88),
        (
            r"\bbwrap: |newuidmap|unshare.{0,40}(?:not permitted|denied)|nsjail|user namespaces? .{0,40}(?:disabled"
            r"|not "
            r"permitted)"
        ),
        "the sandbox for model-written code fails",
        "the sandbox itself fails, not the program in it: user namespaces are not permitted, or it is not installed",
        "check that the sandbox works on this host (bwrap --ro-bind / / true; user namespaces), or choose another one",
    ),
    (
        *("container_crashes", Layer.INFRA, 79, r"CrashLoopBackOff|Back-off restarting failed container"),
        "a container keeps crashing and is restarted",
        "its program ends with an error; the log of the previous start shows which",
        "read it: kubectl logs POD --previous --all-containers; then gymnast doctor on that log",
    ),
)
