//! What was typed behind the name of a command, as that command's own options. Must not know what any of them means.

use clap::Parser;
use sh::Result;

/// The options of `cargo xtask NAME`. `None`: help was asked for, and was printed.
pub fn parse<T: Parser>(rest: &[&str]) -> Result<Option<T>> {
    let name = T::command().get_name().to_owned();
    match T::try_parse_from(std::iter::once(name.as_str()).chain(rest.iter().copied())) {
        Ok(options) => Ok(Some(options)),
        Err(said) if said.use_stderr() => Err(said.to_string().into()),
        Err(said) => {
            said.print()?;
            Ok(None)
        }
    }
}
