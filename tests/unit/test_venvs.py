"""What a server's folder asks to have installed."""

from __future__ import annotations

from pathlib import Path

from gymnast.runtime.venvs import requirement_lines, unmet_requirements


def server(tmp_path: Path, requirements: str) -> Path:
    folder = tmp_path / "resources_servers" / "one"
    folder.mkdir(parents=True)
    (folder / "requirements.txt").write_text(requirements)
    return folder


def test_lines_that_stand_for_the_framework_are_left_out(tmp_path: Path) -> None:
    text = "-e nemo-gym[dev] @ ../../\nnemo_gym[dev]>=0.5\n--editable ../../\n-e ../..[dev]\ngymnast\nhttpx  # used\n"
    assert requirement_lines(server(tmp_path, text)) == ["httpx"]


def test_a_package_of_its_own_beside_the_server_is_installed(tmp_path: Path) -> None:
    folder = server(tmp_path, "-e ./lib\n-r more.txt\n./wheels/a.whl\n")
    (folder / "lib").mkdir()
    (folder / "more.txt").write_text("httpx\n")
    lines = requirement_lines(folder)
    assert lines == [f"-e {folder}/lib", "httpx", f"{folder}/wheels/a.whl"]
    assert set(lines) - {"httpx"} <= set(unmet_requirements(folder))


def test_what_follows_a_hash_in_a_url_is_no_comment(tmp_path: Path) -> None:
    text = "# first\nmine @ git+https://example.com/mine#subdirectory=py  # ours\nlong>=1,\\\n<2\n"
    assert requirement_lines(server(tmp_path, text)) == [
        "mine @ git+https://example.com/mine#subdirectory=py",
        "long>=1, <2",
    ]
