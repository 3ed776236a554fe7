//! What was typed or configured and makes no sense. Must not know what would.

/// Arguments that parse but make no sense together. Told with exit code 2.
#[derive(Debug, PartialEq, Eq)]
pub struct Usage {
    /// What is wrong, fit for a terminal.
    pub said: String,
    /// What to do instead; where there is nothing better, a look at the help.
    pub hint: Option<String>,
}

impl Usage {
    /// What is wrong.
    pub fn new(said: impl Into<String>) -> Usage {
        Usage { said: said.into(), hint: None }
    }

    /// What to do instead.
    pub fn or(mut self, hint: impl Into<String>) -> Usage {
        self.hint = Some(hint.into());
        self
    }
}
