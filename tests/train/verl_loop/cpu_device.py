"""Stand-in for the GPU: verl's platform and its FSDP engine on the CPU, through verl's own registries.

    VERL_PLATFORM=cpu VERL_USE_EXTERNAL_MODULES=tests.train.verl_loop.cpu_device

The engine is verl's own; this one also writes down every batch that reaches its loss (LOOP_FOLDER/trained-*.pt).
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

_WITHOUT_EFFECT = (
    "empty_cache",
    "synchronize",
    "set_device",
    "reset_peak_memory_stats",
    "ipc_collect",
    "set_rng_state",
)
_ZERO = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved", "current_device")
TRAINED = ("input_ids", "loss_mask", "response_mask", "advantages", "old_log_probs", "rollout_log_probs", "prompts")


def _device_module() -> ModuleType:
    """What verl calls of torch.cuda."""
    module = ModuleType("cpu_device")
    values: dict[str, Any] = dict.fromkeys(_WITHOUT_EFFECT, lambda *_, **__: None)
    values |= dict.fromkeys(_ZERO, lambda *_, **__: 0)
    values |= {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_name": lambda *_: "cpu",
        "mem_get_info": lambda *_: (1 << 30, 1 << 34),
        "get_rng_state": lambda *_, **__: torch.get_rng_state(),
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
    }
    vars(module).update(values)
    return module


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):  # type: ignore[misc] # verl ships with the extra
    """One CPU that counts as one GPU."""

    device_name = vendor_name = "cpu"
    device_module = _device_module()

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return (None, None)

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None: ...


def _register_engine() -> None:
    """Register what needs verl whole: the engine, and the inference replica."""
    from verl.workers.engine.base import EngineRegistry
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    numbers = count(1)

    class CpuEngine(FSDPEngineWithLMHead):  # type: ignore[misc]
        def forward_backward_batch(self, data: Any, loss_function: Any, forward_only: Any = None) -> Any:
            if not forward_only:
                names = [name for name in data.keys() if name in TRAINED]  # noqa: SIM118 - a TensorDict iterates over rows
                values = {name: list(data[name].unbind()) for name in names}
                # A resumed run goes on in another process: by name, its batches come last.
                name = f"trained-{os.environ['LOOP_RUN']}-{next(numbers):03d}.pt"
                torch.save(values, Path(os.environ["LOOP_FOLDER"]) / name)
            return super().forward_backward_batch(data, loss_function, bool(forward_only))

    EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")(CpuEngine)
    replica = "tests.train.verl_loop.tiny_replica"
    base._ROLLOUT_REGISTRY["tiny", "async"] = f"{replica}.TinyRollout"
    RolloutReplicaRegistry.register("tiny", lambda: importlib.import_module(replica).TinyReplica)


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function once a module of verl is imported: verl imports this file before most of itself."""

    def __init__(self, module: str, function: Callable[[], None]) -> None:
        self._module, self._function = module, function

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def load_and_call(module: ModuleType) -> None:
            load(module)
            self._function()

        spec.loader.exec_module = load_and_call  # type: ignore[method-assign]
        return spec


def _init_process_group(*args: Any, **kwargs: Any) -> Any:
    """verl wants one backend for the CPU and one for the device, and torch refuses two for the same."""
    names = [("cpu:gloo" if value == "cpu:gloo,cpu:gloo" else value) for value in args]
    if kwargs.get("backend") == "cpu:gloo,cpu:gloo":
        kwargs["backend"] = "cpu:gloo"
    return _torch_init(*names, **kwargs)


_torch_init = torch.distributed.init_process_group
torch.distributed.init_process_group = _init_process_group
sys.meta_path.insert(0, _AfterImport("verl.workers.engine_workers", _register_engine))
