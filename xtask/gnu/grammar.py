"""Command lines, drawn from a grammar by a seed: options, operands and everything around them."""
import re
import shlex

import world

FILES = ["f", "g", "e", "r", "x", "s", "h1", "h2", "sp", "xa", "ac", "ur", "ur2", *world.ODD_NAMES]
LINKS = ["lf", "ld", "dang", "loop", "lh", "labs", "lc"]
DIRS = ["d", "d2", "ed", "nw", "nr", "ad", "d/sub", "d/sub/deep", "t", "t/deep", "st", "sg", "nx"]
BELOW = ["d/f", "d/g", "d/sub/f", "d/sub/lf", "d/h3", "d2/f", "d2/sub", "d2/h4", "st/theirs", "st/mine", "sg/f", "nx/f", "nw/f", "t/b",
         "t/b2", "nw/sub", "ad/f"]
OTHERS = ["m/f", "m/d", "m/n1", "m", "mp", "mp/f", "mp/d", "mp/ed", "mp/n1", "ro", "ro/f", "ro/d", "ro/n1", "full", "full/f", "full/big",
          "full/n1", "full/ed"]
SPECIALS = ["p", "sk", "nodes/null", "nodes/none", "nodes", "d/pipe"]
NEW = ["n1", "n2", "d/n1", "ed/n1", "nw/n1", "nodir/n1", "f/n1", "n1/", "n3/n4", "st/n1", "sg/n1", "ad/n1", "nx/n1", "n\n1", "-n1"]
SELVES = [".", "..", "d/.", "d/..", "", "./f", "d//f", "./d/", "d/../f", "t/."]

OPTIONS = {
    "cp": [("-r", 34), ("-a", 16), ("-R", 5), ("-f", 10), ("-i", 6), ("-n", 6), ("-v", 22), ("-p", 10), ("-d", 6), ("-P", 6),
           ("-L", 6), ("-H", 5), ("-l", 6), ("-s", 6), ("-u", 7), ("-x", 4), ("-b", 7), ("-T", 8), ("-S.bak", 3), ("--backup", 3),
           ("--backup=numbered", 4), ("--backup=simple", 3), ("--backup=none", 2), ("--backup=t", 2), ("--backup=nil", 2), ("--backup=x", 1),
           ("--parents", 5), ("--remove-destination", 6), ("--attributes-only", 4), ("--preserve=mode", 3), ("--preserve=all", 3),
           ("--preserve=timestamps,links", 3), ("--preserve=ownership", 2), ("--preserve=xattr", 2), ("--preserve=foo", 1), ("--no-preserve=mode", 4),
           ("--no-preserve=all", 2), ("--no-preserve=timestamps", 2), ("--sparse=always", 2), ("--sparse=never", 2), ("--sparse=x", 1), ("--reflink=auto", 2),
           ("--reflink=never", 2), ("--strip-trailing-slashes", 3), ("--copy-contents", 1), ("-Z", 1), ("--context=x", 1), ("--verb", 2), ("--p", 1),
           ("--bogus", 1), ("-q", 1), ("--no-deref", 2), ("--recursive", 2), ("--force", 2), ("--update", 2), ("--link", 2), ("-rf", 4), ("-rp", 4),
           ("-dR", 3), ("--update=older", 2), ("--update=all", 2), ("--update=none", 2)],
    "mv": [("-f", 12), ("-i", 10), ("-n", 10), ("-v", 40), ("-u", 10), ("-b", 10), ("-T", 12), ("-S.bak", 4), ("--backup=numbered", 6),
           ("--backup=simple", 3), ("--backup=none", 2), ("--backup=existing", 3), ("--strip-trailing-slashes", 5), ("-Z", 1), ("--bogus", 1), ("-q", 1),
           ("--backup=n", 1), ("--verbose", 3), ("-bi", 2), ("-vf", 3), ("--update=older", 2), ("--update=none", 2)],
    "rm": [("-r", 45), ("-f", 25), ("-i", 18), ("-I", 6), ("-d", 10), ("-v", 35), ("-R", 5), ("--interactive", 4), ("--interactive=never", 3),
           ("--interactive=once", 3), ("--interactive=x", 1), ("--one-file-system", 4), ("--preserve-root", 2), ("--preserve-root=all", 3), ("--dir", 3),
           ("--bogus", 1), ("-q", 1), ("--recursive", 3), ("--verb", 2), ("-rf", 20), ("-fr", 3), ("-ri", 3)],
    "install": [("-v", 35), ("-D", 20), ("-d", 14), ("-b", 8), ("-m600", 8), ("-m", 0), ("-mu=rwx,go=rx", 4), ("-m4755", 4), ("-m2750", 2), ("-mx", 1), ("-p", 12), ("-C", 10),
                ("-c", 4), ("-T", 10), ("-S.bak", 3), ("--backup=numbered", 4), ("-o0", 3), ("-g0", 3), ("-o65534", 2), ("-onosuch", 1), ("-gnosuch", 1),
                ("--bogus", 1), ("-q", 1), ("--compare", 2), ("--mode=644", 4), ("-s --strip-program=true", 3), ("--strip-program=true", 1), ("-Z", 1),
                ("-s --strip-program=false", 2), ("-s --strip-program=nosuch", 1)],
}

