//! What a receipt says, line by line: what a run has made, replaced and deleted at the destination, and where what was there
//! is kept (docs/sync.md, "Undoing a run").
//!
//! Must not touch any disk, nor fail on any bytes but by saying so.

use crate::policy::Privileged;
use crate::tabbed::{put, taken};
use fastcopy::meta::{Info, Kind, Time};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// What a receipt begins with.
const HEAD: &str = "bcmr receipt 1";
/// Stands where a line says no owner and no mode. An older version takes a receipt with such a line for none.
const TIMES_ALONE: &str = "-";
/// A longer line is none.
const LINE_BYTES_MAX: usize = 64 << 10;

/// What a receipt is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceiptHead {
    /// The directory that was changed. What does not begin with `/` is the way from the directory that the receipt is in.
    pub(crate) dest: PathBuf,
    pub(crate) id: DirId,
    /// What is kept is below this; relative to the directory that the receipt is in.
    pub(crate) store: PathBuf,
    /// That is a trash, which has a file of its own for each thing in it.
    pub(crate) trash: bool,
    /// Where the destination has what only root can set.
    pub(crate) privileged: Privileged,
}

/// What a directory is known by in a later run: its path may lead to another one by then, on another disk, whose inode has
/// the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirId {
    pub(crate) ino: u64,
    /// When it came to be, and what its file system is known by; 0 where that is not told or does not last. Receipts of older
    /// versions do not say it.
    pub(crate) born: u64,
    pub(crate) file_system: u64,
}

impl DirId {
    /// Whether it is that which is `there` now, as far as this says.
    pub(crate) fn is(&self, there: &DirId) -> bool {
        let agrees = |own: u64, there: u64| own == 0 || own == there;
        self.ino == there.ino && agrees(self.born, there.born) && agrees(self.file_system, there.file_system)
    }
}

/// What something that was put there is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownBy {
    pub(crate) kind: Kind,
    size: u64,
    mtime: Time,
}

impl KnownBy {
    /// What becomes of `source`, which keeps its size and time.
    pub(crate) fn of(source: &Info) -> KnownBy {
        match source.kind {
            Kind::Dir => KnownBy::a_dir(),
            kind => KnownBy { kind, size: source.size, mtime: source.mtime },
        }
    }

    /// Directories are all known by what they are.
    pub(crate) fn a_dir() -> KnownBy {
        KnownBy { kind: Kind::Dir, size: 0, mtime: Time { sec: 0, nsec: 0 } }
    }

    /// Whether this is that.
    pub(crate) fn is(&self, there: &Info) -> bool {
        *self == KnownBy::of(there)
    }
}

/// What a directory that was there was like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WasLike {
    /// `None`: the run leaves them as they are, and so does who undoes it.
    pub(crate) owned: Option<Owned>,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
}

/// Owner and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl WasLike {
    pub(crate) fn of(info: &Info) -> WasLike {
        let owned = Owned { mode: info.mode, uid: info.uid, gid: info.gid };
        WasLike { owned: Some(owned), ..WasLike::times_of(info) }
    }

    /// The same without owner and mode.
    pub(crate) fn times_of(info: &Info) -> WasLike {
        WasLike { owned: None, atime: info.atime, mtime: info.mtime }
    }

    /// Whether owner or mode are others now.
    pub(crate) fn differs(&self, now: &Info) -> bool {
        self.owned.is_some_and(|owned| owned.differs(now))
    }
}

impl Owned {
    /// Whether they are others now; where it could not be read what they were, there is no owner that could be held.
    pub(crate) fn differs(&self, now: &Info) -> bool {
        let is_known = self.uid != u32::MAX && self.gid != u32::MAX;
        is_known && (now.uid, now.gid, now.mode) != (self.uid, self.gid, self.mode)
    }
}

/// What was there, and is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptThing {
    /// What it is kept as, below the store.
    pub(crate) at: PathBuf,
    /// Its inode's number, which it has under either name. Receipts of older versions do not say it.
    pub(crate) ino: Option<u64>,
}

