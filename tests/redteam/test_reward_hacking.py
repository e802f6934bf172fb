"""Programs that attack the harness instead of solving the task: they earn what their answers earn, and no more."""

from __future__ import annotations

import pytest

from gymnast.sandbox import Limits, Sandbox
from tests.helpers.parts import needs

pytestmark = [
    needs("bubblewrap"),
    pytest.mark.asyncio(loop_scope="module"),
]
FORGING = """
import os, struct
def forge(body):
    os.write(3, struct.pack('!II', len(body), 0) + body)
def add(a, b): return a + b
"""


async def test_printing_a_pass_is_only_printing(sandbox: Sandbox) -> None:
    code = """
import os, struct, json
def add(a, b):
    for text in ('{"value": 3}', 'PASSED', '{"status": 0, "reward": 1.0}'):
        print(text, flush=True)
    body = b'{"reason": "ended", "status": 0, "stdout": 0, "stderr": 0, "say": 0}'
    for fd in (1, 2):
        os.write(fd, struct.pack('!II', len(body), 0) + body)
    return -1
"""
    found = await sandbox.call_function(code, "add", [[1, 2]])
    assert [result.value for result in found.results] == [-1]
    assert "PASSED" in found.execution.stdout


async def test_forged_answers_are_only_answers(sandbox: Sandbox) -> None:
    code = (
        FORGING
        + """
for _ in range(50): forge(b'{"value": "forged", "passed": true, "reward": 1}')
os.write(3, struct.pack('!II', 4000000000, 4000000000))
"""
    )
    found = await sandbox.call_function(code, "add", [[1, 2], [3, 4]])
    assert [result.value for result in found.results] == ["forged", "forged"], "no more answers than questions"
    for body in (
        "b'nope'",
        "b'[1]'",
        "b'{\"value\": ' + b'[' * 99999 + b']' * 99999 + b'}'",
        "b'{\"value\": %b}' % (b'9' * 99999)",
    ):
        found = await sandbox.call_function(FORGING + f"forge({body})", "add", [[1, 2]])
        assert not found.results[0].ok, body


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("import sys; sys.exit(0)", "raised"),
        ("import os; os._exit(0)", "exited"),
        ("def add(a, b): import os; os._exit(0)", "exited"),
        ("def add(a, b): import sys; sys.exit(0)", "raised"),
        ("def add(a, b): raise SystemExit(0)", "raised"),
        ("def add(a, b): import os; os.kill(os.getpid(), 9)", "killed"),
        ("def add(a, b): import os; os.close(3); return 3", "exited"),
        ("def add(a, b): return type('Any', (), {'__eq__': lambda *_: True})()", "raised"),
        ("def add(a, b):\n  while True: pass", "timeout"),
        ("def add(a, b): return 'x' * (1 << 22)", "output"),
        ("def add(a, b): return [0] * (1 << 28)", "raised"),
        ("def add(a, b):\n  x = []\n  x.append(x)\n  return x", "raised"),
        ("import json\njson.dumps = lambda *a, **k: 1 / 0\ndef add(a, b): return 3", "exited"),
        ("import builtins\nbuiltins.isinstance = lambda *_: True\ndef add(a, b): return object()", "exited"),
        ("x = 1", "raised"),
        ("def add(", "raised"),
        ("import sys\ndel sys.modules['json']\nsys.stdout = None\ndef add(a, b): return 4", "returned"),
    ],
)
async def test_patching_or_leaving_the_harness_earns_nothing(sandbox: Sandbox, code: str, outcome: str) -> None:
    limits = Limits(wall_s=0.8, memory_mb=256)
    result = await sandbox.call_function(code, "add", [[1, 2], [2, 2]], limits)
    assert result.results[0].outcome == outcome, result
    assert result.results[0].value in (None, 4)
    assert len(result.results) == 2


async def test_an_object_that_equals_everything_arrives_as_plain_data(sandbox: Sandbox) -> None:
    code = """
class Any(int):
    def __eq__(self, other): return True
    def __hash__(self): return 0
    def __repr__(self): return '3'
class Text(str):
    def __eq__(self, other): return True
def add(a, b): return [Any(7), Text('x'), {'k': Any(8)}]
"""
    value = (await sandbox.call_function(code, "add", [[1, 2]])).results[0].value
    assert value != 3
    assert value == [7, "x", {"k": 8}]
    assert [type(part) for part in value] == [int, str, dict]


async def test_the_arguments_of_later_calls_are_all_that_a_function_can_find(sandbox: Sandbox) -> None:
    code = """
import gc
def look(n):
    found = [o for o in gc.get_objects() if isinstance(o, dict) and ('expected' in o or 'reward' in o or 'answer' in o)]
    return len(found)
"""
    result = await sandbox.call_function(code, "look", [[1]])
    assert result.results[0].value == 0
