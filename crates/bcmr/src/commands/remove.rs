//! `remove`, here or by the bcmr on another machine.

use super::remote::{self, Absent, with_peer};
use crate::cli::bcmr::connection;
use crate::cli::bcmr::remove::{self, Named, RemoveArgs};
use crate::config::Config;
use crate::env::Env;
use crate::show::{Show, Verb};
use crate::ui::{self, Start};
use crate::usage::Usage;
use bcmr_engine::error::Error;
use bcmr_engine::event::{Action, Event, Summary, Watch};
use bcmr_engine::peer::{self, RemoveHow};
use bcmr_engine::policy::RemoveRequest;
use bcmr_engine::remote::Address;
use std::path::PathBuf;

/// Runs it. Without operands `-f` makes even that no error, so that `bcmr remove -f $files` holds for none.
pub fn run(args: &RemoveArgs, env: &Env) -> u8 {
    let named = remove::named(args, &super::verb::is_here);
    let job =
        named.and_then(|named| remove::request(args, env).map(|(request, show)| (named, request, show)));
    let (named, request, show) = match job {
        Ok(job) => job,
        Err(u) => return super::judged::usage_with_defaults(env, Verb::Remove, &u),
    };
    let sources = request.paths.clone();
    let start =
        Start { sources: &sources, destination: None, jobs: request.jobs, measure: None, by_scp: None };
    match named {
        Named::Here => ui::run(&show, start, |watch| {
            if request.paths.is_empty() {
                return Ok(Summary::default());
            }
            super::verb::tell_mistakable(&sources, watch);
            bcmr_engine::remove(request, watch)
        }),
        Named::There(addresses) => match super::configuration::configuration(env) {
            Ok(config) => there(args, &request, &addresses, &config, (&show, start)),
            Err(u) => super::judged::usage_with_defaults(env, Verb::Remove, &u),
        },
    }
}

/// On other machines, one name after the other.
fn there(
    args: &RemoveArgs,
    request: &RemoveRequest,
    addresses: &[Address],
    config: &Config,
    (show, start): (&Show, Start<'_>),
) -> u8 {
    let reach = |address: &Address| connection::reach(&args.connect, None, false, &address.host, config);
    let ways: Result<Vec<_>, Usage> = addresses.iter().map(reach).collect();
    let ways = match ways {
        Ok(ways) => ways,
        Err(u) => return super::verb::usage(Verb::Remove, &u),
    };
    let how = RemoveHow {
        recursive: request.recursive,
        empty_dirs: request.empty_dirs,
        force: request.force,
        one_file_system: request.one_file_system,
    };
    ui::run(show, start, |watch| {
        let mut summary = Summary::default();
        for (address, reach) in addresses.iter().zip(&ways) {
            if watch.cancel.is_set() {
                summary.cancelled = true;
                break;
            }
            let note = |text: String| watch.front.event(Event::Note(text.into()));
            watch.front.lend_terminal(true);
            let mut lost = Vec::new();
            let done = with_peer(address, reach, watch.cancel, &note, |way| {
                peer::remove(address, way, how, &mut |e| lost.push(e))
            });
            watch.front.lend_terminal(false);
            match done.map_err(Absent::error) {
                Ok((files, dirs)) => {
                    summary.files += files;
                    summary.dirs += dirs;
                    if watch.items && lost.is_empty() {
                        let (action, src) = (Action::Removed, PathBuf::new());
                        watch.front.event(Event::Item {
                            action,
                            src,
                            dst: remote::written(address),
                            bytes: 0,
                        });
                    }
                }
                Err(e) => lost.push(e),
            }
            lost.into_iter().for_each(|e| fail(&mut summary, e, watch));
        }
        Ok(summary)
    })
}

fn fail(summary: &mut Summary, e: Error, watch: Watch<'_>) {
    summary.failed += 1;
    if !summary.codes.contains(&e.code) {
        summary.codes.push(e.code);
    }
    watch.front.event(Event::Failed(e));
}
