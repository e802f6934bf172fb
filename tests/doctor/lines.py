"""One line for each way a signature can look, as the programs print it: no alternative of a pattern goes unread."""

from __future__ import annotations

LINES: dict[str, tuple[str, ...]] = {
    "time_limit": ("slurmstepd: error: *** JOB 7 ON n0 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",),
    "requests_preempted": (
        "WARNING 11-02 10:00:00 [scheduler.py:1057] Sequence group 7 is preempted by PreemptionMode.RECOMPUTE mode",
    ),
    "preempted": ("slurmstepd: error: *** JOB 7 ON n0 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***",),
    "node_lost": ("slurmstepd: error: *** STEP 7.0 ON n0 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE ***",),
    "oom_kill": (
        "[ 8123.4] Out of memory: Killed process 4711 (python) total-vm:9000000kB",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
        "[ 1.0] Memory cgroup out of memory: Killed process 12 (python3.11) total-vm:170676kB",
        "mcqa was killed because memory ran out",
        "ray: 3 Workers killed due to memory pressure (OOM)",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory",
        "slurmstepd: error: Step 7.0 exceeded memory limit (4096 > 4000), being killed",
        "MemoryError",
        "OSError: [Errno 12] Cannot allocate memory",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ),
    "job_cancelled": ("slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***",),
    "disk_full": ("OSError: [Errno 28] No space left on device", "cp: writing 'x': Disk quota exceeded"),
    "fd_limit": ("OSError: [Errno 24] Too many open files",),
    "port_taken": (
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use",
        "port 11000 is already used by python (pid 7)",
    ),
    "cuda_oom": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        "ValueError: Free memory on device (1/80 GiB) on startup is less than desired GPU memory utilization",
        "The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache",
    ),
    "gpu_fault": (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2006, unhandled cuda error",
        "ncclUnhandledCudaError: Call to CUDA function failed.",
        "CUDA error: an illegal memory access was encountered",
        "NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus",
        "GPU 3 has an uncorrectable ECC condition",
    ),
    "server_flag": (
        "vllm: error: unrecognized arguments: --max-model-length 9",
        "usage: error: argument --port: invalid int value: 'x'",
        "No such option: --hed-port",
    ),
    "model_path": (
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name'",
        "OSError: /models/a is not a local folder and is not a valid model identifier listed on the hub",
        "ValueError: Invalid repository ID or local directory specified: '/models/a'",
        "OSError: /models/a does not appear to have a file named config.json.",
        "OSError: Can't load the configuration of '/models/a'.",
        "OSError: Can't load tokenizer for 'a'.",
    ),
    "model_length": ("User-specified max_model_len (99999) is greater than the derived max_model_len (2048)",),
    "command_missing": (
        "slurmstepd: error: execve(): no-such-command: No such file or directory",
        "run.sh: line 3: gymnast: command not found",
        "bash: /opt/run.sh: No such file or directory",
    ),
    "container": (
        "slurmstepd: error: pyxis: couldn't start container",
        "enroot-nsenter: error: failed",
        "[ERROR] No such file or directory: /images/a.squashfs",
        "FATAL:   could not open image /images/a.sif",
        "docker: Error response from daemon: pull access denied",
    ),
    "ray_down": (
        "RuntimeError: Failed to connect to GCS.",
        "The node with node id: a has been marked dead because the detector has missed too many heartbeats",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "The Raylet is terminated. This is unexpected.",
        "ConnectionError: Could not find any running Ray instance.",
    ),
    "engine_dead": (
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        "RuntimeError: Engine core initialization failed. See root cause above.",
        "ERROR 01-01 [core.py:1] EngineCore encountered a fatal error.",
    ),
    "tool_grammar": (
        "ValueError: Failed to compile grammar: properties must be an object",
        "ValueError: The provided JSON schema contains features not supported by xgrammar.",
        "RuntimeError: [xgrammar] Cannot convert the schema: not an object, an error",
        "guided decoding error: the schema is invalid",
    ),
    "inner_500_no_body": (
        "Hit an exception in SimpleAgent___a calling an inner server: b''",
        "Hit an exception in SimpleAgent___a calling an inner server: ",
    ),
    "verifier_exception": ("Hit an exception in SimpleAgent___a calling an inner server: b'KeyError'",),
    "verify_schema": (
        'INFO:     127.0.0.1:7 - "POST /verify HTTP/1.1" 422 Unprocessable Entity',
        "[{'type': 'missing', 'loc': ('body', 'target'), 'msg': 'Field required'}]",
    ),
    "key_refused": (
        "the endpoint of 'policy_model' refuses our key: status 401",
        "Incorrect API key provided: sk-1",
        'INFO:     127.0.0.1:7 - "POST /v1/chat/completions HTTP/1.1" 401 Unauthorized',
        "openai.AuthenticationError: no",
    ),
    "model_name_wrong": (
        '{"object":"error","message":"The model `lab` does not exist.","type":"NotFoundError","code":404}',
        '{"error": {"message": "no such model", "code": "model_not_found"}}',
    ),
    "dns": (
        "gaierror: [Errno -2] Name or service not known",
        "curl: (6) Temporary failure in name resolution",
        "[Errno 11001] getaddrinfo failed",
    ),
    "tls": (
        "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed",
        "requests.exceptions.SSLError: no",
        "cannot connect to 127.0.0.1:8000: [SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)",
    ),
    "not_ready": (
        "the endpoint of 'policy_model' did not become ready within 600 s: status 503",
        "Timed out waiting for the vLLM server",
    ),
    "endpoint_down": (
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host 127.0.0.1:8000",
        "OSError: Multiple exceptions: [Errno 111] Connect call failed ('::1', 8000)",
        "HTTPConnectionPool(host='n0', port=8000): Max retries exceeded with url: /v1/models",
    ),
    "context_overflow": (
        "This model's maximum context length is 512 tokens. However, you requested 700 tokens",
        "The decoder prompt (length 900) is longer than the maximum model length of 512.",
        "the input exceeds the model's maximum length",
    ),
    "process_killed": (
        "worker 1 was killed by SIGKILL",
        "srun: error: n0: task 0: Killed",
        "run.sh: line 9:  4711 Killed                  python server.py",
        "Command '['python']' returned non-zero exit status -9.",
        "container exited, exit code: 137",
        "vllm exited with code -9",
        "Killed",
    ),
    "process_crashed": (
        "srun: error: n0: task 0: Segmentation fault (core dumped)",
        "Fatal Python error: Bus error",
        "mcqa was killed by SIGSEGV",
    ),
    "module_missing": ("ModuleNotFoundError: No module named 'sympy'",),
    "permission": (
        "PermissionError: [Errno 13] Permission denied: '/data/x'",
        "bash: /opt/run.sh: Permission denied",
        "cannot write into ro: Read-only file system",
    ),
    "loop_blocked": ("WARNING the event loop has been blocked for 5 s at app.py:7 in verify",),
    "config_key": (
        "omegaconf.errors.InterpolationKeyError: Interpolation key 'policy_base_url' not found",
        "omegaconf.errors.MissingMandatoryValue: Missing mandatory value: a",
        "Could not override 'a.b'.",
        "the configuration has 2 problems",
    ),
    "scored_after_error": (
        "WARNING verify: row 4: SympifyError: could not parse; reward = 0\n" * 3,
        "scored task 8 reward=0.0 (the checker raised ValueError)\n" * 3,
    ),
    "task_refused": ("srun: error: n0: task 0: Exited with exit code 1",),
    "gpu_missing": (
        "RuntimeError: Failed to infer device type, please set the environment variable",
        "RuntimeError: No CUDA GPUs are available",
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        "Failed to initialize NVML: Driver/library version mismatch",
    ),
    "shared_memory": ("ERROR: this might be caused by insufficient shared memory (shm).",),
    "process_limit": ("RuntimeError: can't start new thread", "bash: fork: retry: Resource temporarily unavailable"),
    "storage_lost": (
        "Nov  2 09:05:01 n3 kernel: LustreError: 11-0: operation ost_write failed: rc = -107",
        "OSError: [Errno 116] Stale file handle: '/nfs/x'",
    ),
    "scheduler_refused": (
        "sbatch: error: Batch job submission failed: Invalid partition name specified",
        "  Warning  FailedScheduling  31s   default-scheduler  0/6 nodes are available: 6 Insufficient cpu.",
    ),
    "scheduler_down": ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)",),
    "node_broken": ("srun: error: Task launch for StepId=71.0 failed on node n17: Prolog failed",),
    "node_disk": ("Message: The node was low on resource: ephemeral-storage.",),
    "access_denied": ("Cannot access gated repo for url https://huggingface.co/a/b/resolve/main/config.json.",),
    "download_failed": ("huggingface_hub.errors.LocalEntryNotFoundError: An error happened",),
    "file_damaged": ("safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",),
    "weights_mismatch": ("RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:",),
    "install_mismatch": (
        "ImportError: /lib/libc.so.6: version `GLIBC_2.32' not found (required by /opt/a.so)",
        "ImportError: /opt/a.so: undefined symbol: _ZN3c105ErrorC2E",
        "exec /usr/bin/python3: exec format error",
    ),
    "bad_setting": (
        "ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8).",
        "ValueError: Unknown quantization method: nvfp5.",
    ),
    "server_assert": ("[TensorRT-LLM][ERROR] Assertion failed: d == a + length (/app/a.cpp:320)",),
    "collective_failed": (
        (
            "[rank1]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
            "WorkNCCL"
        ),
        "n0:7:7 [0] transport/net.cc:1 NCCL WARN Call to ibv_modify_qp failed",
    ),
    "upstream_failed": (
        "2026/11/02 12:34:56 [error] 1#0: *6 connect() failed (111: Connection refused) while connecting to upstream",
    ),
    "upstream_slow": ("2026/11/02 12:34:56 [error] 1#0: *6 upstream timed out (110: Connection timed out)",),
    "proxy_limit": ("2026/11/02 12:34:56 [error] 3#3: *8 client intended to send too large body: 2097152 bytes",),
    "server_hang": ("[2026-11-02 10:00:00 +0000] [7] [CRITICAL] WORKER TIMEOUT (pid:91)",),
    "service_down": ("redis.exceptions.ConnectionError: Error 111 connecting to redis:6379. Connection refused.",),
    "clients_gone": ("INFO 11-02 10:00:01 [serving_chat.py:600] Client disconnected while processing request 7",),
    "model_unloadable": ("llama_model_load: error loading model: missing tensor 'token_embd.weight'",),
    "throttled": (
        "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the PutObject operation",
    ),
    "sandbox_failed": ("bwrap: setting up uid map: Permission denied",),
    "container_crashes": ("policy-0   0/1     Init:CrashLoopBackOff   6 (40s ago)   7m",),
}
