"""Writes the generated reference pages. `make docs` runs it; a test checks that the pages are not stale.

python docs/generate.py [--check]
"""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from completion_table import completion_table
from nemo_gym_pages import commands_table_page, what_does_not_work_page

from gymnast.cli.root_help import help_lines
from gymnast.compat.gym_parser import list_commands
from gymnast.compat.ng import COMMANDS as NG_COMMANDS
from gymnast.doctor.rules.registry import RULES, fill_in
from gymnast.types.failure import KINDS, LAYERS
from gymnast.wire.endpoint_errors import MEANINGS

if TYPE_CHECKING:
    from gymnast.doctor.rules.rule import Rule

HERE = Path(__file__).parent


def failures_page() -> str:
    """docs/failures.md from the failure table."""
    lines = [
        "# Failures",
        "",
        "Every failed attempt is a line of `x_failures.jsonl` with `failure.kind` and `failure.layer` from this table.",
        "A failure is never a reward. Generated from `gymnast/types/failure.py`; edit the table there.",
        "",
        "| layer | what belongs to it |",
        "|---|---|",
        *(f"| `{layer.value}` | {text} |" for layer, text in LAYERS.items()),
        "",
        "A used-up turn budget and a context that overflows are outcomes of the policy: they are scored, not failed.",
        "",
    ]
    for kind in KINDS.values():
        retry = "a retry may help" if kind.retryable else "a retry cannot help"
        lines += [f"### {kind.name}", "", f"Layer `{kind.layer.value}`; {retry}. Next: {kind.hint}.", ""]
    lines += [
        "## Causes of endpoint errors",
        "",
        "A failed model call also has `failure.cause`: what the endpoint's message means. `failure.certainty` is",
        "`known` if the message is one of a known server, `words` if only common words were recognised, and `status`",
        "if there was nothing but the status. Text that the message quotes from the request is ignored.",
        "",
    ]
    for cause, meaning in MEANINGS.items():
        reason, action = (text.replace("{endpoint}", "URL") for text in (meaning.reason, meaning.action))
        kind_name = f"`{meaning.kind}`" if meaning.kind else "kind by status"
        lines.append(f"- `{cause}` ({kind_name}): {reason}. Next: {action}.")
    return "\n".join([*lines, ""])


@cache
def help_of(command: tuple[str, ...]) -> str:
    """What the command itself prints, not what is stored."""
    if command == ("gym",):
        return "\n".join(list_commands())
    code = "import sys; from gymnast.cli.commands import build_app; build_app(sys.argv[1])(args=sys.argv[1:])"
    shell = [sys.executable, "-c", code, *command, "--help"]
    env = {**os.environ, "COLUMNS": "100", "TERMINAL_WIDTH": "100"}
    text = subprocess.run(shell, env=env, check=True, capture_output=True, text=True).stdout.rstrip()
    return text.replace("Usage: -c ", "Usage: gymnast ")


def help_file() -> str:
    """src/gymnast/cli/help.json: the help of every command, which `gymnast COMMAND --help` prints."""
    names = [name for name in completion_table() if name not in {"", "gym"}]
    lines = [f"{json.dumps(name)}: {json.dumps(help_of(tuple(name.split())))}" for name in names]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def commands_page() -> str:
    """docs/commands.md: the help of every command."""
    lines = ["# Commands", "", "What `--help` says. Generated; edit the commands.", ""]
    for name in completion_table():
        text = help_of(tuple(name.split())) if name else "\n".join(help_lines(80))
        lines += [f"## {f'gymnast {name}'.strip()}", "", "```", text, "```", ""]
    lines += [
        "## ng_* commands",
        "",
        "| command | |",
        "|---|---|",
        *(f"| `{name}` | {text} |" for name, text in NG_COMMANDS.items()),
        "",
        "They take Hydra-style arguments only, exit 1 on a wrong configuration and 2 on a wrong command field.",
        "`nemo_gym_*` are the same commands under their other names.",
        "",
    ]
    return "\n".join(lines)


