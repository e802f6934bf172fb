"""The pages about NeMo Gym's commands and about what does not work, from facts and from our own parsers.

`data/nemo_gym_commands.json` has the commands, options and fields of NeMo Gym; `data/nemo_gym_runs.json` has the
outcomes of its suites, configs, environments and benchmarks on Gymnast.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from gymnast.cli import data as data_commands
from gymnast.compat import gym_entry, ng, ng_init, ng_upload
from gymnast.compat.gym_table import COMMANDS, GymCommand, Option
from gymnast.config.known_keys import WITHOUT_EFFECT
from gymnast.rollouts import run_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

DATA: Final = Path(__file__).parent / "data"
FACTS: Final = DATA / "nemo_gym_commands.json"
RUNS: Final = DATA / "nemo_gym_runs.json"
NOTES: Final = DATA / "nemo_gym_command_notes.json"
Verdict = Literal["same", "different", "no effect", "missing"]

_ROOT: Final = "gym"
_READERS: Final = (run_fields, data_commands, ng_init, ng_upload)
"""Modules besides those of the commands that read fields."""


class Row(NamedTuple):
    """A command, option or field of NeMo Gym, compared with ours."""

    command: str
    option: str
    """An option, a field (`+name`), a positional argument, or nothing for the command itself."""
    verdict: Verdict
    note: str = ""


# --- comparing commands ----------------------------------------------------------------------------------------------


def compare_commands() -> list[Row]:
    """Every command, option and field of NeMo Gym with our verdict."""
    facts, notes = json.loads(FACTS.read_text()), json.loads(NOTES.read_text())
    rows = [row for name, command in facts["commands"].items() for row in _compare(name, command)]
    return [_with_note(row, notes) for row in rows]


def _with_note(row: Row, notes: Mapping[str, str]) -> Row:
    note = notes.get(f"{row.command} {row.option}".strip())
    return row._replace(verdict="different", note=note) if note and row.verdict == "same" else row


def _compare(name: str, facts: Mapping[str, Any]) -> Iterator[Row]:
    if name == _ROOT:
        yield Row(name, "", "same")
        for option in facts["options"]:
            known = {option["option"], option.get("short", option["option"])} <= gym_entry.ROOT_OPTIONS
            yield Row(name, option["option"], "same" if known else "missing")
        return
    if name.startswith("gym "):
        yield from _compare_gym(name, facts)
        work: Any = COMMANDS[tuple(name.split()[1:])].work
    else:
        entry = ng.TABLE.get(name)
        yield Row(name, "", "missing" if entry is None else "same")
        work = None if entry is None else entry.work
    for field in facts.get("fields", ()):
        yield _compare_field(name, field["field"], work)


def _compare_gym(name: str, facts: Mapping[str, Any]) -> Iterator[Row]:
    command = COMMANDS.get(tuple(name.split()[1:]))
    if command is None:
        yield Row(name, "", "missing")
        return
    yield Row(name, "", "same")
    for option in facts["options"]:
        if option.get("positional"):
            yield Row(name, option["option"].upper(), _compare_positional(name, command, option))
        else:
            yield _compare_option(name, command, option)


def _compare_positional(name: str, command: GymCommand, option: Mapping[str, Any]) -> Verdict:
    if "choices" in option:  # the kind of a search: a command each
        words = tuple(name.split()[1:])
        return "same" if all((*words, choice) in COMMANDS for choice in option["choices"]) else "missing"
    return "same" if command.positionals else "missing"


def _compare_option(name: str, command: GymCommand, facts: Mapping[str, Any]) -> Row:
    spelling = facts["option"]
    option = command.options.get(spelling)
    if option is None:
        return Row(name, spelling, "missing")
    differences = [*_differences(command, option, facts)]
    return Row(name, spelling, "different" if differences else "same", "; ".join(differences))


def _differences(command: GymCommand, option: Option, facts: Mapping[str, Any]) -> Iterator[str]:
    if option.takes_value != facts["takes_value"]:
        yield "takes a value" if option.takes_value else "takes no value"
    if option.takes_value and option.values != facts.get("values", 1):
        yield f"takes {option.values} values"
    if "short" in facts and command.short.get(facts["short"]) != facts["option"]:
        yield f"has no short form {facts['short']}"
    refused = [choice for choice in facts.get("choices", ()) if not _accepts(option.convert, choice)]
    if refused:
        yield f"refuses {', '.join(refused)}"


def _accepts(convert: Callable[[str], Any], text: str) -> bool:
    try:
        convert(text)
    except ValueError:
        return False
    return True


def _compare_field(name: str, field: str, work: Any) -> Row:
    if field in WITHOUT_EFFECT:
        return Row(name, f"+{field}", "no effect")
    read = any(field in _strings(module) for module in (inspect.getmodule(work), *_READERS) if module is not None)
    return Row(name, f"+{field}", "same" if read else "missing")


@cache
def _strings(module: ModuleType) -> frozenset[str]:
    """The string constants of a module: among them the names of the fields that it reads."""
    nodes = ast.walk(ast.parse(inspect.getsource(module)))
    return frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


# --- the page of commands --------------------------------------------------------------------------------------------


def commands_table_page() -> str:
    """docs/nemo-gym-commands.md from NeMo Gym's commands and our parsers."""
    facts, rows = json.loads(FACTS.read_text()), compare_commands()
    counts = Counter(row.verdict for row in rows)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("same", "different", "no effect"))
    lines = [
        "# Commands of NeMo Gym in Gymnast",
        "",
        f"Every command, option and field of NeMo Gym {facts['nemo_gym']}, compared with Gymnast's parsers:",
        f"{len(rows)} in all, {summary}. All {len(facts['executables'])} executables exist (`gym`, `ng`, `ng_…` and",
        "`nemo_gym_…`; the first two come with the extra `nemo-gym`). Generated; edit the commands, or the notes in",
        "`docs/data/nemo_gym_command_notes.json`.",
        "",
        "- Exit codes are the same: 1 for a wrong configuration or an unknown name, 2 for a wrong option or field.",
        "- An option may be shortened as long as it is unambiguous: `--conc 8`.",
        "- `ng_…` and `nemo_gym_…` commands also take the options of the `gym` command in their heading.",
        "- *No effect* means accepted with a warning, because Gymnast does not need it.",
        "",
    ]
    for name, command in facts["commands"].items():
        same_as = f" ({command['same_as']})" if "same_as" in command else ""
        lines += [f"## {name}{same_as}", "", *_command_lines([row for row in rows if row.command == name]), ""]
    return "\n".join(lines)


