"""Whether a server imports modules of its folder in functions, and therefore needs a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gymnast.runtime.late_imports import imports_own_modules_late

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("files", "late"),
    [
        ({"app.py": "import helper\n"}, False),
        ({"app.py": "def verify():\n    import helper\n"}, True),
        ({"app.py": "async def verify():\n    from helper import score\n"}, True),
        ({"app.py": "def __init__():\n    import helper\n"}, False),
        ({"app.py": "def verify():\n    import json\n"}, False),
        ({"app.py": "def verify():\n    from . import helper\n"}, False),
        ({"app.py": "def verify():\n    from resources_servers.mine.helper import score\n"}, False),
        ({"app.py": "import tools.words\n", "tools/words.py": "def score():\n    import tools.parts\n"}, True),
        ({"app.py": "import tools.words\n", "tools/words.py": "def score():\n    from . import parts\n"}, True),
        ({"app.py": "import tools\n", "tools/words.py": "def score():\n    import tools.parts\n"}, False),
        ({"app.py": "from resources_servers.mine import helper\n", "helper.py": "def f():\n    import helper\n"}, True),
        ({"app.py": "def verify(:\n"}, False),
    ],
)
def test_imports_in_functions_are_found(tmp_path: Path, files: dict[str, str], *, late: bool) -> None:
    folder = tmp_path / "resources_servers" / "mine"
    plain = {"helper.py": "", "tools/__init__.py": "", "tools/parts.py": ""}
    for name, text in (plain | files).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    assert imports_own_modules_late(folder / "app.py", folder) is late
