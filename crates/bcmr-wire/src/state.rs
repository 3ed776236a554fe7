//! Which message may arrive in which state: a table, and nothing that remembers. Must not know what a message holds.
//!
//! A state is that of one stream, seen from the side that receives.

use crate::message::kind;

/// What a client waits for after a request that is no transfer. An `Error` may always come instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To `Stat` and `Tree`.
    Info,
    /// To `List`: pages, then `Done`.
    Pages,
    /// To `Hash`, `Mkdir` and `Join`.
    Ok,
    /// To `Usage` and `Remove`.
    Used,
    /// To `Undo`: reports, then a `Summary`.
    Undone,
    /// To `Streams`.
    Token,
    /// To `Direct`.
    Rendezvous,
}

/// What a stream is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A server that has not been greeted.
    ServerNew,
    /// A server that has been greeted and has had no request: only now may the connection become another one's stream.
    ServerGreeted,
    /// A client that has greeted.
    ClientNew,
    /// A server without a request.
    ServerIdle,
    /// A client without a request.
    ClientIdle,
    /// A client with a request.
    Waits(Answer),
    /// Stream 0 of the side that sends in a transfer.
    Sends,
    /// Stream 0 of the side that receives in a transfer.
    Receives,
    /// Another stream of the side that sends: nothing but an `Error`, and the answer to one.
    SendsBeside,
    /// Another stream of the side that receives.
    ReceivesBeside,
    /// The side that sends has ended the transfer with an `Error`: what still arrives up to `Done` is dropped.
    SendEnded,
    /// The side that receives has ended the transfer, with a `Summary` or an `Error`: likewise.
    ReceiveEnded,
    /// The other side has ended the transfer, and has not been answered with `Done` yet.
    PeerEnded,
    /// A stream that no transfer uses: a further one before and after it, and ssh's while the data goes another way.
    Quiet,
}

impl State {
    /// Whether the transfer has ended here, so that nothing more is to be said of it.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(self, State::SendEnded | State::ReceiveEnded | State::PeerEnded)
    }
}

/// What messages have in common as far as states go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Hello,
    Welcome,
    Error,
    Done,
    /// Always, once both have been greeted.
    Ping,
    /// The first request, or none.
    Join,
    Request,
    Answer(Answer),
    /// From the sender, on stream 0.
    Entry,
    /// From the sender, on any stream.
    Content,
    /// From the receiver, on stream 0.
    Reply,
    /// The same, and from a server that undoes.
    Told,
    Cancel,
}

