"""Programs as models write them: other ways to read, to print, to end and to fail, put into a program of a reply."""

from __future__ import annotations

import random
import re
import textwrap
from typing import Final

_PROGRAM: Final = re.compile(r"(```(?:python|py)?\n)(.*?)(\n```)", re.DOTALL)
_READS: Final = (
    *("input()", "sys.stdin.readline()", "sys.stdin.read()", "open(0).read()", "sys.stdin.buffer.read().decode()"),
    *(
        "sys.stdin.buffer.readline().decode()",
        "next(sys.stdin)",
        "''.join(sys.stdin)",
        "' '.join(sys.stdin.readlines())",
    ),
    *("open('/dev/stdin').read()", "os.read(0, 10**6).decode()", "stdin.readline().rstrip()", "next(iter(sys.stdin))"),
)
_PRINT: Final = re.compile(r"print\((.*)\)", re.DOTALL)
_PRINTS: Final = (
    *("print({0}, end='')", "sys.stdout.write(str({0}) + '\\n')", "print({0}, flush=True)", "print(f'{{{0}}}')"),
    *("os.write(1, str({0}).encode())", "sys.stdout.buffer.write(str({0}).encode())", "print(float({0}))"),
    *("print({0}, file=sys.stderr)", "print('', {0})", "print({0}, '')", "print(*[{0}])", "print({0}, sep='')"),
    *("print({0}); sys.exit()", "print({0}); exit()", "print({0}); raise SystemExit(3)", "print({0}); os._exit(0)"),
    *("print({0}); assert False", "print({0}); 1 / 0", "print({0})\nprint()", "print()\nprint({0})", "print([{0}])"),
    *("sys.stdout.writelines([str({0})])", "print(str({0}) + ' ')", "print(str({0}) + '\\r')", "print(repr({0}))"),
    *(
        "print(Decimal({0}))",
        "print({0}, end='\\x00')",
        "print('+' + str({0}))",
        "print(hex({0}))",
        "print({0} + 0j)",
        "print({0} == {0})",
    ),
    *(
        "print(str({0}).zfill(5))",
        "print('\\t', {0})",
        "print('{{:e}}'.format({0}))",
        "print('{{:,}}'.format({0}))",
        "print({0}); print(input())",
    ),
    *(
        "print({0}); sys.stdout.close()",
        "print(*str({0}))",
        "print({0}, file=open(1, 'w'))",
        "print({0}, file=sys.__stdout__)",
        "print('\\ufeff', {0})",
    ),
    *(
        "print({0}, file=open('/dev/stdout', 'w'))",
        "print(str({0}), '\\x1f')",
        "print('%s' % ({0}))",
        "print({0}, {0}, sep='\\n')",
        "print(np.int64({0}))",
        "print('{{:.2f}}'.format({0}))",
    ),
)
_FIRST: Final = (
    *(
        "import os, sys",
        "from sys import *",
        "import sys\ninput = sys.stdin.readline",
        "from typing import List",
        "pass",
    ),
    *(
        "import numpy as np",
        "from collections import *\nfrom math import *",
        "sys.setrecursionlimit(10**6)",
        "#!python",
    ),
    *("import threading", "import random\nrandom.seed(0)", "from functools import lru_cache", "'''A docstring.'''"),
    *("# -*- coding: latin-1 -*-", "from __future__ import annotations", "import pandas", "import scipy", "x: int = 3"),
    *(
        "import resource",
        "import subprocess",
        "import multiprocessing",
        "import asyncio",
        "global z\nz = 1",
        "def f(: pass",
    ),
    *(
        "print = lambda *a, **k: None",
        "input = None",
        "import this_is_missing",
        "import antigravity",
        "raise KeyError(1)",
    ),
    *(
        "sys.stdin = None",
        "sys.stdout = None",
        "import builtins\nbuiltins.sum = None",
        "nonlocal q",
        "await 1",
        "yield 1",
    ),
    *("print('Enter: ', end='')", "import warnings\nwarnings.warn('x')", "def main(): pass", "class Solution: pass"),
    *(
        "int = str",
        "while False: pass",
        "x = 0o17; y = 1_000",
        "try:\n    pass\nfinally:\n    pass",
        "del sys",
        "é = 1",
    ),
    *(
        "match 1:\n    case _: pass",
        "print(f'{1!r:>3}', end='')",
        "if (n := 3) > 2: pass",
        "type X = int",
        "exit",
        "quit",
    ),
    *("from math import gcd as print", "import decimal\ndecimal.getcontext().prec = 3", "__name__ = 'x'", "return"),
    *(
        "from decimal import *",
        "import io\nsys.stdin = io.StringIO('1 2')",
        "import contextlib",
        "from dataclasses import dataclass",
        "import heapq, bisect",
    ),
    *(
        "import string, itertools as it",
        "input = sys.stdin.read",
        "inp = iter(sys.stdin.readlines())\ninput = lambda: next(inp)",
        "print = sys.stdout.write",
    ),
    *(
        "import atexit\natexit.register(print, 9)",
        "import faulthandler",
        "import ctypes",
        "import tkinter",
        "def sum(x): return 0",
        "lambda: 0",
        "...",
    ),
    *(
        "sys.exit = None",
        "os.environ.clear()",
        "sys.argv = []",
        "os.chdir('/')",
        "import locale\nlocale.setlocale(locale.LC_ALL, '')",
        "1 if 1 else 2",
    ),
    *(
        "sys.set_int_max_str_digits(0)",
        "f = f'{1 + 1=}'",
        "assert __file__",
        "print(end='')",
        "globals()['z'] = 2",
        "z = z if 'z' in dir() else 0",
    ),
    *("import signal\nsignal.alarm(0)", "import gc\ngc.disable()", "open('x', 'w').write('1')", "os.remove('x')"),
)
_INDENT: Final = "    "


