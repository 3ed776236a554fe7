"""What the wheel promises, on a tree of its own."""

import filecmp
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading

import bcmr
import pytest


@pytest.fixture
def tree(tmp_path):
    src = tmp_path / "src"
    (src / "d" / "e").mkdir(parents=True)
    (src / "a").write_bytes(b"one")
    (src / "d" / "b").write_bytes(b"two" * 1000)
    (src / "d" / "e" / "big").write_bytes(os.urandom(9 << 20))
    os.link(src / "a", src / "d" / "a again")
    os.symlink("nowhere", src / "link")
    return tmp_path


def same(one, two):
    compared = filecmp.dircmp(one, two)
    assert not (compared.left_only or compared.right_only or compared.diff_files or compared.funny_files), vars(compared)
    return True


def test_copy_check_move_remove(tree):
    result = bcmr.copy(tree / "src", tree / "dst", archive=True, no_target_directory=True, verify="cached")
    assert (result.files, result.directories, result.others) == (3, 3, 2)
    assert result.check() is result and not result.cancelled
    assert bcmr.check(tree / "src", tree / "dst", hash=True, no_target_directory=True)
    (tree / "dst" / "a").unlink()
    found = bcmr.check([tree / "src"], tree / "dst", no_target_directory=True)
    assert not found and [(d.change, d.path) for d in found.differences] == [("add", "a")]
    bcmr.move(tree / "dst", tree / "moved").check()
    assert not (tree / "dst").exists()
    assert bcmr.remove(tree / "moved", recursive=True).check().files == 3
    assert not (tree / "moved").exists()


def test_sync_makes_one_the_other(tree, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tree / "state"))
    done = bcmr.sync(tree / "src", tree / "dst").check()
    assert (done.files, done.deleted) == (3, 0) and same(tree / "src", tree / "dst")
    (tree / "dst" / "only here").write_bytes(b"x")
    (tree / "src" / "a").write_bytes(b"another")
    would = bcmr.sync(tree / "src", tree / "dst", delete=True, dry_run=True).check()
    assert {(d.change, d.path) for d in would.differences} >= {("extra", "only here"), ("differ", "a")}
    assert bcmr.sync(tree / "src", tree / "dst").check().deleted == 0
    assert (tree / "dst" / "only here").exists()
    # More than may go at once.
    refused = bcmr.sync(tree / "src", tree / "dst", delete=True, max_delete=0)
    assert refused.errors[0].code == "refused" and (tree / "dst" / "only here").exists()
    assert bcmr.sync(tree / "src", tree / "dst", delete=True, max_delete="90%").check().deleted == 1
    assert same(tree / "src", tree / "dst")
    with pytest.raises(ValueError):
        bcmr.sync(tree / "src", tree / "dst", max_delete="some")


@pytest.mark.parametrize("verb", ["sync", "move", "remove", "check", "plan", "shard", "finish"])
def test_every_verb_tells_progress_and_may_be_stopped(tree, verb):
    src, dst = tree / "src", tree / "dst"
    if verb in ("shard", "finish"):
        bcmr.plan(src, dst, tree / "p", shards=1)
    if verb == "finish":
        bcmr.shard(tree / "p", 0).check()
    run = {
        "sync": lambda told: bcmr.sync(src, dst, progress=told),
        "move": lambda told: bcmr.move(src, dst, progress=told),
        "remove": lambda told: bcmr.remove(src, recursive=True, progress=told),
        "check": lambda told: bcmr.check(src, src, no_target_directory=True, progress=told),
        "plan": lambda told: bcmr.plan(src, dst, tree / "p", progress=told),
        "shard": lambda told: bcmr.shard(tree / "p", 0, progress=told),
        "finish": lambda told: bcmr.finish(tree / "p", progress=told),
    }[verb]
    seen = []

    def fails(progress):
        seen.append(progress)
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        run(fails)
    assert len(seen) == 1 and seen[0].phase == verb


def test_options_are_those_of_the_flags(tree):
    bcmr.copy(tree / "src", tree / "dst", recursive=True, exclude=["big"], manifest=tree / "sums").check()
    assert not (tree / "dst" / "d" / "e" / "big").exists()
    assert (tree / "sums").read_text().splitlines()[0].endswith("  a")
    with pytest.raises(ValueError):
        bcmr.copy(tree / "src", tree / "x", verify="maybe")
    with pytest.raises(TypeError):
        bcmr.copy(tree / "src", tree / "x", no_such_option=True)


def test_errors_have_code_path_and_hint(tree):
    result = bcmr.copy(tree / "src", tree / "x")
    assert result.failed == 1
    with pytest.raises(bcmr.Error) as e:
        result.check()
    assert e.value.code == "is-directory" and e.value.path.endswith("src") and "recursive" in e.value.hint
    with pytest.raises(bcmr.Error) as e:
        bcmr.hash(tree / "nowhere")
    assert e.value.code == "not-found" and isinstance(e.value, OSError)