# What newer programs call by other words than those that judge.
SPELLED = {"--update=older": ["-u"], "--update=all": [], "--update=none": ["-n"]}
REPLACES = re.compile(r"^(-[a-zA-Z]*[unif]|--update|--no-clobber|--interactive|--force)")


def operand(rng, new=0.15):
    if rng.random() < new:
        return rng.choice(NEW)
    pool = rng.choices([FILES, LINKS, DIRS, BELOW, OTHERS, SPECIALS, SELVES], [30, 10, 28, 14, 12, 5, 3])[0]
    name = rng.choice(pool)
    if rng.random() < 0.08 and name:
        name += "/"
    return name


def drawn_options(rng, program):
    names, weights = zip(*OPTIONS[program])
    words = []
    for _ in range(rng.choices([0, 1, 2, 3, 4], [10, 28, 32, 20, 10])[0]):
        words += rng.choices(names, weights)[0].split(" ")
    # What is spelled in two ways means the same only by itself.
    replacing = [word for word in words if REPLACES.match(word)]
    backs_up = any(re.match(r"^-[a-zA-Z]*[bS]|^--backup", word) for word in words)
    if any(word in SPELLED for word in words) and (len(replacing) > 1 or backs_up):
        words = [word for word in words if word not in SPELLED]
    return words


def drawn_operands(rng, program, words):
    if program == "rm":
        operands = [operand(rng, 0.1) for _ in range(rng.choices([0, 1, 2, 3, 5], [2, 55, 25, 12, 6])[0])]
        # What would remove more than the tree is not tried.
        operands = [o for o in operands if o.rstrip("/") not in ("", "..", "d/..") or o == ""]
        return operands or (["f"] if rng.random() < 0.8 else [])
    operands = [operand(rng) for _ in range(rng.choices([0, 1, 2, 3, 4], [2, 4, 68, 20, 6])[0])]
    # Trees to new names are what most copies are.
    if program == "cp" and len(operands) == 2 and rng.random() < 0.2:
        operands = [rng.choice(DIRS), rng.choice(NEW)]
    elif len(operands) >= 2 and rng.random() < 0.35:
        operands[-1] = rng.choice(DIRS + ["m", "mp", "full", "ro"])
    elif len(operands) >= 2 and rng.random() < 0.3:
        operands[-1] = rng.choice(NEW)
    if len(operands) >= 3 and rng.random() < 0.15:
        operands[1] = operands[0]
    if program != "install" and rng.random() < 0.1:
        words += rng.choice([["-t", rng.choice(DIRS + NEW)], ["--target-directory=" + rng.choice(DIRS)], ["--target", rng.choice(DIRS)]])
    return operands


def has_backup(words, env):
    """Whether a name that is replaced gets one that is not numbered."""
    wanted, control = False, env.get("VERSION_CONTROL", "")
    for word in words:
        if re.match(r"^-[a-zA-Z]*[bS]", word) or word.startswith("--backup"):
            wanted = True
            control = word.partition("=")[2] or control
    return wanted and control not in ("numbered", "t", "none", "off")


def into(operands, words):
    """The directory that sources go into, as the tree is before."""
    named = [words[at + 1] for at, word in enumerate(words[:-1]) if word in ("-t", "--target")]
    named += [word.partition("=")[2] for word in words if word.startswith("--target-directory=")]
    if named:
        return named[-1], operands
    if len(operands) >= 2 and "-T" not in words:
        return operands[-1], operands[:-1]
    return None, operands


IS_DIR = {*DIRS, "ld", "m", "mp", "mp/d", "mp/ed", "ro", "ro/d", "full", "full/ed", "m/d", "nodes", ".", "d/.", "d/..", "./d", "t/."}


