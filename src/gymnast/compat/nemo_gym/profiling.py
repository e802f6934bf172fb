"""`nemo_gym.profiling`: CPU profiles of a server, with the package yappi if it is installed."""

import io
import shutil
import subprocess
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from pydantic import BaseModel

from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.errors import UserError


class Profiler(BaseModel):
    """Profiles between `start` and `stop`, and writes the result."""

    name: str
    base_profile_dir: Path
    required_str: str | None = None
    """Show only functions with this in their name."""

    def model_post_init(self, context: Any) -> None:
        self.base_profile_dir.mkdir(parents=True, exist_ok=True)

    def _check_for_dot_installation(self) -> None:
        if shutil.which("dot") is None:
            raise UserError("rendering profiles needs the program dot", next="install graphviz")

    def start(self) -> None:
        yappi = _yappi()
        yappi.set_clock_type("cpu")
        yappi.start()

    def stop(self) -> None:
        """Stop profiling and write the result."""
        _yappi().stop()
        self.dump()

    def dump(self) -> None:
        """Write the profile so far: as text, for callgrind and, with dot and gprof2dot, as an image."""
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
            subprocess.run(words, check=False)  # noqa: S603 - our own files
            subprocess.run(["dot", "-Tpng", f"{base}.dot", "-o", f"{base}.png"], check=False)  # noqa: S603, S607 - as above


def install(app: FastAPI, name: str, folder: str | None) -> None:
    """Profile an application; `GET /stats` writes the profile so far."""
    profiler = Profiler(name=name, base_profile_dir=Path.cwd() / (folder or "results/profiling") / name)
    profiler.start()

    async def stats() -> Response:
        profiler.dump()
        return Response()

    app.get("/stats")(stats)


def _yappi() -> Any:
    try:
        import yappi  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - needed only for profiles
    except ImportError as error:
        raise UserError("profiling needs the package yappi", next="pip install yappi gprof2dot") from error
    return yappi


__getattr__ = missing_from("nemo_gym.profiling")
