//! The first sentence with which each command introduces itself: in `-h`, `--help`, its man page and where it is
//! completed. All of them are made from the argument definitions, where the comment of another structure can take
//! the sentence's place.

use super::common::*;

/// Every command, its other name, and its sentence.
const COMMANDS: [(&str, Option<&str>, &str); 23] = [
    ("copy", None, "Copy files and directories"),
    ("move", None, "Move files and directories"),
    ("remove", None, "Remove files and directories"),
    ("check", None, "Say what a copy would change"),
    ("sync", None, "Make one directory what another one is"),
    ("undo", None, "Undo what a sync has done"),
    ("plan", None, "Cut a copy into shards that any machines do"),
    ("shard", None, "Do a shard of a plan"),
    ("finish", None, "Publish what the shards of a plan have copied"),
    ("sessions", None, "List what interrupted copies left, or remove it"),
    ("ctl", None, "Slow down, pause or ask a run that goes to or from another machine"),
    ("ls", None, "List a directory, here or on another machine"),
    ("stat", None, "Say what a name is, here or on another machine"),
    ("du", None, "Say how much is below a path, here or on another machine"),
    ("hash", None, "Print the BLAKE3 of files as b3sum does, here or on another machine"),
    ("mkdir", None, "Make directories, here or on another machine"),
    ("doctor", None, "Say which way a copy to or from a host would go, and why"),
    ("deploy", None, "Put this program into the cache of a host that lacks it"),
    ("serve", None, "Speak to a bcmr on another machine, over standard input and output"),
    ("init", None, "Print shell aliases for cp, mv, rm and install"),
    ("config", None, "Print what the configuration says: places, and defaults of verbs"),
    ("schema", None, "Print the JSON Schema of events"),
    ("completions", None, "Print completions for a shell"),
];

fn said<const N: usize>(words: [&str; N]) -> String {
    bcmr(words).run().ok().out
}

#[test]
fn each_command_introduces_itself_everywhere() {
    let tmp = Tmp::new();
    let pages = tmp.dir("man");
    bcmr(["man", pages.to_str().unwrap()]).run().ok();
    let mut found: Vec<_> = names(&pages);
    found.sort();
    let mut known: Vec<_> = COMMANDS.iter().map(|c| format!("bcmr-{}.1", c.0).into()).collect();
    known.push(std::ffi::OsString::from("bcmr.1"));
    known.sort();
    assert_eq!(found, known, "every command stands in the table above");
    let completed = said(["complete", "--index", "1", "--", "bcmr", ""]);
    let mut wrong = Vec::new();
    for (command, alias, sentence) in COMMANDS {
        for word in [Some(command), alias].into_iter().flatten() {
            // Where sizes are told, -h is how, as with ls and du.
            let flags: &[&str] = if matches!(word, "ls" | "du") { &["--help"] } else { &["-h", "--help"] };
            for flag in flags.iter().copied() {
                let text = said([word, flag]);
                if text.lines().next() != Some(sentence) {
                    wrong.push(format!("{word} {flag}: {:?}", text.lines().next()));
                }
            }
            if !completed.lines().any(|line| line == format!("{word}\t{sentence}")) {
                wrong.push(format!("completion of {word}"));
            }
        }
        let page = std::fs::read_to_string(pages.join(format!("bcmr-{command}.1"))).unwrap();
        let name = page.lines().skip_while(|l| *l != ".SH NAME").nth(1).unwrap_or_default();
        if name != format!("bcmr\\-{command} \\- {sentence}") {
            wrong.push(format!("man: {name}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The program's own page lists them all.
    let list = said(["--help"]);
    for (command, _, sentence) in COMMANDS {
        let line = list.lines().find(|l| l.trim_start().starts_with(&format!("{command} ")));
        assert!(line.is_some_and(|l| l.contains(sentence)), "{command}: {line:?}");
    }
}

/// `-h` has what most people use, and three examples; `--help` has everything.
#[test]
fn short_help_is_short() {
    let options = |text: &str| -> Vec<String> {
        let is_option = |line: &&str| line.trim_start().starts_with('-') && line.starts_with("  ");
        let name = |line: &str| line.split("  ").find(|part| !part.is_empty()).unwrap_or_default().to_owned();
        text.lines().filter(is_option).map(name).collect()
    };
    for verb in ["copy", "move", "remove", "check"] {
        let (short, long) = (said([verb, "-h"]), said([verb, "--help"]));
        let count = options(&short).len();
        // `-h` itself is one more.
        assert!((6..=21).contains(&count), "{verb} -h has {count} options");
        let examples = short.lines().filter(|l| l.starts_with(&format!("  bcmr {verb} "))).count();
        assert_eq!(examples, 3, "{short}");
        for option in options(&short) {
            let name = option.split(['[', '<', '=']).next().unwrap_or_default().trim();
            assert!(long.contains(name), "{verb}: {option} is in -h and not in --help");
        }
    }
    let long = said(["copy", "--help"]);
    let at = |text: &str| long.find(text).unwrap_or_else(|| panic!("{text} is not in copy --help"));
    assert!(at("What takes part:") < at("Output:") && at("Output:") < at("--queue-depth"), "knobs come last");
}

#[test]
fn the_version_says_what_was_built() {
    let (plain, all) = (said(["--version"]), said(["--version", "--verbose"]));
    assert!(plain.starts_with("bcmr ") && plain.lines().count() == 1, "{plain}");
    assert!(all.starts_with(&plain), "{all}");
    for line in ["commit: ", "target: ", "features: "] {
        assert_eq!(all.lines().filter(|l| l.starts_with(line) && l.len() > line.len()).count(), 1, "{all}");
    }
    assert_eq!(said(["--verbose", "--version"]), all);
    assert_eq!(said(["-V"]), plain);
}

#[test]
fn man_pages_lead_on() {
    let tmp = Tmp::new();
    let pages = tmp.dir("man");
    bcmr(["man", pages.to_str().unwrap()]).run().ok();
    let page = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap();
    let first = page("bcmr.1");
    let own = ["BCMR_CAS_DIR", "XDG_STATE_HOME", "XDG_DATA_HOME", "/bcmr\nHow", ".tree"];
    for section in
        [".SH FILES", ".SH ENVIRONMENT", ".SH \"SEE ALSO\"", ".BR bcmr\\-copy (1)"].iter().chain(&own)
    {
        assert!(first.contains(section), "{section}");
    }
    for (command, ..) in COMMANDS {
        let page = page(&format!("bcmr-{command}.1"));
        assert_eq!(page.matches(".SH \"SEE ALSO\"").count(), 1, "{command}");
        assert!(page.contains(".BR bcmr (1)"), "{command}");
        // Columns keep their lines.
        assert_eq!(
            page.matches(".SH EXTRA\n").count(),
            page.matches(".SH EXTRA\n.nf\n").count(),
            "{command}"
        );
        assert_eq!(page.matches("\n.nf\n").count(), page.matches("\n.fi\n.SH").count(), "{command}");
    }
    for page in ["bcmr-copy.1", "bcmr-remove.1", "bcmr-check.1"].map(page) {
        assert!(page.contains("(also \\-R)"), "{page}");
    }
    if has_tool("groff") {
        for name in names(&pages) {
            let name = name.to_str().unwrap().to_owned();
            let mut groff = std::process::Command::new("groff");
            let out = groff.args(["-man", "-Tutf8", "-ww", "-z"]).arg(pages.join(&name)).output().unwrap();
            assert!(
                out.status.success() && out.stderr.is_empty(),
                "{name}: {}",
                String::from_utf8_lossy(&out.stderr)
            );
        }
    }
}