def draw(rng):
    program = rng.choices(["cp", "mv", "rm", "install"], [48, 19, 18, 15])[0]
    options = drawn_options(rng, program)
    operands = drawn_operands(rng, program, options)
    # What lands beside the tree would be met by the next line.
    operands = ["ed" if o.rstrip("/") == ".." else o for o in operands]
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": rng.choices(["C", "C.UTF-8"], [70, 30])[0]}
    if rng.random() < 0.04:
        env["POSIXLY_CORRECT"] = "1"
    if rng.random() < 0.05:
        env["VERSION_CONTROL"] = rng.choice(["numbered", "simple", "none", "t", "bogus", ""])
    if rng.random() < 0.05:
        env["SIMPLE_BACKUP_SUFFIX"] = rng.choice([".sav", "", "/x", "~~"])
    # A FIFO that is read or written waits for ever, in both.
    recursive = any(re.match(r"-[^-]*[raRls]|--rec|--arch|--link", w) for w in options)
    fifos = ("p", "d/pipe")
    if program == "install" or (program == "cp" and len(operands) >= 2 and operands[-1].rstrip("/") in fifos):
        operands = ["f" if o.rstrip("/") in fifos else o for o in operands]
    elif program == "cp" and (not recursive or "--copy-contents" in options or "-L" in options or "-H" in options):
        operands = [o for o in operands if o.rstrip("/") not in fifos]
    # Dots of another file system are nothing that is moved.
    if program == "mv" and any(o.startswith(("m", "full", "ro")) for o in operands):
        operands = ["d" if o.rstrip("/").endswith(".") else o for o in operands]
    if "POSIXLY_CORRECT" in env or "--target" in options or "-t" in options:
        options = [word for word in options if word not in SPELLED]
    # coreutils 9.1 takes a backup of what is in a directory to the current one: that is not drawn, but for sources that can
    # be named one by one.
    target, sources = into(operands, options)
    theirs = None
    if program != "rm" and target is not None and target.rstrip("/") in IS_DIR and has_backup(options, env):
        simple = [word for word in options if word.startswith("-") and not word.startswith("--target")]
        base = sources[0].rstrip("/").rpartition("/")[2] if len(sources) == 1 and not sources[0].startswith("-") else ""
        named = target + ("" if target.endswith("/") else "/") + base
        if "-d" not in options and [named] != sources and base not in ("", ".", "..") and "-t" not in options and "--target" not in options and "--parents" not in options and "-D" not in options:
            # With -T slashes stay.
            stripped = sources[0].rstrip("/") if "--strip-trailing-slashes" in options else ""
            theirs = [*simple, "-T", "--", stripped or sources[0], named]
        else:
            options = [word for word in options if not (re.match(r"^-[a-zA-Z]*[bS]", word) or word.startswith("--backup"))]
    # A link with a slash is by design another thing for rm -r, so it comes alone.
    if program == "rm" and any(o.endswith("/") and o.rstrip("/") in (*LINKS, "m") for o in operands):
        operands = [o for o in operands if o.endswith("/") and o.rstrip("/") in (*LINKS, "m")][:1]
    words = [*options, *operands]
    if rng.random() < 0.1:
        words.insert(len(options), "--")
    elif rng.random() < 0.3 and theirs is None:
        # Options between operands; which operand is the last one was looked at above.
        places = [(True, word) for word in options] + [(False, word) for word in operands]
        rng.shuffle(places)
        rest = iter(operands)
        words = [word if is_option else next(rest) for is_option, word in places]
    spelled = [new for word in (theirs or words) for new in SPELLED.get(word, [word])]
    answers = "".join(rng.choice(["y\n", "n\n", "y\n", "\n", "yes\n", "N\n"]) for _ in range(12)) if rng.random() < 0.85 else ""
    return {
        "program": program, "options": options, "operands": operands, "words": words, "theirs": spelled, "env": env,
        "stdin": answers, "umask": rng.choice([0o22, 0o22, 0o77, 0o2, 0, 0o177]), "root": rng.random() < 0.5,
    }


def kept(text):
    """A line of kept.txt."""
    words = shlex.split(text)
    root, env = words.pop(0) == "root", {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    stdin, umask = env.pop("STDIN", "").replace("\\n", "\n"), int(env.pop("UMASK", "22"), 8)
    program, words = words[0], words[1:]
    options = [word for word in words if word.startswith("-")]
    return {
        "program": program, "options": options, "operands": [word for word in words if word not in options],
        "words": words, "theirs": words, "env": env, "stdin": stdin, "umask": umask, "root": root,
    }
