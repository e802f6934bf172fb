"""Hooks of the documentation site: pages from outside docs/, links to them, and no resources from other hosts.

README.md becomes the home page; the contributing guide, the changelog and the READMEs of the servers that ship become
pages, too. Links to other files of the repository become plain text, because the site does not contain them.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
BUILTIN: Final = ROOT / "src" / "gymnast" / "builtin"
SECTIONS: Final = {
    "resources_servers": "Environments",
    "responses_api_agents": "Agents",
    "responses_api_models": "Models",
}
PAGES: Final = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages from outside docs/, by their path in the repository."""

_FENCE: Final = re.compile(r"^(```|~~~).*?^\1[^\S\n]*$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^()\s:#]+)(#[^()\s]*)?\)")
_IMAGE: Final = re.compile(r'(<img src=")([^":]+)(")')
_EXTERNAL: Final = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\ssrc=["']?(?:https?:)?//|"""
    r"""<link\b[^>]*\brel=["']?(?:stylesheet|preconnect|preload|icon|dns-prefetch)\b[^>]*\shref=["']?(?:https?:)?//|"""
    r"""<link\b[^>]*\shref=["']?(?:https?:)?//[^>]*\brel=["']?(?:stylesheet|preconnect|preload|icon)|"""
    r"""(?:@import\s+|url\()["']?(?:https?:)?//"""
)


def on_config(config: MkDocsConfig) -> None:
    """Add the pages of the servers that ship to the navigation."""
    shipped = []
    for kind, title in SECTIONS.items():
        entries = []
        for readme in sorted((BUILTIN / kind).glob("*/README.md")):
            name = readme.parent.name
            PAGES[readme.relative_to(ROOT).as_posix()] = f"builtin/{kind}/{name}.md"
            entries.append({name: f"builtin/{kind}/{name}.md"})
        shipped.append({title: entries})
    config.nav = [*(config.nav or ()), {"What ships": shipped}]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/."""
    for path, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Let links lead to the pages of the site."""
    uri = page.file.src_uri
    origin = next((path for path, made in PAGES.items() if made == uri), f"docs/{uri}")

    def link(match: re.Match[str]) -> str:
        text, path, anchor = match[1], match[2], match[3] or ""
        target = _site_path(origin, uri, path)
        return text if target is None else f"[{text}]({target}{anchor})"

    def image(match: re.Match[str]) -> str:
        return f"{match[1]}{_site_path(origin, uri, match[2]) or match[2]}{match[3]}"

    def prose(text: str) -> str:
        return _IMAGE.sub(image, _LINK.sub(link, text))

    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [prose(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, prose(markdown[end:])])


def _site_path(origin: str, uri: str, path: str) -> str | None:
    """Where a link of a page leads in the site; None for files that it does not contain."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
    if target in PAGES:
        target = PAGES[target]
    elif target.startswith("docs/"):
        target = target.removeprefix("docs/")
    elif (ROOT / target).exists():
        return None
    else:
        return path  # dead: the strict build says so
    return posixpath.relpath(target, posixpath.dirname(uri) or ".")


def on_post_build(config: MkDocsConfig) -> None:
    """Fail if a page would load something from another host."""
    for file in sorted(Path(config.site_dir).rglob("*")):
        if file.suffix in {".html", ".css"} and (found := _EXTERNAL.search(file.read_text(encoding="utf-8"))):
            raise PluginError(f"{file.relative_to(config.site_dir)} loads from another host: {found[0]}")
