//! `copy`: opens the list of names, if there is one, and copies. What is on another machine is `remote`'s.

use super::verb::open;
use crate::cli::bcmr::copy::{self, CopyArgs, Dash};
use crate::cli::bcmr::operands::{self, Places};
use crate::cli::bcmr::proof;
use crate::env::Env;
use crate::show::{Show, Verb};
use crate::ui::{self, Drawing, Start};
use bcmr_engine::policy::{CopyPolicy, CopyRequest, Durability, Ends, Resume, Verify};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Runs it.
pub fn run(args: &CopyArgs, env: &Env) -> u8 {
    match operands::places(&args.operands, &args.connect, &super::verb::is_here) {
        Ok(Places::Here) => {}
        Ok(places) => return super::remote::copy(args, places, env),
        Err(u) => return super::judged::usage_with_defaults(env, Verb::Copy, &u),
    }
    let mut job = match copy::request(args, env) {
        Ok(job) => job,
        Err(u) => return super::judged::usage_with_defaults(env, Verb::Copy, &u),
    };
    if let Some(from) = job.names {
        match open(&from) {
            Ok(list) => job.request.names = Some(list),
            Err(e) => {
                let path = from.file.as_deref().unwrap_or(Path::new("-"));
                return super::verb::file_failed("open", path, &e);
            }
        }
    }
    let opened = match job.dash {
        Dash::Nowhere => Ok(Ends::Named),
        Dash::Input => io::stdin().as_fd().try_clone_to_owned().map(|fd| Ends::From(fd.into())),
        Dash::Output => io::stdout().as_fd().try_clone_to_owned().map(|fd| Ends::To(fd.into())),
    };
    let ends = match opened {
        Ok(ends) => ends,
        Err(e) => return super::verb::file_failed("open", Path::new("-"), &e),
    };
    let sources = job.request.sources.clone();
    let destination = job.request.target.path().clone();
    let jobs = job.request.policy.jobs;
    // What a list names would have to be read twice.
    let counted = job.request.names.is_none() && !job.request.policy.dry_run;
    let measure = counted.then(|| super::verb::measure(&sources, &job.request.policy));
    let start = Start { sources: &sources, destination: Some(&destination), jobs, measure, by_scp: None };
    let show = Show { proof: proof::command, ..job.show };
    let drawing = if is_brief(&job.request) && job.dash == Dash::Nowhere {
        Drawing::OnceItGoesOn
    } else {
        Drawing::AtOnce
    };
    ui::run_from(drawing, &show, start, |watch| {
        super::verb::tell_mistakable(operands::all_operands(&args.operands), watch);
        bcmr_engine::copy_between(job.request, ends, watch)
    })
}

/// Whether it may be done in a moment, or says itself that it takes longer: one file, of which nothing is waited for but its
/// content.
fn is_brief(request: &CopyRequest) -> bool {
    let CopyPolicy { recursive, durability, verify, hashes, resume, .. } = &request.policy;
    let waits =
        *durability != Durability::Cache || *verify != Verify::Off || *hashes || *resume != Resume::Off;
    !recursive && !waits && request.names.is_none() && request.sources.len() == 1
}
