//! Options and keys of other programs with their counterparts here. `import` comments on those without one, and the guides
//! have these tables.

/// The options or keys of one program.
pub(super) struct Table {
    /// The program, or its file.
    pub(super) program: &'static str,
    pub(super) rows: &'static [Row],
}

/// An option or key.
pub(super) struct Row {
    /// Its names: short and long.
    pub(super) names: &'static [&'static str],
    pub(super) ours: Ours,
}

/// The counterpart here.
pub(super) enum Ours {
    /// Where the setting stands, and what it is.
    Is(
        #[cfg_attr(not(test), expect(dead_code, reason = "for the guides, which a test writes"))]
        &'static str,
    ),
    /// None, and the reason.
    Nothing(&'static str),
}

/// A table row of an option or key with a counterpart.
pub(super) const fn is(names: &'static [&'static str], ours: &'static str) -> Row {
    Row { names, ours: Ours::Is(ours) }
}

/// A table row of an option or key without a counterpart.
pub(super) const fn nothing(names: &'static [&'static str], why: &'static str) -> Row {
    Row { names, ours: Ours::Nothing(why) }
}

impl Row {
    /// The comment on a name without a counterpart.
    pub(super) fn comment(&self, name: &str) -> Option<String> {
        match self.ours {
            Ours::Is(_) => None,
            Ours::Nothing(why) => Some(format!("{name}: no counterpart: {why}")),
        }
    }
}
