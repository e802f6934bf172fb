"""`nemo_gym.profiling`: CPU profiles of a server, by the package yappi where it is installed."""

import io
import shutil
import subprocess
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from pydantic import BaseModel

from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.errors import UserError

__all__ = [
    "Profiler",
    "install",
]


class Profiler(BaseModel):
    """Measures between `start` and `stop`, and writes what it saw."""

    name: str
    base_profile_dir: Path
    required_str: str | None = None
    """Only functions with this in their names are shown."""

    def model_post_init(self, context: Any) -> None:
        self.base_profile_dir.mkdir(parents=True, exist_ok=True)

    def _check_for_dot_installation(self) -> None:
        if shutil.which("dot") is None:
            raise UserError("pictures of profiles need the program dot", next="install graphviz")

    def start(self) -> None:
        """Begin to measure."""
        yappi = _yappi()
        yappi.set_clock_type("cpu")
        yappi.start()

    def stop(self) -> None:
        """Measure no more, and write."""
        _yappi().stop()
        self.dump()

    def dump(self) -> None:
        """Write what was measured so far: as text, for callgrind and, with dot and gprof2dot, as a picture."""
        stats = _yappi().get_func_stats()
        base = self.base_profile_dir / self.name
        stats.save(str(base.with_suffix(".callgrind")), type="CALLGRIND")
        text = io.StringIO()
        stats.print_all(out=text)
        lines = text.getvalue().splitlines(keepends=True)
        shown = [line for line in lines if self.required_str is None or self.required_str in line]
        base.with_suffix(".log").write_text("".join(shown))
        if shutil.which("dot") and (converter := shutil.which("gprof2dot")):
            words = [converter, "--format=callgrind", f"--output={base}.dot", f"{base}.callgrind"]
            subprocess.run(words, check=False)  # noqa: S603 - names of our own files
            subprocess.run(["dot", "-Tpng", f"{base}.dot", "-o", f"{base}.png"], check=False)  # noqa: S603, S607 - as above


def install(app: FastAPI, name: str, folder: str | None) -> None:
    """Profile an application; `GET /stats` writes what was measured so far."""
    profiler = Profiler(name=name, base_profile_dir=Path.cwd() / (folder or "results/profiling") / name)
    profiler.start()

    async def stats() -> Response:
        profiler.dump()
        return Response()

    app.get("/stats")(stats)


def _yappi() -> Any:
    try:
        import yappi  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - only where profiles are asked for
    except ImportError as error:
        raise UserError("profiles need the package yappi", next="pip install yappi gprof2dot") from error
    return yappi


__getattr__ = missing_from("nemo_gym.profiling")
