//! `check`, against a source or a manifest.

use crate::cli::bcmr::check::{self, CheckArgs, ManifestJob};
use crate::cli::bcmr::operands::{self, Places};
use crate::env::Env;
use crate::input::Input;
use crate::show::Verb;
use crate::ui::{self, Start};
use crate::voice::BCMR;
use bcmr_engine::policy::ManifestRequest;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::{AsFd, OwnedFd};

/// Runs it.
pub fn run(args: &CheckArgs, env: &Env) -> u8 {
    if let Some(job) = check::manifest(args, env, &super::verb::is_here) {
        return match job {
            Ok(job) => run_manifest(job),
            Err(u) => super::judged::usage_with_defaults(env, Verb::Check, &u),
        };
    }
    match operands::places(&args.operands, &args.connect, &super::verb::is_here) {
        Ok(Places::Here) => {}
        Ok(places) => return super::remote::check(args, places, env),
        Err(u) => return super::judged::usage_with_defaults(env, Verb::Check, &u),
    }
    let (request, show) = match check::request(args, env) {
        Ok(job) => job,
        Err(u) => return super::judged::usage_with_defaults(env, Verb::Check, &u),
    };
    let sources = request.sources.clone();
    let destination = request.target.path().clone();
    let measure = super::verb::measure(&sources, &request.policy);
    let start = Start {
        sources: &sources,
        destination: Some(&destination),
        jobs: request.policy.jobs,
        measure: Some(measure),
        by_scp: None,
    };
    ui::run(&show, start, |watch| {
        super::verb::tell_mistakable(operands::all_operands(&args.operands), watch);
        bcmr_engine::check(request, watch)
    })
}

fn run_manifest(job: ManifestJob) -> u8 {
    let ManifestJob { file, dir, filter, jobs, show } = job;
    let opened = match file.as_os_str() == "-" {
        true => io::stdin().as_fd().try_clone_to_owned(),
        false => File::open(&file).map(OwnedFd::from),
    };
    let reader = match opened {
        Ok(opened) => Box::new(BufReader::new(Input::new(opened))),
        Err(e) => {
            super::verb::file_failed("open", &file, &e);
            return BCMR.exits.usage;
        }
    };
    let start = Start {
        sources: std::slice::from_ref(&file),
        destination: Some(&dir),
        jobs,
        measure: None,
        by_scp: None,
    };
    let request = ManifestRequest { reader, file: file.clone(), dir: dir.clone(), filter, jobs };
    ui::run(&show, start, |watch| bcmr_engine::check_manifest(request, watch))
}
