//! What a run shows of itself when it is done: the receipt, the command that proves it, the page, the schema of events.

use super::common::remote::*;
use super::common::*;
use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The command behind `proof: `, run by a shell where the copy ran.
fn prove(ran: &Ran, tmp: &Tmp) -> (i32, String) {
    let proof = ran.err.lines().find_map(|line| line.strip_prefix("bcmr: proof: "));
    let proof = proof.unwrap_or_else(|| panic!("no proof in {ran:?}"));
    let out = Command::new("bash").args(["-c", proof]).current_dir(tmp.path()).output().unwrap();
    (out.status.code().unwrap(), String::from_utf8_lossy(&out.stdout).into_owned())
}

/// What is told to prove a copy does, also where the destination was new and names are hard to type.
#[test]
fn the_proof_is_a_command_that_proves() {
    for (flags, dst, changed) in [
        ("-rv", "new one", "new one/sub/f"),
        ("-rVv", "there", "there/it's a tree/sub/f"),
        ("-v --archive -j2", "new one", "new one/sub/f"),
        ("-rv --no-clobber", "new one", "new one/sub/f"),
        ("-rv -u", "there", "there/it's a tree/sub/f"),
    ] {
        let tmp = Tmp::new();
        tmp.file("it's a tree/sub/f", "F");
        tmp.file("it's a tree/g", noise(1, 100_000));
        tmp.dir("there");
        let words = ["copy"].into_iter().chain(flags.split(' ')).chain(["it's a tree", dst]);
        let ran = bcmr(words).cwd(tmp.path()).run().ok();
        assert_eq!(prove(&ran, &tmp).0, 0, "{flags} {dst}: {ran:?}");
        // Of the same length, and as old as it was: only its content tells.
        let changed = tmp.p(changed);
        let old = std::fs::metadata(&changed).unwrap().modified().unwrap();
        std::fs::write(&changed, "X").unwrap();
        std::fs::File::options().write(true).open(&changed).unwrap().set_modified(old).unwrap();
        let (code, said) = prove(&ran, &tmp);
        assert!(code == 1 && said.contains('f'), "{flags} {dst}: {code} {said}");
    }
}

/// The root hash is what `sort` and `b3sum` make of the lines that `b3sum` writes in the destination.
#[test]
fn the_root_hash_is_of_what_is_there() {
    let tmp = Tmp::new();
    for n in 0..30 {
        tmp.file(format!("s/d{}/f {n}", n % 3), noise(n, n as usize * 3000));
    }
    tmp.file("s/odd\nname", "odd");
    // One that does not come with the small ones.
    tmp.file("s/large", noise(31, 9 << 20));
    let root_of = |dir: &Path| {
        let script = "find . -type f -printf '%P\\0' | xargs -0 \"$0\" hash | LC_ALL=C sort | \"$0\" hash -";
        let out = Command::new("sh").args(["-c", script, BCMR]).current_dir(dir).output().unwrap();
        String::from_utf8(out.stdout).unwrap().split(' ').next().unwrap().to_owned()
    };
    let far = Far::pipe();
    let here = |line: Line| line.args(["-rV", "--json"]).cwd(tmp.path());
    let (up, down) = (far.home().join("up"), far.home().join("s"));
    assert!(Command::new("cp").arg("-r").args([tmp.p("s"), down.clone()]).status().unwrap().success());
    for (line, dir) in [
        (here(bcmr(["copy"])).args(["s", "d"]), tmp.p("d")),
        (here(far.bcmr("copy")).args([OsString::from("s"), far.at(&up)]), up),
        (here(far.bcmr("copy")).args([far.at(&down), "down".into()]), tmp.p("down")),
    ] {
        let ran = line.run().ok();
        let receipt = ran.out.lines().find(|line| line.contains("\"receipt\"")).unwrap();
        let receipt: serde_json::Value = serde_json::from_str(receipt).unwrap();
        assert_eq!(receipt["verified"], "cache");
        assert_eq!(receipt["root"].as_str().unwrap_or("none"), root_of(&dir), "{}", dir.display());
        // It is kept for this, and not told for each file.
        assert!(!ran.out.contains("\"hashed\""), "{ran:?}");
    }
}