def _command_lines(rows: list[Row]) -> list[str]:
    whole, *options = rows
    same = [row.option for row in options if row.verdict == "same"]
    others = [row for row in options if row.verdict != "same"]
    listed = f"; so {'is' if len(same) == 1 else 'are'} {', '.join(f'`{option}`' for option in same)}" if same else ""
    lines = [f"Different: {whole.note}."] if whole.note else [f"Same{listed}."]
    if whole.note and same:
        lines += ["", f"Same: {', '.join(f'`{option}`' for option in same)}."]
    if others:
        lines += ["", "| option | | |", "|---|---|---|"]
        lines += [f"| `{row.option}` | {row.verdict} | {row.note} |" for row in others]
    return lines


# --- the page of what does not work ----------------------------------------------------------------------------------

KINDS: Final = {
    "command": ("Commands", "commands, options and fields"),
    "suite": ("Test suites of servers", "suites"),
    "config": ("Configs", "configs"),
    "environment": ("Environments, end to end", "environments"),
    "benchmark": ("Benchmarks, prepared", "benchmarks prepared"),
    "benchmark_run": ("Benchmarks, run by name", "benchmarks run"),
}
VERDICTS: Final = {
    "passes": "the same outcome as with NeMo Gym",
    "works": "worked as expected; NeMo Gym's outcome was not compared",
    "differs": "another outcome, on purpose",
    "fails": "works with NeMo Gym and not with Gymnast",
    "needs": "not run: it needs something that was not at hand, or its turn has not come",
    "upstream": "does not work with NeMo Gym either",
}


def read_runs() -> list[dict[str, Any]]:
    """What was tried: the rows of the data file, and the commands."""
    stored = json.loads(RUNS.read_text())["rows"] if RUNS.exists() else []
    verdicts = {"same": "passes", "different": "differs", "no effect": "differs"}
    commands = [
        {
            "kind": "command",
            "name": f"{row.command} {row.option}".strip(),
            "verdict": verdicts.get(row.verdict, "fails"),
            "reason": row.note or row.verdict,
        }
        for row in compare_commands()
    ]
    return [*commands, *stored]


def what_does_not_work_page() -> str:
    """docs/what-does-not-work.md from the outcomes of runs."""
    rows = read_runs()
    lines = [
        "# What does not work",
        "",
        "What of NeMo Gym 0.5.1 was tried with Gymnast, and everything that had another outcome, with the reason.",
        "Generated from `docs/data/nemo_gym_runs.json` and the [comparison of commands](nemo-gym-commands.md).",
        "",
        f"| | tried | {' | '.join(VERDICTS)} |",
        f"|---|---|{'---|' * len(VERDICTS)}",
        *_summary_lines(rows),
        "",
        *(f"- *{verdict}*: {text}" for verdict, text in VERDICTS.items()),
    ]
    for kind, (title, _) in KINDS.items():
        of_kind = [row for row in rows if row["kind"] == kind]
        if of_kind:
            listed = [row for row in of_kind if row["verdict"] != "passes"]
            lines += ["", f"## {title}", "", *_outcome_lines(listed)]
    return "\n".join([*lines, ""])


def _summary_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    for kind, (_, plural) in KINDS.items():
        of_kind = [row for row in rows if row["kind"] == kind]
        if not of_kind:
            continue
        counts = Counter(row["verdict"] for row in of_kind)
        passed, total = (sum(row.get(key) or 0 for row in of_kind) for key in ("passed", "total"))
        parts = f" ({passed:,} of {total:,} tests or rows)" if total else ""
        yield f"| {plural}{parts} | {len(of_kind)} | {' | '.join(str(counts[verdict]) for verdict in VERDICTS)} |"


def _outcome_lines(rows: list[dict[str, Any]]) -> list[str]:
    """The rows that are worse first, then by name; rows with the same reason are one line."""
    if not rows:
        return ["All have the same outcome."]
    order = list(VERDICTS)
    grouped: dict[tuple[str, str], list[str]] = {}
    for row in sorted(rows, key=lambda row: (-(row["verdict"] == "fails"), order.index(row["verdict"]), row["name"])):
        grouped.setdefault((row["verdict"], row["reason"]), []).append(row["name"])
    lines = ["| what | | why |", "|---|---|---|"]
    lines += [
        f"| {', '.join(f'`{name}`' for name in names)} | {verdict} | {_sentence(reason)} |"
        for (verdict, reason), names in grouped.items()
    ]
    return lines


def _sentence(text: str) -> str:
    text = " ".join(text.split()).replace("|", "&#124;")
    first = text[:1] if text[1:2].isupper() else text[:1].upper()  # vLLM stays as it is
    return f"{first}{text[1:].rstrip('.')}." if text else ""
