//! Options that fingers know from other programs and that this one lacks: what to type instead.
//!
//! Must not know what any option does.

/// Which verbs an answer is for.
const COPIES: &[&str] = &["copy"];
const MIRRORS: &[&str] = &["sync"];
const BOTH: &[&str] = &["copy", "sync"];
const TREES: &[&str] = &["copy", "move"];
const REMOVES: &[&str] = &["remove"];

/// The option, the verbs, and what to type instead. Each answer names what there is; where there is nothing, it says so.
pub(super) const ANSWERS: &[(&[&str], &[&str], &str)] = &[
    // rsync
    (&["-z", "--zip"], BOTH, "-z is --compress here; without it, compression goes by what the link takes"),
    (
        &["--delete", "--del", "--delete-after", "--delete-before", "--delete-during", "--delete-excluded"],
        COPIES,
        "copy removes nothing; bcmr sync --delete does, once all else is there",
    ),
    (
        &["-c", "--checksum"],
        COPIES,
        "bcmr check --hash compares contents; copy -C -V reads what looks the same",
    ),
    (&["--partial", "--append-verify", "--partial-dir"], COPIES, "-C goes on with an interrupted copy"),
    (&["--ignore-existing"], TREES, "--ignore-existing is --no-clobber here"),
    (&["--size-only"], COPIES, "--update=different leaves files alone that have the same size and time"),
    (&["--perms"], COPIES, "--preserve=mode keeps permissions"),
    (&["--times"], COPIES, "--preserve=timestamps keeps times"),
    (&["--owner", "--group", "-g"], COPIES, "--preserve=ownership keeps user and group"),
    (&["-A", "--acls"], COPIES, "-A is --preserve=acl here"),
    (&["-X", "--xattrs"], COPIES, "-X is --preserve=xattr here"),
    (&["--hard-links"], COPIES, "--preserve=links keeps hard links"),
    (&["-D", "--devices", "--specials"], COPIES, "--archive makes special files anew"),
    (&["-S"], COPIES, "--sparse=always makes holes of zeros"),
    (&["--rsh"], BOTH, "--rsh is --ssh here"),
    (&["--rsync-path"], BOTH, "--remote-program says what bcmr is called there"),
    (&["-0", "--from0"], COPIES, "--files-from0 FILE reads names that end with NUL"),
    (&["--include-from"], BOTH, "--exclude-from FILE takes both: ! before a glob includes"),
    (&["--filter"], BOTH, "-e and --include take patterns; the last that matches decides"),
    (&["--itemize-changes"], COPIES, "bcmr check tells what a copy would change"),
    (&["--stats"], TREES, "-v ends with what was done; --json has it for programs"),
    (&["--human-readable"], TREES, "sizes are always shown in units here"),
    (&["--fsync"], COPIES, "--fsync is --sync here"),
    (&["--remove-source-files"], COPIES, "bcmr move removes what it has copied and verified"),
    (
        &["--link-dest", "--copy-dest", "--compare-dest"],
        COPIES,
        "there is no such thing here; a file system with clones shares blocks by --reflink",
    ),
    (&["-l"], COPIES, "what scp calls -l is --bwlimit here, in bytes a second"),
    (
        &[
            "-a",
            "--archive",
            "-r",
            "--recursive",
            "-R",
            "-t",
            "--times",
            "-p",
            "--perms",
            "--owner",
            "-g",
            "--group",
            "-l",
            "--links",
            "-D",
            "-H",
            "--hard-links",
            "-A",
            "--acls",
            "-X",
            "--xattrs",
            "--preserve",
        ],
        MIRRORS,
        "leave it out: sync keeps everything by itself, in all directories below",
    ),
    (
        &["--partial", "-P", "-C", "--resume", "--append-verify", "--partial-dir"],
        MIRRORS,
        "leave it out: sync goes on with what was interrupted by itself",
    ),
    (
        &["-u", "--update", "--ignore-existing", "--existing"],
        MIRRORS,
        "sync makes DST what SRC is; bcmr copy -u leaves newer files alone",
    ),
    (
        &["--del", "--delete-after", "--delete-during", "--delete-delay"],
        MIRRORS,
        "--delete deletes once all else is there; --delete=before does it before that",
    ),
    (&["--delete-before"], MIRRORS, "--delete-before is --delete=before here"),
    // cp and mv
    (&["-d"], COPIES, "-d is -P --preserve=links here"),
    (
        &["-b", "--backup", "--suffix"],
        TREES,
        "bcmr cp and bcmr mv make backups; --no-clobber keeps what is there",
    ),
    (
        &["--link", "--symbolic-link", "--parents", "--attributes-only", "--copy-contents"],
        COPIES,
        "bcmr cp has it, as cp does",
    ),
    (
        &["--remove-destination"],
        COPIES,
        "a destination is replaced, not written into, unless --inplace is given",
    ),
    (&["--strip-trailing-slashes"], TREES, "leave the slash out"),
    (&["-Z", "--context"], TREES, "this build has no SELinux"),
    // scp
    (&["-3", "-O", "-B"], COPIES, "there is no such thing here; ssh options go behind -o"),
    (&["-4", "-6"], COPIES, "-o AddressFamily=inet (or inet6) says it to ssh"),
    // rm
    (&["-I"], REMOVES, "-i asks before every removal; -n only tells what would be removed"),
    (&["--preserve-root"], REMOVES, "/ is never removed here"),
    (&["--no-preserve-root"], REMOVES, "/ is never removed here, with no option"),
];

/// What to type instead of an option that a verb does not have. `typed` is as clap names it: `-z`, or `--delete`.
pub fn answer(verb: &str, typed: &str) -> Option<&'static str> {
    let name = typed.split('=').next().unwrap_or(typed);
    let of_verb = ANSWERS.iter().filter(|(_, verbs, _)| verbs.contains(&verb));
    of_verb.filter(|(options, ..)| options.contains(&name)).map(|(.., answer)| *answer).next()
}
