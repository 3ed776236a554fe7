//! Command lines and what they mean, as tables.

use super::check;
use super::collide::{CopyCollideArgs, Update};
use super::columns::Columns;
use super::connection::{ConnectArgs, Reach, RemoteArgs};
use super::copy::{CopyJob, SharingArg};
use super::fake_super::FakeSuperArgs;
use super::filters::{FilterArgs, RuleArg};
use super::how::{HowArgs, VerifyArg};
use super::io::IoArgs;
use super::links::LinkArgs;
use super::look::LookArgs;
use super::metadata::{Attr, KeepArgs};
use super::operands::{IsHere, NamesFrom, Operands, Places, mistakable, operand, places};
use super::output::OutputArgs;
use super::owners::OwnerArgs;
use super::remote::RemoteJob;
use super::resume::ResumeArgs;
use super::*;
use crate::address::Operand;
use crate::env::Env;
use crate::show::{Again, Meter, Show};
use crate::usage::Usage;
use bcmr_engine::policy::{
    Collide, Compare, CopyPolicy, Durability, Follow, Landing, MoveRequest, Preserve, Reflink, RemoveRequest,
    Resume, Rule, Sparse, Strictness, Verify,
};
use bcmr_engine::remote::{Compress, Plane};
use std::path::Path;

#[test]
fn definitions_are_consistent() {
    Cli::command().debug_assert();
}

/// A copy is read by its own definitions alone, and what is no copy by all of them; both read the same.
#[test]
fn the_short_way_reads_what_the_whole_does() {
    let typed = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
    for line in [
        "bcmr copy",
        "bcmr copy a b",
        "bcmr copy -rVn -x a b c",
        "bcmr copy -j 3 -j 4 --sync --no-sync a b",
        "bcmr copy -t d a -- -b",
        "bcmr copy -e *.o --include=x -e y --preserve=mode --no-preserve=mode a b",
        "bcmr copy -C -s --update=older -u --reflink=disable --sparse auto a b",
        "bcmr copy --archive -P -L --hash --json --verbose a host:b",
    ] {
        let Ok(whole) = parse_any(typed(line)) else {
            assert!(parse_copy(&typed(line)).is_none(), "{line}");
            continue;
        };
        let short = parse_copy(&typed(line)).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(format!("{short:?}"), format!("{:?}", whole.command), "{line}");
    }
    for line in
        ["bcmr", "bcmr --help", "bcmr copy -h", "bcmr copy --wrong a b", "bcmr move a b", "bcmr -v copy a b"]
    {
        assert!(parse_copy(&typed(line)).is_none(), "{line}");
    }
}

#[test]
fn order_across_exclude_and_include_is_kept() {
    let cli = parse(["bcmr", "copy", "-e", "a", "--include", "b", "s", "--exclude=c", "d"]).unwrap();
    let Command::Copy(copy) = cli.command else { panic!("{cli:?}") };
    let want = [RuleArg::Exclude("a".into()), RuleArg::Include("b".into()), RuleArg::Exclude("c".into())];
    assert_eq!(copy.filters.rules.0, want);
    assert_eq!(copy.operands.paths, [PathBuf::from("s"), PathBuf::from("d")]);
}

#[test]
fn optional_values_never_eat_an_operand() {
    let words = ["bcmr", "copy", "--preserve", "--reflink", "-V", "--progress", "-u", "s", "d"];
    let cli = parse(words).unwrap();
    let Command::Copy(copy) = cli.command else { panic!("{cli:?}") };
    assert_eq!(copy.operands.paths.len(), 2);
    assert_eq!(copy.reflink, SharingArg::Always);
    assert_eq!(copy.how.verify, Some(VerifyArg::Cached));
    assert_eq!(copy.collide.update.update, Some(Update::Older));
    assert_eq!(copy.keep.preserve, [Attr::Mode, Attr::Ownership, Attr::Timestamps]);
}

#[test]
fn what_ssh_gets_keeps_its_order() {
    let words = ["bcmr", "copy", "-o", "A=1", "-F", "f", "--identity", "k", "-J", "j", "-oB=2", "h:s", "d"];
    let cli = parse(words).unwrap();
    let Command::Copy(copy) = cli.command else { panic!("{cli:?}") };
    assert_eq!(copy.connect.passed.0.0, ["-o", "A=1", "-F", "f", "-i", "k", "-J", "j", "-o", "B=2"]);
}

