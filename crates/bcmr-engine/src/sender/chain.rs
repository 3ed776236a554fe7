//! The directories that lead to the names of a list (`--files-from`), from the top down to the last name's.
//!
//! Must not know what a directory is to the walk that holds it.

use fastcopy::dir::{Name, NameBuf};

/// A directory that all names of a list are below, and those that lead from it to the name at hand.
pub(crate) struct Chain<T> {
    top: T,
    below: Vec<(NameBuf, T)>,
}

impl<T> Chain<T> {
    pub(crate) fn new(top: T) -> Chain<T> {
        Chain { top, below: Vec::new() }
    }

    /// The directory at its end.
    pub(crate) fn last(&mut self) -> &mut T {
        self.below.last_mut().map_or(&mut self.top, |(_, dir)| dir)
    }

    /// Goes to the directory that `dirs` lead to: leaves what does not lead there, the innermost first, and enters what
    /// is missing. `false`: `enter` gave nothing for one of them, and the chain ends above it.
    ///
    /// # Errors
    /// Those of `enter`; the chain ends above what could not be entered.
    pub(crate) fn go<E>(
        &mut self,
        dirs: &[NameBuf],
        leave: &mut impl FnMut(T),
        mut enter: impl FnMut(&mut T, Name<'_>) -> Result<Option<T>, E>,
    ) -> Result<bool, E> {
        let common = self.below.iter().zip(dirs).take_while(|((a, _), b)| a == *b).count();
        self.leave_to(common, leave);
        for name in dirs.iter().skip(common) {
            match enter(self.last(), name.as_name())? {
                Some(dir) => self.below.push((name.clone(), dir)),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn leave_to(&mut self, depth: usize, leave: &mut impl FnMut(T)) {
        while self.below.len() > depth
            && let Some((_, dir)) = self.below.pop()
        {
            leave(dir);
        }
    }

    /// Leaves everything, the innermost first, and returns the top.
    pub(crate) fn end(mut self, leave: &mut impl FnMut(T)) -> T {
        self.leave_to(0, leave);
        self.top
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_names_share_is_entered_once_and_left_from_the_inside() {
        let parts = |path: &str| -> Vec<NameBuf> {
            path.split('/').filter(|p| !p.is_empty()).map(|p| NameBuf::new(p.as_bytes()).unwrap()).collect()
        };
        let mut chain = Chain::new("top".to_owned());
        let log = std::cell::RefCell::new(Vec::new());
        let mut leave = |dir: String| log.borrow_mut().push(format!("-{dir}"));
        for (path, whole, last) in [
            ("a/b/c", true, "top/a/b/c"),
            ("a/b/d", true, "top/a/b/d"),
            ("a/out/e", false, "top/a"),
            ("a/b", true, "top/a/b"),
            ("", true, "top"),
        ] {
            let went = chain.go(&parts(path), &mut leave, |above, name| {
                let name = String::from_utf8_lossy(name.bytes()).into_owned();
                log.borrow_mut().push(format!("+{name}"));
                Ok::<_, ()>((name != "out").then(|| format!("{above}/{name}")))
            });
            assert_eq!((went, chain.last().as_str()), (Ok(whole), last), "{path}");
        }
        let told = chain.go(&parts("x/bad/y"), &mut leave, |_, name| {
            if name.bytes() == b"bad" { Err("no") } else { Ok(Some("x".to_owned())) }
        });
        assert_eq!((told, chain.last().as_str()), (Err("no"), "x"));
        assert_eq!(chain.end(&mut leave), "top");
        assert_eq!(
            log.into_inner().join(" "),
            "+a +b +c -top/a/b/c +d -top/a/b/d -top/a/b +out +b -top/a/b -top/a -x"
        );
    }
}
