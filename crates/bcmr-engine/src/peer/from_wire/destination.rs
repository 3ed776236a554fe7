//! What entries that come off the wire are brought to, and what they are made of.
//!
//! Must not know the protocol: whether an entry may come now, and what the sender is told of it.

use crate::disk::{Attributes, Fault};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::Summary;
use crate::node::Node;
use crate::peer::from_wire::handler::NextMessage;
use crate::peer::incoming::refused;
use crate::receiver::arriving::Arriving;
use crate::receiver::choose::Way;
use crate::receiver::claims::Spot;
use crate::receiver::dir_task::{DirTask, Dropped, Hold, Origin, PairedDirs};
use crate::receiver::directories::Marks;
use crate::verbs::destination::Destination;
use crate::verbs::operands::Place;
use bcmr_wire::contents::Item;
use bcmr_wire::message::Wanted;
use fastcopy::dir::{Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;

/// Attributes as they came.
pub(crate) type CarriedAttrs = Vec<(CString, Vec<u8>)>;

/// A source directory on the other machine.
pub(crate) struct Far {
    /// Its number on the wire; of a directory that an operand is in, the operand's.
    pub(crate) id: u64,
    pub(crate) info: Info,
    pub(crate) attrs: CarriedAttrs,
    pub(crate) node: Arc<Node>,
}

impl Origin for Far {
    fn info(&self) -> &Info {
        &self.info
    }
    fn node(&self) -> &Arc<Node> {
        &self.node
    }
    fn attributes(&self) -> Attributes<'_> {
        Attributes::Carried(&self.attrs)
    }
    fn hash(&self, _: Name<'_>, _: &dyn Fn() -> bool) -> std::result::Result<Option<blake3::Hash>, Fault> {
        Ok(None)
    }
}

/// A directory over there and what it becomes.
pub(crate) type FarTask<D> = DirTask<Far, <D as Destination<Far>>::Dir>;
/// Something to be done in it.
pub(crate) type FarHold<D> = Hold<Far, <D as Destination<Far>>::Dir>;

/// One entry that came, kept while it waits.
pub(crate) struct Meta {
    pub(crate) name: NameBuf,
    pub(crate) to: NameBuf,
    pub(crate) info: Info,
    pub(crate) attrs: CarriedAttrs,
    pub(crate) link: CString,
    /// The number of its machine.
    pub(crate) machine: u64,
    /// What it is shown as, where it is an operand.
    pub(super) shown: Option<PathBuf>,
}

impl Meta {
    /// Its path in a directory over there, as it is shown.
    pub(crate) fn path(&self, above: &Node) -> PathBuf {
        self.shown.clone().unwrap_or_else(|| above.join(self.name.as_name()))
    }

    pub(super) fn is_file(&self) -> bool {
        self.info.kind == Kind::File
    }
}

/// What is to be done with an entry.
#[derive(Clone, Copy)]
pub(crate) enum Chosen<V> {
    /// Nothing more.
    Nothing,
    /// It is wanted: a file's content, everything else as it is.
    Want(V),
    /// It is a further name of something that is on its way.
    Further,
}

/// An entry that was wanted and is here.
pub(crate) struct Arrived<'n, V> {
    pub(crate) meta: &'n Meta,
    pub(crate) verdict: V,
    /// The content of a file.
    pub(crate) item: Option<Item<'n>>,
    /// What that came to, together with what was there.
    pub(crate) made: Option<Vec<u8>>,
}