def rules_page() -> str:
    """docs/debugging/rules.md from doctor's registry."""
    lines = [
        "# Doctor's rules",
        "",
        "What `gymnast doctor` can find, by layer. Each rule uses facts only (files, logs, the scheduler, what is",
        "running) from one of the eight examination steps, which `gymnast doctor RUN --steps` shows.",
        "Generated from `gymnast/doctor/rules`; edit the rules there.",
        "",
    ]
    rules: dict[str, list[Rule]] = {}
    for rule in RULES:
        rules.setdefault(rule.id, []).append(rule)
    for layer, text in LAYERS.items():
        lines += [f"## {layer.value}", "", f"{text[0].upper()}{text[1:]}.", ""]
        for name, same in rules.items():
            if same[0].layer is layer:
                lines += [f"### {name}", "", *_rule_lines(same), ""]
    return "\n".join(lines)


def _rule_lines(same: list[Rule]) -> list[str]:
    about = dict.fromkeys(rule.about for rule in same)
    action = fill_in(same[0].action)
    return [*about, "", f"Step {same[0].step}. Next: {action[0].lower() if action[0] != '`' else '`'}{action[1:]}"]


def completion_file() -> str:
    """src/gymnast/cli/completion.json: the table of commands that shell completion reads, a line per command."""
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in completion_table().items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


SCORING_CASES = HERE.parent / "tests" / "env" / "scoring_cases"


def scoring_page() -> str:
    """docs/scoring.md from the scoring cases of the tests."""
    lines = [
        "# How shipped environments score",
        "",
        "Environments that NeMo Gym has under the same name give the same reward, and the same values of the fields",
        "that users read, for every reply: that is `scoring: nemo_gym`, the default. `scoring: strict` gives no reward",
        "for answers that those rules accept wrongly, and reads some right answers that they miss. Set it for each",
        "environment:",
        "",
        "    gymnast collect -e mcqa ++mcqa.resources_servers.mcqa.scoring=strict …",
        "",
        "In both, model-written code runs in the sandbox, and a verifier that fails is a failure, not a reward of 0.",
        "Use `strict` for training, where a policy finds every answer that is rewarded wrongly, and the default for",
        "numbers that are compared with NeMo Gym's.",
        "",
        *_comparison_table(),
        "",
        "One example of each difference in reward. Generated from `tests/env/scoring_cases`, which has all cases.",
    ]
    for path in sorted(SCORING_CASES.glob("*.jsonl")):
        cases = [json.loads(line) for line in path.read_text().splitlines()]
        unequal = [case for case in cases if "why" in case and _reward(case["nemo_gym"]) != _reward(case["strict"])]
        examples = list({case["why"]: case for case in reversed(unequal)}.values())[::-1]
        lines += ["", f"## {path.stem}", "", f"{len(cases)} cases, {len(unequal)} with different rewards.", ""]
        lines += ["| reply | nemo_gym | strict | why |", "|---|---|---|---|"] if examples else []
        lines += [
            f"| {_shown_reply(case)} | {_reward(case['nemo_gym'])} | {_reward(case['strict'])} | {_cell(case['why'])} |"
            for case in examples
        ]
    return "\n".join([*lines, ""])


COMPARISON_COLUMNS = (
    *("environment", "replies compared", "equal", "by design", "different at first", "still different"),
    *("earlier: compared, still different", "with `strict`: compared", "other reward, or refused"),
)


