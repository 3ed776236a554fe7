"""What a rule of by-design.toml may ask for besides patterns: each condition says whether one difference of one line is of
the kind that the rule is about. They look at the tree as it was before, at both trees after, and at the line."""
import os
import stat


def above(path):
    return path.rpartition("/")[0]


def was(case, path):
    return case.before.get(path)


def is_as_before(case, difference):
    """Ours is what was there before, the very same."""
    before, now = was(case, difference.path), case.our_tree.get(difference.path)
    if difference.prop == "there":
        return before is not None and now is not None and all(now.get(k) == v for k, v in before.items() if k not in ("mtime", "links"))
    return before is not None and now is not None and before.get(difference.prop) == now.get(difference.prop)


def ours_changed_nothing(case, _):
    return case.our_tree == case.before


def is_absent_in_ours(case, difference):
    return difference.path not in case.our_tree


def is_new(case, difference):
    return difference.path not in case.before


def is_new_or_a_directory(case, difference):
    return difference.path not in case.before or case.before[difference.path]["kind"] == stat.S_IFDIR


def is_device(case, difference):
    before = was(case, difference.path)
    return before is not None and before["kind"] in (stat.S_IFCHR, stat.S_IFBLK)


def is_plain(before):
    return before is not None and before["kind"] == stat.S_IFREG and "links" not in before and int(before["mode"], 8) & 0o7000 == 0


def was_plain_file(case, difference):
    """A regular file with one name, that lends no rights."""
    return is_plain(was(case, difference.path))


def a_file_in_it_was_replaced(case, difference):
    """In ours a plain file in this directory has another inode, and in theirs it was written into."""
    return any(
        above(path) == difference.path and is_plain(case.before.get(path)) and entry.get("kept") is True and case.our_tree.get(path, {}).get("kept") is False
        for path, entry in case.their_tree.items()
    )


def something_in_it_came_back(case, difference):
    """In theirs a name of this directory is gone that ours has as before."""
    return any(
        above(path) == difference.path and path not in case.their_tree and case.our_tree.get(path, {}).get("kept")
        for path in case.before
    )


def is_only_operand_a_link_with_slash(case, _):
    operands = case.line["operands"]
    return len(operands) == 1 and operands[0].endswith("/") and case.before.get("/" + operands[0].rstrip("/"), {}).get("kind") == stat.S_IFLNK


def lines_are_the_same_in_another_order(case, _):
    return sorted(case.theirs["stdout"].split(b"\n")) == sorted(case.ours["stdout"].split(b"\n"))


def no_room_was_left(case, difference):
    text = b"No space left on device"
    near = difference.path is None or difference.path.startswith("/full")
    return near and text in case.theirs["stderr"] and text in case.ours["stderr"]


def is_whole(case, difference):
    """Ours is no part of a file: none, or the content of one that was there before."""
    entry = case.our_tree.get(difference.path, {})
    return entry.get("kind") != stat.S_IFREG or any(entry["content"] == known.get("content") for known in case.before.values())


def is_backup_of_what_ours_has_back(case, difference):
    """A name that only theirs has, and what it holds ours has under its own name."""
    theirs = case.their_tree.get(difference.path, {})

    def came_back(name):
        rest = difference.path[len(name):]
        below = rest[rest.index("/"):] if "/" in rest else ""
        mine = case.our_tree.get(name + below)
        return (rest and not rest.startswith("/") and name not in case.their_tree and mine is not None
                and mine == case.before.get(name + below) | {"mtime": mine["mtime"]} and mine.get("content") == theirs.get("content"))

    return any(difference.path.startswith(name) and came_back(name) for name in case.before if name)


def is_moved_directory_in_setgid_one(case, difference):
    """A directory that came from another file system into one that hands its group down."""
    theirs, ours = case.their_tree[difference.path], case.our_tree[difference.path]
    parent = case.our_tree.get(above(difference.path), {"mode": "0"})
    return (theirs["kind"] == stat.S_IFDIR and int(parent["mode"], 8) & 0o2000 != 0
            and int(theirs["mode"], 8) == int(ours["mode"], 8) | 0o2000)


def both_copy_dots_into_themselves(case, _):
    text = b"into itself"
    return text in case.theirs["stderr"] and text in case.ours["stderr"] and any(o.rstrip("/").endswith("..") for o in case.line["operands"])


def is_part_of_a_copy_into_itself(case, _):
    text = b"cannot copy a directory"
    return text in case.theirs["stderr"] and case.theirs["stderr"] == case.ours["stderr"]


def is_empty_copy_of_what_cannot_be_read(case, difference):
    theirs = case.their_tree.get(difference.path, {})
    below = difference.path + "/"
    return (theirs.get("kind") == stat.S_IFDIR and not any(name.startswith(below) for name in case.their_tree)
            and b"cannot access" in case.theirs["stderr"] and case.theirs["stderr"] == case.ours["stderr"])


def has_several_names_in_the_source(case, difference):
    """When one of them is read, the time of the others is another one."""
    name = difference.path.rpartition("/")[2]
    return any(path.rpartition("/")[2] == name and "links" in entry for path, entry in case.before.items())


def is_told_twice_by_theirs(case, difference):
    """What was not yet written when a child was started that ended at once."""
    return case.theirs["stdout"] in (case.ours["stdout"] * n for n in (2, 3, 4)) or set(
        case.theirs["stdout"].split(b"\n")) == set(case.ours["stdout"].split(b"\n"))


def other_complaints_are_the_same(case, _):
    def others(said):
        return sorted(line for line in said.split(b"\n") if b"No space left on device" not in line)
    return others(case.theirs["stderr"]) == others(case.ours["stderr"])


def refused_as_the_same_file(case, _):
    return b"are the same file" in case.ours["stderr"] and b"No such file or directory" in case.theirs["stderr"]


def source_is_its_destination(case, difference):
    """A link that is installed to its own name."""
    before = was(case, difference.path) if difference.path else None
    is_link = difference.path is None or (before is not None and before["kind"] == stat.S_IFLNK)
    return is_link and b"for reading: No such file" in case.theirs["stderr"] and any(
        case.before.get("/" + os.path.normpath(o), {}).get("kind") == stat.S_IFLNK for o in case.line["operands"])
