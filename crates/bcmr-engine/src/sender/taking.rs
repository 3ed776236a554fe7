//! A move's sender: takes away here what the receiver says it has for good.
//!
//! Must not know when that is. V14: nothing is taken away that is not still what was sent, nor anything that the filter leaves
//! out, nor what is beside an operand; a directory goes only when it is empty.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::sender::large::{Breach, breach};
use crate::sender::moved::MovedIn;
use crate::sender::place::AnnouncedDir;
use crate::sender::sending::Sending;
use crate::sender::walk::SourceDir;
use bcmr_wire::message::{self, Message, Taken};
use fastcopy::dir::{Name, NameBuf};
use fastcopy::meta::{Info, Kind, Time};

/// Why something stays.
enum Stays {
    /// The receiver broke the rules.
    Breach(Breach),
    Failed(Error),
}

impl From<Error> for Stays {
    fn from(e: Error) -> Stays {
        Stays::Failed(e)
    }
}

/// Obeys a `TakeAway`, and answers it.
pub(super) fn take_away(
    sending: &Sending<'_>,
    dir: u64,
    names: &[Taken<'_>],
) -> std::result::Result<Result<()>, Breach> {
    let policy = sending.push.policy;
    if !policy.leaving.goes() || policy.dry_run {
        return Err(breach(Reason::NotReceivers.about("TakeAway")));
    }
    if dir == 0 {
        sending.push.observer.once_more();
        return Ok(Ok(()));
    }
    let known = sending.moved.get(dir);
    let (place, above) = known.ok_or_else(|| breach(Reason::DirectoryNotAsked.about(dir)))?;
    let mut left = 0;
    let mut step = |taken: std::result::Result<(), Stays>| match taken {
        Ok(()) => Ok(Ok(())),
        Err(Stays::Breach(e)) => Err(e),
        Err(Stays::Failed(e)) => {
            left += 1;
            Ok(sending.fail(None, e))
        }
    };
    let mut sent = Ok(());
    if names.is_empty() {
        sent = step(take_dir(sending, &place, &above))?;
    } else {
        match sending.handles.get(&place) {
            Ok(src) => {
                for one in names {
                    if !above.was_sent(one.name) {
                        return Err(breach(Reason::DirectoryNotAsked.about(dir)));
                    }
                    sent = sent.and(step(take_name(sending, &src, one))?);
                }
            }
            Err(e) => {
                sent = step(Err(e.into()))?;
                left = names.len() as u64;
            }
        }
    }
    Ok(sent.and_then(|()| sending.send(&Message::TookAway { left })))
}

/// One name, if it still is what was sent.
fn take_name(sending: &Sending<'_>, src: &SourceDir, one: &Taken<'_>) -> std::result::Result<(), Stays> {
    let name = NameBuf::new(one.name).ok_or_else(|| Stays::Breach(breach(Reason::BadName)))?;
    let name = name.as_name();
    let now = match src.stat(name, false) {
        Ok(now) => now,
        Err(e) if e.code == Code::NotFound => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    if src.excludes(name, &now, &sending.filter) || !is_still(&now, one) {
        return Err(changed(src, name).into());
    }
    src.dir.remove_file(name).map_err(|e| Error::os(Op::RemoveSource, src.node.join(name), e))?;
    sending.push.observer.took(&|| src.node.join(name));
    Ok(())
}

/// A directory itself.
fn take_dir(sending: &Sending<'_>, place: &AnnouncedDir, above: &MovedIn) -> std::result::Result<(), Stays> {
    let (src, name) = match above {
        MovedIn::Dir(above, name) => (sending.handles.get(above)?, name),
        MovedIn::Operand(dir, name) => (dir.clone(), name),
        MovedIn::Alone(_) | MovedIn::Nothing => {
            return Err(Stays::Breach(breach(Reason::DirectoryNotAsked.about(place.id))));
        }
    };
    let fail = |op: Op| move |e| Error::os(op, place.node.path(), e);
    let name = name.as_name();
    match src.dir.look(name).map_err(fail(Op::Stat))? {
        None => {}
        Some(now) if place.is(&now) => {
            src.dir.remove_dir(name).map_err(fail(Op::RemoveSource))?;
            sending.push.observer.took(&|| place.node.path());
        }
        Some(_) => {
            let note = Reason::ChangedAfterCopy;
            return Err(Error::ours(Code::SourceChanged, Op::RemoveSource, place.node.path(), note).into());
        }
    }
    sending.moved.gone(place.id);
    Ok(())
}

fn changed(src: &SourceDir, name: Name<'_>) -> Error {
    Error::ours(Code::SourceChanged, Op::RemoveSource, src.node.join(name), Reason::ChangedAfterCopy)
}

/// Whether something is what was sent: the same rules as for a move on one machine.
fn is_still(now: &Info, was: &Taken<'_>) -> bool {
    let same = |now: Time, was: message::Time| (now.sec, now.nsec) == (was.sec, was.nsec);
    // Taking one name of an inode away changes its ctime, so where there are several, mtime and size must do.
    now.kind != Kind::Dir
        && (now.ino, now.size) == (was.ino, was.size)
        && same(now.mtime, was.mtime)
        && (was.nlink > 1 || same(now.ctime, was.ctime))
}
