//! How much is told, and how progress is shown. Must not know any wording.

use super::columns::{Columns, Holds::Everywhere, Row, Scp::Keeps};
use crate::env::Env;
use crate::show::{Again, Meter, Show, Verb};
use crate::voice;
use bcmr_engine::policy::Verify;
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Name everything that is done
    #[arg(short, long, overrides_with = "quiet")]
    pub verbose: bool,
    /// Say nothing but what went wrong
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
    /// Print one JSON object a line for each event (docs/json.md)
    #[arg(long)]
    pub json: bool,
}

impl Columns for OutputArgs {
    const ROWS: &'static [Row<OutputArgs>] = &[
        Row("--verbose", Everywhere, Keeps, |a| a.verbose),
        Row("--quiet", Everywhere, Keeps, |a| a.quiet),
        Row("--progress", Everywhere, Keeps, |a| a.progress != When::Auto),
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
        echoes: env.stdin_tty && env.stderr_tty,
        watched: env.stderr_tty,
        again,
        line: env.line.clone(),
        fast: false,
        verify: Verify::Off,
        manifest: false,
        ignored_signals: env.ignored_signals,
        now: env.now,
    }
}