def _comparison_table() -> list[str]:
    """How many generated replies both programs scored, and how many of the verdicts were equal."""
    compared, earlier = (
        json.loads((HERE / "data" / f"{name}.json").read_text())
        for name in ("scoring_comparison", "scoring_comparison_earlier")
    )
    lines = [
        "## Compared with NeMo Gym",
        "",
        f"Generated replies, scored by both programs (NeMo Gym at commit `{compared['commit']}`): right and",
        "wrong answers with odd characters, fences, tags, several messages and roles, missing fields, odd tool",
        "calls, rows with fields of other types, and settings other than the defaults. A verdict is equal if all",
        "fields of NeMo Gym's verdict are, except the repeated request, durations and tracebacks; of swerl_gen what",
        "is read from the reply was compared, not the tests' results. Requests that NeMo Gym refuses or fails on",
        "were left out. These differences are deliberate:",
        "",
        "- A judge without a verdict is a failure here and 0 there: a failed verifier is not a wrong answer.",
        "- Labels of verdicts inside an answer, such as `[[A=B]]`, are broken up before a judge reads them: an answer",
        "  cannot bring its verdict along. Prompts that have no setting there are worded differently here.",
        "- A judge's score that is not a finite number counts as none in genrm_compare, so that the default score",
        "  applies. There the reward is null, which cannot be trained on.",
        "- swerl_gen takes repositories as files or archives, since container images do not run in the sandbox. A row",
        "  with nothing but an image, or without its instance, the scripts in it or a known mode, is refused.",
        "- The interpreter of math_with_code is the sandbox's: its tool replies differ (see the environment's README),",
        "  rewards do not depend on them.",
        "- Integers of more than 64 bits are text in records.",
        "- A code_gen row without tests is refused before the model is called. There every reply with text fails, and",
        "  an empty one gets 0.",
        "- A reasoning_gym row with an unknown task, without what its scorer needs, or with an expression that is more",
        "  than arithmetic, is refused.",
        "  There it gets 0 because the verifier fails, or its text is run as code, as are answers to countdown tasks.",
        "- A row of an environment with sessions that NeMo Gym fails on in a later step is refused at once, and",
        "  `/seed_session` refuses a row that cannot be scored. There it looks at no row.",
        "- Thresholds that a row of instruction_following leaves out are drawn again for each reply there, and are the",
        "  same for each reply here. So is the language of a short text, for which langdetect draws random numbers:",
        "  both were compared with its seed set to 0, as it is here.",
        "- A multichallenge row with a weight that is null or not finite is refused. There it fails as soon as the",
        "  judge answers, or gets 0.",
        "- If the `input` of a row is a text, the judge of genrm_compare sees it. There the judge sees an empty",
        "  message for each of its characters.",
        "- math_with_judge limits math-verify by CPU time, and running out of it is a failure. There an answer that",
        "  takes the library more than 5 seconds is wrong, so that the reward depends on the machine.",
        "- Errors of programs in code_gen, and of a schema that is its own reference in structured_outputs, have the",
        "  texts of the Python that runs them. NeMo Gym needs Python 3.13.",
        "- Programs in code_gen find the standard library and numpy, or what `sandbox.packages` lists. There they find",
        "  every package that NeMo Gym itself needs.",
        "- An input of a row that has no type and is not a message, for example one with an unknown role, is refused.",
        "  There it is taken for a list of tools, so that the model does not see it.",
        "- In `/aggregate_metrics`, the first k rollouts of a task are those with the lowest indices, a score that is",
        "  NaN is left out, and a field `agent_name` is a field like others. There servers take rollouts as they come,",
        "  sums with NaN are null, and a number called `agent_name` stands for the agent's name.",
        "- A `/step` of a session that was not reset is refused. There it is played from an empty state: standing in",
        "  blackjack without cards may win.",
        "- How deep JSON may be nested depends on the Python that reads it, and with it the name of an error.",
        "- A tool of workplace_assistant that is called without a session is refused on both sides, in other words.",
        "- Tools of workplace_assistant refuse ids and values that are not texts as with pandas 3, which NeMo Gym's",
        "  open requirements install; pandas 2.3, which its lock file names, takes most of them.",
        "- Where a row of structured_outputs has a schema with several errors, the message tells one of them, which",
        "  depends on the process. Both were compared with the same order of sets (`PYTHONHASHSEED`).",
        "",
        "Known to differ: the error of a pattern that cannot be read in a search of workplace_assistant. There it is a",
        "text of another library, RE2, which only the model reads. A time with the same time behind it is a",
        "time with a zone there, and refused here; and in code_gen the error of a program that closes its output",
        "has another text. Of earlier comparisons a few replies are still different as well: some where two of the",
        "above meet, and a program that never ends (no test has a result there).",
        "",
        "The command keeps every difference in `.parity.json`, and continues that file (see CONTRIBUTING.md):",
        "",
        "    make parity CHECKOUT=../Gym ORIGINAL_PYTHON=../gym-venv/bin/python MINUTES=60",
        "",
        *_comparison_runs(compared["runs"]),
        "Their requests were scored after the last change to the scoring of their environment, except for changes that",
        "they led to: for those, the requests that differed were scored again. They have",
        "forms of replies, rows and judges' replies that each environment has a reason to look at, documents in five",
        "formats with random schemas, rows of each of the 105 tasks of reasoning_gym, metrics of runs, programs and",
        "expressions written in many ways, odd responses and create params, and very long replies. What judges are",
        "asked is compared (with the same prompts on both sides), judges reply in odd shapes, `/compare` of",
        "genrm_compare is called, and sessions and tools are called in odd orders, with odd bodies.",
        "",
        "NeMo Gym ran on Python 3.13, and for code_gen on the Python of Gymnast, 3.11. A difference that was fixed, or",
        "found to be deliberate, counts as different at first; it was scored again afterwards. The last two columns",
        "are a sample of the equal ones, scored with `strict` too. The column before them has the replies of earlier",
        "comparisons, with other generators and before later changes to the code, and how many of them were still",
        "different when those were over.",
        "",
        f"| {' | '.join(COMPARISON_COLUMNS)} |",
        f"|{'---|' * len(COMPARISON_COLUMNS)}",
    ]
    for name, before in sorted(earlier["environments"].items()):
        rows = [run["environments"][name] for run in compared["runs"] if name in run["environments"]]
        sums = {key: sum(row[key] for row in rows) for key in COMPARISON_COUNTS}
        designed = sum(count for row in rows for count in row["by_design"].values())
        counts = (sums["compared"], sums["equal"], designed, sums["different"], sums["differing"])
        past = f"{before['compared']:,}, {before['differing']:,}"
        strict = f"{sums['strict_compared']:,} | {sums['strict_other_reward']:,}"
        lines.append(f"| {name} | {' | '.join(f'{count:,}' for count in counts)} | {past} | {strict} |")
    return lines