/// Each command that has ssh's options passes them on, whatever group of options it has them from.
#[test]
fn every_command_that_connects_passes_on_what_ssh_gets() {
    let mut definitions = Cli::command();
    definitions.build();
    let connects = |it: &&clap::Command| it.get_arguments().any(|arg| arg.get_id() == "option");
    let mut told = 0;
    for verb in definitions.get_subcommands().filter(connects) {
        let name = verb.get_name();
        let operands: &[&str] = match name {
            "copy" | "move" | "sync" | "check" => &["h:s", "d"],
            "plan" => &["h:s", "d", "--out=p"],
            "shard" => &["p", "1"],
            _ => &["h:s"],
        };
        let words = [&["bcmr", name, "-J", "j", "--ssh-option=A=1"], operands].concat();
        let cli = parse(&words).unwrap_or_else(|e| panic!("{words:?}: {e}"));
        let read = format!("{:?}", cli.command);
        assert!(read.contains(r#"Passed(["-J", "j", "-o", "A=1"])"#), "{read}");
        told += 1;
    }
    assert!(told >= 9, "{told} commands connect");
}

/// Each flag that only a connection has is known by name, so that a local copy can refuse it.
#[test]
fn flags_of_a_connection_are_told() {
    for (flag, name) in [
        ("--ssh=x", "--ssh"),
        ("-oX", "-o"),
        ("-Jx", "-J"),
        ("--identity=x", "--identity"),
        ("-Fx", "-F"),
        ("--port=1", "--port"),
        ("--remote-program=x", "--remote-program"),
        ("--bootstrap", "--bootstrap"),
        ("--no-bootstrap", "--no-bootstrap"),
        ("--parallel=1", "--parallel"),
        ("--compress=lz4", "--compress"),
        ("--no-dedup", "--no-dedup"),
        ("--dedup", "--dedup"),
        ("--whole-file", "--whole-file"),
        ("-W", "--whole-file"),
        ("--direct", "--direct"),
        ("--retries=1", "--retries"),
    ] {
        let cli = parse(["bcmr", "copy", flag, "s", "d"]).unwrap();
        let Command::Copy(copy) = cli.command else { panic!("{cli:?}") };
        let typed = copy.connect.only_there().or(copy.remote.only_there());
        assert_eq!(typed, Some(name), "{flag}");
    }
}

/// An answer is for an option that the verb does not have, and what it names is there.
#[test]
fn options_of_other_programs_are_answered() {
    assert!(foreign::answer("copy", "-z").unwrap().contains("--compress"));
    assert!(foreign::answer("copy", "--delete").unwrap().contains("bcmr sync --delete"));
    assert!(foreign::answer("sync", "-a").unwrap().contains("by itself"));
    assert!(foreign::answer("sync", "--delete-before").unwrap().contains("--delete=before"));
    assert!(foreign::answer("copy", "--rsh=x").is_some() && foreign::answer("ls", "-z").is_none());
    let mut all = Cli::command();
    all.build();
    for (options, verbs, answer) in foreign::ANSWERS {
        for verb in *verbs {
            let verb = all.find_subcommand(verb).unwrap();
            let has = |name: &str| {
                verb.get_arguments().any(|arg| {
                    let shorts = arg.get_short_and_visible_aliases().unwrap_or_default();
                    let longs = arg.get_long_and_visible_aliases().unwrap_or_default();
                    match name.strip_prefix("--") {
                        Some(long) => longs.contains(&long),
                        None => shorts.iter().any(|c| name == format!("-{c}")),
                    }
                })
            };
            let known: Vec<_> = options.iter().filter(|option| has(option)).collect();
            assert!(known.is_empty(), "{} has {known:?}", verb.get_name());
            // Of `copy`, which has every option that the answers send to.
            let copy = verb.get_name() == "copy";
            let named = answer.split([' ', ';', ',', '=']).filter(|w| copy && w.starts_with("--"));
            let gone: Vec<_> = named.filter(|w| !has(w) && !options.contains(w) && *w != "--hash").collect();
            assert!(gone.is_empty(), "{answer}: {gone:?}");
        }
    }
}

/// What the help shows as an example is a command line.
#[test]
fn examples_can_be_typed() {
    for text in [copy::EXAMPLES, copy::SHORT_EXAMPLES, move_::EXAMPLES, remove::EXAMPLES, check::EXAMPLES] {
        for line in text.lines().skip(1) {
            let command = line.trim().split("  ").next().unwrap_or_default();
            let words = shlex::split(command).unwrap();
            parse(words).unwrap_or_else(|e| panic!("{command}: {e}"));
        }
    }
}

/// Every option of `copy` has one row in the tables that say where it holds and whether scp loses it.
#[test]
fn every_option_has_its_columns() {
    fn of<A: Columns>() -> impl Iterator<Item = &'static str> {
        A::ROWS.iter().map(|row| row.0.split('=').next().unwrap_or_default())
    }
    let rows: Vec<&str> = of::<CopyArgs>()
        .chain(of::<Operands>())
        .chain(of::<LinkArgs>())
        .chain(of::<FilterArgs>())
        .chain(of::<KeepArgs>())
        .chain(of::<OwnerArgs>())
        .chain(of::<FakeSuperArgs>())
        .chain(of::<CopyCollideArgs>())
        .chain(of::<HowArgs>())
        .chain(of::<IoArgs>())
        .chain(of::<ResumeArgs>())
        .chain(of::<RemoteArgs>())
        .chain(of::<ConnectArgs>())
        .chain(of::<OutputArgs>())
        .collect();
    let mut all = Cli::command();
    all.build();
    let copy = all.find_subcommand("copy").unwrap();
    let mut wrong = Vec::new();
    let mut met = 0;
    let is_of_copy = |a: &&clap::Arg| !a.is_positional() && !a.is_global_set() && a.get_id() != "help";
    for arg in copy.get_arguments().filter(is_of_copy) {
        let names: Vec<String> = arg
            .get_short_and_visible_aliases()
            .unwrap_or_default()
            .into_iter()
            .map(|c| format!("-{c}"))
            .chain(arg.get_long().map(|long| format!("--{long}")))
            .collect();
        let count = rows.iter().filter(|row| names.iter().any(|name| name == *row)).count();
        met += count;
        if count != 1 {
            wrong.push(format!("{} has {count} rows", arg.get_id()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(met, rows.len(), "a row without an option: {rows:?}");
}

#[test]
fn short_flags_bundle_with_those_that_may_have_a_value() {
    let cli = parse(["bcmr", "copy", "-Vru", "s", "d"]).unwrap();
    let Command::Copy(copy) = cli.command else { panic!("{cli:?}") };
    assert!(copy.recursive && copy.how.verify.is_some() && copy.collide.update.update.is_some());
}

const NOTHING_HERE: IsHere<'_> = &|_| false;

fn env() -> Env {
    Env {
        line: Vec::new(),
        defaults: Vec::new(),
        has_defaults_of_proof: false,
        me: 0,
        umask: 0o027,
        cores: 16,
        stdin_tty: false,
        stdout_tty: false,
        stderr_tty: true,
        dumb: false,
        no_color: false,
        taskbar: false,
        reflows: true,
        at_source: false,
        ignored_signals: 0,
        now: 0,
        home: "/home/me".into(),
        own_home: Some("/home/me".into()),
        config_file: None,
        cache_dir: Some("/home/me/.cache/bcmr".into()),
        state_dir: None,
        trash_dir: None,
        arrived_at: None,
        meeting: Vec::new(),
        store_dir: None,
        store_cap_mb: None,
        store_keep: None,
    }
}

fn typed(line: &str) -> Vec<String> {
    std::iter::once("bcmr").chain(line.split_whitespace()).map(str::to_owned).collect()
}

fn try_copy(line: &str) -> Result<CopyJob, Usage> {
    match parse(typed(line)).unwrap().command {
        Command::Copy(a) => copy::request(&a, &env()),
        other => panic!("{other:?}"),
    }
}

fn policy(flags: &str) -> CopyPolicy {
    try_copy(&format!("copy {flags} src dst")).unwrap_or_else(|u| panic!("{flags}: {u:?}")).request.policy
}

fn try_move(line: &str) -> (MoveRequest, Show) {
    match parse(typed(line)).unwrap().command {
        Command::Move(a) => move_::request(&a, &env()).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn remove_of(line: &str) -> RemoveRequest {
    match parse(typed(line)).unwrap().command {
        Command::Remove(a) => remove::request(&a, &env()).unwrap().0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn bare_copy_is_cp() {
    let p = policy("");
    assert!(!p.recursive && !p.specials && !p.force && !p.one_file_system && !p.dry_run);
    assert_eq!((p.follow, p.preserve, p.strictness), (Follow::Operands, Preserve::NONE, Strictness::LikeCp));
    assert_eq!((p.collide, p.landing), (Collide::Replace, Landing::Atomic));
    assert_eq!((p.reflink, p.sparse, p.verify), (Reflink::Auto, Sparse::Auto, Verify::Off));
    assert_eq!((p.durability, p.jobs, p.umask), (Durability::Cache, 8, 0o027));
}

#[test]
fn targets() {
    for (line, sources, want) in [
        ("copy a b", 1, "Guess(\"b\")"),
        ("copy a b c", 2, "Guess(\"c\")"),
        ("copy -t d a b", 2, "Into(\"d\")"),
        ("copy a -td", 1, "Into(\"d\")"),
        ("copy -T a b", 1, "Exactly(\"b\")"),
        ("copy a b/", 1, "Guess(\"b/\")"),
        ("copy -- -a -b", 1, "Guess(\"-b\")"),
    ] {
        let job = try_copy(line).unwrap_or_else(|u| panic!("{line}: {u:?}"));
        assert_eq!(format!("{:?}", job.request.target), want, "{line}");
        assert_eq!(job.request.sources.len(), sources, "{line}");
    }
}

#[test]
fn refused_arguments() {
    for (line, say) in [
        ("copy", "no source given"),
        ("copy -t d", "no source given"),
        ("copy a", "no destination given after 'a'"),
        ("copy -T a b c", "with -T there is one source; there are more after 'a'"),
        ("copy -i -u a b", "-i and --update cannot be combined"),
        ("copy --files-from l a b c", "with --files-from there is exactly one source"),
        ("copy -i --files-from - a b", "-i cannot read answers"),
    ] {
        let usage = try_copy(line).err().unwrap_or_else(|| panic!("{line} was taken"));
        assert!(usage.said.starts_with(say), "{line}: {}", usage.said);
    }
}

#[test]
fn links() {
    for (flags, want) in [
        ("", Follow::Operands),
        ("-r", Follow::Never),
        ("-R", Follow::Never),
        ("-rL", Follow::Always),
        ("-rH", Follow::Operands),
        ("-P", Follow::Never),
        ("-L -P", Follow::Never),
        ("-P -L", Follow::Always),
        ("-P -H -L -H", Follow::Operands),
        ("--archive", Follow::Never),
        ("-L --archive", Follow::Never),
        ("--archive -L", Follow::Always),
    ] {
        assert_eq!(policy(flags).follow, want, "{flags}");
    }
}

#[test]
fn keeping() {
    let none = Preserve::NONE;
    for (flags, want) in [
        ("-p", Preserve::CP),
        ("--preserve", Preserve::CP),
        ("--preserve=mode", Preserve { mode: true, acl: true, ..none }),
        ("--preserve=owner,times", Preserve { owner: true, times: true, ..none }),
        ("--preserve=links --preserve=xattr", Preserve { links: true, xattr: true, ..none }),
        ("--preserve=all", Preserve::ALL),
        ("--archive", Preserve::ALL),
        ("--archive --no-preserve=ownership", Preserve { owner: false, ..Preserve::ALL }),
        ("--no-preserve=ownership --archive", Preserve::ALL),
        ("-p --no-preserve=all --preserve=acl", Preserve { acl: true, ..none }),
        ("--no-preserve=mode -p", Preserve::CP),
    ] {
        assert_eq!(policy(flags).preserve, want, "{flags}");
    }
    let archive = policy("--archive");
    assert!(archive.recursive && archive.specials);
    assert_eq!(archive.strictness, Strictness::Archive);
}

#[test]
fn names_already_there() {
    for (flags, want) in [
        ("-i", Collide::Ask),
        ("--no-clobber", Collide::Keep),
        ("-i --no-clobber", Collide::Keep),
        ("--no-clobber -i", Collide::Ask),
        ("-f", Collide::Replace),
        ("-i -f", Collide::Ask),
        ("-u", Collide::IfOlder),
        ("--update", Collide::IfOlder),
        ("--update=older", Collide::IfOlder),
        ("--update=none", Collide::Keep),
        ("--update=none -i", Collide::Keep),
        ("--update=all", Collide::Replace),
        ("--update=all -i", Collide::Ask),
        ("--update=different", Collide::IfDifferent),
        ("-u --update=all", Collide::Replace),
        ("-u --no-clobber", Collide::Keep),
    ] {
        assert_eq!(policy(flags).collide, want, "{flags}");
    }
    assert!(policy("-i -f").force);
}

#[test]
fn the_way_of_copying() {
    for (flags, want) in [
        ("--reflink", Reflink::Always),
        ("--reflink=auto", Reflink::Auto),
        ("--reflink=disable", Reflink::Never),
        ("--reflink=never", Reflink::Never),
        ("--reflink --reflink=auto", Reflink::Auto),
    ] {
        assert_eq!(policy(flags).reflink, want, "{flags}");
    }
    assert_eq!(policy("--sparse=always").sparse, Sparse::Always);
    assert_eq!(policy("--sparse=never").sparse, Sparse::Never);
    assert_eq!(policy("-V").verify, Verify::Cached);
    assert_eq!(policy("-V=direct").verify, Verify::Direct);
    assert_eq!(policy("--verify=direct -V").verify, Verify::Cached);
    assert_eq!(policy("--sync").durability, Durability::Medium);
    assert_eq!(policy("--inplace").landing, Landing::InPlace);
    assert_eq!(policy("-j3").jobs, 3);
    assert!(policy("-x").one_file_system && policy("-n").dry_run);
}

#[test]
fn filters_keep_their_order() {
    let f = policy("--include b -e a --exclude-regex ^x --exclude c --gitignore").filter;
    let want = [Rule::Include("b".into()), Rule::Exclude("a".into()), Rule::Exclude("c".into())];
    assert_eq!((f.rules.as_slice(), f.regexes.as_slice()), (want.as_slice(), ["^x".to_owned()].as_slice()));
    assert!(f.gitignore);
}

#[test]
fn lists_of_names() {
    let names =
        |flags: &str| try_copy(&format!("copy {flags} a b")).unwrap_or_else(|u| panic!("{u:?}")).names;
    assert_eq!(names(""), None);
    assert_eq!(names("--files-from l"), Some(NamesFrom { file: Some("l".into()), separator: b'\n' }));
    assert_eq!(names("--files-from0 -"), Some(NamesFrom { file: None, separator: 0 }));
}

fn try_remote(line: &str, config: &str) -> Result<RemoteJob, Usage> {
    let config = crate::config::parse(config, Path::new("c"))?;
    match parse(typed(line)).unwrap().command {
        Command::Copy(mut a) => {
            a.owners.settle(&|_| Err(Usage::new("no names are known")))?;
            let places = places(&a.operands, &a.connect, NOTHING_HERE)?;
            assert!(places.address().is_some(), "{line} is local");
            copy::remote(&a, places, &config, &env())
        }
        other => panic!("{other:?}"),
    }
}

fn way(flags: &str, config: &str) -> Reach {
    let job = try_remote(&format!("copy {flags} src h:dst"), config);
    job.unwrap_or_else(|u| panic!("{flags} {config}: {u:?}")).reach
}

/// A sync connects three times more where nothing else is said.
#[test]
fn connecting_again_for_a_sync() {
    for (flags, config, want) in [
        ("", "", (3, None)),
        ("", "retries = 0\n", (0, None)),
        ("", "retries = 9\n[host.h]\nretries = 1\n", (1, None)),
        ("--retries=2", "retries = 0\n", (2, None)),
        ("--retries=0", "", (0, None)),
        ("", "[host.k]\nretries = 1\n", (3, Some(1))),
        ("", "[host.h]\nretries = 0\n", (0, Some(3))),
    ] {
        let to = if want.1.is_some() { "k:d" } else { "d" };
        let config = crate::config::parse(config, Path::new("c")).unwrap();
        let Command::Sync(a) = parse(typed(&format!("sync {flags} h:s {to}"))).unwrap().command else {
            panic!("{flags}")
        };
        let places = places(&a.operands(), &a.connect, NOTHING_HERE).unwrap_or_else(|u| panic!("{u:?}"));
        let job = sync::remote(&a, places, &config, &env()).unwrap_or_else(|u| panic!("{u:?}"));
        let onward = job.onward.map(|reach| reach.way.retries);
        assert_eq!((job.reach.way.retries, onward), want, "{flags} {to}");
    }
}

#[test]
fn which_machine() {
    let of = |line: &str| match parse(typed(line)).unwrap().command {
        Command::Copy(a) => places(&a.operands, &a.connect, NOTHING_HERE),
        other => panic!("{other:?}"),
    };
    for line in ["copy a b", "copy ./a:b c", "copy -t d a", "copy a", "copy", "copy -T a /x:y"] {
        assert!(matches!(of(line), Ok(Places::Here)), "{line}");
    }
    for (line, count, want) in [
        ("copy a h:b", 1, "Guess(\"b\")"),
        ("copy a b c me@h:", 3, "Guess(\"\")"),
        ("copy -t h:d a", 1, "Into(\"d\")"),
        ("copy -T a h:/d", 1, "Exactly(\"/d\")"),
    ] {
        let Ok(Places::Put { sources, to, target }) = of(line) else { panic!("{line}: {:?}", of(line)) };
        assert_eq!((sources.len(), format!("{:?}", target(to.path))), (count, want.to_owned()), "{line}");
    }
    for (line, count, want) in [
        ("copy h:a b", 1, "Guess(\"b\")"),
        ("copy h:a h:b ssh://h/c .", 3, "Guess(\".\")"),
        ("copy -t d h:a h:b", 2, "Into(\"d\")"),
        ("copy -T [::1]:a b", 1, "Exactly(\"b\")"),
    ] {
        let Ok(Places::Get { from, target }) = of(line) else { panic!("{line}: {:?}", of(line)) };
        assert_eq!((from.len(), format!("{target:?}")), (count, want.to_owned()), "{line}");
    }
    for (line, count, want) in [
        ("copy h:a h:b", 1, "Guess(\"b\")"),
        ("copy h:a h:c ssh://g/b", 2, "Guess(\"/b\")"),
        ("copy -t h:d g:a", 1, "Into(\"d\")"),
    ] {
        let Ok(Places::Between { from, to, target }) = of(line) else { panic!("{line}: {:?}", of(line)) };
        assert_eq!((from.len(), format!("{:?}", target(to.path))), (count, want.to_owned()), "{line}");
    }
    for (line, say) in [
        ("copy a h:b h:c", "'a' is on this machine and 'h:b' is not"),
        ("copy a h:b c", "'a' is on this machine and 'h:b' is not"),
        ("copy h:a g:b c", "'h:a' and 'g:b' are not on one machine"),
        ("copy h:a me@h:b c", "'h:a' and 'me@h:b' are not on one machine"),
        ("copy h:a ssh://h:22/b c", "'h:a' and 'ssh://h:22/b' are not on one machine"),
        ("copy --port 23 ssh://h:22/a c", "'ssh://h:22/a' names another port than --port 23"),
        ("copy a :b", "':b' is no address"),
        ("copy :b", "':b' is no address"),
        ("copy -- -oProxyCommand=x:b", "'-oProxyCommand=x:b' is no address"),
        ("copy --target-directory=-h:b x", "'-h:b' is no address"),
    ] {
        let said = of(line).err().unwrap_or_else(|| panic!("{line} was taken")).said;
        assert!(said.starts_with(say), "{line}: {said}");
    }
    let port = |line: &str| of(line).unwrap().address().and_then(|a| a.port);
    assert_eq!(port("copy --port 23 h:a c"), Some(23));
    assert_eq!(port("copy --port 23 a ssh://h:23/c"), Some(23));
    assert_eq!(port("copy a h:c"), None);
}

#[test]
fn the_way_there() {
    let plain = way("", "");
    assert_eq!(
        (plain.way.ssh.as_slice(), plain.way.program.as_str()),
        ([OsString::from("ssh")].as_slice(), "bcmr")
    );
    assert_eq!((plain.way.parallel, plain.way.plane, plain.way.compress), (None, Plane::Ssh, Compress::Auto));
    assert!(plain.way.dedup && !plain.way.fast && !plain.bootstrap && plain.way.retries == 0);
    assert!(plain.way.options.is_empty());
    let all = "ssh = 'ssh -4 \"a b\"'\nparallel = 3\ncompress = 'lz4'\ndirect = 'direct'\ndedup = false\n\
               retries = 5\nbootstrap = true\nprogram = 'opt/bcmr'\n";
    let said = way("", all);
    assert_eq!(said.way.ssh, ["ssh", "-4", "a b"]);
    assert_eq!(
        (said.way.parallel, said.way.plane, said.way.compress),
        (Some(3), Plane::Direct, Compress::Lz4)
    );
    assert!(!said.way.dedup && said.bootstrap && said.way.retries == 5 && said.way.program == "opt/bcmr");
    let typed =
        "--ssh=x --parallel=2 --compress=zstd --direct=ssh --dedup --retries=0 --no-bootstrap --fast -oA=1";
    let typed = way(typed, all);
    assert_eq!((typed.way.ssh.len(), typed.way.parallel, typed.way.plane), (1, Some(2), Plane::Ssh));
    assert_eq!((typed.way.compress, typed.way.retries), (Compress::Zstd, 0));
    assert!(typed.way.dedup && !typed.bootstrap && typed.way.fast);
    assert_eq!(typed.way.options, ["-o", "A=1"]);
    assert!(way("--bootstrap", "").bootstrap && way("--no-bootstrap --bootstrap", "").bootstrap);
    assert!(!way("--remote-program=x", "bootstrap = true").bootstrap);
    assert!(!plain.way.whole_file && way("-W", "").way.whole_file && way("--whole-file", "").way.whole_file);
    assert!(!way("--no-dedup", "").way.dedup && !way("--dedup --no-dedup", "").way.dedup);
    assert_eq!(way("--direct", "").way.plane, Plane::Direct);
    assert_eq!(way("--compress=none", "compress = 'zstd'").way.compress, Compress::None);
    assert_eq!(way("", "parallel = 2\n[host.h]\nparallel = 7\n").way.parallel, Some(7));
}

#[test]
fn what_a_remote_copy_refuses() {
    for (line, config, say) in [
        ("copy --reflink=always a h:b", "", "--reflink=always is about copies on one machine"),
        ("copy --reflink h:a b", "", "--reflink=always is about copies on one machine"),
        ("copy --files-from l h:a h:b c", "", "with --files-from there is exactly one source"),
        ("copy --ssh= a h:b", "", "--ssh names no command"),
        ("copy --ssh=\" a h:b", "", "--ssh has a quote that is not closed"),
        ("copy a h:b", "ssh = ''", "'c' line 1: ssh names no command"),
        ("copy a h:b", "ssh = []", "'c' line 1: ssh names no command"),
        ("copy a h:b", "parallel = 0", "'c' line 1: 0 is not in 1..=64"),
        ("copy a h:b", "parallel = 65", "'c' line 1: 65 is not in 1..=64"),
        ("copy --remote-program=a;b a h:b", "", "'a;b' cannot be what bcmr is called there"),
        ("copy --remote-program=-x a h:b", "", "'-x' cannot be what bcmr is called there"),
        ("copy --remote-program=~/x a h:b", "", "'~/x' cannot be what bcmr is called there"),
        ("copy a h:b", "program = 'a b'", "'c' line 1: 'a b' cannot be what bcmr is called there"),
    ] {
        let usage = try_remote(line, config).err().unwrap_or_else(|| panic!("{line} was taken"));
        assert!(usage.said.starts_with(say), "{line}: {}", usage.said);
    }
    for line in ["copy --manifest m h:a b", "copy --files-from l h:a c", "copy --reflink=disable a h:b"] {
        try_remote(line, "").unwrap_or_else(|u| panic!("{line}: {u:?}"));
    }
}

#[test]
fn what_a_local_copy_refuses() {
    for (line, say) in [
        ("copy --parallel 2 a b", "--parallel has a meaning only with another machine"),
        ("copy -o X=1 a b", "-o has a meaning only with another machine"),
        ("copy --bootstrap a b", "--bootstrap has a meaning only with another machine"),
        ("copy --fast a b", "--fast goes with -C"),
    ] {
        let usage = try_copy(line).err().unwrap_or_else(|| panic!("{line} was taken"));
        assert!(usage.said.starts_with(say), "{line}: {}", usage.said);
    }
    assert_eq!(policy("-C --fast").resume, Resume::Fast);
}

/// D7: what scp would lose of what was asked for.
#[test]
fn what_is_lost_without_a_peer() {
    for (flags, want) in [
        ("", &[][..]),
        ("-r", &[]),
        ("-rL", &[]),
        ("-q --compress=zstd --parallel=2 --no-dedup -W", &[]),
        ("--fast --inplace --sparse=never -j3", &[]),
        ("-V", &["-V"]),
        ("-V=direct", &["-V"]),
        ("-C", &["-C"]),
        ("-s", &["-s"]),
        ("-a", &["-a"]),
        ("--sync", &["--sync"]),
        ("--archive", &["--archive"]),
        ("-p", &["-p"]),
        ("--archive --no-preserve=xattr", &["--archive", "--no-preserve"]),
        ("--preserve=links", &["--preserve"]),
        ("-f", &["-f"]),
        ("-i", &["-i"]),
        ("--no-clobber", &["--no-clobber"]),
        ("-u", &["--update"]),
        ("-n", &["-n"]),
        ("-e x", &["--exclude"]),
        ("--exclude-regex x", &["--exclude-regex"]),
        ("--gitignore", &["--gitignore"]),
        ("--files-from l", &["--files-from"]),
        ("-x", &["-x"]),
        ("-rP", &["-P"]),
        ("-rH", &["-H"]),
        ("-H", &[]),
        ("--sparse=always", &["--sparse"]),
        ("--direct", &["--direct"]),
        ("--retries=2", &["--retries"]),
        ("--bwlimit=1M", &["--bwlimit"]),
        ("--remote-sudo", &["--remote-sudo"]),
        ("--chown 1:2 --chmod go-w", &["--chown", "--chmod"]),
        ("--usermap 1:2 --groupmap 1:2 --numeric-ids", &["--usermap", "--groupmap", "--numeric-ids"]),
        ("--archive --fake-super", &["--archive", "--fake-super"]),
        ("-T", &["-T"]),
        ("-CV --sync", &["-V", "--sync", "-C"]),
        ("--include x", &["--include"]),
        ("--max-size 1M --min-size=1", &["--max-size", "--min-size"]),
    ] {
        let job = try_remote(&format!("copy {flags} a h:b"), "").unwrap_or_else(|u| panic!("{flags}: {u:?}"));
        assert_eq!(job.unkept, want, "{flags}");
    }
    assert_eq!(try_remote("copy -T h:a b", "").unwrap_or_else(|u| panic!("{u:?}")).unkept, ["-T"]);
}

/// Every verb against every kind of name with a colon, there on this machine or not.
#[test]
fn names_with_colons() {
    const HERE: IsHere<'_> = &|_| true;
    #[derive(Debug, PartialEq)]
    enum Taken {
        Here,
        There,
        Refused,
    }
    use Taken::{Here, Refused, There};
    let of = |line: &str, is_here: IsHere<'_>| {
        let operands = |o: &Operands, c: &ConnectArgs| match places(o, c, is_here) {
            Ok(Places::Here) => Here,
            Ok(_) => There,
            Err(_) => Refused,
        };
        let looked = |a: &LookArgs| match operand(&a.paths[0], &a.connect, is_here) {
            Ok(Operand::Here(path)) if path == a.paths[0] => Here,
            Ok(Operand::There(_)) => There,
            other => panic!("{other:?}"),
        };
        let fine = |fine: bool| if fine { Here } else { Refused };
        match parse(typed(line)).unwrap().command {
            Command::Copy(a) => operands(&a.operands, &a.connect),
            Command::Check(a) if a.manifest.is_some() => {
                fine(check::manifest(&a, &env(), is_here).unwrap().is_ok())
            }
            Command::Check(a) => operands(&a.operands, &a.connect),
            Command::Move(a) => {
                fine(move_::request(&a, &env()).is_ok_and(|(r, _)| r.sources == a.operands.paths[..1]))
            }
            Command::Remove(a) => match remove::named(&a, is_here) {
                Ok(remove::Named::Here) => {
                    fine(remove::request(&a, &env()).is_ok_and(|(r, _)| r.paths == a.paths))
                }
                Ok(remove::Named::There(_)) => There,
                Err(_) => Refused,
            },
            Command::Undo(a) => fine(!undo::request(&a, &env()).0.dry_run),
            Command::Sessions(a) => fine(sessions::shown(&a, &env()).is_ok()),
            Command::Ls(a) => looked(&a.look),
            Command::Stat(a) => looked(&a.look),
            Command::Du(a) => looked(&a.look),
            Command::Hash(a) => looked(&a),
            other => panic!("{other:?}"),
        }
    };
    const STAY: [&str; 3] = ["move NAME b", "move a NAME", "sessions NAME"];
    const GO: [&str; 9] = [
        "remove NAME",
        "copy NAME b",
        "copy a NAME",
        "copy -t NAME a",
        "check NAME b",
        "ls NAME",
        "stat NAME",
        "du NAME",
        "hash NAME",
    ];
    // As an address it leads there, or it is none at all.
    for (name, absent) in [("2026-01-01T12:30:00.log", There), ("h:", There), ("me@h:x", There)] {
        for line in STAY {
            let line = line.replace("NAME", name);
            assert_eq!((of(&line, HERE), of(&line, NOTHING_HERE)), (Here, Here), "{line}");
        }
        for line in GO {
            let line = line.replace("NAME", name);
            assert_eq!((of(&line, HERE), of(&line, NOTHING_HERE)), (Here, There), "{line}, {absent:?}");
        }
    }
    for name in [":x", "a*b:y", "::1", "h:~root", "s3://x"] {
        for line in STAY {
            assert_eq!(of(&line.replace("NAME", name), NOTHING_HERE), Here, "{line} {name}");
        }
        for line in ["copy NAME b", "copy a NAME", "check NAME b"] {
            assert_eq!(of(&line.replace("NAME", name), NOTHING_HERE), Refused, "{line} {name}");
            let want = if name.contains("//") { Refused } else { Here };
            assert_eq!(of(&line.replace("NAME", name), HERE), want, "{line} {name}");
        }
    }
    // What says of itself that it is an address is one.
    for line in GO {
        assert_eq!(of(&line.replace("NAME", "ssh://h/x"), HERE), There, "{line}");
    }
    assert_eq!(of("check --manifest m h:b", NOTHING_HERE), Refused);
    assert_eq!(of("check --manifest m h:b", HERE), Here);
    let paths = ["a", "./b:c", "h:x", ":y", "ssh://h/x"].map(PathBuf::from);
    assert_eq!(mistakable(&paths, HERE), [Path::new("h:x"), Path::new(":y")]);
    assert!(mistakable(&paths, NOTHING_HERE).is_empty());
}

#[test]
fn serving() {
    let with = |line: &str, config: &str, env: &Env| match parse(typed(line)).unwrap().command {
        Command::Serve(a) => {
            let config = crate::config::parse(config, Path::new("c"))?;
            serve::request(&a, config.store_keep(), env)
        }
        other => panic!("{other:?}"),
    };
    let of = |line: &str, env: &Env| with(line, "", env);
    let env = Env { stderr_tty: false, ..env() };
    let request = of("serve", &env).unwrap();
    assert_eq!(request.store, Some(("/home/me/.cache/bcmr/cas".into(), 1024 << 20, 0)));
    assert_eq!((request.root, request.read_only, request.home), (None, false, "/home/me".into()));
    let own = Env {
        store_dir: Some("/s".into()),
        store_cap_mb: Some("0".into()),
        store_keep: Some("2G".into()),
        ..env.clone()
    };
    let request = of("serve --root /r -j2", &own).unwrap();
    assert_eq!(
        (request.store, request.root, request.jobs),
        (Some(("/s".into(), 0, 2 << 30)), Some("/r".into()), 2)
    );
    for (said, config, keep) in [(None, "3G", 3 << 30), (Some("1M"), "3G", 1 << 20), (Some("0"), "3G", 0)] {
        let env = Env { store_keep: said.map(Into::into), ..env.clone() };
        let request = with("serve", &format!("store.keep = '{config}'"), &env).unwrap();
        assert_eq!(request.store.unwrap().2, keep, "{said:?}");
    }
    let said = with("serve", "store.keep = 'much'", &env).unwrap_err().said;
    assert_eq!(
        said,
        "'c' line 1: 'much' is no size: a number of bytes is needed; K, M, G, T behind it are powers of 1024, KB, MB, GB, TB of 1000"
    );
    assert_eq!(of("serve --no-store", &own).unwrap().store, None);
    assert_eq!(of("serve --read-only", &own).unwrap().store, None);
    assert_eq!(of("serve", &Env { cache_dir: None, ..env.clone() }).unwrap().store, None);
    for cap in ["x", "-1", "1.5", "99999999999999999999", "18446744073709551615"] {
        assert!(of("serve", &Env { store_cap_mb: Some(cap.into()), ..env.clone() }).is_err(), "{cap}");
    }
    assert!(of("serve", &Env { store_dir: Some("s".into()), ..env.clone() }).is_err());
    assert!(of("serve", &Env { stdout_tty: true, ..env.clone() }).is_err());
    assert!(of("serve", &Env { stdin_tty: true, ..env }).is_err());
}

#[test]
fn a_move_loses_nothing() {
    let (request, show) = try_move("move a b");
    let p = request.policy;
    assert!(p.recursive && p.specials && !request.merge);
    assert_eq!((p.preserve, p.follow, p.verify), (Preserve::ALL, Follow::Never, Verify::Cached));
    assert_eq!(show.again, Again::WithMerge);
    assert_eq!(try_move("move -V=direct a b").0.policy.verify, Verify::Direct);
    for (flags, want) in [
        ("-i -f", Collide::Replace),
        ("-f -i", Collide::Ask),
        ("-i --no-clobber", Collide::Keep),
        ("--no-clobber -f", Collide::Replace),
        ("-u", Collide::IfOlder),
    ] {
        assert_eq!(try_move(&format!("move {flags} a b")).0.policy.collide, want, "{flags}");
    }
    assert!(try_move("move -n a b").0.policy.dry_run);
}

#[test]
fn removing() {
    let r = remove_of("remove a");
    assert!(!r.recursive && !r.force && !r.ask && r.one_file_system && !r.empty_dirs);
    let r = remove_of("remove -fi a");
    assert!(r.ask && !r.force);
    let r = remove_of("remove -rif --cross-file-systems a");
    assert!(r.force && !r.ask && r.recursive && !r.one_file_system);
    assert!(!remove_of("remove --one-file-system --no-one-file-system a").one_file_system);
    assert!(remove_of("remove --cross-file-systems --one-file-system a").one_file_system);
    assert!(remove_of("remove -f").paths.is_empty());
}

#[test]
fn checking() {
    let of = |line: &str| match parse(typed(line)).unwrap().command {
        Command::Check(a) => check::request(&a, &env()).unwrap().0,
        other => panic!("{other:?}"),
    };
    let c = of("check a b");
    assert!(c.extra && c.policy.recursive);
    assert_eq!((c.compare, c.policy.follow), (Compare::ContentInDoubt, Follow::Operands));
    assert_eq!(of("check --quick a b").compare, Compare::SizeAndTime);
    let c = of("check -u -a --inplace a b").policy;
    assert_eq!((c.collide, c.resume, c.landing), (Collide::IfOlder, Resume::Append, Landing::InPlace));
    assert_eq!(of("check -r a b").policy.follow, Follow::Never);
    let c = of("check --hash --no-extra -e x a b");
    assert_eq!((c.compare, c.extra, c.policy.filter.rules.len()), (Compare::Hash, false, 1));
}

#[test]
fn showing() {
    let of = |flags: &str, env: &Env| match parse(typed(&format!("copy {flags} a b"))).unwrap().command {
        Command::Copy(a) => copy::request(&a, env).unwrap_or_else(|u| panic!("{u:?}")).show,
        other => panic!("{other:?}"),
    };
    let tty = env();
    let pipe = Env { stderr_tty: false, ..env() };
    let dumb = Env { dumb: true, ..env() };
    for (flags, env, want) in [
        ("", &tty, Meter::Inline),
        ("", &pipe, Meter::Off),
        ("", &dumb, Meter::Off),
        ("-q", &tty, Meter::Off),
        ("--progress=never", &tty, Meter::Off),
        ("--progress", &pipe, Meter::Lines),
        ("--progress", &dumb, Meter::Lines),
        ("--json", &pipe, Meter::Events),
        ("--json -q", &tty, Meter::Off),
    ] {
        assert_eq!(of(flags, env).meter, want, "{flags}");
    }
    for (flags, items) in [("", false), ("-v", true), ("-n", true), ("-nq", false), ("--json", true)] {
        assert_eq!(of(flags, &pipe).items, items, "{flags}");
    }
    let known = Env { taskbar: true, ..env() };
    for (flags, env, taskbar, title) in [
        ("", &tty, false, false),
        ("", &known, true, false),
        ("--progress-in=none", &known, false, false),
        ("--progress-in=title", &known, false, true),
        ("--progress-in=auto,title", &known, true, true),
        ("--progress-in=taskbar", &tty, true, false),
    ] {
        let signs = of(flags, env).signs;
        assert_eq!((signs.taskbar, signs.title), (taskbar, title), "{flags}");
    }
    let last = of("-v -q", &pipe);
    assert!(last.quiet && !last.verbose);
    assert_eq!(of("", &tty).again, Again::WithUpdate);
    assert_eq!(of("-u", &tty).again, Again::Same);
    for flags in ["--inplace", "--inplace -u", "-a", "--append=size"] {
        assert_eq!(of(flags, &tty).again, Again::InPlace, "{flags}");
    }
}

/// With a plan nothing else is said but how it is told: an option that was taken and passed over would be believed.
#[test]
fn a_plan_is_applied_with_its_own_options() {
    let told = [
        "apply",
        "verbose",
        "quiet",
        "progress",
        "progress_in",
        "json",
        "itemize",
        "stats",
        "report",
        "help",
    ];
    let mut all = Cli::command();
    all.build();
    let sync = all.find_subcommand("sync").unwrap();
    let apply = sync.get_arguments().find(|arg| arg.get_id() == "apply").unwrap();
    let refused: Vec<_> = sync.get_arg_conflicts_with(apply).iter().map(|arg| arg.get_id()).collect();
    let own = sync.get_arguments().filter(|arg| !arg.is_global_set());
    let taken: Vec<_> = own.map(|arg| arg.get_id()).filter(|id| !refused.contains(id)).collect();
    assert!(taken.iter().all(|id| told.contains(&id.as_str())), "{taken:?}");
}
