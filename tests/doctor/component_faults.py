"""Faults of what a run depends on (endpoint, judge, machine, environment code), one row each, with the first answer."""

from __future__ import annotations

from gymnast.types.failure import Layer
from tests.doctor.component_experiments import (
    BAD_SCHEMA,
    BOOLEAN,
    MISSING_PACKAGE,
    VLLM_NAME,
    XGRAMMAR,
    another_model,
    broken_code,
    disk_that_fills_up,
    endpoint_that_dies,
    fault_and_limit,
    half_overflow,
    https_to_http,
    instance_port_taken,
    judged_at,
    killed_by_the_kernel,
    no_input,
    nobody,
    offering,
    one_in_five,
    one_row_edited,
    read_only,
    too_little_memory,
    unknown_host,
    with_bad_arguments,
)
from tests.doctor.experiments import ONCE, collected, many
from tests.doctor.faults import Fault
from tests.doctor.lab import Answer, error, said

COMPONENT_FAULTS = (
    Fault("vLLM does not know the name", collected(VLLM_NAME), Layer.CONFIG, "model_name_wrong", "-m NAME"),
    Fault("no /v1", collected(error(404, {"detail": "Not Found"})), Layer.CONFIG, "base_url_wrong", "--model-url"),
    Fault("context of 512", many(half_overflow), Layer.CONFIG, "context_overflow", "--max-model-len"),
    Fault("half an answer", collected(Answer(b'{"id":"a",'), *ONCE), Layer.MODEL_SERVING, "reply_cut", "proxy"),
    Fault("another shape", collected(Answer(b'{"ok":true}'), *ONCE), Layer.MODEL_SERVING, "not_json", "check endpoint"),
    Fault("answers without text", many(said("")), Layer.MODEL_SERVING, "answers_empty", "--reasoning-parser"),
    Fault("tool arguments", with_bad_arguments, Layer.MODEL_SERVING, "tool_arguments", "--tool-call-parser"),
    Fault("boolean schema", offering(BOOLEAN, BAD_SCHEMA), Layer.DATA_SCHEMA, "tool_grammar", "gymnast check tools"),
    Fault("xgrammar's 500", offering(BOOLEAN, XGRAMMAR), Layer.DATA_SCHEMA, "tool_grammar", "gymnast check tools"),
    Fault("two faults at once", many(fault_and_limit, *ONCE), Layer.INFRA, "gpu_fault", "--exclude"),
    Fault("unknown host", unknown_host, Layer.INFRA, "dns", "getent hosts"),
    Fault("https to http", https_to_http, Layer.INFRA, "tls", "scheme"),
    Fault("endpoint dies on the way", endpoint_that_dies, Layer.MODEL_SERVING, "endpoint_down", "/models"),
    Fault("judge is down", judged_at(nobody), Layer.MODEL_SERVING, "judge_down", "--judge-failed-only"),
    Fault("judge of another name", judged_at(another_model), Layer.CONFIG, "judge_refused", "--judge-failed-only"),
    Fault("verifier raises on one in five", one_in_five, Layer.VERIFIER, "verifier_exception", "lab.log"),
    Fault("a package is missing", broken_code(MISSING_PACKAGE), Layer.CONFIG, "module_missing", "install the package"),
    Fault("broken code", broken_code("def (:\n"), Layer.VERIFIER, "server_code", "app.py"),
    Fault(
        "broken code in a child",
        broken_code("1 / 0\n", "++lab.resources_servers.lab.runs_in=child"),
        Layer.VERIFIER,
        "server_code",
        "app.py",
    ),
    Fault("no input file", no_input, Layer.CONFIG, "refused_to_start", "fix what the message names"),
    Fault("one row edited before a resume", one_row_edited, Layer.CACHE_RESUME, "stale_inputs", "--fork"),
    Fault("too little memory", too_little_memory, Layer.INFRA, "work_process_died", "memory"),
    Fault("killed by the kernel", killed_by_the_kernel, Layer.INFRA, "oom_kill", "--concurrency"),
    Fault("disk fills up", disk_that_fills_up, Layer.INFRA, "disk_full", "free space"),
    Fault("read-only folder", read_only, Layer.INFRA, "permission", "another folder"),
    Fault("port of an instance taken", instance_port_taken, Layer.INFRA, "port_taken", "another `port`"),
)