/// Clones, what was left alone and why, what filters and nobody took.
#[test]
fn what_was_skipped_and_why() {
    let tmp = Tmp::new();
    for name in ["a.txt", "b.txt", "c.o"] {
        tmp.file(format!("s/{name}"), name);
    }
    mkfifo(&tmp.p("s/pipe"));
    tmp.file("d/s/a.txt", "old");
    let ran = bcmr(["copy", "-rv", "--no-clobber", "-e", "*.o", "s", "d"]).cwd(tmp.path()).run().code(1);
    for line in [
        "bcmr: skipped: 1 left alone, as they were there (--no-clobber)",
        "bcmr: skipped: 1 name left out by filters",
        "bcmr: skipped: 's/pipe', a special file",
    ] {
        assert!(ran.err.lines().any(|l| l == line), "{line}: {ran:?}");
    }
    assert!(!ran.err.contains("proof: "), "not everything was copied");
    // What is left alone may differ, and then a check of the same operands would say so.
    for flag in ["--no-clobber", "-u", "--update=none"] {
        let tmp = Tmp::new();
        tmp.file("s/a", "new");
        let copy = || bcmr(["copy", "-rvT", flag, "s", "d"]).cwd(tmp.path()).run().ok();
        assert_eq!(prove(&copy(), &tmp).0, 0, "{flag}");
        tmp.file("d/a", "what was there");
        tmp.file("s/b", "new");
        let ran = copy();
        assert!(ran.err.contains("skipped: 1 left alone") && !ran.err.contains("proof: "), "{flag}: {ran:?}");
    }
    needs!(is_root() && has_tool("mkfs.xfs"), "clones need a file system that has them");
    let mount = match Mount::image("xfs", 400, &tmp.p("m")) {
        Ok(mount) => mount,
        Err(why) => return skipped("what_was_skipped_and_why", &why),
    };
    std::fs::write(mount.path().join("one"), noise(1, 1 << 20)).unwrap();
    let ran = bcmr(["copy", "-v", "one", "two"]).cwd(mount.path()).run().ok();
    ran.says("bcmr: cloned: 1 file, 1.0 MiB");
}

