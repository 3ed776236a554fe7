//! Where each option holds, and whether a copy by scp would lose it (D7): one row for each option, in a table beside the
//! group that it belongs to. Refusals read these tables, and so does the decision to let scp copy.
//!
//! Must not know any option. A test of `copy` finds an option that has no row.

/// Where an option holds.
#[derive(Clone, Copy)]
pub(super) enum Holds {
    /// On one machine and on two.
    Everywhere,
    /// On this machine only; a copy with another one refuses it, with this hint.
    Here(&'static str),
    /// With another machine only.
    There,
}

/// Whether scp would do what the option asks for.
#[derive(Clone, Copy)]
pub(super) enum Scp<A> {
    /// Yes, or nothing is lost without it.
    Keeps,
    /// No.
    Loses,
    /// No, if its value is such.
    LosesIf(fn(&A) -> bool),
}

/// One option as it is shown, its columns, and whether it was asked for.
pub(super) struct Row<A: 'static>(
    pub(super) &'static str,
    pub(super) Holds,
    pub(super) Scp<A>,
    pub(super) fn(&A) -> bool,
);

/// A group of options with its table.
pub(super) trait Columns: Sized + 'static {
    /// Every option of the group, the one that says most first.
    const ROWS: &'static [Row<Self>];

    /// What was asked for and scp would lose.
    fn lost(&self) -> impl Iterator<Item = &'static str> {
        let lost = |row: &Row<Self>| match row.2 {
            Scp::Keeps => false,
            Scp::Loses => (row.3)(self),
            Scp::LosesIf(is_lost) => is_lost(self),
        };
        Self::ROWS.iter().filter(move |row| lost(row)).map(|row| row.0)
    }

    /// The first that was asked for and holds on this machine only, with its hint.
    fn only_here(&self) -> Option<(&'static str, &'static str)> {
        Self::ROWS.iter().filter(|row| (row.3)(self)).find_map(|row| match row.1 {
            Holds::Here(hint) => Some((row.0, hint)),
            _ => None,
        })
    }

    /// The first that was asked for and holds with another machine only.
    fn only_there(&self) -> Option<&'static str> {
        let there = |row: &&Row<Self>| matches!(row.1, Holds::There) && (row.3)(self);
        Self::ROWS.iter().find(there).map(|row| row.0)
    }
}
