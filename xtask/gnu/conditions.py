"""What a rule of by-design.toml may ask for besides patterns: each condition says whether one difference of one line is of
the kind that the rule is about. They look at the tree as it was before, at both trees after, and at the line."""
import os
import re
import stat

# As the grammar draws them.
BACKUP_SUFFIX = re.compile(r"~|~~|\.bak|\.sav|\.~[0-9]+~")


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


def ours_has_all_back(case, _):
    """Nothing has changed, but for the times of directories in which a backup was made and came back."""
    def seen(tree):
        return {path: {k: v for k, v in entry.items() if k != "mtime" or entry["kind"] != stat.S_IFDIR} for path, entry in tree.items()}

    return seen(case.our_tree) == seen(case.before)


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


def was_replaced(case, path):
    """In ours a plain file has another inode, and in theirs it was written into; where inodes tell nothing, both wrote it."""
    if not is_plain(case.before.get(path)):
        return False
    before, theirs, ours = (tree.get(path, {}) for tree in (case.before, case.their_tree, case.our_tree))
    if path.startswith("m:"):
        return theirs == ours and any(before[key] != ours.get(key) for key in ("content", "mtime", "mode", "owner"))
    return theirs.get("kept") is True and ours.get("kept") is False


def a_file_in_it_was_replaced(case, difference):
    return any(above(path) == difference.path and was_replaced(case, path) for path in case.their_tree)


def is_copy_of_where_a_file_was_replaced(case, difference):
    """A new directory with the time of one that an earlier operand has changed."""
    name = difference.path.rpartition("/")[2]
    return difference.path not in case.before and any(
        above(path).rpartition("/")[2] == name and was_replaced(case, path) for path in case.their_tree)


