//! `remove -rf` as small as it gets, for measuring: `remove JOBS PATH...`.

use bcmr_engine::event::{Cancel, Event, Front, Progress, Question, Watch};
use bcmr_engine::policy::RemoveRequest;
use std::path::PathBuf;

struct Errors;

impl Front for Errors {
    fn event(&self, event: Event) {
        if let Event::Failed(error) = event {
            eprintln!("{error}");
        }
    }
    fn ask(&self, _: Question) -> bool {
        false
    }
}

fn main() -> std::process::ExitCode {
    let mut args = std::env::args_os().skip(1);
    let jobs = args.next().and_then(|jobs| jobs.to_str()?.parse().ok()).unwrap_or(2);
    let request = RemoveRequest {
        paths: args.map(PathBuf::from).collect(),
        recursive: true,
        empty_dirs: false,
        force: true,
        ask: false,
        one_file_system: true,
        dry_run: false,
        jobs,
    };
    let (progress, cancel) = (Progress::default(), Cancel::new());
    let watch = Watch { front: &Errors, progress: &progress, cancel: &cancel, items: false };
    match bcmr_engine::remove(request, watch) {
        Ok(summary) if summary.failed == 0 => std::process::ExitCode::SUCCESS,
        Ok(_) | Err(_) => std::process::ExitCode::FAILURE,
    }
}