def mutate_program(text: str, chance: random.Random) -> str:
    """The text with its last program changed; as it is if there is none."""
    programs = list(_PROGRAM.finditer(text))
    if not programs:
        return text
    last = programs[-1]
    program = last[2]
    for _ in range(chance.choice((1, 1, 2))):
        program = chance.choice((_add_statement, _change_read, _change_print, _enclose))(program, chance)
    return text[: last.start(2)] + program + text[last.end(2) :]


def _add_statement(program: str, chance: random.Random) -> str:
    statement = chance.choice(_FIRST)
    lines = program.split("\n")
    places = [at for at, line in enumerate(lines) if line[:1] not in (" ", "\t")] or [0]
    at = chance.choice((0, 0, chance.choice(places), len(lines)))
    return "\n".join([*lines[:at], statement, *lines[at:]])


def _change_read(program: str, chance: random.Random) -> str:
    known = [read for read in _READS if read in program]
    if not known:
        return _add_statement(program, chance)
    return "import os, sys\nfrom sys import stdin\n" + program.replace(chance.choice(known), chance.choice(_READS))


def _change_print(program: str, chance: random.Random) -> str:
    lines = program.split("\n")
    places = [at for at, line in enumerate(lines) if _PRINT.fullmatch(line.strip())]
    if not places:
        return _add_statement(program, chance)
    at = chance.choice(places)
    found = _PRINT.fullmatch(lines[at].strip())
    assert found is not None
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    lines[at] = textwrap.indent(chance.choice(_PRINTS).format(found[1]), indent)
    return "import os, sys\nimport numpy as np\n" + "\n".join(lines)


def _enclose(program: str, chance: random.Random) -> str:
    """In a function, under a guard, in a class, in a thread, in `exec`, with tabs or other line ends."""
    body = textwrap.indent(program, _INDENT)
    return chance.choice(
        (
            f"def main():\n{body}\nmain()",
            f"def main():\n{body}\nif __name__ == '__main__':\n    main()",
            f'if __name__ == "__main__":\n{body}',
            f"if __name__ == '__main__':\n{body}\nelse:\n    print('imported')",
            f"import threading\ndef main():\n{body}\nt = threading.Thread(target=main)\nt.start()\nt.join()",
            f"exec({program!r})",
            f"async def main():\n{body}\nimport asyncio\nasyncio.run(main())",
            f"for _ in range(1):\n{body}",
            f"try:\n{body}\nexcept Exception as error:\n    print(error)",
            f"try:\n{body}\nfinally:\n    print('done')",
            f"with open(0) as file:\n{body}",
            f"class Solver:\n    def solve(self):\n{textwrap.indent(body, _INDENT)}\nSolver().solve()",
            program.replace(_INDENT, "\t"),
            program.replace("\n", "\r\n"),
            f"{program}\n{program}",
            f"{program}\n# That is all.\n'''\nnotes\n'''",
            f"\n\n  {program}",
            f"```\n{program}",
        )
    )
