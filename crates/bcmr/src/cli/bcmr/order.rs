//! Where on the line an argument stood, for arguments of which the last one counts. Must not know any argument by name.

use clap::{ArgMatches, parser::ValueSource};

/// Each value of an argument with the place it was typed at.
pub(super) fn values<T: Clone + Send + Sync + 'static>(
    m: &ArgMatches,
    id: &str,
) -> impl Iterator<Item = (usize, T)> {
    let places: Vec<usize> = m.indices_of(id).map(Iterator::collect).unwrap_or_default();
    let values: Vec<T> = m.get_many(id).map(|v| v.cloned().collect()).unwrap_or_default();
    places.into_iter().zip(values)
}

/// Where a flag was typed last; flags that were not typed have an index too, but another origin.
pub(super) fn flag(m: &ArgMatches, id: &str) -> Option<usize> {
    (m.value_source(id) == Some(ValueSource::CommandLine)).then(|| m.index_of(id)).flatten()
}
