"""Our own programs that run inside a sandbox: compiled once here, and sent there as text."""

from __future__ import annotations

import base64
import functools
import importlib.util
import marshal
from pathlib import Path

_STUB = """\
import binascii, marshal, _frozen_importlib_external
if _frozen_importlib_external.MAGIC_NUMBER == {magic!r}:
    exec(marshal.loads(binascii.a2b_base64({compiled!r})))
else:
    exec({source!r})
"""


@functools.cache
def precompile(path: Path) -> str:
    """The program as text that needs no compilation on our version of Python, and is compiled on any other.

    Compiling 300 lines takes as long as running a short program, so each run would be twice as slow.
    """
    source = path.read_text(encoding="utf-8")
    compiled = marshal.dumps(compile(source, path.name, "exec", dont_inherit=True))
    encoded = base64.b64encode(compiled).decode()
    return _STUB.format(magic=importlib.util.MAGIC_NUMBER, compiled=encoded, source=source)