/// What was done to one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// There was nothing.
    Made(KnownBy),
    /// What was there is kept.
    Replaced(KnownBy, KeptThing),
    /// The same, and nothing took its place.
    Deleted(KeptThing),
    /// It is a directory that stayed, and was like this.
    Stayed(WasLike),
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptLine {
    pub(crate) done: Done,
    /// Below the destination; empty for itself.
    pub(crate) path: PathBuf,
}

const KINDS: [(Kind, &str); 7] = [
    (Kind::File, "file"),
    (Kind::Dir, "dir"),
    (Kind::Link, "link"),
    (Kind::Fifo, "fifo"),
    (Kind::Socket, "socket"),
    (Kind::CharDevice, "char"),
    (Kind::BlockDevice, "block"),
];

/// What a store is called: whether it is a trash, and what the destination holds.
const STORES: [(&str, (bool, Privileged)); 4] = [
    ("kept", (false, Privileged::Real)),
    ("trash", (true, Privileged::Real)),
    ("kept held", (false, Privileged::Held)),
    ("trash held", (true, Privileged::Held)),
];

fn put_time(out: &mut Vec<u8>, time: Time) {
    put(out, format!("{}.{:09}", time.sec, time.nsec).as_bytes());
}

fn put_known(out: &mut Vec<u8>, by: &KnownBy) {
    let word = KINDS.iter().find(|(kind, _)| *kind == by.kind).map_or("file", |(_, word)| word);
    put(out, word.as_bytes());
    put(out, by.size.to_string().as_bytes());
    put_time(out, by.mtime);
}

/// One line's fields, each taken once.
struct Fields<'l>(std::slice::Split<'l, u8, fn(&u8) -> bool>);

impl<'l> Fields<'l> {
    fn of(line: &'l [u8]) -> Fields<'l> {
        Fields(line.split(|byte| *byte == b'\t'))
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        taken(self.0.next()?)
    }

    fn path(&mut self) -> Option<PathBuf> {
        Some(PathBuf::from(OsStr::from_bytes(&self.bytes()?)))
    }

    fn text(&mut self) -> Option<&'l str> {
        std::str::from_utf8(self.0.next()?).ok()
    }

    fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.text()?.parse().ok()
    }

    fn time(&mut self) -> Option<Time> {
        let (sec, nsec) = self.text()?.split_once('.')?;
        let nsec = nsec.parse().ok().filter(|nsec| *nsec < 1_000_000_000)?;
        Some(Time { sec: sec.parse().ok()?, nsec })
    }

    fn known(&mut self) -> Option<KnownBy> {
        let word = self.text()?;
        let kind = KINDS.iter().find(|(_, known)| *known == word)?.0;
        Some(KnownBy { kind, size: self.number()?, mtime: self.time()? })
    }

    fn has_more(&self) -> bool {
        self.0.clone().next().is_some()
    }

    fn end<T>(mut self, all: T) -> Option<T> {
        self.0.next().is_none().then_some(all)
    }
}

/// The way from one directory to another, of which both paths are whole.
pub(crate) fn way(from: &Path, to: &Path) -> PathBuf {
    let common = from.components().zip(to.components()).take_while(|(from, to)| from == to).count();
    let up = from.components().skip(common).map(|_| Component::ParentDir);
    up.chain(to.components().skip(common)).collect()
}

/// Where it leads from a directory; `None`: above what that one's path begins with.
pub(crate) fn at_end(from: &Path, way: &Path) -> Option<PathBuf> {
    way.components().try_fold(from.to_owned(), |mut at, part| match part {
        Component::ParentDir => at.pop().then_some(at),
        Component::Normal(name) => {
            at.push(name);
            Some(at)
        }
        Component::CurDir => Some(at),
        Component::RootDir | Component::Prefix(_) => None,
    })
}

