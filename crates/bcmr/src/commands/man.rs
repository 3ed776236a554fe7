//! `man`: pages made from the definitions in `cli`, with what they cannot know behind them: files, environment, other pages.

use crate::cli::bcmr;
use crate::voice::BCMR;
use std::fs;
use std::io;
use std::path::Path;

/// The head of what stands behind the options.
const EXTRA: &str = ".SH EXTRA\n";

/// Of bcmr(1).
const FILES: &str = "\
.SH FILES
.TP
.I ${XDG_CONFIG_HOME:\\-~/.config}/bcmr/config.toml
What holds for every copy to and from another machine, and for single hosts; places and defaults of verbs:
.BR bcmr.toml (5).
.TP
.I ${XDG_CACHE_HOME:\\-~/.cache}/bcmr
The store of blocks of
.BR bcmr\\-serve (1),
that of what was downloaded, and programs that
.BR bcmr\\-deploy (1)
has put there.
.TP
.I ${XDG_STATE_HOME:\\-~/.local/state}/bcmr
How the sources of
.BR bcmr\\-sync (1)
were mounted, and the receipts of what it has moved to the trash, for
.BR bcmr\\-undo (1).
.TP
.IR .bcmr\\-* .part ,\\  .bcmr\\-* .session ,\\  .bcmr\\-* .stage
What a running or interrupted copy keeps beside its destination;
.BR bcmr\\-sessions (1)
lists and removes it.
.TP
.IR .bcmr\\-* .tree
Says of the directory that it is in that not all of it is there yet.
.SH ENVIRONMENT
.TP
.B NO_COLOR
If it is set and not empty, nothing is coloured.
.TP
.B TERM
If it is not set, or \\(lqdumb\\(rq, no progress line is drawn.
.TP
.BR XDG_CONFIG_HOME ,\\  XDG_CACHE_HOME ,\\  XDG_RUNTIME_DIR ,\\  TMPDIR ,\\  HOME
Where files are looked for and sockets are made.
.TP
.BR XDG_STATE_HOME ,\\  XDG_DATA_HOME
Where receipts are, and the trash.
.TP
.BR BCMR_CAS_DIR ,\\  BCMR_CAS_CAP_MB ,\\  BCMR_CAS_KEEP
Where stores of blocks are, how much each remembers in MiB, and how much of blocks it keeps.
";

/// Writes bcmr(1) and one page for each command into `dir`, or prints bcmr(1).
pub fn run(dir: Option<&Path>) -> u8 {
    match dir {
        Some(dir) => match clap_mangen::generate_to(whole(), dir).and_then(|()| extend(dir)) {
            Ok(()) => BCMR.exits.done,
            Err(e) => super::verb::file_failed("write man pages into", dir, &e),
        },
        None => {
            let mut page = Vec::new();
            match clap_mangen::Man::new(whole()).render(&mut page) {
                Ok(()) => {
                    super::verb::print(&format!("{}{FILES}", unfilled(&String::from_utf8_lossy(&page))))
                }
                Err(e) => super::verb::file_failed("write", Path::new("bcmr.1"), &e),
            }
        }
    }
}

/// All commands with all their options, which are defined only when they are built.
fn whole() -> clap::Command {
    let mut command = bcmr::command().disable_help_subcommand(true);
    command.build();
    told(command)
}

/// Pages tell of every option, where `-h` tells of some, and of its other letters, which the pages' maker leaves out.
fn told(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| with_letters(arg.hide_short_help(false))).mut_subcommands(told)
}

fn with_letters(arg: clap::Arg) -> clap::Arg {
    let letters = arg.get_visible_short_aliases().unwrap_or_default();
    let letters: Vec<String> = letters.iter().map(|letter| format!("-{letter}")).collect();
    if letters.is_empty() {
        return arg;
    }
    let with = |help: &clap::builder::StyledStr| format!("{help} (also {})", letters.join(", "));
    let (help, long) = (arg.get_help().map(with), arg.get_long_help().map(with));
    let arg = if let Some(help) = help { arg.help(help) } else { arg };
    if let Some(long) = long { arg.long_help(long) } else { arg }
}

/// Examples and what else stands in columns keep their lines, where a page would fill them.
fn unfilled(page: &str) -> String {
    match page.split_once(EXTRA) {
        Some((before, columns)) => format!("{before}{EXTRA}.nf\n{columns}.fi\n"),
        None => page.to_owned(),
    }
}

/// Appends to the pages in `dir` what the definitions do not know.
fn extend(dir: &Path) -> io::Result<()> {
    let command = bcmr::command();
    let verbs: Vec<&str> =
        command.get_subcommands().filter(|c| !c.is_hide_set()).map(clap::Command::get_name).collect();
    let append = |page: &str, text: &str| {
        let file = dir.join(format!("{page}.1"));
        let made = fs::read_to_string(&file)?;
        fs::write(&file, unfilled(&made) + text)
    };
    let pages = verbs.iter().map(|verb| format!("bcmr-{verb}"));
    let others = ["bcmr.toml", "bcmr-json", "bcmr-remote"].map(str::to_owned);
    append("bcmr", &format!("{FILES}{}", see_also(pages.chain(others))))?;
    for verb in &verbs {
        let others = match *verb {
            "copy" => &["bcmr-check", "bcmr-sessions", "bcmr-remote", "cp"][..],
            "schema" => &["bcmr-json"],
            "config" => &["bcmr.toml"],
            "move" => &["bcmr-copy", "mv"],
            "remove" => &["rm"],
            "check" => &["bcmr-copy", "b3sum"],
            "sessions" => &["bcmr-copy"],
            "ctl" => &["bcmr-copy", "bcmr-sync"],
            "plan" => &["bcmr-shard", "bcmr-finish"],
            "shard" => &["bcmr-plan", "bcmr-finish"],
            "finish" => &["bcmr-plan", "bcmr-shard"],
            "doctor" | "deploy" | "serve" => &["bcmr-copy", "ssh", "ssh_config"],
            _ => &["bcmr-copy", "ssh"],
        };
        let all = ["bcmr"].into_iter().chain(others.iter().copied());
        append(&format!("bcmr-{verb}"), &see_also(all.map(str::to_owned)))?;
    }
    Ok(())
}

fn see_also(pages: impl Iterator<Item = String>) -> String {
    let section = |page: &str| match page {
        "ssh_config" | "bcmr.toml" => 5,
        "bcmr-json" | "bcmr-remote" => 7,
        _ => 1,
    };
    let lines: Vec<String> =
        pages.map(|page| format!(".BR {} ({})", page.replace('-', "\\-"), section(&page))).collect();
    format!(".SH \"SEE ALSO\"\n{}\n", lines.join(",\n"))
}