def test_hash_is_that_of_b3sum(tree):
    (tree / "empty").write_bytes(b"")
    assert bcmr.hash(tree / "empty") == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"


def test_progress_is_told_and_may_stop(tree):
    seen = []
    bcmr.copy(tree / "src", tree / "dst", recursive=True, progress=seen.append).check()
    assert seen and seen[-1].phase == "copy" and seen[-1].bytes >= 9 << 20
    # A source that never ends: stopped by the answer, and by an exception.
    fifo = tree / "fifo"
    os.mkfifo(fifo)
    with_lock_free = threading.Event()

    def no(_):
        with_lock_free.set()
        return False

    with open(os.open(fifo, os.O_RDWR | os.O_NONBLOCK), "wb", buffering=0):
        result = bcmr.remove([tree / "dst"], recursive=True, progress=no)
        assert with_lock_free.is_set() or result.files

    def fails(_):
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        bcmr.copy(tree / "src", tree / "again", recursive=True, progress=fails)


def test_the_lock_is_free_while_it_works(tree):
    ran = threading.Event()
    thread = threading.Thread(target=ran.set)

    def start(_):
        if not thread.ident:
            thread.start()
        return True

    bcmr.copy(tree / "src", tree / "dst", recursive=True, progress=start).check()
    assert ran.wait(60)


def test_ctrl_c_stops(tmp_path):
    """A copy in another process that is held in its progress gets SIGINT there, and ends with KeyboardInterrupt."""
    for n in range(300):
        (tmp_path / "src").mkdir(exist_ok=True)
        (tmp_path / "src" / str(n)).write_bytes(b"x" * 1000)
    code = f"""
import bcmr, os, signal
def told(progress):
    os.kill(os.getpid(), signal.SIGINT)
    return True
try:
    bcmr.copy({str(tmp_path / 'src')!r}, {str(tmp_path / 'dst')!r}, recursive=True, progress=told)
except KeyboardInterrupt:
    print("interrupted")
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert out.stdout == "interrupted\n", out


def do_shard(args):
    plan, number = args
    bcmr.shard(plan, number).check()


def test_shards_in_processes(tree):
    made = bcmr.plan(tree / "src", tree / "dst", tree / "p", shards=4, part_size=4 << 20)
    assert made.shards == 4 and made.result.files == 3
    with pytest.raises(bcmr.Error) as e:
        bcmr.finish(tree / "p")
    assert e.value.code == "not-found" and not (tree / "dst").exists()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(do_shard, [(tree / "p", number) for number in range(4)])
    assert [s.state for s in bcmr.status(tree / "p").shards] == ["done"] * 4
    done = bcmr.finish(tree / "p")
    assert same(tree / "src", tree / "dst") and len(done.root) == 64
    assert bcmr.status(tree / "p").finished
    assert (tree / "dst" / "a").stat().st_ino == (tree / "dst" / "d" / "a again").stat().st_ino


def dies_once(plan, number, mark):
    """A shard whose worker is killed the first time that one is at it."""

    def told(_):
        if number == 3:
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return True
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    bcmr.shard(plan, number, progress=told).check()


def test_dask_does_the_shards_of_a_worker_that_died(tree):
    distributed = pytest.importorskip("distributed")
    for n in range(2000):
        (tree / "src" / "d" / f"file {n}").write_bytes(b"x" * n)
    made = bcmr.plan(tree / "src", tree / "dst", tree / "p", shards=8, part_size=4 << 20)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            mark = tree / "died"
            work = [client.submit(dies_once, tree / "p", n, mark, pure=False, retries=3) for n in range(made.shards)]
            client.gather(work)
            assert mark.exists()
    done = bcmr.finish(tree / "p")
    assert same(tree / "src", tree / "dst") and done.result.files == 2003
    assert sorted(p.name for p in tree.iterdir()) == ["died", "dst", "p", "src"]


def blocks(kind):
    text = (pathlib.Path(__file__).parents[3] / "docs" / "many-machines.md").read_text()
    return [rest.split("```")[0] for rest in text.split(f"```{kind}\n")[1:]]


@pytest.mark.parametrize("kind", ["python", "python dask"])
def test_what_the_document_shows(tree, kind):
    (block,) = blocks(kind)
    (tree / "it.py").write_text(block)
    out = subprocess.run([sys.executable, "it.py"], cwd=tree, capture_output=True, text=True, timeout=300)
    assert out.returncode == 0 and len(out.stdout.strip()) == 64, out
    assert same(tree / "src", tree / "dst")


def test_every_option_has_the_name_of_a_flag():
    assert set(bcmr.__all__) <= set(dir(bcmr))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