/// A path of names below a directory, none of which leads out of it.
fn is_below(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

impl ReceiptHead {
    pub(crate) fn lines(&self) -> Vec<u8> {
        let mut out = format!("{HEAD}\n").into_bytes();
        let mut line = Vec::new();
        put(&mut line, b"destination");
        let DirId { ino, born, file_system } = self.id;
        put(&mut line, ino.to_string().as_bytes());
        put(&mut line, self.dest.as_os_str().as_bytes());
        if (born, file_system) != (0, 0) {
            put(&mut line, born.to_string().as_bytes());
            put(&mut line, file_system.to_string().as_bytes());
        }
        line.push(b'\n');
        out.append(&mut line);
        let word = STORES.iter().find(|(_, store)| *store == (self.trash, self.privileged));
        put(&mut line, word.map_or("kept", |(word, _)| word).as_bytes());
        put(&mut line, self.store.as_os_str().as_bytes());
        line.push(b'\n');
        out.append(&mut line);
        out
    }

    /// What the first three lines say.
    fn parse(mut lines: impl Iterator<Item = Vec<u8>>) -> Option<ReceiptHead> {
        if lines.next()? != HEAD.as_bytes() {
            return None;
        }
        let (dest, store) = (lines.next()?, lines.next()?);
        let mut fields = Fields::of(&dest);
        if fields.text()? != "destination" {
            return None;
        }
        let ino = fields.number()?;
        let path = fields.path()?;
        let (born, file_system) = match fields.has_more() {
            true => (fields.number()?, fields.number()?),
            false => (0, 0),
        };
        let (id, dest) = fields.end((DirId { ino, born, file_system }, path))?;
        let mut fields = Fields::of(&store);
        let word = fields.text()?;
        let (trash, privileged) = STORES.iter().find(|(known, _)| *known == word)?.1;
        let store = fields.path()?;
        fields.end(ReceiptHead { dest, id, store, trash, privileged })
    }
}

impl KeptLine {
    pub(crate) fn line(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match &self.done {
            Done::Made(by) => {
                put(&mut out, b"+");
                put_known(&mut out, by);
            }
            Done::Replaced(by, kept) => {
                put(&mut out, b"~");
                put_known(&mut out, by);
                put(&mut out, kept.at.as_os_str().as_bytes());
            }
            Done::Deleted(kept) => {
                put(&mut out, b"-");
                put(&mut out, kept.at.as_os_str().as_bytes());
            }
            Done::Stayed(was) => {
                put(&mut out, b"=");
                match &was.owned {
                    Some(Owned { mode, uid, gid }) => {
                        put(&mut out, format!("{mode:o}").as_bytes());
                        put(&mut out, uid.to_string().as_bytes());
                        put(&mut out, gid.to_string().as_bytes());
                    }
                    None => put(&mut out, TIMES_ALONE.as_bytes()),
                }
                put_time(&mut out, was.atime);
                put_time(&mut out, was.mtime);
            }
        }
        put(&mut out, self.path.as_os_str().as_bytes());
        if let Done::Replaced(_, KeptThing { ino: Some(ino), .. })
        | Done::Deleted(KeptThing { ino: Some(ino), .. }) = &self.done
        {
            put(&mut out, ino.to_string().as_bytes());
        }
        out.push(b'\n');
        out
    }

    fn parse(line: &[u8]) -> Option<KeptLine> {
        let mut fields = Fields::of(line);
        let is_stored = |at: &PathBuf| is_below(at) && !at.as_os_str().is_empty();
        let stored = |at: PathBuf| Some(KeptThing { at, ino: None }).filter(|kept| is_stored(&kept.at));
        let mut done = match fields.text()? {
            "+" => Done::Made(fields.known()?),
            "~" => Done::Replaced(fields.known()?, stored(fields.path()?)?),
            "-" => Done::Deleted(stored(fields.path()?)?),
            "=" => {
                let owned = match fields.text()? {
                    TIMES_ALONE => None,
                    mode => Some(Owned {
                        mode: u32::from_str_radix(mode, 8).ok()?,
                        uid: fields.number()?,
                        gid: fields.number()?,
                    }),
                };
                Done::Stayed(WasLike { owned, atime: fields.time()?, mtime: fields.time()? })
            }
            _ => return None,
        };
        let path = fields.path()?;
        if let Done::Replaced(_, kept) | Done::Deleted(kept) = &mut done
            && fields.has_more()
        {
            kept.ino = Some(fields.number()?);
        }
        let is_itself = matches!(done, Done::Stayed(_)) && path.as_os_str().is_empty();
        let is_name = is_below(&path) && !path.as_os_str().is_empty();
        fields.end(KeptLine { done, path }).filter(|_| is_itself || is_name)
    }
}

/// A receipt that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceiptSaid {
    pub(crate) head: ReceiptHead,
    /// In the order that it was done.
    pub(crate) lines: Vec<KeptLine>,
    /// It ends within a line. M7: nothing was moved away that has no whole line, but something new may be there.
    pub(crate) is_cut: bool,
}

