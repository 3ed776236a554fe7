//! Aliases and completions in the shells that they are for, each on a terminal of its own: keys in, what it says out.

use super::common::*;
use super::terminal::Terminal;
use std::path::Path;

/// What is typed first, and whether that shell completes the options of an alias (only zsh asks for what it stands for).
const SHELLS: [(&str, &[&str], &str, bool); 3] = [
    (
        "bash",
        &["--norc", "--noprofile", "-i"],
        r#"eval "$(bcmr completions bash)"; eval "$(bcmr init bash)""#,
        false,
    ),
    (
        "zsh",
        &["-f", "-i"],
        r#"autoload -Uz compinit; compinit -u -D; eval "$(bcmr completions zsh)"; eval "$(bcmr init zsh)""#,
        true,
    ),
    ("fish", &["--no-config", "-i"], "bcmr completions fish | source; eval (bcmr init fish)", false),
];

const TAB: &str = "\t";
/// To the beginning of the line.
const HOME: &str = "\x01";

#[test]
fn completions_and_aliases_in_each_shell() {
    for (shell, args, begin, of_alias) in SHELLS {
        if !has_tool(shell) {
            skipped("completions_and_aliases_in_each_shell", &format!("there is no {shell}"));
            continue;
        }
        let tmp = Tmp::new();
        tmp.file("w/wide file", "content");
        tmp.dir("home");
        let mut line = Line::new(Path::new(shell)).args(args).cwd(&tmp.p("w"));
        let path = std::env::var("PATH").unwrap_or_default();
        let program = Path::new(BCMR).parent().unwrap();
        line.0.env("PATH", format!("{}:{path}", program.display())).env("HOME", tmp.p("home"));
        let mut terminal = Terminal::start(line);
        terminal.type_in(&format!("{begin}; echo rea''dy\r"));
        terminal.until("ready\r\n");
        for (typed, becomes) in [
            ("bcmr copy --no-cl", "bcmr copy --no-clobber"),
            ("bcmr copy wi", "bcmr copy wide file"),
            ("bcmr comp", "bcmr completions"),
            ("bcmr cp --no-targ", "bcmr cp --no-target-directory"),
            ("bcmr mv wi", "bcmr mv wide file"),
            ("cp wi", "cp wide file"),
            ("cp --no-targ", if of_alias { "cp --no-target-directory" } else { "cp --no-targ" }),
        ] {
            // What the line has become is said by putting a command in front of it that says its words.
            terminal.type_in(&format!("{typed}{TAB}{HOME}echo said: \r"));
            terminal.until(&format!("said: {becomes}\r\n"));
        }
        terminal.type_in("cp -v 'wide file' copy\r");
        terminal.until("'wide file' -> 'copy'\r\n");
        terminal.type_in("exit\r");
        terminal.end();
        assert!(tmp.p("w/copy").exists(), "{shell}");
    }
}
