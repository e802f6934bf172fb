"""Compares the pinned requirements with the list of known vulnerabilities next to this file, without a network.

Exits with 1 if a pinned version is affected, unless the advisory is accepted with a reason; with 2 if a file cannot be
read. A list that is older than its `max_age_days`, and packages that were never looked up, are mentioned.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import sys
import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

FOLDER = Path(__file__).parent


class AuditError(Exception):
    """A file that cannot be read."""


@dataclass(frozen=True)
class Advisory:
    """One entry of the list."""

    package: str
    affected: str
    id: str
    summary: str
    source: str
    accepted: str = ""

    def affects(self, version: str) -> bool:
        pinned = Version(version)
        return all(_is_below_or_within(part, pinned) for part in SpecifierSet(self.affected))


def _is_below_or_within(part: Specifier, version: Version) -> bool:
    """As usual, but `<1.2` includes 1.2rc1, which may lack the fix."""
    if part.operator == "<":
        return version < Version(part.version)
    return part.contains(version, prereleases=True)


@dataclass(frozen=True)
class Pin:
    """A pinned package."""

    package: str
    version: str
    file: str


@dataclass(frozen=True)
class AdvisoryList:
    """The file `advisories.toml`."""

    searched: dt.date
    max_age_days: int
    looked_up: dict[str, dt.date]
    advisories: tuple[Advisory, ...]


@dataclass
class Audit:
    """The outcome."""

    pins: list[Pin]
    hits: list[tuple[Pin, Advisory]] = field(default_factory=list)
    accepted: list[tuple[Pin, Advisory]] = field(default_factory=list)
    never_looked_up: list[str] = field(default_factory=list)
    age_days: int = 0
    is_old: bool = False


def read_list(path: Path) -> AdvisoryList:
    """Read and check the list: every advisory needs its fields, a valid range and a package that was looked up."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        advisories = tuple(Advisory(**entry) for entry in content.get("advisory", []))
        listed = AdvisoryList(content["searched"], content["max_age_days"], content.get("looked_up", {}), advisories)
        dates = [listed.searched, *listed.looked_up.values()]
        if not all(type(date) is dt.date for date in dates):
            raise AuditError(f"{path.name}: searched and looked_up must be dates")
        for advisory in advisories:
            SpecifierSet(advisory.affected)
            _check_entry(path, advisory, listed)
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, InvalidSpecifier) as error:
        raise AuditError(f"{path.name}: {error}") from error
    return listed


def _check_entry(path: Path, advisory: Advisory, listed: AdvisoryList) -> None:
    if advisory.package != canonicalize_name(advisory.package):
        raise AuditError(f"{path.name}: write {canonicalize_name(advisory.package)}, not {advisory.package}")
    if advisory.package not in listed.looked_up:
        raise AuditError(f"{path.name}: {advisory.package} has advisories, but no date in [looked_up]")
    if not advisory.source.startswith("https://") or not advisory.affected:
        raise AuditError(f"{path.name}: {advisory.id} needs a source and a range of versions")


def read_pins(folder: Path) -> list[Pin]:
    """Every `name==version` of every requirements file, whatever its marker."""
    pins = []
    for path in sorted(folder.glob("*.txt")):
        text = re.sub(r"\\\n", " ", path.read_text(encoding="utf-8"))
        for line in text.splitlines():
            content = re.split(r"\s#|\s--hash", f" {line}", maxsplit=1)[0].strip()
            if content and not content.startswith(("#", "-")):
                pins.append(_parse_pin(content, path))
    if not pins:
        raise AuditError(f"no pinned requirements in {folder}")
    return pins


def _parse_pin(line: str, path: Path) -> Pin:
    try:
        requirement = Requirement(line)
    except InvalidRequirement as error:
        raise AuditError(f"{path.name}: {line!r}: {error}") from error
    versions = [part.version for part in requirement.specifier if part.operator == "=="]
    if len(versions) != 1:
        raise AuditError(f"{path.name}: {line!r} is not pinned to one version")
    return Pin(canonicalize_name(requirement.name), versions[0], path.name)


def audit(pins: list[Pin], listed: AdvisoryList, today: dt.date) -> Audit:
    """Compare."""
    result = Audit(pins)
    for pin in pins:
        for advisory in listed.advisories:
            if advisory.package == pin.package and advisory.affects(pin.version):
                (result.accepted if advisory.accepted else result.hits).append((pin, advisory))
    result.never_looked_up = sorted({pin.package for pin in pins} - listed.looked_up.keys())
    result.age_days = (today - listed.searched).days
    result.is_old = result.age_days > listed.max_age_days
    return result


def report(result: Audit, listed: AdvisoryList) -> list[str]:
    """The lines to print."""
    lines = []
    for pin, advisory in result.hits:
        lines.append(
            f"{pin.file}: {pin.package} {pin.version} is affected by {advisory.id} ({advisory.affected}): "
            f"{advisory.summary}\n  {advisory.source}"
        )
    lines += [f"{pin.file}: {pin.package}: {entry.id} is accepted: {entry.accepted}" for pin, entry in result.accepted]
    packages = {pin.package for pin in result.pins}
    lines.append(
        f"{len(packages)} pinned packages against {len(listed.advisories)} advisories of {listed.searched}: "
        f"{len(result.hits)} affected; {len(packages) - len(result.never_looked_up)} packages were looked up"
    )
    if result.is_old:
        lines.append(
            f"warning: the list of advisories is {result.age_days} days old (at most {listed.max_age_days}): "
            "look them up again, or run make audit where the network allows it"
        )
    return lines


def to_json(result: Audit, listed: AdvisoryList) -> dict[str, Any]:
    """The outcome as data."""
    return {
        "packages": len({pin.package for pin in result.pins}),
        "advisories": len(listed.advisories),
        "searched": str(listed.searched),
        "is_old": result.is_old,
        "hits": [{**asdict(pin), "advisory": asdict(entry)} for pin, entry in result.hits],
        "accepted": [{**asdict(pin), "advisory": asdict(entry)} for pin, entry in result.accepted],
        "never_looked_up": result.never_looked_up,
    }


def main(arguments: list[str] | None = None) -> int:
    """Audit the requirements files of a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder with requirements and advisories.toml")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    options = parser.parse_args(arguments)
    try:
        listed = read_list(options.folder / "advisories.toml")
        result = audit(read_pins(options.folder), listed, dt.datetime.now(tz=dt.UTC).date())
    except AuditError as error:
        sys.stderr.write(f"cannot audit: {error}\n")
        return 2
    text = json.dumps(to_json(result, listed), indent=2) if options.json else "\n".join(report(result, listed))
    sys.stdout.write(f"{text}\n")
    return 1 if result.hits else 0


if __name__ == "__main__":
    sys.exit(main())
