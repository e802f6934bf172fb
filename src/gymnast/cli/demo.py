"""`gymnast demo`: a full run with the environments and the policy that ship with Gymnast."""

from __future__ import annotations

import shlex
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.table import Table

    from gymnast.builtin.graded_tasks import Generator
    from gymnast.profile.headline import Headline

_POLICY = "policy_model.responses_api_models.embedded_model"
_SEED = 1
_CONCURRENCY = 64  # twice the batch size of the policy: the next turns are ready when a sequence ends


def command(
    output_dir: Annotated[Path, typer.Option("--output-dir", "-o", help="Folder for the files.")] = Path("demo"),
    num_repeats: Annotated[
        int, typer.Option("--num-repeats", "-n", min=1, max=1_000_000, help="Rollouts per task.")
    ] = 8,
    tasks_per_level: Annotated[
        int, typer.Option("--tasks-per-level", min=1, max=100_000, help="Tasks per environment and level.")
    ] = 3,
) -> int:
    """Try a full run with the model and tasks that ship.

    Four environments of six levels, from sums to multi-turn tool use. Every rollout has a token ledger.
    """
    from gymnast.cli.live_run import LiveRun
    from gymnast.rollouts.exit_status import Allowance
    from gymnast.rollouts.options import run_options

    generators = _generators()
    config = shared.load(
        [f"++{_POLICY}.return_token_id_information=true", f"++{_POLICY}.seed={_SEED}"],
        environments=[generator.name for generator in generators],
        model_type="embedded_model",
    ).require_valid()
    tasks = _write_tasks(generators, tasks_per_level, output_dir / "tasks.jsonl")
    rollouts = output_dir / "rollouts.jsonl"
    options = run_options(
        config, source=tasks, output=rollouts, num_repeats=num_repeats, concurrency=_CONCURRENCY, overwrite=True
    )
    live = LiveRun()
    code = live.report(live.collect(options, config), Allowance())
    if code == 0:
        _show(rollouts, tasks, [generator.name for generator in generators])
    return code


def _generators() -> list[Generator]:
    from gymnast.builtin.resources_servers.arithmetic.tasks import GENERATOR as ARITHMETIC
    from gymnast.builtin.resources_servers.number_hunt.tasks import GENERATOR as NUMBER_HUNT
    from gymnast.builtin.resources_servers.shop_lookup.tasks import GENERATOR as SHOP_LOOKUP
    from gymnast.builtin.resources_servers.word_tasks.tasks import GENERATOR as WORD_TASKS

    return [ARITHMETIC, WORD_TASKS, SHOP_LOOKUP, NUMBER_HUNT]


def _write_tasks(generators: Iterable[Generator], per_level: int, path: Path) -> Path:
    import orjson

    from gymnast.builtin.graded_tasks import rows
    from gymnast.store.atomic import atomic_output
    from gymnast.types.task import AGENT_REF

    with atomic_output(path) as out:
        for generator in generators:
            levels = range(1, generator.levels + 1)
            agent = {"type": "responses_api_agents", "name": f"{generator.name}_simple_agent"}
            for row in rows(generator, count=per_level * generator.levels, seed=_SEED, levels=levels):
                out.write(orjson.dumps({**row, AGENT_REF: agent}) + b"\n")
    return path


def _show(rollouts: Path, tasks: Path, environments: Iterable[str]) -> None:
    """Profile the run, write its report, and print the means by level, where the files are and what to run next."""
    from gymnast.cli.progress import print_table
    from gymnast.profile.run_profile import ProfilePaths, ProfileRequest, profile
    from gymnast.report.build import write_report
    from gymnast.report.run_view import view_runs
    from gymnast.store.paths import RunPaths

    headline = profile(ProfileRequest((RunPaths(rollouts).materialized_inputs,), (rollouts,), rollouts))
    report = write_report(view_runs([rollouts]), rollouts.with_name("report.html"))
    print_table(_level_table(_read_rewards(rollouts), headline))
    print(f"tasks     {tasks}")
    print(f"profile   {ProfilePaths(rollouts).tasks}")
    print(f"report    {report.path}  (open it in a browser)")
    print(f"tokens    gymnast tokens audit {rollouts}")
    own_policy = f"gymnast collect {' '.join(f'-e {name}' for name in environments)} --model-url URL -m MODEL"
    print(f"next      {own_policy} -i {shlex.quote(str(tasks))} -o rollouts.jsonl  (your own policy endpoint)")
    print("          gymnast env new NAME  (your own environment)")


def _read_rewards(rollouts: Path) -> Iterator[tuple[str, int, float]]:
    import orjson

    from gymnast.store.lines import numbered_lines
    from gymnast.types.task import AGENT_REF

    for _, line in numbered_lines(rollouts):
        record = orjson.loads(line)
        yield record[AGENT_REF]["name"], record["level"], record["reward"]


def _level_table(rewards: Iterable[tuple[str, int, float]], headline: Headline) -> Table:
    """Mean rewards by agent and level, and over all levels the mean and the share of tasks solved in any repeat."""
    from rich.table import Table

    levels: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name, level, reward in rewards:
        levels[name][level].append(reward)
    highest = max(max(graded) for graded in levels.values())
    max_k = max(agent.pass_at[-1][0] for agent in headline.agents)
    table = Table(title=None)
    for heading in ("mean reward at level", *map(str, range(1, highest + 1)), "all", f"pass@{max_k}", "mixed tasks"):
        table.add_column(heading, justify="right" if table.columns else "left")
    for agent in sorted(headline.agents, key=lambda agent: agent.agent):
        graded = levels[agent.agent]
        means = [f"{sum(graded[level]) / len(graded[level]):.2f}" for level in range(1, highest + 1)]
        mixed = f"{agent.mixed_tasks} of {agent.tasks}"
        solved = f"{agent.pass_at[-1][1].value:.2f}"
        table.add_row(agent.agent, *means, f"{agent.mean_reward.value:.2f}", solved, mixed)
    return table