/// Every message there is.
const ROWS: [(u8, &str, Class); 67] = [
    (kind::HELLO, "Hello", Class::Hello),
    (kind::WELCOME, "Welcome", Class::Welcome),
    (kind::ERROR, "Error", Class::Error),
    (kind::OK, "Ok", Class::Answer(Answer::Ok)),
    (kind::DONE, "Done", Class::Done),
    (kind::PING, "Ping", Class::Ping),
    (kind::PONG, "Pong", Class::Ping),
    (kind::STAT, "Stat", Class::Request),
    (kind::LIST, "List", Class::Request),
    (kind::HASH, "Hash", Class::Request),
    (kind::MKDIR, "Mkdir", Class::Request),
    (kind::USAGE, "Usage", Class::Request),
    (kind::STREAMS, "Streams", Class::Request),
    (kind::JOIN, "Join", Class::Join),
    (kind::DIRECT, "Direct", Class::Request),
    (kind::INFO, "Info", Class::Answer(Answer::Info)),
    (kind::PAGE, "Page", Class::Answer(Answer::Pages)),
    (kind::USED, "Used", Class::Answer(Answer::Used)),
    (kind::TOKEN, "Token", Class::Answer(Answer::Token)),
    (kind::RENDEZVOUS, "Rendezvous", Class::Answer(Answer::Rendezvous)),
    (kind::REMOVE, "Remove", Class::Request),
    (kind::PUT, "Put", Class::Request),
    (kind::GET, "Get", Class::Request),
    (kind::NAMES, "Names", Class::Request),
    (kind::KEEPING, "Keeping", Class::Request),
    (kind::UNDO, "Undo", Class::Request),
    (kind::TREE, "Tree", Class::Request),
    (kind::INTO_TREE, "IntoTree", Class::Request),
    (kind::OPERAND, "Operand", Class::Entry),
    (kind::DIR, "Dir", Class::Entry),
    (kind::FILES, "Files", Class::Content),
    (kind::CONTENTS, "Contents", Class::Content),
    (kind::LARGE, "Large", Class::Entry),
    (kind::DATA, "Data", Class::Content),
    (kind::DATA_COMPRESSED, "DataCompressed", Class::Content),
    (kind::FILE_END, "FileEnd", Class::Entry),
    (kind::DIR_END, "DirEnd", Class::Entry),
    (kind::TROUBLE, "Trouble", Class::Entry),
    (kind::FOUND, "Found", Class::Entry),
    (kind::ANSWER, "Answer", Class::Entry),
    (kind::HAVE_BLOCKS, "HaveBlocks", Class::Entry),
    (kind::PROOF, "Proof", Class::Entry),
    (kind::VALUES, "Values", Class::Entry),
    (kind::ALL_SENT, "AllSent", Class::Entry),
    (kind::DIR_IS, "DirIs", Class::Reply),
    (kind::WANTS, "Wants", Class::Reply),
    (kind::RESUME, "Resume", Class::Reply),
    (kind::REREAD, "Reread", Class::Reply),
    (kind::COMPUTE, "Compute", Class::Reply),
    (kind::LANDED, "Landed", Class::Reply),
    (kind::REPORT, "Report", Class::Told),
    (kind::ASK, "Ask", Class::Reply),
    (kind::CLOSE, "Close", Class::Reply),
    (kind::MISSING_BLOCKS, "MissingBlocks", Class::Reply),
    (kind::SUMMARY, "Summary", Class::Told),
    (kind::SUMS, "Sums", Class::Reply),
    (kind::WANTS_PARTS, "WantsParts", Class::Reply),
    (kind::TAKE_AWAY, "TakeAway", Class::Reply),
    (kind::GONE, "Gone", Class::Told),
    (kind::CANCEL, "Cancel", Class::Cancel),
    (kind::ALL_NAMED, "AllNamed", Class::Entry),
    (kind::FINER, "Finer", Class::Entry),
    (kind::PATCH, "Patch", Class::Content),
    (kind::FILES_PACKED, "FilesPacked", Class::Content),
    (kind::LEFT_OUT, "LeftOut", Class::Entry),
    (kind::OWNER, "Owner", Class::Content),
    (kind::TOOK_AWAY, "TookAway", Class::Entry),
];

/// The same by type: it is asked for each frame.
const CLASSES: [Option<Class>; 256] = {
    let mut classes = [None; 256];
    let mut row = 0;
    while row < ROWS.len() {
        classes[ROWS[row].0 as usize] = Some(ROWS[row].2);
        row += 1;
    }
    classes
};

/// What a type byte is called in the document; `None` for a byte that is no type.
#[must_use]
pub fn name(kind: u8) -> Option<&'static str> {
    ROWS.iter().find(|row| row.0 == kind).map(|row| row.1)
}

impl State {
    /// Whether a message of type `kind` may arrive now. If not, the connection ends.
    #[must_use]
    pub fn allows(self, kind: u8) -> bool {
        // [frame.state]
        CLASSES.get(usize::from(kind)).copied().flatten().is_some_and(|class| self.allows_class(class))
    }

