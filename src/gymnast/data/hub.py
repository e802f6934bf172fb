"""The Hugging Face Hub: files and listings of dataset repositories, through `huggingface_hub`.

That library caches, resumes interrupted downloads and reads HF_ENDPOINT, HF_HOME and HF_TOKEN. This module turns its
errors into UserErrors.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import NotFoundError, UserError, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gymnast.types.json import JsonObject

_LISTING_TIMEOUT_S: Final = 60.0  # the library waits forever by default
_NETWORK_HINT: Final = "check the network and HF_ENDPOINT"
_NAME_HINT: Final = "use org/name, of letters, digits, '-', '_' and '.', at most 96 characters"
_TOKEN_HINT: Final = "if it is private, give a token: hf_token in env.yaml, HF_TOKEN, or `hf auth login`"


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository at one commit."""

    commit: str
    files: tuple[str, ...]
    card: JsonObject


@dataclass(frozen=True, slots=True)
class Hub:
    """How to reach the Hub. Unset fields use the library's own settings."""

    token: str | None = field(default=None, repr=False)
    endpoint: str | None = None
    cache_dir: Path | None = None

    def download_file(self, repo_id: str, name: str, revision: str | None = None) -> Path:
        """Download a file of a dataset; returns its path in the cache."""
        library = _library()
        with self._translate_errors(library, repo_id, name, revision):
            path = library.hf_hub_download(
                repo_id,
                name,
                repo_type="dataset",
                revision=revision,
                token=self.token,
                endpoint=self.endpoint,
                cache_dir=self.cache_dir,
            )
        return Path(path)

    def list_files(self, repo_id: str, revision: str | None = None) -> Listing:
        """The commit, files and card of a dataset."""
        library = _library()
        with self._translate_errors(library, repo_id, None, revision):
            api = library.HfApi(endpoint=self.endpoint, token=self.token)
            info = api.dataset_info(repo_id, revision=revision, timeout=_LISTING_TIMEOUT_S)
        files = tuple(sibling.rfilename for sibling in info.siblings or ())
        return Listing(str(info.sha), files, info.card_data.to_dict() if info.card_data else {})

    def publish(
        self,
        repo_id: str,
        path: Path,
        name: str,
        *,
        revision: str | None = None,
        create_pr: bool = False,
        message: tuple[str | None, str | None] = (None, None),
        collection: str | None = None,
    ) -> str:
        """Upload a file to a private dataset (created if missing), add it to a collection; returns the commit's URL."""
        library = _library()
        with self._translate_errors(library, repo_id, name, revision, "upload"):
            api = library.HfApi(endpoint=self.endpoint, token=self.token)
            api.create_repo(repo_id, repo_type="dataset", private=True, exist_ok=True)
            commit = api.upload_file(
                path_or_fileobj=path,
                path_in_repo=name,
                repo_id=repo_id,
                repo_type="dataset",
                revision=revision,
                create_pr=create_pr or None,
                commit_message=message[0],
                commit_description=message[1],
            )
            if collection is not None:
                api.add_collection_item(collection, repo_id, "dataset", exists_ok=True)
        return str(commit.pr_url or commit.commit_url)

    def publish_folder(
        self, repo_id: str, folder: Path, names: Sequence[str], *, private: bool = True, say: Callable[[str], None]
    ) -> str:
        """Upload files to a dataset (created if missing), each in its own commit and in this order; returns its URL.

        Files that the dataset already has are skipped, so a second call continues an interrupted one. A dataset that
        is public already is refused if `private`.
        """
        library = _library()
        with self._translate_errors(library, repo_id, None, None, "upload"):
            api = library.HfApi(endpoint=self.endpoint, token=self.token)
            url = api.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True)
            repo_id = url.repo_id  # with the user's name, if `repo_id` has none
            _check_visibility(api.dataset_info(repo_id, timeout=_LISTING_TIMEOUT_S), str(url), private=private, say=say)
            present = {
                entry.path: entry.lfs.sha256 if entry.lfs is not None else entry.blob_id
                for entry in api.list_repo_tree(repo_id, recursive=True, repo_type="dataset")
                if isinstance(entry, library.hf_api.RepoFile)
            }
            for number, name in enumerate(names, 1):
                digests = _digests(folder / name)
                if present.get(name) in digests:
                    say(f"push      {name} is already there ({number} of {len(names)})")
                    continue
                api.upload_file(
                    path_or_fileobj=folder / name, path_in_repo=name, repo_id=repo_id, repo_type="dataset",
                    commit_message=f"Upload {name}",
                )  # fmt: skip
                say(f"push      {name} ({number} of {len(names)})")
        return str(url)

    @contextmanager
    def _translate_errors(
        self, library: Any, repo_id: str, name: str | None, revision: str | None, action: str = "download"
    ) -> Iterator[None]:
        """Turn the library's errors into UserErrors."""
        errors = library.errors
        where = f"{self.endpoint or library.constants.ENDPOINT}/datasets/{repo_id}"
        try:
            yield
        except errors.HFValidationError as error:
            raise UserError(f"'{repo_id}' is not a dataset name", next=_NAME_HINT) from error
        except errors.GatedRepoError as error:
            raise UserError(f"'{repo_id}' is gated", where=where, next="request access on its page") from error
        except errors.RepositoryNotFoundError as error:
            what = f"the Hub has no dataset '{repo_id}', or it is private and this token cannot read it"
            raise NotFoundError(what, where=where, next=_TOKEN_HINT) from error
        except errors.RevisionNotFoundError as error:
            raise NotFoundError(f"'{repo_id}' has no revision '{revision}'", where=where) from error
        except errors.LocalEntryNotFoundError as error:
            what = f"cannot reach the Hub: {_first_line(error.__cause__ or error)}"
            raise UserError(what, where=where, next=_NETWORK_HINT) from error
        except errors.EntryNotFoundError as error:
            hint = suggest(name or "", self.list_files(repo_id, revision).files)
            raise NotFoundError(f"'{repo_id}' has no file '{name}'", where=where, next=hint) from error
        except errors.HfHubHTTPError.__bases__ as error:  # OSError and its HTTP library's error class
            what = f"the {action} failed: {_first_line(error)}"
            raise UserError(what, where=where, next=_hint_for(error, repo_id, action)) from error
        except RuntimeError as error:  # how the library wraps what fails while it uploads
            what = f"the {action} failed: {_first_line(error.__cause__ or error)}"
            raise UserError(what, where=where, next="try again: what was uploaded is kept") from error
        except ValueError as error:
            raise UserError(
                f"the server did not answer like a Hub: {error}", where=where, next="check HF_ENDPOINT"
            ) from error