COMPARISON_COUNTS = ("compared", "equal", "different", "differing", "strict_compared", "strict_other_reward")


def _comparison_runs(runs: list[dict[str, Any]]) -> list[str]:
    """One sentence about the seeds, times and numbers of replies of the runs."""
    parts = [
        f"{run['seed']} ({run['cpu_minutes']} minutes,\n{_sum(run, 'compared'):,} replies, {_sum(run, 'different'):,}"
        " different at first)"
        for run in runs
    ]
    minutes, replies = sum(run["cpu_minutes"] for run in runs), sum(_sum(run, "compared") for run in runs)
    total = f"Together {minutes:.1f} minutes of CPU time and\n{replies:,} replies."
    return f"The counts are of these seeds, with minutes of CPU time: {', '.join(parts)}.\n{total}".split("\n")


def _sum(run: dict[str, Any], key: str) -> int:
    return sum(int(row[key]) for row in run["environments"].values())


def _shown_reply(case: dict[str, Any]) -> str:
    """The last thing that the model said or called, shortened; of a cohort, what the judge said or all responses."""
    output = case.get("output") or case.get("turns") or [""]
    if "cohort" in case:
        judge, said = case["settings"]["judge"], [item for entry in case["cohort"] for item in entry]
        output = [" / ".join(map(str, said)) if "group_style_penalty_coeff" in case["settings"] else f"judge: {judge}"]
    last = output[-1][-1] if isinstance(output[-1], list) and output[-1] else output[-1]
    if isinstance(last, dict):
        text = f"{last['name']}({last['arguments']})" if "arguments" in last else json.dumps(last, ensure_ascii=False)
    else:
        text = str(last)
    text = " ".join(text.split())
    return f"<code>{_cell(text[:77] + '…' if len(text) > 78 else text)}</code>" if text else "nothing"


def _cell(text: str) -> str:
    escaped = html.escape(text, quote=False)
    for character in "|\\`*_[]{}$":
        escaped = escaped.replace(character, f"&#{ord(character)};")
    return escaped


def _reward(answer: dict[str, Any]) -> str:
    if "_ng_failure_class" in answer:
        return "a failure"
    if "rewards" in answer:
        return ", ".join(f"{reward:g}" for reward in answer["rewards"])
    return f"{answer['reward']:g}" if "reward" in answer else "refused"


PAGES = {
    "nemo-gym-commands.md": commands_table_page,
    "what-does-not-work.md": what_does_not_work_page,
    "scoring.md": scoring_page,
    "debugging/rules.md": rules_page,
    "failures.md": failures_page,
    "commands.md": commands_page,
    "../src/gymnast/cli/completion.json": completion_file,
    "../src/gymnast/cli/help.json": help_file,
}


def main() -> None:
    """Write the pages, or with --check say which are stale."""
    stale = [name for name, page in PAGES.items() if not _same(HERE / name, page())]
    if "--check" in sys.argv:
        sys.exit(f"stale, run `make docs`: {', '.join(stale)}" if stale else 0)
    for name in stale:
        (HERE / name).write_text(PAGES[name]())


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    main()