/// What a receipt says. A run that was killed may have left half a line at the end, and a power cut zeros where a disk has not
/// written what came after the last sync: no line has any. `None`: it is no receipt.
pub(crate) fn parse(text: &[u8]) -> Option<ReceiptSaid> {
    let written = text.iter().position(|byte| *byte == 0).map_or(Some(text), |zeros| text.get(..zeros))?;
    let whole = written.get(..written.iter().rposition(|byte| *byte == b'\n')?)?;
    let is_cut = text.len() > whole.len() + 1;
    let mut lines = whole.split(|byte| *byte == b'\n');
    let head = ReceiptHead::parse(lines.by_ref().take(3).map(<[u8]>::to_vec))?;
    let fits = |line: &&[u8]| line.len() <= LINE_BYTES_MAX;
    let lines = lines.map(|line| Some(line).filter(fits).and_then(KeptLine::parse));
    Some(ReceiptSaid { head, lines: lines.collect::<Option<Vec<KeptLine>>>()?, is_cut })
}

/// Entrance for the fuzzer: any bytes as a receipt, which leads out of nothing and says the same when it is written again.
#[cfg(fuzzing)]
pub fn fuzz(data: &[u8]) {
    let whole = [HEAD.as_bytes(), b"\ndestination\t7\t/d\nkept\told\n", data, b"\n"].concat();
    for text in [data, &whole] {
        let Some(ReceiptSaid { head, lines, .. }) = parse(text) else { continue };
        for line in &lines {
            assert!(is_below(&line.path));
            if let Done::Replaced(_, kept) | Done::Deleted(kept) = &line.done {
                assert!(is_below(&kept.at) && kept.at.file_name().is_some());
            }
        }
        let again = lines.iter().fold(head.lines(), |text, line| [text, line.line()].concat());
        assert_eq!(parse(&again), Some(ReceiptSaid { head, lines, is_cut: false }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> ReceiptHead {
        let (trash, privileged) = (false, Privileged::Real);
        let id = DirId { ino: 7, born: 8, file_system: u64::MAX };
        ReceiptHead { dest: "/d\t\n".into(), id, store: "old".into(), trash, privileged }
    }

    fn lines() -> Vec<KeptLine> {
        let time = |sec| Time { sec, nsec: 5 };
        let by = |kind| KnownBy { kind, size: 3, mtime: time(-9) };
        let owned = Some(Owned { mode: 0o2755, uid: 1, gid: 2 });
        let was = WasLike { owned, atime: time(3), mtime: time(4) };
        let line = |done, path: &str| KeptLine { done, path: path.into() };
        let kept = |at: &str, ino| KeptThing { at: at.into(), ino };
        vec![
            line(Done::Stayed(was), ""),
            line(Done::Stayed(WasLike { owned: None, ..was }), "a"),
            line(Done::Made(by(Kind::Fifo)), "a/b c"),
            line(Done::Replaced(by(Kind::File), kept("old/x\\\ty", Some(9))), "x\\\ty"),
            line(Done::Deleted(kept("files/x.2", None)), "line\nend"),
            line(Done::Deleted(kept("files/x.3", Some(u64::MAX))), "x"),
        ]
    }

    fn receipt(is_cut: bool) -> Option<ReceiptSaid> {
        Some(ReceiptSaid { head: head(), lines: lines(), is_cut })
    }

    fn written() -> Vec<u8> {
        lines().iter().fold(head().lines(), |text, line| [text, line.line()].concat())
    }

    #[test]
    fn a_way_leads_there_and_not_above_where_it_begins() {
        for (from, to, by) in [
            ("/r/kept/run", "/r/d", "../../d"),
            ("/r/d/kept/run", "/r/d", "../.."),
            ("/kept/run", "/", "../.."),
            ("/r/kept/run", "/r", "../.."),
        ] {
            let (from, to) = (Path::new(from), Path::new(to));
            assert_eq!(way(from, to), Path::new(by));
            assert_eq!(at_end(from, Path::new(by)).as_deref(), Some(to));
        }
        assert_eq!(at_end(Path::new("kept/run"), Path::new("../../d")), Some("d".into()));
        for (from, by) in [("kept/run", "../../../r/d"), ("/r", "../../d"), ("kept", "/d")] {
            assert_eq!(at_end(Path::new(from), Path::new(by)), None, "{by}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(parse(&written()), receipt(false));
        for (_, (trash, privileged)) in STORES {
            let head = ReceiptHead { trash, privileged, ..head() };
            let receipt = ReceiptSaid { head: head.clone(), lines: Vec::new(), is_cut: false };
            assert_eq!(parse(&head.lines()), Some(receipt));
        }
    }

    /// What a kill or a power cut leaves at the end was not done, whatever of later lines a disk has written behind zeros.
    #[test]
    fn a_receipt_that_is_cut_off_says_what_is_whole() {
        for end in ["-\told/z\tz", "-", "\0\0\0", "-\told/z\0\0\0\n", "\0\0\0-\told/z\tz\n"] {
            let cut = [written(), end.as_bytes().to_vec()].concat();
            assert_eq!(parse(&cut), receipt(true), "{end:?}");
        }
    }

    #[test]
    fn a_directory_is_known_by_all_that_is_said_of_it() {
        let said = head().id;
        let others = [DirId { ino: 6, ..said }, DirId { born: 9, ..said }, DirId { file_system: 1, ..said }];
        assert!(said.is(&said) && others.iter().all(|other| !said.is(other)));
        // What an older version has written says the number alone.
        let old = parse(b"bcmr receipt 1\ndestination\t7\t/d\nkept\t.\n").unwrap().head.id;
        assert_eq!(old, DirId { ino: 7, born: 0, file_system: 0 });
        assert!(old.is(&said) && others[1..].iter().all(|other| old.is(other)) && !old.is(&others[0]));
        for more in ["8", "8\t9\t1", "x\t9", "8\t"] {
            let text = format!("bcmr receipt 1\ndestination\t7\t/d\t{more}\nkept\t.\n");
            assert_eq!(parse(text.as_bytes()), None, "{more}");
        }
    }

    /// What leads out of the destination or of what is kept, and what is no line, makes it no receipt.
    #[test]
    fn nothing_else_is_taken() {
        for line in [
            "-\told/z\t../z",
            "-\t../z\tz",
            "-\t/z\tz",
            "-\told/z\t/z",
            "-\told/z\ta/./..",
            "-\told/z\t",
            "-\t\tz",
            "-\told/z\tz\tz",
            "-\told/z\tz\t7\t7",
            "+\tfile\t1\t1.0\tz\t7",
            "-\told/z",
            "*\told/z\tz",
            "+\tfile\t1\t1.0\tz\\x",
            "+\tfile\t-1\t1.0\tz",
            "+\tfile\t1\t1.1000000000\tz",
            "+\tbox\t1\t1.0\tz",
            "=\t9\t1\t1\t1.0\t1.0\tz",
            "=\t-\t1\t1\t1.0\t1.0\tz",
            "=\t-\t1.0\tz",
            "",
        ] {
            let text = [written(), line.as_bytes().to_vec(), b"\n".to_vec()].concat();
            assert_eq!(parse(&text), None, "{line:?}");
        }
        assert_eq!(parse(b"bcmr receipt 2\ndestination\t1\t/d\nkept\told\n"), None);
        assert_eq!(parse(b""), None);
        let all = written();
        // Cut anywhere behind its head it says less, and never something else.
        for len in head().lines().len()..all.len() {
            let read = parse(&all[..len]).unwrap();
            assert!(lines().starts_with(&read.lines), "{len}");
            assert_eq!(read.is_cut, all[len - 1] != b'\n', "{len}");
        }
    }
}
