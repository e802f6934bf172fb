"""The audit of pinned requirements: hits fail, accepted ones and old lists are mentioned, bad files are errors."""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "requirements"
LIST = """
searched = {searched}
max_age_days = 90
[looked_up]
sampler = 2026-01-01
[[advisory]]
package = "sampler"
affected = "{affected}"
id = "CVE-0"
summary = "an example"
source = "https://example.org/0"
{more}
"""


def load() -> Any:
    spec = importlib.util.spec_from_file_location("requirements_audit", FOLDER / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


AUDIT = load()


def write(folder: Path, pins: str, *, affected: str = "<1.2", searched: str | None = None, more: str = "") -> list[str]:
    today = str(dt.datetime.now(tz=dt.UTC).date())
    (folder / "advisories.toml").write_text(LIST.format(searched=searched or today, affected=affected, more=more))
    (folder / "a.txt").write_text(pins)
    return ["--folder", str(folder)]


@pytest.mark.parametrize(
    ("pins", "affected", "code"),
    [
        ("sampler==1.2", "<1.2", 0),
        ("sampler==1.1.9", "<1.2", 1),
        ("Sampler[fast]==1.1 ; sys_platform == 'win32'", "<1.2", 1),
        ("other==1\nsampler==1.1 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n", "<1.2", 1),
        ("sampler==1.2rc1  # via other", "<1.2", 1),
        ("sampler==1.1.post1", "==1.1", 0),
        ("sampler==1.10", "<1.2", 0),
        ("sampler==0.5", ">=0.6,<1.2", 0),
        ("# sampler==1.0\n--index-url x\nother==1", "<1.2", 0),
        ("sampler>=1.0", "<1.2", 2),
        ("sampler", "<1.2", 2),
        ("not a requirement!", "<1.2", 2),
        ("", "<1.2", 2),
        ("sampler==1.1", "before 2", 2),
    ],
)
def test_what_is_affected(pins: str, affected: str, code: int, tmp_path: Path) -> None:
    assert AUDIT.main(write(tmp_path, pins, affected=affected)) == code


def test_an_accepted_advisory_is_not_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert AUDIT.main(write(tmp_path, "sampler==1", more='accepted = "not reachable"')) == 0
    assert "CVE-0 is accepted: not reachable" in capsys.readouterr().out


def test_an_old_list_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert AUDIT.main(write(tmp_path, "sampler==2", searched="2020-01-01")) == 0
    assert "days old" in capsys.readouterr().out


@pytest.mark.parametrize("more", ['[[advisory]]\npackage = "x"', 'unknown = "field"', "not toml", "[[looked_up]]"])
def test_a_list_that_cannot_be_read(more: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert AUDIT.main(write(tmp_path, "sampler==2", more=more)) == 2
    assert "cannot audit" in capsys.readouterr().err


def test_the_outcome_as_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert AUDIT.main([*write(tmp_path, "sampler==1\nother==3"), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [(hit["package"], hit["advisory"]["id"]) for hit in data["hits"]] == [("sampler", "CVE-0")]
    assert data["never_looked_up"] == ["other"]


def test_our_own_list_is_valid_and_has_no_hit() -> None:
    listed = AUDIT.read_list(FOLDER / "advisories.toml")
    assert AUDIT.audit(AUDIT.read_pins(FOLDER), listed, listed.searched).hits == []
