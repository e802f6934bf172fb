"""The part of the package `nemo_gym` that environments, agents, models and trainers import, built on Gymnast.

The package itself has the names that authors need most; each is imported from its module when it is first used. A
separate distribution provides the name (`distributions/nemo-gym-surface`); here it can be typed and tested. Folders
depend on the caller: `PARENT_DIR` is the checkout of the importing file, or the current folder.
"""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from gymnast import __version__
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.config import read_environ
from gymnast.config.instances import SERVER_KINDS
from gymnast.config.roots import BUILTIN

if TYPE_CHECKING:
    PARENT_DIR: Path
    ROOT_DIR: Path
    WORKING_DIR: Path
    CACHE_DIR: Path
    RESULTS_DIR: Path

__all__ = ["CACHE_DIR", "PARENT_DIR", "RESULTS_DIR", "ROOT_DIR", "WORKING_DIR", "__version__"]
__package_name__ = "nemo_gym"
NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME: Final = "NEMO_GYM_EXTRA_ROOTS"
PUBLIC_NAMES: Final = {
    name: module
    for module, names in {
        "base_resources_server": (
            *("BaseResourcesServerConfig", "SimpleResourcesServer", "BaseRunRequest", "BaseVerifyRequest"),
            *("BaseVerifyResponse", "BaseMultiRewardVerifyResponse", "BaseSeedSessionRequest"),
            *("BaseSeedSessionResponse", "ReverifyMode"),
        ),
        "base_responses_api_agent": ("BaseResponsesAPIAgentConfig", "SimpleResponsesAPIAgent"),
        "base_responses_api_model": ("BaseResponsesAPIModelConfig", "SimpleResponsesAPIModel"),
        "server_utils": ("ServerClient", "raise_for_status", "get_response_json", "SESSION_ID_KEY"),
        "config_types": (
            *("BaseServerConfig", "BaseRunServerInstanceConfig", "Domain", "AggregateMetrics"),
            *("AggregateMetricsRequest", "ModelServerRef"),
        ),
        "openai_utils": (
            *("NeMoGymAsyncOpenAI", "NeMoGymResponse", "NeMoGymResponseCreateParamsNonStreaming"),
            *("NeMoGymChatCompletion", "NeMoGymChatCompletionCreateParamsNonStreaming"),
        ),
    }.items()
    for name in names
}
"""The names of the package itself, with the modules that define them."""
_missing = missing_from("nemo_gym", __file__)
_LAYOUT = frozenset({*SERVER_KINDS, "environments", "benchmarks"})


def checkout_of(file: str | None) -> Path | None:
    """The checkout that a file belongs to: the parent of its folder `resources_servers`, `responses_api_agents`, …"""
    path = Path(file).resolve() if file else None
    return next((folder.parent for folder in path.parents if folder.name in _LAYOUT), None) if path else None


def make_checkout_importable() -> None:
    """Make `import resources_servers.…` work for checkouts: of the importing file, the current folder, the extra roots.

    Called by the distribution that provides the name `nemo_gym`, never by Gymnast itself.
    """
    files = [frame.f_globals.get("__file__") for frame in _frames()]
    parents = (Path.cwd(), *Path.cwd().parents)
    cwd = next((folder for folder in parents if any((folder / kind).is_dir() for kind in SERVER_KINDS)), None)
    for root in (*(checkout_of(file) for file in files), cwd, *read_environ().extra_roots):
        if root is not None and root != BUILTIN and str(root) not in sys.path:
            sys.path.append(str(root))


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way to find the importing file
    while frame is not None:
        yield frame
        frame = frame.f_back


def component_search_roots() -> list[Path]:
    """The folders in which components and their files are searched: the extra roots, the current folder, ours."""
    return list(dict.fromkeys((*read_environ().extra_roots, Path.cwd(), BUILTIN)))


def __getattr__(name: str) -> Any:
    if name in PUBLIC_NAMES:
        return getattr(import_module(f"{__name__}.{PUBLIC_NAMES[name]}"), name)
    if name == "PARENT_DIR":  # depends on the caller: a process may host servers of several checkouts
        return checkout_of(sys._getframe(1).f_globals.get("__file__")) or Path.cwd()  # noqa: SLF001 - see above
    here = Path.cwd()
    folders = {
        "ROOT_DIR": Path(__file__).parent,
        "WORKING_DIR": here,
        "CACHE_DIR": here / "cache",
        "RESULTS_DIR": here / "results",
    }
    return folders[name] if name in folders else _missing(name)
