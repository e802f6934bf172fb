"""`gymnast check tools` remembers nothing of a tool but its digest: memory of its own process stays flat."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.helpers.tool_schemas import parameters

CHECK = """
import json, resource, sys
from pathlib import Path
from gymnast.checks.tools import check_tools
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = check_tools(Path(sys.argv[1]), compile_too=False)
assert report.schemas == report.rows, report
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_stays_flat_when_every_tool_is_different(tmp_path: Path) -> None:
    growth_kib = []
    for number in (6_000, 24_000):
        path = tmp_path / f"{number}.jsonl"
        with path.open("w") as out:
            for index in range(number):
                schema = parameters({"type": "string", "description": f"n{index}"})
                tool = {"type": "function", "name": "look_up", "parameters": schema, "strict": False}
                out.write(json.dumps({"responses_create_params": {"input": "hi", "tools": [tool]}}) + "\n")
        done = subprocess.run([sys.executable, "-c", CHECK, str(path)], capture_output=True, text=True, check=True)
        growth_kib.append(int(done.stdout))
    assert growth_kib[1] - growth_kib[0] < 8_000  # for 18,000 more schemas
