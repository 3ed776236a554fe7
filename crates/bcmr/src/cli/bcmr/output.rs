//! How much is told, and how progress is shown. Must not know any wording.

use super::columns::{Columns, Holds::Everywhere, Row, Scp::Keeps};
use crate::env::Env;
use crate::show::{Again, Far, Meter, Show, Signs, Verb};
use crate::voice;
use bcmr_engine::policy::{Collide, Verify};
use clap::{Args, ValueEnum};

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Name everything that is done
    #[arg(short, long, overrides_with = "quiet")]
    pub verbose: bool,
    /// Say nothing but what went wrong, and what other options ask for
    #[arg(short, long, overrides_with = "verbose")]
    pub quiet: bool,
    /// Show how far it is; auto is on a terminal, after a second
    #[arg(
        hide_short_help = true,
        long,
        value_name = "WHEN",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "always",
        default_value = "auto",
        hide_default_value = true
    )]
    pub progress: When,
    /// Where a terminal shows progress beside the line: taskbar (or tab), title, none; auto is the taskbar, on terminals that
    /// are known to
    #[arg(
        hide_short_help = true,
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        require_equals = true
    )]
    pub progress_in: Vec<ProgressIn>,
    /// Print one JSON object a line for each event (docs/json.md)
    #[arg(long)]
    pub json: bool,
}

impl Columns for OutputArgs {
    const ROWS: &'static [Row<OutputArgs>] = &[
        Row("--verbose", Everywhere, Keeps, |a| a.verbose),
        Row("--quiet", Everywhere, Keeps, |a| a.quiet),
        Row("--progress", Everywhere, Keeps, |a| a.progress != When::Auto),
        Row("--progress-in", Everywhere, Keeps, |a| !a.progress_in.is_empty()),
        Row("--json", Everywhere, Keeps, |a| a.json),
    ];
}

/// `--progress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    Auto,
    Always,
    Never,
}

/// `--progress-in`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgressIn {
    Auto,
    Taskbar,
    Title,
    None,
}

/// What else shows progress; of several lists the last counts.
fn signs(list: &[ProgressIn], env: &Env) -> Signs {
    let has = |what| list.contains(&what);
    let auto = env.taskbar && (list.is_empty() || has(ProgressIn::Auto));
    let taskbar = !has(ProgressIn::None) && (has(ProgressIn::Taskbar) || auto);
    let title = !has(ProgressIn::None) && has(ProgressIn::Title);
    Signs { taskbar, title, reflows: env.reflows }
}

pub(super) fn show(verb: Verb, out: &OutputArgs, dry_run: bool, again: Again, env: &Env) -> Show {
    let inline = env.stderr_tty && !env.dumb;
    let meter = match out.progress {
        When::Never => Meter::Off,
        When::Auto if out.quiet => Meter::Off,
        When::Auto | When::Always if out.json => Meter::Events,
        When::Auto | When::Always if inline => Meter::Inline,
        When::Auto => Meter::Off,
        When::Always => Meter::Lines,
    };
    Show {
        voice: &voice::BCMR,
        verb,
        json: out.json,
        verbose: out.verbose,
        quiet: out.quiet,
        // `check` has its differences to tell; what is the same is told to those who ask.
        items: !out.quiet && (out.verbose || dry_run || (out.json && verb != Verb::Check)),
        dry_run,
        meter,
        color: env.stdout_tty && !env.dumb && !env.no_color,
        eager: env.stdout_tty,
        bar_color: env.stderr_tty && !env.dumb && !env.no_color,
        signs: signs(&out.progress_in, env),
        echoes: env.stdin_tty && env.stderr_tty,
        watched: env.stderr_tty,
        again,
        line: env.line.clone(),
        proved_line: env.line_to_prove(),
        from_plan: false,
        owners_said: false,
        one_worker: false,
        fast: false,
        verify: Verify::Off,
        collide: Collide::Replace,
        far: Far::Nowhere,
        at_source: env.at_source,
        guessed_there: false,
        proof: |_| None,
        report: None,
        itemized: None,
        stats: false,
        manifest: false,
        ignored_signals: env.ignored_signals,
        now: env.now,
    }
}
