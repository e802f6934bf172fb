"""What of NeMo Gym's commands is not supported, each with what to use instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.compat.ng_arguments import NgArguments


class Unsupported:
    """A command, option or field that only says what to use instead."""

    def __init__(self, what: str, instead: str) -> None:
        self.what = what
        self.instead = instead

    def __call__(self, _: NgArguments) -> int:
        """The work of an unsupported command."""
        raise self.error()

    def error(self) -> UserError:
        """The error if it is used."""
        return UserError(self.what, next=self.instead)


GITLAB: Final = Unsupported(
    "datasets in a GitLab model registry are not supported",
    "use GitLab's own client for the registry, or the Hub: ng_download_dataset_from_hf, ng_upload_dataset_to_hf",
)
SUBMIT: Final = Unsupported(
    "job files of `gym eval submit` are not supported", "use gymnast submit with a cluster file and run options"
)
_CASES: Final = "edit the rewards in data/verifier_cases.jsonl; gymnast check env NAME shows the differences"
_MANIFEST: Final = "validate the config next to the manifest with --config, and run gymnast check env NAME"
OPTIONS: Final[Mapping[str, str]] = {
    "--update-expected": _CASES,
    "--manifest": _MANIFEST,
    "--sync": _MANIFEST,
}
"""What to use instead of options."""

FIELDS: Final[Mapping[str, Unsupported]] = {
    "delete_from_gitlab": Unsupported(
        "delete_from_gitlab is not supported", "delete the dataset with GitLab's own client after the upload"
    ),
    "update_expected": Unsupported("update_expected is not supported", _CASES),
    "manifest_path": Unsupported("manifest_path is not supported", _MANIFEST),
}
"""Fields that no command supports."""
VALIDATE_FIELDS: Final = {"sync": Unsupported("sync is not supported", _MANIFEST)}
"""Fields that `env validate` does not support; other commands may read keys of these names."""


def refuse_unsupported(values: Mapping[str, Any], fields: Mapping[str, Unsupported] = FIELDS) -> None:
    """Raise if a field is set that would silently do nothing."""
    for name, unsupported in fields.items():
        if values.get(name):
            raise unsupported.error()
