"""`gymnast demo`: a real job end to end on what ships with Gymnast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gymnast.cli import options as shared

_ENVIRONMENTS = (
    "mcqa",
    "example_single_tool_call",
    "example_multi_step",
    "example_session_state_mgmt",
    "example_multi_turn_gymnasium",
)
_CONFIGS = (
    *(f"resources_servers/{name}/configs/{name}.yaml" for name in _ENVIRONMENTS),
    "responses_api_models/scripted_model/configs/demo.yaml",
)


def command(
    output_dir: Annotated[Path, typer.Option("--output-dir", help="Where the files go.")] = Path("demo"),
    num_repeats: Annotated[int, typer.Option("--num-repeats", "-n", min=1, help="Rollouts of each task.")] = 8,
) -> int:
    """Collect rollouts of every shipped environment with the policy that ships, and show the result."""
    from gymnast.cli.collect import run
    from gymnast.report.build import write_report
    from gymnast.report.run_view import view_runs
    from gymnast.rollouts.plan import PlanOptions
    from gymnast.rollouts.run import CollectRequest
    from gymnast.rollouts.splits import write_split
    from gymnast.rollouts.verdict import Allowance

    config = shared.load(None, config_files=list(_CONFIGS)).checked()
    tasks = write_split(config, "example", output_dir / "tasks.jsonl")
    request = CollectRequest(
        source=tasks,
        output=output_dir / "rollouts.jsonl",
        plan=PlanOptions(repeats=num_repeats),
        existing="overwrite",
    )
    code = run(request, config, Allowance(), remote=False, head=None, as_json=False)
    written = write_report(view_runs([request.output]), output_dir / "report.html")
    print(f"tasks     {tasks}")
    print(f"report    {written.path}  (open it in a browser)")
    print("next      read README.md: the same command with your own policy endpoint and tasks")
    return code
