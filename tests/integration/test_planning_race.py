"""Of several processes that plan the same run at the same moment, one plans and the others find its plan."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from gymnast.chunks.status import read_run_status
from gymnast.chunks.worker_spec import read_worker_spec
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.chunk_state import read_chunk_plan
from gymnast.store.paths import RunPaths
from tests.helpers.jsonl import example_rows, write_jsonl

PLAN_AT = """
import sys, time
from pathlib import Path
from gymnast.errors import UserError
from tests.helpers.planned_runs import plan_examples
for folder in map(Path, sys.argv[2:]):
    (folder / f"ready{sys.argv[1]}").touch()
    while len(list(folder.glob("ready*"))) < 3:
        time.sleep(0.001)
    try:
        planned = plan_examples(folder, existing=folder.name)
        outcome = f"{'new' if planned.is_new else 'old'} {planned.plan.run_id}"
    except UserError as error:
        outcome = f"refused {error.what}"
    print(outcome, flush=True)
"""


def test_of_submits_at_the_same_moment_one_plans(tmp_path: Path) -> None:
    folders = [tmp_path / existing for existing in ("refuse", "resume", "overwrite")]
    for folder in folders:
        folder.mkdir()
        write_jsonl(folder / "tasks.jsonl", example_rows("mcqa"))
    command = [sys.executable, "-c", PLAN_AT]
    processes = [
        subprocess.Popen([*command, str(number), *map(str, folders)], stdout=subprocess.PIPE, text=True)
        for number in range(3)
    ]
    outputs = [process.communicate()[0].splitlines() for process in processes]
    for number, folder in enumerate(folders):
        said = [lines[number].split(maxsplit=1) for lines in outputs]
        planned = {rest.strip() for what, rest in said if what == "new"}
        assert len(planned) == 1 or folder.name == "overwrite", said  # who comes a moment later may overwrite
        others = "old" if folder.name == "resume" else "refused"
        assert [what for what, _ in said].count(others) == 3 - len(planned), said
        layout = ChunkLayout.of(RunPaths(folder / "x.jsonl"))
        run_id = read_chunk_plan(layout).run_id
        assert run_id == read_worker_spec(layout).run_id
        assert run_id in planned
        assert json.loads((folder / "x_run.json").read_bytes())["run_id"] == run_id
        assert read_run_status(layout).owed == 40
