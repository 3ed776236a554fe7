//! Changes as lines with rsync's letters: what is done, to what kind of thing, and what of it is other.
//!
//! Must not know where they go. The column of attributes has what is known: a `+` for all of a new thing, dots and letters
//! where a comparison says why, `?` where what was there was replaced or brought up to date without being told what differed.

use crate::names;
use bcmr_engine::error::Reason;
use bcmr_engine::event::{Action, Change};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Something that was done, relative to `base`; nothing for what stayed as it was.
pub fn item(action: Action, dst: &Path, base: &Path) -> Option<String> {
    let (code, end) = match action {
        Action::Copied => (">f?????????", ""),
        Action::MadeDir => ("cd+++++++++", "/"),
        Action::MadeLink => ("cL+++++++++", ""),
        Action::HardLinked => ("hf+++++++++", ""),
        Action::MadeSpecial => ("cS+++++++++", ""),
        Action::Renamed => ("cf.........", ""),
        Action::Updated => (".??????????", ""),
        Action::Removed => ("*deleting  ", ""),
        Action::Kept | Action::Excluded => return None,
    };
    Some(format!("{code} {}{end}", below(dst, base)))
}

/// A difference of a dry run, whose path is relative already.
pub fn difference(change: Change, path: &[u8], directory: bool, why: Reason) -> String {
    let code = match (change, directory) {
        (Change::Extra, _) => "*deleting  ".to_owned(),
        (Change::Add, true) => "cd+++++++++".to_owned(),
        (Change::Add, false) => ">f+++++++++".to_owned(),
        (Change::Differ, true) if why == Reason::ByType => "cd+++++++++".to_owned(),
        (Change::Differ, true) => format!(".d{}", letters(why)),
        (Change::Differ, false) => match why {
            Reason::ByMode | Reason::ByOwner | Reason::ByAcl | Reason::ByAttributes => {
                format!(".f{}", letters(why))
            }
            _ => format!(">f{}", letters(why)),
        },
    };
    let path = if path.is_empty() { ".".into() } else { names::bare(path) };
    format!("{code} {path}{}", if directory { "/" } else { "" })
}

/// `cstpoguax` as rsync has them, those that are told to differ.
fn letters(why: Reason) -> &'static str {
    match why {
        Reason::ByContent => "c........",
        Reason::BySize => ".s.......",
        Reason::ByMtime => "..t......",
        Reason::ByMode => "...p.....",
        Reason::ByOwner => "....o....",
        Reason::ByAcl => ".......a.",
        Reason::ByAttributes => "........x",
        _ => "?????????",
    }
}

fn below(path: &Path, base: &Path) -> String {
    let below = path.strip_prefix(base).ok().filter(|rest| !rest.as_os_str().is_empty());
    names::bare(below.unwrap_or(path).as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_names() {
        let told = |action| item(action, Path::new("/d/sub/a\nb"), Path::new("/d"));
        assert_eq!(told(Action::Copied).as_deref(), Some(">f????????? sub/a\\x0ab"));
        assert_eq!(told(Action::MadeDir).as_deref(), Some("cd+++++++++ sub/a\\x0ab/"));
        assert_eq!(told(Action::Removed).as_deref(), Some("*deleting   sub/a\\x0ab"));
        assert_eq!(told(Action::Kept), None);
        for (change, directory, why, want) in [
            (Change::Add, false, Reason::BySize, ">f+++++++++ x"),
            (Change::Add, true, Reason::BySize, "cd+++++++++ x/"),
            (Change::Extra, true, Reason::BySize, "*deleting   x/"),
            (Change::Differ, false, Reason::BySize, ">f.s....... x"),
            (Change::Differ, false, Reason::ByMode, ".f...p..... x"),
            (Change::Differ, true, Reason::ByMtime, ".d..t...... x/"),
            (Change::Differ, false, Reason::ByType, ">f????????? x"),
            (Change::Differ, true, Reason::ByType, "cd+++++++++ x/"),
        ] {
            assert_eq!(difference(change, b"x", directory, why), want);
        }
        assert_eq!(difference(Change::Differ, b"", true, Reason::ByMode), ".d...p..... ./");
    }
}