def something_in_it_came_back(case, difference):
    """In theirs a name of this directory is gone that ours has as before."""
    return any(
        above(path) == difference.path and path not in case.their_tree and case.our_tree.get(path, {}).get("kept", False) is not False
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
        suffix, slash, _ = rest.partition("/")
        below = rest[len(suffix):] if slash else ""
        mine, old = case.our_tree.get(name + below), case.before.get(name + below)
        # The very same thing under its own name, which theirs only has under that of a backup.
        return (BACKUP_SUFFIX.fullmatch(suffix) and name not in case.their_tree and mine is not None and old is not None
                and mine == old | {"mtime": mine["mtime"]} and mine.get("target", theirs.get("target")) == theirs.get("target")
                and all(mine.get(key) == theirs.get(key) for key in ("kind", "content", "device")))

    return any(difference.path.startswith(name) and came_back(name) for name in case.before if name)


def is_moved_directory_in_setgid_one(case, difference):
    """A directory that came from another file system into one that hands its group down."""
    theirs, ours = case.their_tree[difference.path], case.our_tree[difference.path]
    parent = case.our_tree.get(above(difference.path), {"mode": "0"})
    return (theirs["kind"] == stat.S_IFDIR and int(parent["mode"], 8) & 0o2000 != 0
            and int(theirs["mode"], 8) == int(ours["mode"], 8) | 0o2000)


def is_part_of_a_copy_into_itself(case, _):
    text = b"cannot copy a directory"
    return text in case.theirs["stderr"] and case.theirs["stderr"] == case.ours["stderr"]


def links_with_slash(case, targets):
    """Operands that are links with a slash behind them, to a directory or to nothing. That of `m` leads out of the tree."""
    names = ["/" + operand.rstrip("/") for operand in case.line["operands"] if operand.endswith("/")]
    links = [name for name in names if case.before.get(name, {}).get("kind") == stat.S_IFLNK]
    leads = {name: "/" + case.before[name].get("target", "") in case.before or name == "/m" for name in links}
    return [name for name in links if leads[name] == targets]


def a_link_with_a_slash_is_not_removed(case, _):
    """Theirs has gone into what it leads to; both end with the same complaint."""
    said = [b"mv: cannot remove '" + os.fsencode(name[1:]) + b"/': Not a directory" for name in links_with_slash(case, True)]
    return case.theirs["stderr"] == case.ours["stderr"] and any(text in case.ours["stderr"] for text in said)


def the_target_is_a_dangling_link_with_a_slash(case, _):
    """Nothing was changed by either."""
    return bool(links_with_slash(case, False)) and case.our_tree == case.before == case.their_tree


def theirs_takes_what_is_there_for_new(case, _):
    """Each complaint is about the same name, for the same reason."""
    theirs, ours = (said["stderr"].split(b"\n") for said in (case.theirs, case.ours))
    making = re.compile(b"cannot create (directory|regular file)")
    return len(theirs) == len(ours) and all(a == b or making.sub(b"cannot stat", a) == b for a, b in zip(theirs, ours))


def theirs_looks_for_a_target_that_has_gone(case, _):
    """A link was moved to where it led, and what came after it misses its name."""
    return case.theirs["stderr"] != case.ours["stderr"] == without_lost_targets(case)



def without_lost_targets(case):
    """Their complaints but those about ACLs for a target whose name leads nowhere any more."""
    text = re.compile(rb"mv: preserving permissions for .*: No such file or directory$", re.S)
    return b"\n".join(line for line in case.theirs["stderr"].split(b"\n") if not text.match(line))


def empty_copies_of_what_cannot_be_read(case):
    """New directories that only theirs has, with nothing in them, where both could not read one."""
    if b"cannot access" not in case.theirs["stderr"] or without_lost_targets(case) != case.ours["stderr"]:
        return []
    return [path for path, entry in case.their_tree.items()
            if entry["kind"] == stat.S_IFDIR and path not in case.before and path not in case.our_tree
            and not any(name.startswith(path + "/") for name in case.their_tree)]


def is_empty_copy_of_what_cannot_be_read(case, difference):
    return difference.path in empty_copies_of_what_cannot_be_read(case)


def theirs_has_an_empty_copy_in_it_of_what_cannot_be_read(case, difference):
    """Ours changed nothing in that directory, and theirs nothing else."""
    made = [path for path in empty_copies_of_what_cannot_be_read(case) if above(path) == difference.path]

    def names(tree):
        return {path for path in tree if path and above(path) == difference.path}
    return bool(made) and names(case.our_tree) == names(case.before) == names(case.their_tree) - set(made)


def theirs_tells_of_empty_copies_besides(case, _):
    """Their lines are ours and, for each empty copy, one more."""
    made = {os.path.basename(path).encode("utf-8", "surrogateescape") for path in empty_copies_of_what_cannot_be_read(case)}
    more = [line for line in case.theirs["stdout"].split(b"\n")
            if not (line.startswith(b"created directory '") and line.rstrip(b"'").rpartition(b"/")[2].rpartition(b"'")[2] in made)]
    return bool(made) and more == case.ours["stdout"].split(b"\n")


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


def tells_otherwise_only_of_what_failed(case, _):
    """Lines that only one of the two has are of files that found no room in one of them, or of directories that could not be read."""
    said = case.theirs["stderr"] + case.ours["stderr"]
    full = set(re.findall(rb"(?:error writing|cannot create [a-z ]+) '(.*)': No space left on device", said))
    unread = {os.path.basename(name) for name in re.findall(rb"cannot access '(.*)': Permission denied", said)}
    told = re.compile(rb"(?:copied '.*' -> |created directory |'.*' -> )'(.*)'$")
    lines = set(case.theirs["stdout"].split(b"\n")) ^ set(case.ours["stdout"].split(b"\n"))
    names = [told.match(line) for line in lines]
    return all(name and (name[1] in full or os.path.basename(name[1]) in unread) for name in names)


def ours_found_room_for_it(case, difference):
    """What only ours has moved to the full disk, for theirs has half a file there; or the directory that it was in."""
    def moved(path):
        there = "/full/" + path.rpartition("/")[2]
        return path in case.before and path not in case.our_tree and path in case.their_tree and there in case.our_tree
    here = difference.path
    return b"No space left on device" in case.theirs["stderr"] and (
        moved(here) or any(above(path) == here and moved(path) for path in case.before if path))


def theirs_takes_the_next_name_for_new(case, difference):
    """`--parents` made a directory for one operand, and the next one, which has none in front, is there: the other way round theirs
    copies it. It is all that theirs complains of besides."""
    theirs, ours = (said["stderr"].split(b"\n") for said in (case.theirs, case.ours))
    more = [line for line in theirs if line not in ours]
    texts = [re.match(rb"cp: cannot create regular file '(.*)': File exists$", line, re.S) for line in more]
    names = {os.path.normpath("/" + os.fsdecode(text[1])) for text in texts if text}
    said_so = bool(more) and all(texts) and all(line in theirs for line in ours)
    return said_so and (difference.path is None or any(difference.path in (name, above(name)) or difference.path.startswith(name) for name in names))


def a_file_of_it_came_twice(case, difference):
    """A new file in that directory has the name of an operand and came with an earlier one too, which held it: ours replaced it, and
    theirs wrote into it."""
    operands = case.line["operands"]
    again = [os.path.basename(operand.rstrip("/")) for operand in operands[1:]]
    return any(operand.rstrip("/").rpartition("/")[2] in (".", "..") for operand in operands[:-1]) and any(
        difference.path + "/" + name in case.our_tree and difference.path + "/" + name not in case.before
        and case.our_tree[difference.path + "/" + name]["kind"] == stat.S_IFREG for name in again)


def refused_as_the_same_file(case, _):
    return b"are the same file" in case.ours["stderr"] and b"No such file or directory" in case.theirs["stderr"]


def not_opened(case):
    """Where the names are that theirs could not open, as they were not there any more."""
    said = re.findall(rb"^(?:install|cp): cannot open '(.*)' for reading: No such file or directory$", case.theirs["stderr"], re.M)
    names = ["/" + os.path.normpath(name.decode("utf-8", "surrogateescape")) for name in said]
    return [re.sub("^/ld/", "/d/", re.sub("^/m/", "m:/", name)) for name in names]


def is_about(difference, places):
    """A difference of the run, of one of the places, or of the directory that one is in."""
    return difference.path is None or difference.path in places or any(above(place) == difference.path for place in places)


def source_is_its_destination(case, difference):
    """Theirs has taken away what it was to read; the difference is about that, or about the directory that it was in."""
    gone = [place for place in not_opened(case) if place in case.before and place not in case.their_tree]
    return bool(gone) and is_about(difference, gone)


def theirs_gave_its_name_back(case, difference):
    """Theirs had renamed the link that it was to read, could not open it, and has left it as it was; ours is the copy beside a backup."""
    back = [place for place in not_opened(case) if stat.S_ISLNK(case.before.get(place, {"kind": 0})["kind"]) and case.their_tree.get(place) == case.before[place]]
    made = [name for name in case.our_tree if name not in case.before and any(name.startswith(link) for link in back)]
    return bool(back and made) and is_about(difference, back + made)


def theirs_keeps_special_bits_of_what_was_there(case, difference):
    """A file that had bits which ours has not any more; the rest of its mode is the same."""
    old, theirs, ours = (int(tree.get(difference.path, {"mode": "0"})["mode"], 8) for tree in (case.before, case.their_tree, case.our_tree))
    return old & 0o7000 != 0 and theirs == ours | old & 0o7000 and ours & 0o7000 == 0


def theirs_would_make_a_dot(case, _):
    """That is all that it complains of besides what ours does."""
    theirs, ours = (said["stderr"].split(b"\n") for said in (case.theirs, case.ours))
    more = [line for line in theirs if line not in ours]
    return bool(more) and all(re.match(rb"cp: cannot create directory '.*/\.\.?': File exists$", line, re.S) for line in more)


def is_new_below_a_default_acl(case, difference):
    """A new directory, whose group or others may write in theirs: that is all."""
    theirs, ours = case.their_tree[difference.path], case.our_tree[difference.path]
    more = int(theirs["mode"], 8) & ~int(ours["mode"], 8)
    acl = "system.posix_acl_default"
    return (difference.path not in case.before and theirs["kind"] == stat.S_IFDIR and acl in case.our_tree[above(difference.path)]["xattr"]
            and more & ~0o022 == 0 and more != 0 and int(ours["mode"], 8) & ~int(theirs["mode"], 8) == 0
            and theirs["xattr"].keys() == ours["xattr"].keys() and theirs["xattr"].get(acl) == ours["xattr"].get(acl))


def ours_tells_of_backups_besides(case, _):
    """Our lines are theirs and one for each backup that came back."""
    ours = case.ours["stdout"].split(b"\n")
    back = [line for line in ours if line.endswith(b" (unbackup)")]
    return bool(back) and [line for line in ours if line not in back] == case.theirs["stdout"].split(b"\n")


def theirs_meets_a_directory_of_its_own(case, difference):
    """Their further complaints are of directories that could not be made; what is below these is in ours alone."""
    making = re.compile(rb"cp: cannot create directory '(.*)': File exists$")
    lines = case.theirs["stderr"].split(b"\n")
    again = [found.group(1) for found in map(making.match, lines) if found]
    if not again or [line for line in lines if not making.match(line)] != case.ours["stderr"].split(b"\n"):
        return False
    if difference.path is None:
        return difference.prop == "stderr" or (case.theirs["code"], case.ours["code"]) == (1, 0)
    return difference.ours and any(difference.path.startswith("/" + os.fsdecode(name) + "/") for name in again)


def neither_could_read_it(case, _):
    text = b"mv: cannot access"
    return text in case.theirs["stderr"] and case.theirs["stderr"] == case.ours["stderr"] and case.ours["stdout"] == b""


def theirs_tells_twice_what_its_child_had(case, _):
    """The program that strips could not be run, and each line that was told before comes twice."""
    theirs, ours = (said["stdout"].splitlines() for said in (case.theirs, case.ours))
    half = theirs[: len(theirs) // 2]
    told = [line for line in ours if not line.endswith(b"(unbackup)")]
    return b"cannot run" in case.theirs["stderr"] and theirs == half + half and half == told


def theirs_goes_on_without_end(case, _):
    """Theirs copies a directory into itself until its time is over or names are too long; ours says so at once."""
    deep = [any("bounded" in entry for entry in tree.values()) for tree in (case.their_tree, case.our_tree)]
    return deep == [True, False] and b"into itself" in case.ours["stderr"]
