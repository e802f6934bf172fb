"""Defects on purpose, one at a time: each takes a sync, a lock or a check out of the store, and schedules must notice.

`python -m tests.crash.mutations` prints after how many schedules each one was noticed.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gymnast.chunks import lease, shard
from gymnast.rollouts import plan, run_store
from gymnast.store import append, atomic, chunk_state, repair
from tests.crash import disk_schedules, lease_schedules, store_schedules

MAX_SCHEDULES: Final = 400


@dataclass(frozen=True)
class Mutation:
    """A change of one function, and the schedules that must notice it."""

    function: Callable[..., Any]
    old: str
    new: str
    simulate: Callable[[int, Path], list[str]]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Change the function in place, wherever it was imported to."""
        function: Any = self.function
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(self.old) == 1, f"{function.__qualname__} no longer contains {self.old!r} once"
        scope: dict[str, Any] = {}
        code = compile(
            f"from __future__ import annotations\n{source.replace(self.old, self.new)}", "<mutation>", "exec"
        )
        exec(code, dict(function.__globals__), scope)
        before, function.__code__ = function.__code__, scope[function.__name__].__code__
        try:
            yield
        finally:
            function.__code__ = before


disk, leases, store = disk_schedules.simulate, lease_schedules.simulate, store_schedules.simulate
MUTATIONS: Final = {
    "a commit does not sync": Mutation(append.AppendLog._write, "os.fsync(self._fd)", "pass", disk),
    "lines of a killed writer are not synced": Mutation(
        append.AppendLog._sync_earlier_lines, "os.fsync(self._fd)", "pass", disk
    ),
    "the name of the output is not synced": Mutation(
        append.AppendLog._sync_earlier_lines, "sync_folder(self.path.parent)", "pass", disk
    ),
    "replaced files are not synced": Mutation(atomic._write, "os.fsync(file)", "pass", disk),
    "names of replaced files are not synced": Mutation(atomic.atomic_write, "sync_folder(path.parent)", "pass", disk),
    "the plan is not synced": Mutation(plan.write_plan, "os.fsync(out.fileno())", "pass", disk),
    "a torn end is not cut off": Mutation(
        repair.repair_file, "elif scan.good_end < scan.position:", "elif scan.good_end < 0:", disk
    ),
    "saving does not commit": Mutation(run_store.FileRunStore.save, "await log.commit()", "pass", disk),
    "a rollout's second record is kept": Mutation(
        repair._Scan.add, "elif self._seen is not None and key.packed in self._seen:", "elif False:", store
    ),
    "foreign records are kept": Mutation(
        repair._Scan.add, "elif self._planned is not None and key.packed not in self._planned:", "elif False:", store
    ),
    "an extended file is not noticed": Mutation(
        append.AppendLog._find_interference, "if own.st_size != self._size:", "if False:", store
    ),
    "a replaced file is not noticed": Mutation(
        append.AppendLog._find_interference,
        "if there is None or (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino):",
        "if False:",
        store,
    ),
    "two writers are let in": Mutation(
        append.AppendLog._lock, "fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass", store
    ),
    "two workers win an epoch": Mutation(atomic.create_exclusive, "return False", "return True", leases),
    "names of leases are not synced": Mutation(atomic.create_exclusive, "sync_folder(path.parent)", "pass", leases),
    "folders of chunks are not synced": Mutation(lease._make_folder, "sync_folder(folder.path.parent)", "pass", leases),
    "what a claim seals is not synced": Mutation(lease.claim, "_sync_records(folder, seals[-1].epoch)", "pass", leases),
    "shards are not synced": Mutation(shard.Shard.write, "os.fsync(self._fd)", "pass", leases),
    "names of shards are not synced": Mutation(shard.Shard.write, "sync_folder(self.path.parent)", "pass", leases),
    "ceded rows are not sealed": Mutation(
        chunk_state.FolderState.current_seals,
        "children=tuple(ceded.child.id for ceded in self._current_children()),",
        "children=(),",
        leases,
    ),
    "sealed bytes include what comes later": Mutation(
        chunk_state.FolderState.current_seals,
        "scored_bytes=end.scored_bytes if end is not None else",
        "scored_bytes=1 << 40 if end is not None else",
        leases,
    ),
}


def find_schedule(mutation: Mutation) -> int | None:
    """The first seed whose schedule notices the defect."""
    with mutation.applied():
        for seed in range(MAX_SCHEDULES):
            with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
                try:
                    mutation.simulate(seed, Path(folder))
                except Exception:
                    return seed
    return None


def main() -> None:
    """Try all mutations, or those whose names contain the argument."""
    for name, mutation in MUTATIONS.items():
        if not sys.argv[1:] or sys.argv[1] in name:
            sys.stdout.write(f"{name}: seed {find_schedule(mutation)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