/// The page of a run: whole, without anything from elsewhere, and names in it are nothing but names.
#[test]
fn a_page_on_the_run() {
    let tmp = Tmp::new();
    tmp.file("s/<script>alert(1)<", "x");
    tmp.file("s/plain.jpg", noise(1, 300_000));
    tmp.file(OsStr::from_bytes(b"s/\"onload=\xff'&amp;"), "y");
    mkfifo(&tmp.p("s/<b>pipe<!--"));
    let ran = bcmr(["copy", "-rV", "--report", "run.html", "s", "d"]).cwd(tmp.path()).run().code(1);
    assert!(ran.out.is_empty(), "items are for the page: {ran:?}");
    let html = std::fs::read_to_string(tmp.p("run.html")).unwrap();
    for bad in ["<script", "<b>", "<!--pipe", "src=", "http:", "https:", "\"onload"] {
        assert!(!html.contains(bad), "{bad}: {html}");
    }
    for part in [
        "&lt;script&gt;alert(1)&lt;",
        ".jpg",
        "up to 1 MiB",
        "root hash",
        "Slowest files",
        "exit status 1",
        "&lt;b&gt;pipe",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
    assert_eq!(litter(tmp.path()), [] as [OsString; 0]);
    // Where it cannot be written, nothing is begun.
    let ran = bcmr(["copy", "-r", "--report", "no/run.html", "s", "e"]).cwd(tmp.path()).run().code(1);
    assert!(ran.err.contains("no") && !tmp.p("e").exists(), "{ran:?}");
    // A move and a copy to another machine have one as well.
    bcmr(["move", "--report", "moved.html", "d", "m"]).cwd(tmp.path()).run().ok();
    bcmr(["sync", "--report", "synced.html", "s", "d"]).cwd(tmp.path()).run();
    assert!(tmp.p("synced.html").exists());
    assert!(std::fs::read_to_string(tmp.p("moved.html")).unwrap().contains("<h1>bcmr move</h1>"));
    let far = Far::pipe();
    let page = OsString::from(format!("--report={}", tmp.p("far.html").display()));
    let to = far.at(far.home().join("there"));
    far.bcmr("copy").args([page, tmp.p("s/plain.jpg").into(), to]).run().ok();
    assert!(std::fs::read_to_string(tmp.p("far.html")).unwrap().contains(".jpg"));
}

/// What every line of `--json` is judged by in all tests is what users get, and it refuses what is no event.
#[test]
fn the_schema_tells_events_from_others() {
    let validator = event_schema();
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert!(validator.is_valid(&value(r#"{"schema":1,"event":"note","text":"a"}"#)));
    for wrong in [
        r#"{"schema":2,"event":"note","text":"a"}"#,
        r#"{"schema":1,"event":"note"}"#,
        r#"{"schema":1,"event":"notes","text":"a"}"#,
        r#"{"schema":1,"event":"note","text":1}"#,
        r#"{"schema":1,"event":"note","text":"a","more":1}"#,
        r#"{"schema":1,"event":"item","action":"copied","src":{"b32":"a"},"bytes":1}"#,
        r#"{"schema":1,"event":"item","action":"copied","src":"a","bytes":-1}"#,
    ] {
        assert!(!validator.is_valid(&value(wrong)), "{wrong}");
    }
}

/// Defaults stand behind the verb before what is typed; places stand for paths here and there. A broken configuration is
/// told and nothing is done, as what it was to say may be what the user relies on.
#[test]
fn defaults_and_places_of_the_configuration() {
    let tmp = Tmp::new();
    tmp.file("s/sub/f", "F");
    tmp.file("s/g.o", "G");
    let configured = |text: &str, words: &[&str]| {
        tmp.file("config/bcmr/config.toml", text);
        let mut line = bcmr(words).cwd(tmp.path());
        line.0.env("XDG_CONFIG_HOME", tmp.p("config"));
        line.run()
    };
    let disk = tmp.p("m").display().to_string();
    let defaults = format!(
        "[defaults]\ncopy = ['-r', '--exclude=*.o', '-v']\n[places]\ndisk = '{disk}'\nnear = '~/m'\n"
    );
    let defaults = defaults.as_str();
    let ran = configured(defaults, &["copy", "s", "d"]).ok();
    assert!(tmp.p("d/sub/f").exists() && !tmp.p("d/g.o").exists() && !ran.out.is_empty(), "{ran:?}");
    // What is typed comes later and counts more; or the defaults are left out.
    configured(defaults, &["copy", "-q", "s/g.o", "e.o"]).ok();
    configured(defaults, &["copy", "--no-defaults", "s", "e"]).code(1);
    let ran = configured(defaults, &["copy", "--no-defaults", "-r", "s", "e"]).ok();
    assert!(tmp.p("e/g.o").exists() && ran.out.is_empty(), "{ran:?}");
    // Other verbs have none.
    configured(defaults, &["remove", "e"]).code(1);
    // Places, in the hint too, and files that are called so.
    tmp.dir("m");
    configured(defaults, &["copy", "--no-defaults", "s/g.o", "@disk/here.o"]).ok();
    assert_eq!(std::fs::read(tmp.p("m/here.o")).unwrap(), b"G");
    let ran = configured(defaults, &["copy", "--no-defaults", "s", "@disk/s"]).code(1);
    ran.says("hint: to copy it with what is in it, run: ")
        .says(&format!(" copy --no-defaults s {disk}/s -r"));
    let mut line = bcmr(["ls", "@near"]).cwd(tmp.path());
    line.0.env("XDG_CONFIG_HOME", tmp.p("config")).env("HOME", tmp.path());
    assert_eq!(line.run().ok().out, "here.o\n");
    // What would be relative to wherever the command runs, or to nothing at all.
    for place in ["", " ", "m", "./m", "@disk/x"] {
        let ran = configured(&format!("[places]\nnas = '{place}'\n"), &["remove", "-rn", "@nas/s"]).code(2);
        ran.says("config.toml' line 2: ").says("is no place");
    }
    let ran = configured(defaults, &["copy", "s/g.o", "@typo"]).code(2);
    assert!(!tmp.p("@typo").exists() && ran.err.contains("./@NAME"), "{ran:?}");
    configured(defaults, &["copy", "-q", "s/sub/f", "./@typo"]).ok();
    configured(defaults, &["copy", "-q", "@typo", "again"]).ok();
    assert_eq!(std::fs::read(tmp.p("again")).unwrap(), b"F");
    let said = configured(defaults, &["config"]).ok().out;
    assert!(
        said.contains(&format!("@disk = {disk}\n"))
            && said.contains("defaults of copy: -r '--exclude=*.o' -v\n"),
        "{said}"
    );
    for broken in
        ["[defaults]\ncopi = []\n", "[defaults]\ncopy = ['x']\n", "nonsense\n[defaults]\ncopy = []\n"]
    {
        let ran = configured(broken, &["copy", "s/g.o", "never"]).code(2);
        assert!(ran.err.contains("config.toml") && !tmp.p("never").exists(), "{broken}: {ran:?}");
        configured(broken, &["copy", "--no-defaults", "s/g.o", "once"]).ok();
    }
    // One that cannot be read may be about defaults: what they keep from being removed stays.
    tmp.file("config/bcmr/config.toml", b"# M\xfcller\n[defaults]\nremove = ['-i']\n");
    let remove = |at: &str| {
        let mut line = bcmr(["remove", at]).cwd(tmp.path());
        line.0.env("XDG_CONFIG_HOME", tmp.p("config"));
        line.run()
    };
    remove("s/g.o").code(2).says("config.toml");
    std::fs::remove_file(tmp.p("config/bcmr/config.toml")).unwrap();
    std::fs::create_dir(tmp.p("config/bcmr/config.toml")).unwrap();
    remove("s/g.o").code(2).says("config.toml");
    assert!(tmp.p("s/g.o").exists());
    std::fs::remove_dir(tmp.p("config/bcmr/config.toml")).unwrap();
    // Where it cannot be about defaults, it is no reason not to copy here; it is one where a place is named.
    configured("nonsense", &["copy", "s/g.o", "twice"]).ok();
    configured("[places]\n'a/b' = 'x'\n", &["copy", "s/g.o", "@x"]).code(2).says("no name of a place");
    // Help instead of every copy, or defaults that are always left out.
    for word in ["-h", "--help", "-vh", "--no-defaults"] {
        let ran = configured(&format!("[defaults]\ncopy = ['{word}']\n"), &["copy", "s/g.o", "helped"]);
        ran.code(2).says("config.toml").says("defaults of copy");
    }
    // A FIFO is not waited for.
    let file = tmp.p("config/bcmr/config.toml");
    std::fs::remove_file(&file).unwrap();
    mkfifo(&file);
    remove("s/g.o").code(2).says("it is no regular file");
    std::fs::remove_file(&file).unwrap();
    configured("[defaults]\ncopy = ['--nonsense']\n", &["copy", "a", "b"])
        .code(2)
        .says("--no-defaults leaves them out");
}

/// What is typed counts more, wherever clap would have it stand; what is about other machines has no meaning here, and is refused
/// only where it was typed; and what does not go together is told to come from defaults.
#[test]
fn what_is_typed_counts_more_than_defaults() {
    // Defaults, what is typed, and what then is in the older `a` and the newer `b`.
    let rows = [
        ("'--no-clobber'", "copy", "OLD NEW"),
        ("'--no-clobber'", "copy -u", "S NEW"),
        ("'--no-clobber'", "copy --update=all", "S S"),
        ("'--no-clobber'", "copy -f", "S S"),
        ("'--update=none'", "copy -f", "S S"),
        ("'-u'", "copy --no-clobber", "OLD NEW"),
        ("'-u'", "copy -f", "S NEW"),
        ("'-i'", "copy -u", "S NEW"),
        ("'-i'", "copy --update=different", "S S"),
        ("'-u'", "copy -i", "S OTHER"),
        ("'--no-clobber'", "move -u", "S NEW"),
        ("'--no-clobber'", "move -f", "S S"),
        ("'-i'", "move -u", "S NEW"),
        ("'--retries=3', '--compress=none'", "copy", "S S"),
        ("'--retries=3', '--bwlimit=1M'", "sync", "S S"),
        ("'--port=22', '--no-clobber'", "move", "OLD NEW"),
    ];
    for (defaults, line, want) in rows {
        let tmp = Tmp::new();
        let age = |name: &str, secs: u64| {
            let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(secs);
            std::fs::File::options().write(true).open(tmp.p(name)).unwrap().set_modified(at).unwrap();
        };
        for (name, content, secs) in
            [("s/a", "S", 1_000_000), ("s/b", "S", 1_000_000), ("d/a", "OLD", 1), ("d/b", "NEW", 2_000_000)]
        {
            tmp.file(name, content);
            age(name, secs);
        }
        let verb = line.split(' ').next().unwrap();
        tmp.file("config/bcmr/config.toml", format!("[defaults]\n{verb} = [{defaults}]\n"));
        let operands = if verb == "sync" { &["s", "d"][..] } else { &["s/a", "s/b", "d"] };
        // Who is asked says yes to the first one, and no to the other.
        let mut ran = bcmr(line.split(' ').chain(operands.iter().copied())).cwd(tmp.path()).input("y\nn\n");
        ran.0.env("XDG_CONFIG_HOME", tmp.p("config"));
        let ran = ran.run().ok();
        let of = |name: &str| std::fs::read_to_string(tmp.p(name)).unwrap();
        let got = format!("{} {}", of("d/a"), of("d/b"));
        assert_eq!(got, want.replace("OTHER", "NEW"), "{defaults} {line}: {ran:?}");
    }
    let tmp = Tmp::new();
    tmp.file("s/f", "F");
    let configured = |defaults: &str, words: &[&str]| {
        tmp.file("config/bcmr/config.toml", format!("[defaults]\ncopy = [{defaults}]\n"));
        let mut line = bcmr(words).cwd(tmp.path());
        line.0.env("XDG_CONFIG_HOME", tmp.p("config"));
        line.run()
    };
    configured("'--retries=3'", &["copy", "--compress=none", "s/f", "x"]).code(2).says("--compress");
    configured("'-i', '-u'", &["copy", "s/f", "x"]).code(2).says("--no-defaults leaves them out");
    // A default that is not wanted together with what is typed is not left out: it may be what protects.
    for (defaults, words) in [
        ("'-vn'", &["copy", "--mkpath", "s/f", "x"][..]),
        ("'-iT'", &["copy", "-t", "s", "s/f"]),
        ("'-C'", &["copy", "-s", "s/f", "x"]),
    ] {
        let ran = configured(defaults, words).code(2);
        ran.says("the defaults of copy").says("--no-defaults leaves them out");
    }
    configured("'-C', '-s'", &["copy", "s/f", "x"]).code(2).says("--no-defaults leaves them out");
    configured("'-C'", &["copy", "--direct-io", "s/f", "x"]).code(2).says("--no-defaults leaves them out");
    // What makes no sense as it was typed is not the configuration's.
    let globs = format!("--exclude-from={}", tmp.p("none").display());
    for words in [
        &["copy", "s/f"][..],
        &["copy", "--nonsense", "s/f", "x"],
        &["copy", "-i", "-u", "s/f", "x"],
        &["copy", "--direct-io", "-C", "s/f", "x"],
        &["copy", "--direct-io", "s/f", "h:x"],
        &["copy", "--via-source", "s/f", "h:x"],
        &["copy", "s/f", "@typo"],
        &["copy", &globs, "s/f", "x"],
    ] {
        let ran = configured("'-V', '--jobs=2'", words).code(2);
        assert!(!ran.err.contains("defaults"), "{words:?}: {}", ran.err);
    }
    // An option without its value takes no word that is typed.
    for (defaults, word) in [("'-e'", "'-e'"), ("'-t'", "'-t'"), ("'-rt'", "'-rt'"), ("'--jobs'", "'--jobs'")]
    {
        let ran = configured(defaults, &["copy", "s/f", "x", "y"]).code(2);
        ran.says(&format!("{word} among the defaults of copy lacks its value"));
    }
    assert_eq!(names(tmp.path()), ["config", "s"]);
    configured("'-eo', '-V'", &["copy", "s/f", "x"]).ok();
}

/// Which names of a manifest are compared is said where it is named: filters that are defaults are about trees.
#[test]
fn a_manifest_is_compared_without_filters_of_defaults() {
    let tmp = Tmp::new();
    tmp.file("s/a", "A");
    tmp.file("s/b.o", "B");
    bcmr(["copy", "-r", "--manifest", "sums", "s/.", "d"]).cwd(tmp.path()).run().ok();
    tmp.file("d/b.o", "damaged");
    for defaults in
        ["'--exclude=*.o'", "'--gitignore'", "'--newer=@1', '--max-size=1'", "'--exclude-from=none'"]
    {
        tmp.file("config/bcmr/config.toml", format!("[defaults]\ncheck = [{defaults}]\n"));
        let check = |flags: &[&str]| {
            let mut line = bcmr([&["check"], flags, &["--manifest", "sums", "d"]].concat()).cwd(tmp.path());
            line.0.env("XDG_CONFIG_HOME", tmp.p("config"));
            line.run()
        };
        let ran = check(&[]).code(1);
        assert!(ran.out.contains("1 different") && !ran.out.contains("left out"), "{defaults}: {ran:?}");
        check(&["-e", "b.o"]).ok();
        check(&["--max-size=9"]).code(2).says("--max-size is about files of a source");
    }
}

/// A place below the home directory is nowhere where that is not known; the current directory is another.
#[test]
fn a_place_below_no_home_is_refused() {
    let tmp = Tmp::new();
    tmp.file("s", "S");
    tmp.file("config/bcmr/config.toml", "[places]\nbk = '~/bk'\n");
    for home in [None, Some(""), Some("rel")] {
        let mut line = bcmr(["copy", "s", "@bk"]).cwd(tmp.path());
        line.0.env("XDG_CONFIG_HOME", tmp.p("config")).env_remove("HOME");
        line.0.envs(home.map(|home| ("HOME", home)));
        line.run().code(2).says("HOME does not say where that is");
    }
    assert_eq!(names(tmp.path()), ["config", "s"]);
    let mut line = bcmr(["copy", "s", "@bk"]).cwd(tmp.path());
    line.0.env("XDG_CONFIG_HOME", tmp.p("config")).env("HOME", tmp.path());
    line.run().ok();
    assert_eq!(names(tmp.path()), ["bk", "config", "s"]);
}

/// Defaults of a copy are in the command that proves it, and those of a check are not.
#[test]
fn the_proof_of_a_copy_with_defaults() {
    for (defaults, damaged) in [
        ("check = ['--exclude=a']", true),
        ("check = ['--quick']", true),
        ("copy = ['--exclude=*.o']", true),
        ("copy = ['--archive', '-V']\ncheck = ['--no-extra', '--exclude=a']", true),
        ("copy = ['--archive']", false),
    ] {
        let tmp = Tmp::new();
        tmp.file("s/a", "A");
        tmp.file("s/b.o", "B");
        tmp.file("config/bcmr/config.toml", format!("[defaults]\n{defaults}\n"));
        let mut line = bcmr(["copy", "-rv", "s", "d"]).cwd(tmp.path());
        line.0.env("XDG_CONFIG_HOME", tmp.p("config"));
        let ran = line.run().ok();
        let proof = ran.err.lines().find_map(|line| line.strip_prefix("bcmr: proof: ")).unwrap();
        let prove = || {
            let mut shell = Command::new("bash");
            shell.args(["-c", proof]).current_dir(tmp.path()).env("XDG_CONFIG_HOME", tmp.p("config"));
            shell.output().unwrap().status.code()
        };
        assert_eq!(prove(), Some(0), "{defaults}: {proof}");
        // What was copied is another one by now, or has other attributes.
        let old = std::fs::metadata(tmp.p("d/a")).unwrap().modified().unwrap();
        if damaged {
            std::fs::write(tmp.p("d/a"), "X").unwrap();
            std::fs::File::options().write(true).open(tmp.p("d/a")).unwrap().set_modified(old).unwrap();
        } else {
            chmod(&tmp.p("d/a"), 0o611);
        }
        assert_eq!(prove(), Some(1), "{defaults}: {proof}");
    }
}

/// A configuration that is the user's own and closed is no reason to do without it; one where the user may not even look is
/// another's.
#[test]
fn a_configuration_that_is_closed_may_have_defaults() {
    needs!(is_root(), "only root can act as another user");
    let tmp = Tmp::for_others();
    let config = tmp.file("config/bcmr/config.toml", "[defaults]\nremove = ['-i']\n");
    tmp.dir("d");
    let close = |path: &Path| std::fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
    std::os::unix::fs::chown(tmp.p("d"), Some(NOBODY), Some(NOBODY)).unwrap();
    let remove = || {
        tmp.file("d/f", "f");
        let mut line = bcmr_as(NOBODY, &tmp, ["remove", "d/f"]).cwd(tmp.path());
        line.0.env("XDG_CONFIG_HOME", tmp.p("config"));
        line.run()
    };
    close(&config);
    remove().code(2).says("config.toml");
    assert!(tmp.p("d/f").exists());
    close(&tmp.p("config"));
    remove().ok();
}

/// `-` is standard input or standard output, with all that a copy promises of the name that it makes.
#[test]
fn standard_input_and_output() {
    let tmp = Tmp::new();
    let big = noise(1, 3 << 20);
    tmp.file("big", &big);
    tmp.file("there", "old");
    tmp.dir("dir");
    let shell = |script: &str| {
        let out = Command::new("bash").args(["-c", script, BCMR]).current_dir(tmp.path()).output().unwrap();
        (out.status.code().unwrap(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    for (script, at) in [
        ("cat big | \"$0\" copy - new", "new"),
        ("\"$0\" copy -V - there < big", "there"),
        ("cat big | \"$0\" copy -T - exact", "exact"),
        ("\"$0\" copy big - > out", "out"),
        ("\"$0\" copy big - | cat > piped", "piped"),
    ] {
        let (code, err) = shell(script);
        assert_eq!((code, err.as_str()), (0, ""), "{script}");
        assert_eq!(std::fs::read(tmp.p(at)).unwrap(), big, "{script}");
    }
    // From where it stands, and behind what is there already.
    assert_eq!(shell("{ head -c 0; read -r -N 1 x; \"$0\" copy - rest; } < <(printf abc)").0, 0);
    assert_eq!(std::fs::read(tmp.p("rest")).unwrap(), b"bc");
    assert_eq!(shell("printf head > log; \"$0\" copy there - >> log").0, 0);
    assert_eq!(std::fs::metadata(tmp.p("log")).unwrap().len(), 4 + big.len() as u64);
    // A directory has no name for it; several sources and trees are no stream.
    for script in [
        "\"$0\" copy - dir < big",
        "\"$0\" copy - big x < big",
        "\"$0\" copy -r - x < big",
        "\"$0\" copy -i - x < big",
        "\"$0\" copy -C - x < big",
        "\"$0\" copy -v big -",
        "\"$0\" copy dir -",
        "\"$0\" copy - host:x < big",
    ] {
        let (code, err) = shell(script);
        assert!(matches!(code, 1 | 2) && err.starts_with("bcmr: "), "{script}: {code} {err}");
        assert!(!tmp.p("x").exists(), "{script}");
    }
    assert_ne!(shell("set -o pipefail; \"$0\" copy big - | true").0, 0, "what is not read is not copied");
    // Stopped in the middle, nothing has appeared, and what was there is as it was.
    tmp.file("kept", "kept");
    let mut waiting = bcmr(["copy", "-", "kept"]).cwd(tmp.path());
    let (read, mut write) = std::io::pipe().unwrap();
    let drained = read.try_clone().unwrap();
    waiting.0.stdin(read);
    std::io::Write::write_all(&mut write, b"half").unwrap();
    let waiting = waiting.start();
    // What was written is read: it is in the middle of it.
    assert!(within(60, || rustix::io::ioctl_fionread(&drained).unwrap() == 0));
    waiting.signal(rustix::process::Signal::TERM);
    waiting.wait().code(143);
    assert_eq!(std::fs::read(tmp.p("kept")).unwrap(), b"kept");
    assert_eq!(litter(tmp.path()), [] as [OsString; 0]);
}

/// What may stand where the cursor is: by the definitions, by ssh's files and by the configuration; and names on another
/// machine only by a connection that is shared already. Nothing else is ever asked of ssh.
#[test]
fn completions_know_hosts_and_places() {
    let tmp = Tmp::new();
    tmp.file("home/.ssh/config", "Host nas backup\n  User me\nHost *\n");
    tmp.file("home/.ssh/known_hosts", "old.example,10.0.0.9 ssh-ed25519 A\n|1|x= ssh-rsa B\n");
    tmp.file("home/.config/bcmr/config.toml", "[places]\nnest = 'nas:/srv'\n");
    tmp.file("near.txt", "");
    let ssh = tmp.file("bin/ssh", "#!/bin/sh\necho \"$*\" >> \"$HOME/asked\"\ncase \"$*\" in\n*check*) [ -e \"$HOME/master\" ] ;;\n*ls*) printf 'photos/\\nphone\\n.hidden\\nother\\n' ;;\nesac\n");
    chmod(&ssh, 0o755);
    let complete = |words: &[&str]| -> Vec<String> {
        let index = (words.len() - 1).to_string();
        let mut line = bcmr(["complete", "--index", &index, "--"]).args(words).cwd(tmp.path());
        line.0.env("HOME", tmp.p("home")).env_remove("XDG_CONFIG_HOME");
        line.0.env("PATH", format!("{}:/usr/bin:/bin", tmp.p("bin").display()));
        let ran = line.run().ok();
        ran.out.lines().map(|l| l.split('\t').next().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(complete(&["bcmr", "copy", "n"]), ["nas:", "near.txt"]);
    assert_eq!(complete(&["bcmr", "copy", "-r", "near.txt", "old"]), ["old.example:"]);
    assert_eq!(complete(&["bcmr", "ls", "@"]), ["@nest"]);
    assert_eq!(complete(&["bcmr", "doctor", "b"]), ["backup"]);
    assert_eq!(complete(&["bcmr", "copy", "--compress=z"]), ["--compress=zstd"]);
    assert!(complete(&["bcmr", "copy", "--rec"]).contains(&"--recursive".to_owned()));
    assert!(
        !complete(&["bcmr", "copy", "--exclude", "n"]).contains(&"nas:".to_owned()),
        "a pattern is no host"
    );
    assert!(!tmp.p("home/asked").exists(), "ssh was not needed");
    // No connection is shared: ssh is asked for that alone.
    assert_eq!(complete(&["bcmr", "copy", "nas:dir/ph"]), [] as [&str; 0]);
    let asked = || std::fs::read_to_string(tmp.p("home/asked")).unwrap();
    assert_eq!(asked().lines().count(), 1, "{}", asked());
    tmp.file("home/master", "");
    assert_eq!(complete(&["bcmr", "copy", "nas:dir/ph"]), ["nas:dir/phone", "nas:dir/photos/"]);
    assert_eq!(complete(&["bcmr", "copy", "nas:"]), ["nas:other", "nas:phone", "nas:photos/"]);
    assert!(
        asked().lines().all(|call| call.contains("BatchMode=yes") && call.contains("ControlMaster=no")),
        "{}",
        asked()
    );
    // In bash, which breaks words at colons.
    let script = format!(
        "PATH={}:$PATH; eval \"$(bcmr completions bash)\"; compopt() {{ :; }}; COMP_WORDS=(bcmr copy nas : dir/pho); COMP_CWORD=4; _bcmr; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        tmp.p("bin").display()
    );
    std::os::unix::fs::symlink(BCMR, tmp.p("bin/bcmr")).unwrap();
    let out = Command::new("bash")
        .args(["-c", &script])
        .env("HOME", tmp.p("home"))
        .current_dir(tmp.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "dir/phone\ndir/photos/\n", "{out:?}");
}
