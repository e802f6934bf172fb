"""The Hugging Face Hub: files and listings of dataset repositories, through `huggingface_hub`.

That library keeps the cache, resumes downloads that break off and reads HF_ENDPOINT, HF_HOME and HF_TOKEN. What goes
wrong becomes a UserError here.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import NotFoundError, UserError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.types.json import JsonObject

_LISTING_TIMEOUT_S: Final = 60.0  # the library waits for ever unless told
_TOKEN_HINT: Final = "if it is private, give a token: hf_token in env.yaml, HF_TOKEN, or `hf auth login`"


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository at one commit."""

    commit: str
    files: tuple[str, ...]
    card: JsonObject


@dataclass(frozen=True, slots=True)
class Hub:
    """How to reach the Hub. What is not given is the library's own setting."""

    token: str | None = field(default=None, repr=False)
    endpoint: str | None = None
    cache_dir: Path | None = None

    def file(self, repo_id: str, name: str, revision: str | None = None) -> Path:
        """A file of a dataset, in the cache."""
        library = _library()
        with self._explaining(library, repo_id, name, revision):
            found = library.hf_hub_download(
                repo_id,
                name,
                repo_type="dataset",
                revision=revision,
                token=self.token,
                endpoint=self.endpoint,
                cache_dir=self.cache_dir,
            )
        return Path(found)

    def listing(self, repo_id: str, revision: str | None = None) -> Listing:
        """What a dataset consists of."""
        library = _library()
        with self._explaining(library, repo_id, None, revision):
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
        """Put a file into a private dataset, made if it is not there, and that into a collection. URL of the commit."""
        library = _library()
        with self._explaining(library, repo_id, name, revision, "upload"):
            api = library.HfApi(endpoint=self.endpoint, token=self.token)
            api.create_repo(repo_id, repo_type="dataset", private=True, exist_ok=True)
            done = api.upload_file(
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
        return str(done.pr_url or done.commit_url)

    @contextmanager
    def _explaining(
        self, library: Any, repo_id: str, name: str | None, revision: str | None, doing: str = "download"
    ) -> Iterator[None]:
        """Turn the library's errors into what / where / next."""
        errors = library.errors
        where = f"{self.endpoint or library.constants.ENDPOINT}/datasets/{repo_id}"
        try:
            yield
        except errors.HFValidationError as error:
            raise UserError(f"'{repo_id}' is no name of a dataset: {error}", next="it looks like org/name") from error
        except errors.GatedRepoError as error:
            raise UserError(f"'{repo_id}' is gated", where=where, next="ask for access on its page") from error
        except errors.RepositoryNotFoundError as error:
            what = f"the Hub has no dataset '{repo_id}', or it is private and may not be read with this token"
            raise NotFoundError(what, where=where, next=_TOKEN_HINT) from error
        except errors.RevisionNotFoundError as error:
            raise NotFoundError(f"'{repo_id}' has no revision '{revision}'", where=where) from error
        except errors.LocalEntryNotFoundError as error:
            what = f"the Hub cannot be reached: {_first_line(error.__cause__ or error)}"
            raise UserError(what, where=where, next="check the network and HF_ENDPOINT") from error
        except errors.EntryNotFoundError as error:
            hint = suggest(name or "", self.listing(repo_id, revision).files)
            raise NotFoundError(f"'{repo_id}' has no file '{name}'", where=where, next=hint) from error
        except errors.HfHubHTTPError.__bases__ as error:  # OSError, and the error class of its HTTP library
            raise UserError(f"the {doing} failed: {_first_line(error)}", where=where, next="try again") from error
        except ValueError as error:
            raise UserError(f"what answers there is no Hub: {error}", where=where, next="check HF_ENDPOINT") from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _library() -> Any:
    try:
        import huggingface_hub  # noqa: PLC0415 - an extra: only those who download need it
        import huggingface_hub.constants  # noqa: PLC0415
        import huggingface_hub.errors  # noqa: PLC0415
    except ImportError as error:
        raise UserError(
            f"downloading from the Hub needs the package huggingface_hub: {error}",
            next="pip install 'gymnast[hub]'",
        ) from error
    return huggingface_hub
