#!/usr/bin/env python3
"""treecmp.py A B [--show N]: two trees, attribute by attribute: any name, any depth, never following a link."""
import argparse, collections, hashlib, json, os, stat, sys

PAGE = 4096


def extents(fd, size):
    at = 0
    while at < size:
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            return
        at = os.lseek(fd, data, os.SEEK_HOLE)
        yield data, at


def content(dir_fd, name):
    """A hash over the pages that are not zero and where they are, so that a hole is the same as zeros."""
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NOATIME, dir_fd=dir_fd)
    h, size = hashlib.blake2b(digest_size=16), os.fstat(fd).st_size
    for begin, end in extents(fd, size):
        begin -= begin % PAGE
        while begin < end:
            block = os.pread(fd, min(1 << 20, end - begin), begin)
            if not block:
                break
            for i in range(0, len(block), PAGE):
                page = block[i : i + PAGE]
                if page.count(0) != len(page):
                    h.update((begin + i).to_bytes(8, "little") + page)
            begin += len(block)
    os.close(fd)
    return h.hexdigest()


def attributes(dir_fd, name):
    path = f"/proc/self/fd/{dir_fd}/".encode() + name
    try:
        return {k: os.getxattr(path, k, follow_symlinks=False) for k in sorted(os.listxattr(path, follow_symlinks=False))}
    except OSError as e:
        return {"error": str(e.errno).encode()}


def scan(top):
    found, same = {}, collections.defaultdict(list)
    stack = [(os.open(top, os.O_RDONLY | os.O_DIRECTORY), b"")]
    while stack:
        fd, above = stack.pop()
        for name in sorted(map(os.fsencode, os.listdir(fd))):
            s, key = os.stat(name, dir_fd=fd, follow_symlinks=False), above + b"/" + name
            kind = stat.S_IFMT(s.st_mode)
            e = dict(type=kind, mode=stat.S_IMODE(s.st_mode), uid=s.st_uid, gid=s.st_gid, mtime=s.st_mtime_ns,
                     xattr=attributes(fd, name))
            if kind == stat.S_IFLNK:
                e["target"] = os.readlink(name, dir_fd=fd)
            elif kind == stat.S_IFREG:
                e.update(size=s.st_size, content=content(fd, name), allocated=s.st_blocks * 512)
            elif kind in (stat.S_IFCHR, stat.S_IFBLK):
                e["rdev"] = s.st_rdev
            if kind == stat.S_IFDIR:
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY
                stack.append((os.open(name, flags, dir_fd=fd), key))
            else:
                same[s.st_dev, s.st_ino].append(key)
            found[key] = e
        os.close(fd)
    for group in same.values():
        for key in group:
            found[key]["hard links"] = tuple(sorted(group))
    return found


def compare(a, b):
    """Yields (what differs, which entry, (in a, in b))."""
    a, b = scan(a), scan(b)
    for key in sorted(set(a) | set(b)):
        if key not in b:
            yield "missing", key, None
        elif key not in a:
            yield "extra", key, None
        else:
            for what in sorted(set(a[key]) | set(b[key])):
                x, y = a[key].get(what), b[key].get(what)
                if what == "allocated":
                    # File systems round and preallocate in their own ways; a hole filled in is far beyond that.
                    if y > x * 1.5 + 131_072:
                        yield "holes lost", key, (x, y)
                elif x != y:
                    yield what, key, (x, y)


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("a")
    a.add_argument("b")
    a.add_argument("--show", type=int, default=3)
    o = a.parse_args()
    count, shown = collections.Counter(), []
    for what, key, values in compare(o.a, o.b):
        count[what] += 1
        if count[what] <= o.show:
            shown.append(f"    {what}: {key[-60:]} {str(values)[:160]}")
    print(json.dumps(dict(different=dict(count))))
    print("\n".join(shown))
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