def _check_visibility(info: Any, url: str, *, private: bool, say: Callable[[str], None]) -> None:
    """An existing dataset keeps its visibility, so an export that is to be private must not go to a public one."""
    if private and info.private is False:
        raise UserError(
            f"the dataset '{info.id}' exists and is public",
            where=url,
            next="push to another dataset, or publish the export: --public",
        )
    if not private and info.private:
        say(f"note      {info.id} was created as private and stays private; its settings on the Hub can change that")


def _hint_for(error: BaseException, repo_id: str, action: str) -> str:
    """What helps against a failed request."""
    response = getattr(error, "response", None)
    if response is None:
        return _NETWORK_HINT
    right = "read" if action == "download" else "write to"
    if response.status_code in {401, 403}:
        return f"give a token that may {right} '{repo_id}': hf_token in env.yaml, HF_TOKEN, or `hf auth login`"
    return "try again"


def _digests(path: Path) -> tuple[str, str]:
    """What the Hub calls a file: its SHA-256 if it is large, else git's SHA-1 of it."""
    large, small = hashlib.sha256(), hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            large.update(block)
            small.update(block)
    return large.hexdigest(), small.hexdigest()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _library() -> Any:
    try:
        import huggingface_hub  # noqa: PLC0415 - optional: only downloads need it
        import huggingface_hub.constants  # noqa: PLC0415
        import huggingface_hub.errors  # noqa: PLC0415
    except ImportError as error:
        raise UserError(
            f"downloading from the Hub needs the package huggingface_hub: {error}",
            next="pip install 'gymnast[hub]'",
        ) from error
    return huggingface_hub