    fn allows_class(self, class: Class) -> bool {
        use Class::{Cancel, Content, Done, Entry, Error, Hello, Join, Ping, Reply, Request, Told, Welcome};
        match self {
            State::ServerNew => class == Hello,
            State::ServerGreeted => matches!(class, Join | Request | Ping),
            State::ClientNew => matches!(class, Welcome | Error | Ping),
            State::ServerIdle => matches!(class, Request | Ping),
            // A server that must go says why, asked or not.
            State::ClientIdle | State::PeerEnded => matches!(class, Error | Ping),
            State::Waits(answer) => match class {
                Class::Answer(one) => one == answer,
                Done => answer == Answer::Pages,
                Told => answer == Answer::Undone,
                Error | Ping => true,
                _ => false,
            },
            State::Sends => matches!(class, Reply | Told | Cancel | Error | Ping),
            State::Receives => matches!(class, Entry | Content | Cancel | Error | Ping),
            State::SendsBeside => matches!(class, Error | Ping | Done),
            State::ReceivesBeside => matches!(class, Content | Error | Ping | Done),
            State::SendEnded => matches!(class, Reply | Told | Cancel | Error | Ping | Done),
            State::ReceiveEnded => matches!(class, Entry | Content | Cancel | Error | Ping | Done),
            State::Quiet => class == Ping,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the document says, written down a second time: every state with the types that may arrive in it.
    #[test]
    fn every_type_in_every_state() {
        let sender0: Vec<u8> = (0x30..=0x3F).collect();
        let content = vec![0x32, 0x33, 0x35, 0x36, 0x59, 0x5A, 0x5E];
        let replies: Vec<u8> = (0x40..=0x4E).collect();
        let join = |parts: &[&[u8]]| parts.concat();
        let requests =
            [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x17, 0x1D, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26];
        let table: [(State, Vec<u8>); 20] = [
            (State::ServerNew, vec![0x01]),
            (
                State::ServerGreeted,
                join(&[
                    &[6, 7],
                    &[
                        0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x1D, 0x20, 0x21, 0x22, 0x23, 0x24,
                        0x25, 0x26,
                    ],
                ]),
            ),
            (State::ClientNew, vec![0x02, 0x03, 6, 7]),
            (State::ServerIdle, join(&[&[6, 7], &requests])),
            (State::ClientIdle, vec![3, 6, 7]),
            (State::Waits(Answer::Info), vec![3, 6, 7, 0x18]),
            (State::Waits(Answer::Pages), vec![3, 5, 6, 7, 0x19]),
            (State::Waits(Answer::Ok), vec![3, 4, 6, 7]),
            (State::Waits(Answer::Used), vec![3, 6, 7, 0x1A]),
            (State::Waits(Answer::Undone), vec![3, 6, 7, 0x46, 0x4A, 0x4E]),
            (State::Waits(Answer::Token), vec![3, 6, 7, 0x1B]),
            (State::Waits(Answer::Rendezvous), vec![3, 6, 7, 0x1C]),
            (State::Sends, join(&[&[3, 6, 7], &replies, &[0x4F]])),
            (
                State::Receives,
                join(&[&[3, 6, 7], &sender0, &[0x4F, 0x50, 0x58, 0x59, 0x5A, 0x5C, 0x5E, 0x5F]]),
            ),
            (State::SendsBeside, vec![3, 5, 6, 7]),
            (State::ReceivesBeside, join(&[&[3, 5, 6, 7], &content])),
            (State::SendEnded, join(&[&[3, 5, 6, 7], &replies, &[0x4F]])),
            (
                State::ReceiveEnded,
                join(&[&[3, 5, 6, 7], &sender0, &[0x4F, 0x50, 0x58, 0x59, 0x5A, 0x5C, 0x5E, 0x5F]]),
            ),
            (State::PeerEnded, vec![3, 6, 7]),
            (State::Quiet, vec![6, 7]),
        ];
        for (state, expected) in table {
            let allowed: Vec<u8> = (0..=u8::MAX).filter(|kind| state.allows(*kind)).collect();
            assert_eq!(allowed, expected, "{state:?}");
        }
    }

    #[test]
    fn no_type_stands_twice() {
        for pair in ROWS.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{}", pair[1].1);
        }
        assert_eq!((name(0x32), name(0x33), name(0x51)), (Some("Files"), Some("Contents"), None));
    }
}
