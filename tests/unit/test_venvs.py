"""What a server's folder asks to have installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from gymnast.runtime.expected_packages import find_missing_imports
from gymnast.runtime.venvs import _commands as installer
from gymnast.runtime.venvs import _uv_settings as installer_settings
from gymnast.runtime.venvs import own_bounds, requirement_lines, unmet_requirements


def server(tmp_path: Path, requirements: str) -> Path:
    folder = tmp_path / "resources_servers" / "one"
    folder.mkdir(parents=True)
    (folder / "requirements.txt").write_text(requirements)
    return folder


def test_lines_that_stand_for_the_framework_are_left_out(tmp_path: Path) -> None:
    text = "-e nemo-gym[dev] @ ../../\nnemo_gym[dev]>=0.5\n--editable ../../\n-e ../..[dev]\ngymnast\nhttpx  # used\n"
    assert requirement_lines(server(tmp_path, text)) == ["httpx"]


def test_a_package_of_its_own_next_to_the_server_is_installed(tmp_path: Path) -> None:
    folder = server(tmp_path, "-e ./lib\n-r more.txt\n./wheels/a.whl\n")
    (folder / "lib").mkdir()
    (folder / "more.txt").write_text("httpx\n")
    lines = requirement_lines(folder)
    assert lines == [f"-e {folder}/lib", "httpx", f"{folder}/wheels/a.whl"]
    assert set(lines) - {"httpx"} <= set(unmet_requirements(folder))


def test_overrides_next_to_the_requirements_are_given_to_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = server(tmp_path, "httpx\n")
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert "--override" not in installer(tmp_path / "home", tmp_path / "wanted.txt", folder)[1]
    (folder / "overrides.txt").write_text("pillow==12.3.0\n")
    words = installer(tmp_path / "home", tmp_path / "wanted.txt", folder)[1]
    assert words[words.index("--directory") + 1] == str(folder)
    assert words[words.index("--override") + 1] == "overrides.txt"
    assert installer_settings(folder) == ["pillow==12.3.0\n"]


def test_what_follows_a_hash_in_a_url_is_not_a_comment(tmp_path: Path) -> None:
    text = "# first\nmine @ git+https://example.com/mine#subdirectory=py  # ours\nlong>=1,\\\n<2\n"
    assert requirement_lines(server(tmp_path, text)) == [
        "mine @ git+https://example.com/mine#subdirectory=py",
        "long>=1, <2",
    ]


def project(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "resources_servers" / "two"
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_a_project_s_dependencies_come_from_the_sources_it_names(tmp_path: Path) -> None:
    text = """
[project]
dependencies = [
  "nemo-gym[dev]", "Mine_Own[x]>=1 ; python_version > '3'", "at-url", "near", "linked", "plain>=2", "by-platform",
]
[tool.uv.sources]
nemo-gym = { path = "../..", editable = true }
mine-own = { git = "https://example.com/mine.git", rev = "abc", subdirectory = "py" }
at-url = { url = "https://example.com/at_url-1-py3-none-any.whl" }
near = { path = "near" }
linked = { path = "./linked", editable = true }
plain = { index = "other" }
by-platform = [
  { git = "https://example.com/never.git", marker = "python_version < '3'" },
  { git = "https://example.com/always.git", tag = "v1" },
]
"""
    folder = project(tmp_path, text)
    (folder / "linked").mkdir()
    assert requirement_lines(folder) == [
        'Mine_Own[x] @ git+https://example.com/mine.git@abc#subdirectory=py ; python_version > "3"',
        "at-url @ https://example.com/at_url-1-py3-none-any.whl",
        f"{folder}/near",
        f"-e {folder}/linked",
        "plain>=2",
        "by-platform @ git+https://example.com/always.git@v1",
    ]


def test_a_server_s_packages_stay_within_what_ours_can_use() -> None:
    bounds = own_bounds()
    assert "antlr4-python3-runtime==4.9.*" in bounds  # of the configuration library; math-verify would bring 4.13
    assert not [line for line in bounds if line.startswith(("gymnast", "pydantic-core=="))]


def test_packages_that_nemo_gym_brings_are_installed_for_a_server_that_imports_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its environment takes minutes to build, and then lacks what the server does not list."""
    lines = ["ray[default]>=2.56.1", "datasets>=3", "scikit-learn>=1.5", "fastapi>=0.1", 'pytest>=8; extra == "dev"']
    monkeypatch.setattr("importlib.metadata.requires", lambda _name: lines)
    monkeypatch.setattr("importlib.metadata.version", installed_only("fastapi", "pytest"))
    folder = server(tmp_path, "evalthing\n")
    (folder / "grading").mkdir()
    (folder / "app.py").write_text(
        "import fastapi, pytest\nfrom grading.runner import grade\nfrom resources_servers.one import notes\n"
        "if __name__ == '__main__':\n    App.run_webserver()\n"
    )
    (folder / "grading" / "runner.py").write_text("from . import scores\n\ndef grade():\n    import ray.util\n")
    (folder / "grading" / "scores.py").write_text("from sklearn import metrics\n")
    (folder / "notes.py").write_text("this is no Python\n")
    (folder / "make_data.py").write_text("import datasets\n")
    assert find_missing_imports(folder) == ["ray[default]>=2.56.1", "scikit-learn>=1.5"]
    monkeypatch.setattr("importlib.metadata.requires", lambda _name: [])
    assert find_missing_imports(folder) == []


def installed_only(*names: str) -> Callable[[str], str]:
    def version(name: str) -> str:
        if name not in names:
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    return version
