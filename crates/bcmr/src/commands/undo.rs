//! `undo`, here or by the bcmr on another machine.

use super::remote::{Absent, with_peer};
use crate::cli::bcmr::connection;
use crate::cli::bcmr::undo::{self, UndoArgs};
use crate::env::Env;
use crate::show::Verb;
use crate::ui::{self, Start};
use bcmr_engine::error::Code;
use bcmr_engine::event::{Event, Summary};
use bcmr_engine::peer;

/// Runs it.
pub fn run(args: &UndoArgs, env: &Env) -> u8 {
    let there = undo::there(args, &super::verb::is_here).and_then(|address| {
        let Some(address) = address else { return Ok(None) };
        let config = super::configuration::configuration(env)?;
        let reach = connection::reach(&args.connect, None, false, &address.host, &config)?;
        Ok(Some((address, reach)))
    });
    let there = match there {
        Ok(there) => there,
        Err(u) => return super::verb::usage(Verb::Undo, &u),
    };
    let (request, show) = undo::request(args, env);
    let sources = std::slice::from_ref(&args.receipt);
    let start = Start { sources, destination: None, jobs: 1, measure: None, by_scp: None };
    ui::run(&show, start, |watch| {
        super::verb::tell_mistakable(sources, watch);
        let Some((address, reach)) = &there else { return bcmr_engine::undo(&request, watch) };
        let note = |text: String| watch.front.event(Event::Note(text.into()));
        watch.front.lend_terminal(true);
        let undone = with_peer(address, reach, watch.cancel, &note, |way| {
            peer::undo(address, way, request.dry_run, watch)
        });
        watch.front.lend_terminal(false);
        match undone.map_err(Absent::error) {
            // Stopped: what was given back by then is, and the same command does the rest.
            Err(e) if e.code == Code::Interrupted && watch.cancel.is_set() => {
                Ok(Summary { cancelled: true, ..Summary::default() })
            }
            other => other,
        }
    })
}
