//! Where on the line an argument stood, for arguments of which the last one counts. Must not know any argument by name.

use clap::{ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};

/// What follows from where options stood. It is flattened into their group before all of them: as they are read, their places
/// are gone.
#[derive(Clone, Debug, Default)]
pub struct InOrder<T>(pub T);

/// Reads the places of the options that it knows.
pub trait FromPlaces {
    /// By [`values`] and [`flag`].
    fn from_places(m: &ArgMatches) -> Self;
}

/// No option of its own.
impl<T: FromPlaces> Args for InOrder<T> {
    fn augment_args(definitions: Command) -> Command {
        definitions
    }

    fn augment_args_for_update(definitions: Command) -> Command {
        definitions
    }
}

impl<T: FromPlaces> FromArgMatches for InOrder<T> {
    fn from_arg_matches(m: &ArgMatches) -> Result<InOrder<T>, clap::Error> {
        Ok(InOrder(T::from_places(m)))
    }

    fn update_from_arg_matches(&mut self, m: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = T::from_places(m);
        Ok(())
    }
}

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
