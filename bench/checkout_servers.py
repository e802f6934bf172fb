"""How long `ng_run` takes until 20 servers of a NeMo Gym checkout are ready, agents and the model server on top.

    python bench/checkout_servers.py CHECKOUT [--json]

The yardstick is a process that imports the packages that each of them needs (FastAPI, aiohttp, OmegaConf), measured in
the same run. Bar: ready within 5 yardsticks. None of the servers needs packages, downloads or keys of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from foreign_server import importing_s
from running import memory_mb

NAMES = (
    *("arc_agi", "blackjack", "calendar", "circle_click", "circle_count", "citation_if", "example_multi_step"),
    *("example_multi_turn_gymnasium", "example_session_state_mgmt", "example_single_tool_call", "gpqa_diamond"),
    *("graphwalks", "gui_coordinate", "hotpotqa_qa", "imo_gradingbench", "mcqa", "mrcr", "ruler", "string_match"),
    *("xlam_fc",),
)
MODEL = "responses_api_models/vllm_model/configs/vllm_model.yaml"
POLICY = ("+policy_base_url=http://127.0.0.1:9/v1", "+policy_api_key=k", "+policy_model_name=m")
"""Nothing listens there: the endpoint is not asked while servers start."""
OPTIONS = ("+json=true", "++model_endpoint_readiness_timeout_seconds=0", "++head_server={host: 127.0.0.1, port: 0}")


def starting(checkout: Path) -> tuple[float, float, int]:
    """Seconds from the start of `ng_run` until all servers are ready, its memory then, and their number."""
    configs = [f"resources_servers/{name}/configs/{name}.yaml" for name in NAMES]
    command = [sys.executable, "-P", "-m", "gymnast.compat", "ng_run", f"+config_paths=[{','.join([*configs, MODEL])}]"]
    started = time.perf_counter()
    process = subprocess.Popen(
        [*command, *POLICY, *OPTIONS], cwd=checkout, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        ready_s = time.perf_counter() - started
        if not line:
            raise SystemExit("ng_run ended before its servers were ready")
        return ready_s, memory_mb(process.pid), len(json.loads(line)["instances"])
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    checkout = options.checkout.resolve()
    starting(checkout)  # warm the file cache
    importing_s()
    rounds = [(importing_s(), *starting(checkout)) for _ in range(5)]
    packages_s, ready_s, size_mb = (min(values) for values in list(zip(*rounds, strict=True))[:3])
    count, ratio = rounds[0][3], ready_s / packages_s
    rows = [
        ("their packages imported", packages_s, "s", "yardstick", True),
        (f"{len(NAMES)} servers ({count} in all) ready", ready_s, "s", f"< 5 ×: {ratio:.1f} ×", ratio < 5),
        ("resident", size_mb, "MB", "< 400 MB", size_mb < 400),
    ]
    if options.json:
        print(json.dumps([dict(zip(("what", "value", "unit", "bar", "met"), row, strict=True)) for row in rows]))
        return
    for what, value, unit, bar, met in rows:
        print(f"{what:<32} {value:8.2f} {unit:<3} bar {bar:<16} {'met' if met else 'MISSED'}")


if __name__ == "__main__":
    main()
