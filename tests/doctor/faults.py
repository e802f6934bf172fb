"""The faults, one row each: the experiment, and what doctor's first answer must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gymnast.types.failure import Layer
from tests.doctor.experiments import (
    GRAMMAR,
    ONCE,
    OOM_LINE,
    OVERFLOW,
    TOO_LONG,
    bad_rows,
    bad_rows_refused,
    calls,
    collected,
    data_changed,
    data_changed_refused,
    dead_at_start,
    dead_endpoint,
    duplicates,
    empty_profile,
    foreign_data_changed,
    foreign_failures,
    foreign_inner_500,
    foreign_partial,
    full_disk,
    in_lab,
    judged,
    key_refused_at_start,
    killed,
    log_of,
    lost_records,
    many,
    nested_500,
    other_plan,
    output_taken,
    port_taken,
    seed_422,
    settings_changed,
    shutdown_noise,
    skewed,
    too_many_files,
    torn,
    two_agents,
    unknown_agent,
    verify_422,
    wrong_value,
)
from tests.doctor.lab import LAUNCH, LOOK, MODEL, RIGHT, WRONG, Answer, Lab, error, said


@dataclass(frozen=True)
class Fault:
    """One experiment and its diagnosis."""

    name: str
    make: Callable[[Lab], tuple[str, ...]]
    layer: Layer
    cause: str
    next: str
    """Words of the next action."""


FAULTS = (
    Fault("dead endpoint", dead_endpoint, Layer.MODEL_SERVING, "endpoint_down", "/models"),
    Fault("dead endpoint at start", dead_at_start, Layer.MODEL_SERVING, "endpoint_down", "start it"),
    Fault(
        "wrong model name",
        collected(error(404, {"error": "no such model"})),
        Layer.CONFIG,
        "model_name_wrong",
        "-m NAME",
    ),
    Fault("key refused", collected(error(401, {"error": "bad key"})), Layer.CONFIG, "key_refused", "policy_api_key"),
    Fault("key refused at start", key_refused_at_start, Layer.CONFIG, "key_refused", "policy_api_key"),
    Fault(
        "429 storm",
        collected(error(429, {"error": "slow"}, retry_after="0"), *ONCE),
        Layer.MODEL_SERVING,
        "rate_limited",
        "--concurrency",
    ),
    Fault(
        "overloaded",
        collected(error(503, {"error": "loading"}), *ONCE, "--give-up-after", "0.3"),
        Layer.MODEL_SERVING,
        "endpoint_overloaded",
        "replicas",
    ),
    Fault(
        "500 with a body",
        collected(error(500, {"error": "CUDA error"}), *ONCE),
        Layer.MODEL_SERVING,
        "endpoint_error",
        "own log",
    ),
    Fault(
        "500 without a body",
        collected(error(500), *ONCE),
        Layer.MODEL_SERVING,
        "empty_provider_body",
        "provider's side",
    ),
    Fault("a web page", collected(Answer(b"<html>welcome</html>"), *ONCE), Layer.MODEL_SERVING, "not_json", "base URL"),
    Fault("an empty body", collected(Answer(b""), *ONCE), Layer.MODEL_SERVING, "empty_body", "curl -i"),
    Fault(
        "model timeout",
        collected(said("", delay_s=0.6), f"{MODEL}.timeout_s=0.1", *ONCE),
        Layer.MODEL_SERVING,
        "model_slow",
        "--concurrency",
    ),
    Fault("tool grammar", collected(GRAMMAR, *ONCE), Layer.DATA_SCHEMA, "tool_grammar", "gymnast check tools"),
    Fault(
        "request refused",
        collected(error(400, {"error": "temperature must be positive"}), *ONCE),
        Layer.CONFIG,
        "parameter_refused",
        "overrides",
    ),
    Fault(
        "request refused for an unknown reason",
        collected(error(400, {"error": "code 17"}), *ONCE),
        Layer.DATA_SCHEMA,
        "request_refused",
        "gymnast check endpoint",
    ),
    Fault(
        "output longer than the context",
        collected(TOO_LONG, *ONCE),
        Layer.CONFIG,
        "output_limit",
        "max_output_tokens",
    ),
    Fault("context overflow", collected(OVERFLOW), Layer.CONFIG, "context_overflow", "--max-model-len"),
    Fault(
        "answers cut off", many(said("It is", finish="length")), Layer.CONFIG, "answers_truncated", "max_output_tokens"
    ),
    Fault(
        "usage missing", many(said("It is \\boxed{A}", usage=False)), Layer.MODEL_SERVING, "usage_missing", "report it"
    ),
    Fault("all rewards 0", many(WRONG), Layer.MODEL_SERVING, "answers_wrong", "transcripts"),
    Fault("verify 422", verify_422, Layer.DATA_SCHEMA, "verify_schema", "gymnast check rows"),
    Fault("seed 422", seed_422, Layer.DATA_SCHEMA, "seed_schema", "gymnast check rows"),
    Fault("nested 500 without a body", nested_500, Layer.VERIFIER, "inner_500_no_body", "request_debug=True"),
    Fault("verifier raises", in_lab("verify"), Layer.VERIFIER, "verifier_exception", "lab.log"),
    Fault("verifier answers NaN", in_lab("nan"), Layer.VERIFIER, "verifier_reply", "return a finite `reward`"),
    Fault(
        "verifier too slow",
        in_lab("slow", "++lab_agent.responses_api_agents.simple_agent.verify_timeout_s=0.1"),
        Layer.VERIFIER,
        "verifier_slow",
        "verify_timeout_s",
    ),
    Fault("verifier's disk is full", in_lab("full"), Layer.INFRA, "disk_full", "free space"),
    Fault(
        "foreign judge failures", foreign_failures("judge_failed"), Layer.VERIFIER, "judge_failed", "gymnast reverify"
    ),
    Fault(
        "foreign deadline failures", foreign_failures("timeout_exceeded"), Layer.THROUGHPUT, "rollout_timeout", "--live"
    ),
    Fault("session cannot be opened", in_lab("seed"), Layer.VERIFIER, "seed_exception", "lab.log"),
    Fault("sandbox fails", in_lab("sandbox"), Layer.SANDBOX, "sandbox_failed", "sandbox works"),
    Fault(
        "tool hangs",
        in_lab(
            "hang",
            "++lab_agent.responses_api_agents.simple_agent.tool_timeout_s=0.1",
            policy=calls("look"),
            tools=[LOOK],
        ),
        Layer.THROUGHPUT,
        "tool_hang",
        "has the tool",
    ),
    Fault(
        "tool raises", in_lab("tool", policy=calls("look"), tools=[LOOK]), Layer.VERIFIER, "tool_exception", "lab.log"
    ),
    Fault(
        "tool of nobody",
        in_lab("", policy=calls("launch_rocket"), tools=[LAUNCH]),
        Layer.CONFIG,
        "tool_unowned",
        "which environment has `launch_rocket`",
    ),
    Fault("judge gives no verdict", judged(said("no idea")), Layer.VERIFIER, "judge_failed", "gymnast reverify"),
    Fault(
        "judge slower than policy", judged(said("Same. [[A=B]]", delay_s=0.3)), Layer.THROUGHPUT, "judge_slow", "judge"
    ),
    Fault(
        "rollout too long",
        collected(said("", delay_s=0.8), "--rollout-timeout", "0.2", *ONCE),
        Layer.THROUGHPUT,
        "rollout_timeout",
        "--live",
    ),
    Fault("no agent named", two_agents, Layer.CONFIG, "agent_missing", ""),
    Fault("unknown agent", unknown_agent, Layer.CONFIG, "agent_missing", ""),
    Fault("bad rows", bad_rows, Layer.DATA_SCHEMA, "bad_rows", "gymnast data validate"),
    Fault("bad rows refused", bad_rows_refused, Layer.DATA_SCHEMA, "bad_rows", "--skip-bad-rows"),
    Fault("wrong config value", wrong_value, Layer.CONFIG, "refused_to_start", ""),
    Fault("data changed while resuming", data_changed, Layer.CACHE_RESUME, "stale_inputs", "--output"),
    Fault("data changed, resume refused", data_changed_refused, Layer.CACHE_RESUME, "stale_inputs", "--fork"),
    Fault("settings changed, resume refused", settings_changed, Layer.CACHE_RESUME, "settings_changed", "--fork"),
    Fault("data changed under a foreign run", foreign_data_changed, Layer.CACHE_RESUME, "stale_inputs", "--output"),
    Fault("few rows and an empty profile", empty_profile, Layer.CACHE_RESUME, "partial_output", "--resume"),
    Fault("duplicate keys", duplicates, Layer.CACHE_RESUME, "duplicate_keys", "first record"),
    Fault("missing keys", lost_records, Layer.CACHE_RESUME, "missing_keys", ".done"),
    Fault("torn last line", torn, Layer.CACHE_RESUME, "torn_line", "--resume"),
    Fault("another plan", other_plan, Layer.CACHE_RESUME, "plan_changed", "own file"),
    Fault("output taken", output_taken, Layer.CACHE_RESUME, "output_taken", "--overwrite"),
    Fault("fewer rollouts than requested", foreign_partial, Layer.INFRA, "fewer_than_requested", "--logs"),
    Fault("nested 500 in a foreign log", foreign_inner_500, Layer.VERIFIER, "inner_500_no_body", "request_debug=True"),
    Fault(
        "budget used up",
        collected(RIGHT, "--max-tokens", "60", "--concurrency", "1"),
        Layer.CONFIG,
        "budget_used_up",
        "--max-tokens",
    ),
    Fault("clock skew", skewed, Layer.INFRA, "clock_skew", "clock"),
    Fault("collector killed", killed("collector"), Layer.INFRA, "collector_killed", "--resume"),
    Fault("collector terminated", killed("term"), Layer.INFRA, "stopped_by_hand", "--resume"),
    Fault("worker killed", killed("worker", "--workers", "1"), Layer.INFRA, "process_killed", "dmesg"),
    Fault(
        "child killed",
        killed("child", "++mcqa.resources_servers.mcqa.runs_in=child"),
        Layer.INFRA,
        "process_killed",
        "dmesg",
    ),
    Fault("collector killed for memory", killed("collector", line=OOM_LINE), Layer.INFRA, "oom_kill", "--mem"),
    Fault("disk full", full_disk, Layer.INFRA, "disk_full", "free space"),
    Fault("too many open files", too_many_files, Layer.INFRA, "fd_limit", "ulimit -n"),
    Fault("port taken", port_taken, Layer.INFRA, "port_taken", ""),
    Fault("shutdown noise after an exception", shutdown_noise, Layer.VERIFIER, "verifier_exception", "app.py"),
    Fault("slurm: time limit", log_of("slurm_time_limit.out"), Layer.INFRA, "time_limit", "--time"),
    Fault("slurm: cancelled", log_of("slurm_cancelled.out"), Layer.INFRA, "job_cancelled", "sacct"),
    Fault(
        "slurm: policy server crashed",
        log_of("slurm_policy_crashed.out"),
        Layer.MODEL_SERVING,
        "engine_dead",
        "logs/policy.0.log",
    ),
    Fault(
        "slurm: another component crashed",
        log_of("slurm_component_crashed.out"),
        Layer.INFRA,
        "process_crashed",
        "logs/browser.0.log",
    ),
    Fault(
        "slurm: a step failed", log_of("slurm_step_failed.out"), Layer.INFRA, "task_refused", "read the preceding lines"
    ),
    Fault("slurm: task killed", log_of("slurm_task_killed.out"), Layer.INFRA, "process_killed", "sacct"),
    Fault("slurm: no such command", log_of("slurm_no_command.out"), Layer.CONFIG, "command_missing", "srun which"),
    Fault("vllm: unknown flag", log_of("vllm_unknown_flag.log"), Layer.CONFIG, "server_flag", "--help"),
    Fault("vllm: no model there", log_of("vllm_no_model.log"), Layer.CONFIG, "model_path", "--model"),
    Fault("vllm: context too long", log_of("vllm_context_length.log"), Layer.CONFIG, "model_length", "--max-model-len"),
    Fault("vllm: unknown model name", log_of("vllm_model_name.log"), Layer.CONFIG, "model_name_wrong", "/models"),
    Fault("ray: no head", log_of("ray_no_head.log"), Layer.INFRA, "ray_down", "ray status"),
    Fault("ray: actor died", log_of("ray_actor_died.log"), Layer.INFRA, "ray_down", "ray status"),
    Fault("uvicorn: port taken", log_of("uvicorn_port.log"), Layer.INFRA, "port_taken", "ss -ltnp"),
    Fault("uvicorn: exception", log_of("uvicorn_exception.log"), Layer.VERIFIER, "verifier_exception", "uvapp.py"),
    Fault("uvicorn: 422", log_of("uvicorn_422.log"), Layer.DATA_SCHEMA, "verify_schema", "gymnast check rows"),
)