/// A destination of what comes off the wire.
pub(crate) trait WireDestination<'a>: Destination<Far> {
    /// What was found out of an entry that is wanted.
    type Verdict: Copy + Send;

    /// Bytes of files may come: along with their entries, in pieces, as blocks of a store. Else only what tells whether two
    /// are the same.
    const TAKES_BYTES: bool;

    /// What comes is put into it, or would be: then it must not be inside of what is sent.
    const HOLDS_COPY: bool = true;

    /// As [`Destination::base`], for names of a list that are below `src`.
    ///
    /// # Errors
    /// Nothing can go into it.
    fn list_base(&self, src: &Far, place: &Place) -> Result<Self::Dir>;
    /// The directory of an operand, held until it is listed.
    fn top(
        &self,
        pair: PairedDirs<Far, Self::Dir>,
        dropped: &Arc<Dropped<Far, Self::Dir>>,
    ) -> Hold<Far, Self::Dir> {
        DirTask::top(pair, dropped)
    }
    /// Whether this run has made it, and all in it must come: then it is sent unasked.
    fn is_new(&self, _: &Self::Dir) -> bool {
        false
    }
    /// The destination of the name `to`, as it is shown.
    fn shown(&self, dir: &Self::Dir, to: Name<'_>) -> PathBuf;
    /// An operand is to be merged with what an earlier one became.
    ///
    /// # Errors
    /// The sender has not said that the earlier one is complete.
    fn merges(&self, _: &mut Self::Buffers, _earlier: Option<&FarTask<Self>>) -> Result<()> {
        Ok(())
    }

    /// What becomes of an entry of `pair`, where `spot` is among the names that sources claim.
    fn choose(&self, pair: &Arc<FarTask<Self>>, spot: &Spot, meta: &Meta) -> Chosen<Self::Verdict>;
    /// The same for a further name. `None`: its first one is still on its way.
    fn choose_further(
        &self,
        _: &mut Self::Buffers,
        _: &Arc<FarTask<Self>>,
        _: &Meta,
    ) -> Option<Chosen<Self::Verdict>> {
        Some(Chosen::Nothing)
    }
    /// How much of a file that is wanted must come, where at most so many chunks may be told of.
    fn part(&self, _: &FarTask<Self>, _: &Meta, _: Self::Verdict, _chunks_max: usize) -> Wanted {
        Wanted::Content
    }
    /// The content that comes of a part and of what is here. `None`: all of it must come.
    fn made(&self, _: &FarTask<Self>, _: &Meta, _: Self::Verdict, _: &Item<'_>) -> Option<Vec<u8>> {
        None
    }
    /// The content that a hash stands for, where it has landed before in this transfer.
    fn repeated(&self, _: &Meta, _: Self::Verdict, _: &Item<'_>) -> Option<Vec<u8>> {
        None
    }
    /// Files that are given to [`WireDestination::land`] at a time.
    fn room(&self, _: &FarTask<Self>) -> usize {
        1
    }
    /// Takes entries that came.
    ///
    /// # Errors
    /// The sender broke the protocol; here, where none is wanted, by sending any.
    fn land(
        &self,
        _: &mut Self::Buffers,
        _: &Arc<FarTask<Self>>,
        _: Way,
        came: &mut Vec<Arrived<'_, Self::Verdict>>,
    ) -> Result<()> {
        if came.is_empty() { Ok(()) } else { Err(refused(Reason::PieceBeforeWanted)) }
    }

    /// What is known of a large file before the first of it comes; `wanted` is absent for a further name.
    ///
    /// # Errors
    /// This machine gives no random bytes.
    fn prepare(
        &self,
        _pair: &FarTask<Self>,
        _wanted: Option<(&Meta, Self::Verdict)>,
        arriving: Arriving<'a>,
    ) -> Result<Arriving<'a>> {
        Ok(arriving)
    }
    /// Whether the sender hashes the blocks of large files.
    fn wants_values(&self) -> bool {
        false
    }
    /// Whether only the thread that takes a large file can say from where on it is wanted.
    fn is_late(&self, _: &Meta, _: Self::Verdict) -> bool {
        true
    }
    /// Takes a large file that is wanted.
    fn land_large(
        &self,
        _: &mut Self::Buffers,
        _: &Arc<FarTask<Self>>,
        _: (&Meta, Self::Verdict),
        _: &Arc<Arriving<'a>>,
    ) {
    }
    /// Nothing more is to be done for a large file.
    fn settled(&self, _file: u64) {}
    /// The sender says which blocks of a large file it has.
    ///
    /// # Errors
    /// It was not asked to, or this cannot be answered.
    fn have_blocks(&self, _: &Arriving<'a>, _first: u64, _values: &[[u8; 32]]) -> Result<()> {
        Err(refused(Reason::BlocksNotAsked))
    }
    /// The sender's proof that it has blocks from `first` on.
    ///
    /// # Errors
    /// It proves what was not asked for.
    fn proof(&self, _: &Arriving<'a>, _first: u64, _tags: &[[u8; 32]]) -> Result<()> {
        Err(refused(Reason::ProofOfNothing))
    }

    /// The sender has taken away what it was told to; so much of that is left.
    ///
    /// # Errors
    /// It was not told to.
    fn took_away(&self, _left: u64) -> Result<()> {
        Err(refused(Reason::NotSendersMessage.about("TookAway")))
    }

    /// Says what was done, and gives the marks that are to be cleared once that was heard, and what broke the transfer at last.
    /// `next` is what the sender still says; there is none where the transfer was broken before.
    fn end(self, next: Option<&mut NextMessage<'_>>) -> (Summary, Marks, Result<()>);
}

/// A content of another length than its entry was said to have (V13).
pub(crate) fn other_size(path: PathBuf, said: u64, came: u64) -> Error {
    let note = Reason::SaidAndCame.about(said).about(came);
    Error::ours(Code::Mismatch, Op::Receive, path, note)
}
