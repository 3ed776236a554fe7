"""Safe, fast copying of files: the engine of `bcmr` for Python.

A name that is written is absent, old or new, never in between. Every function takes the options of the command of its name
as keyword arguments, called like the long flags with `_` for `-`; returns what was done; and raises `Error` where nothing
could be begun. Items that failed while the others were done are in `Result.errors`, and `Result.check()` raises the first.

`progress` is called about twenty times a second with a `Progress`; an answer of `False`, or an exception, stops the verb, and
so does Ctrl-C. The interpreter's lock is not held while files are copied.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, Union

from . import _native

__all__ = [
    "CheckResult", "Difference", "Error", "FinishResult", "PlanResult", "Progress", "Result", "ShardState",
    "Status", "check", "copy", "finish", "hash", "move", "plan", "remove", "shard", "status", "sync",
]

StrPath = Union[str, "os.PathLike[str]"]
Verify = Literal["off", "cached", "direct"]
Update = Literal["all", "none", "older", "different"]
When = Literal["auto", "always", "never"]

_HINTS = {
    "is-directory": "pass recursive=True to copy a directory with what is in it",
    "in-the-way": "something stands there already; another name, update= or merge= decides what becomes of it",
    "no-space": "make room and call it again; with resume=True large files go on where they stopped",
    "source-changed": "the source changed while it was read; call it again when it is at rest",
    "refused": "a guard refused it: nothing was changed",
    "interrupted": "call it again to go on",
}


class Error(OSError):
    """Something could not be done: `code` to branch on, `path`, what was tried (`op`), why, and a `hint` where there is one."""

    code: str
    op: str
    path: str
    why: str
    hint: str | None

    def __init__(self, code: str, op: str, path: StrPath, why: str) -> None:
        super().__init__(f"{op} {os.fspath(path)}: {why} ({code})")
        self.code, self.op, self.path, self.why = code, op, os.fspath(path), why
        self.hint = _HINTS.get(code)


@dataclass(frozen=True)
class Progress:
    """How far a verb is."""

    bytes: int
    files: int
    phase: str
    file: str


@dataclass(frozen=True)
class Difference:
    """What a copy would change: `change` is `add`, `differ` or `extra`."""

    change: Literal["add", "differ", "extra"]
    path: str
    files: int
    bytes: int
    why: str


@dataclass(frozen=True)
class Result:
    """What was done; `differences` are those that a `sync` with `dry_run` would end."""

    files: int
    directories: int
    others: int
    bytes: int
    kept: int
    failed: int
    updated: int
    deleted: int
    cancelled: bool
    errors: list[Error] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    def check(self) -> Result:
        """Raises the first error, if there is one; else returns the result."""
        if self.errors:
            raise self.errors[0]
        return self


@dataclass(frozen=True)
class CheckResult:
    """What `check` found; it is true when there is no difference."""

    result: Result
    differences: list[Difference]

    def __bool__(self) -> bool:
        return not self.differences and self.result.failed == 0


@dataclass(frozen=True)
class PlanResult:
    """A plan that was made: what there is to copy, and into how many shards it is cut."""

    result: Result
    shards: int


@dataclass(frozen=True)
class FinishResult:
    """What was published, and the hash of everything."""

    result: Result
    root: str


@dataclass(frozen=True)
class ShardState:
    """How far one shard is."""

    state: Literal["done", "at-work", "open"]
    files: int
    bytes: int


@dataclass(frozen=True)
class Status:
    """How far a plan is."""

    shards: list[ShardState]
    finished: bool


Watcher = Callable[[Progress], Union[bool, None]]
_T = TypeVar("_T")


def _error(args: Sequence[Any]) -> Error:
    code, op, path, why = args
    return Error(code, op, path, why)


def _run(verb: Callable[..., _T], *args: Any) -> _T:
    try:
        return verb(*args)
    except _native.NativeError as e:
        raise _error(e.args) from None


def _watch(progress: Watcher | None) -> Callable[[int, int, str, StrPath], bool | None] | None:
    if progress is None:
        return None
    return lambda size, files, phase, file: progress(Progress(size, files, phase, os.fspath(file)))


def _result(said: dict[str, Any]) -> Result:
    errors = [_error(args) for args in said.pop("errors")]
    return Result(errors=errors, **said)


def _state() -> str:
    """Where it is remembered how sources of `sync` were mounted: where the command remembers it."""
    home = os.environ.get("XDG_STATE_HOME", "")
    above = home if os.path.isabs(home) else os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(above, "bcmr", "sync")


def _differences(found: Iterable[tuple[Any, ...]]) -> list[Difference]:
    return [Difference(change, os.fspath(path), *rest) for change, path, *rest in found]


def _paths(paths: StrPath | Iterable[StrPath]) -> list[str]:
    if isinstance(paths, (str, os.PathLike)):
        return [os.fspath(paths)]
    return [os.fspath(path) for path in paths]


def copy(
    sources: StrPath | Iterable[StrPath],
    destination: StrPath,
    *,
    recursive: bool = False,
    archive: bool = False,
    preserve: bool = False,
    dereference: bool = False,
    no_target_directory: bool = False,
    target_directory: bool = False,
    update: Update = "all",
    force: bool = False,
    inplace: bool = False,
    reflink: When = "auto",
    sparse: When = "auto",
    verify: Verify = "off",
    sync: bool = False,
    resume: bool = False,
    strict: bool = False,
    manifest: StrPath | None = None,
    exclude: Sequence[str] = (),
    include: Sequence[str] = (),
    exclude_regex: Sequence[str] = (),
    gitignore: bool = False,
    max_size: int | None = None,
    min_size: int | None = None,
    one_file_system: bool = False,
    dry_run: bool = False,
    jobs: int | None = None,
    progress: Watcher | None = None,
) -> Result:
    """Copies files and directories, as `bcmr copy` does."""
    options = {
        "recursive": recursive, "archive": archive, "preserve": preserve, "dereference": dereference,
        "no_target_directory": no_target_directory, "target_directory": target_directory, "update": update,
        "force": force, "inplace": inplace, "reflink": reflink, "sparse": sparse, "verify": verify,
        "sync": sync, "resume": resume, "strict": strict,
        "manifest": None if manifest is None else os.fspath(manifest),
        "exclude": list(exclude), "include": list(include), "exclude_regex": list(exclude_regex),
        "gitignore": gitignore, "max_size": max_size, "min_size": min_size,
        "one_file_system": one_file_system, "dry_run": dry_run, "jobs": jobs,
    }
    return _result(_run(_native.copy, _paths(sources), os.fspath(destination), options, _watch(progress)))


def sync(
    source: StrPath,
    destination: StrPath,
    *,
    delete: bool = False,
    delete_excluded: bool = False,
    max_delete: int | str = "25%",
    checksum: bool = False,
    verify: Verify = "off",
    exclude: Sequence[str] = (),
    include: Sequence[str] = (),
    exclude_regex: Sequence[str] = (),
    gitignore: bool = False,
    max_size: int | None = None,
    min_size: int | None = None,
    one_file_system: bool = False,
    dry_run: bool = False,
    jobs: int | None = None,
    progress: Watcher | None = None,
) -> Result:
    """Makes a directory what another one is, as `bcmr sync` does; `max_delete` is a number, or a number and `%`."""
    most = str(max_delete)
    number = int(most.removesuffix("%"))
    options = {
        "delete": delete, "delete_excluded": delete_excluded, "checksum": checksum, "verify": verify,
        "max_delete_percent" if most.endswith("%") else "max_delete_entries": number,
        "state": _state(),
        "exclude": list(exclude), "include": list(include), "exclude_regex": list(exclude_regex),
        "gitignore": gitignore, "max_size": max_size, "min_size": min_size,
        "one_file_system": one_file_system, "dry_run": dry_run, "jobs": jobs,
    }
    paths = (os.fspath(source), os.fspath(destination))
    said, found = _run(_native.sync, *paths, options, _watch(progress))
    return _result(said | {"differences": _differences(found)})


def move(
    sources: StrPath | Iterable[StrPath],
    destination: StrPath,
    *,
    merge: bool = False,
    all_or_nothing: bool = False,
    no_target_directory: bool = False,
    target_directory: bool = False,
    update: Update = "all",
    sync: bool = False,
    dry_run: bool = False,
    jobs: int | None = None,
    progress: Watcher | None = None,
) -> Result:
    """Moves files and directories, as `bcmr move` does: what is removed was read back where it is now."""
    options = {
        "merge": merge, "all_or_nothing": all_or_nothing, "no_target_directory": no_target_directory, "target_directory": target_directory,
        "update": update, "sync": sync, "dry_run": dry_run, "jobs": jobs,
    }
    return _result(_run(_native.move_, _paths(sources), os.fspath(destination), options, _watch(progress)))


def remove(
    paths: StrPath | Iterable[StrPath],
    *,
    recursive: bool = False,
    dir: bool = False,
    force: bool = False,
    cross_file_systems: bool = False,
    dry_run: bool = False,
    jobs: int | None = None,
    progress: Watcher | None = None,
) -> Result:
    """Removes files and directories, as `bcmr remove` does."""
    options = {
        "recursive": recursive, "dir": dir, "force": force, "cross_file_systems": cross_file_systems,
        "dry_run": dry_run, "jobs": jobs,
    }
    return _result(_run(_native.remove, _paths(paths), options, _watch(progress)))


def check(
    sources: StrPath | Iterable[StrPath],
    destination: StrPath,
    *,
    hash: bool = False,
    quick: bool = False,
    no_extra: bool = False,
    archive: bool = False,
    no_target_directory: bool = False,
    target_directory: bool = False,
    exclude: Sequence[str] = (),
    include: Sequence[str] = (),
    jobs: int | None = None,
    progress: Watcher | None = None,
) -> CheckResult:
    """Says what a copy would change, as `bcmr check` does."""
    options = {
        "hash": hash, "quick": quick, "no_extra": no_extra, "archive": archive,
        "no_target_directory": no_target_directory, "target_directory": target_directory,
        "exclude": list(exclude), "include": list(include), "jobs": jobs,
    }
    said, found = _run(_native.check, _paths(sources), os.fspath(destination), options, _watch(progress))
    return CheckResult(_result(said), _differences(found))


def plan(
    source: StrPath,
    destination: StrPath,
    out: StrPath,
    *,
    shards: int | None = None,
    shard_size: int | None = None,
    part_size: int | None = None,
    exclude: Sequence[str] = (),
    include: Sequence[str] = (),
    one_file_system: bool = False,
    jobs: int | None = None,
    progress: Watcher | None = None,
) -> PlanResult:
    """Cuts a copy into shards, as `bcmr plan` does."""
    options = {
        "shards": shards, "shard_size": shard_size, "part_size": part_size, "exclude": list(exclude),
        "include": list(include), "one_file_system": one_file_system, "jobs": jobs,
    }
    paths = (os.fspath(source), os.fspath(destination), os.fspath(out))
    said, count = _run(_native.plan, *paths, options, _watch(progress))
    return PlanResult(_result(said), count)


def shard(
    plan: StrPath,
    number: int | None = None,
    *,
    all: bool = False,
    verify: Verify = "off",
    jobs: int | None = None,
    progress: Watcher | None = None,
) -> Result:
    """Does shard `number` of a plan; without a number the next that no other process is at, or, with `all`, all of them."""
    options = {"all": all, "verify": verify, "jobs": jobs}
    return _result(_run(_native.shard, os.fspath(plan), number, options, _watch(progress)))


def finish(plan: StrPath, *, merge: bool = False, progress: Watcher | None = None) -> FinishResult:
    """Publishes what the shards of a plan have copied, as `bcmr finish` does."""
    said, root = _run(_native.finish, os.fspath(plan), {"merge": merge, "state": _state()}, _watch(progress))
    return FinishResult(_result(said), root)


def status(plan: StrPath) -> Status:
    """How far a plan is."""
    shards, finished = _run(_native.status, os.fspath(plan))
    return Status([ShardState(*shard) for shard in shards], finished)


def hash(path: StrPath) -> str:
    """The BLAKE3 of a file, as `b3sum` prints it."""
    return _run(_native.hash, os.fspath(path))
