//! Aliases and completions in the shells that they are for, each on a terminal of its own: keys in, what it says out.

use super::common::*;
use super::terminal::Terminal;
use std::path::Path;

/// What is typed first: an alias of the user's own, and then those of `init`, which bring completions along.
const SHELLS: [(&str, &[&str], &str); 3] = [
    ("bash", &["--norc", "--noprofile", "-i"], r#"alias far='bcmr copy -v'; eval "$(bcmr init bash)""#),
    (
        "zsh",
        &["-f", "-i"],
        r#"autoload -Uz compinit; compinit -u -D; alias far='bcmr copy -v'; eval "$(bcmr init zsh)""#,
    ),
    ("fish", &["--no-config", "-i"], "alias far 'bcmr copy -v'; eval (bcmr init fish)"),
];

const TAB: &str = "\t";
/// To the beginning of the line.
const HOME: &str = "\x01";

/// What a completion counts with is its own: the variables of the shell stay as they are.
#[test]
fn completions_set_no_variable_of_the_shell() {
    needs!(has_tool("bash"), "there is no bash");
    let script = format!(
        r#"eval "$({BCMR} init bash)"
        bcmr() {{ {BCMR} "$@"; }}
        COMP_WORDS=(bcmr copy --no-cl) COMP_CWORD=2 before=
        before=$(compgen -v | grep -v '[A-Z]')
        _bcmr
        echo "${{COMPREPLY[@]}}"
        diff <(echo "$before") <(compgen -v | grep -v '[A-Z]')"#
    );
    let ran = Line::new(Path::new("bash")).args(["--norc", "-c", &script]).run();
    assert_eq!(ran.out, "--no-clobber\n", "{}", ran.err);
}

#[test]
fn completions_and_aliases_in_each_shell() {
    for (shell, args, begin) in SHELLS {
        if !has_tool(shell) {
            skipped("completions_and_aliases_in_each_shell", &format!("there is no {shell}"));
            continue;
        }
        let tmp = Tmp::new();
        tmp.file("w/wide file", "content");
        tmp.file("home/.ssh/config", "Host nas\n");
        tmp.dir("home/hdir");
        let in_home = |verb: &str| format!("{verb} {}", tmp.p("home/hdir").display());
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
            ("cp --no-targ", "cp --no-target-directory"),
            ("install --strip-p", "install --strip-program="),
            ("rm --one", "rm --one-file-system"),
            ("cp --backup=nu", "cp --backup=numbered"),
            ("mv --update=ol", "mv --update=older"),
            ("cp --preserve=mode,x", "cp --preserve=mode,xattr"),
            ("cp --sparse al", "cp --sparse always"),
            ("cp --target-directory=wi", "cp --target-directory=wide file"),
            ("far --no-cl", "far --no-clobber"),
            ("far na", "far nas:"),
            ("far --engine=ri", "far --engine=ring"),
        ] {
            // What the line has become is said by putting a command in front of it that says its words.
            terminal.type_in(&format!("{typed}{TAB}{HOME}echo said: \r"));
            terminal.until(&format!("said: {becomes}\r\n"));
        }
        // What the shell still has to expand or unquote it completes as it would without us.
        for (typed, becomes) in [
            ("bcmr copy ~/hd", in_home("bcmr copy")),
            ("cp ~/hd", in_home("cp")),
            ("bcmr copy $HOME/hd", in_home("bcmr copy")),
            ("bcmr copy wide\\ fi", "bcmr copy wide file".into()),
            ("mv 'wide fi", "mv wide file".into()),
        ] {
            if shell == "fish" && !typed.contains('~') {
                continue;
            }
            terminal.type_in(&format!("{typed}{TAB}{HOME}echo said: \r"));
            // Zsh takes the slash back.
            terminal.until(&format!("said: {becomes}"));
            terminal.until("\r\n");
        }
        terminal.type_in("cp -v 'wide file' copy\r");
        terminal.until("'wide file' -> 'copy'\r\n");
        terminal.type_in("exit\r");
        terminal.end();
        assert!(tmp.p("w/copy").exists(), "{shell}");
    }
}
