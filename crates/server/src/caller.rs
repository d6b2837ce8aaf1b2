//! Who asks, and what they may: every right but the sight of a job is decided here, and that one by
//! [`Reader::may_see`], to which every question is bound before it is executed.

use jobs::Reader;
use model::Origin;

/// The number of no user: it means "no change" to chown(2), and no process has it.
const NO_USER: u32 = u32::MAX;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Root, the server's own user, or an administrator's token: may do everything. The number is that of
    /// the user, where the kernel tells it.
    Admin(Option<u32>),
    /// A user of this machine, or a user's token: reads what is no job of somebody else, registers and
    /// ends jobs, and sends what was counted for them.
    User(u32),
    /// A token of nobody in particular: reads what belongs to no job.
    Guest,
    /// An agent's token or certificate: appends batches of this origin, or of any when none is named.
    Agent(Option<Origin>),
    /// Somebody whom neither the kernel nor a token nor a certificate names: may do nothing.
    Nobody,
}

impl Caller {
    /// For whom a question is answered, if for this caller at all.
    pub(crate) const fn reader(&self) -> Option<Reader> {
        match self {
            Self::Admin(_) => Some(Reader::Everything),
            Self::User(uid) => Some(Reader::User(*uid)),
            Self::Guest => Some(Reader::User(NO_USER)),
            Self::Agent(_) | Self::Nobody => None,
        }
    }

    /// The user whose jobs this caller registers: the one the kernel or the token names, never one that
    /// the request names.
    pub(crate) const fn registers_for(&self) -> Option<u32> {
        match self {
            Self::Admin(uid) => *uid,
            Self::User(uid) => Some(*uid),
            Self::Guest | Self::Agent(_) | Self::Nobody => None,
        }
    }

    /// Whether this caller may end the jobs of that user.
    pub(crate) fn may_end(&self, owner: Option<u32>) -> bool {
        match self {
            Self::Admin(_) => true,
            Self::User(uid) => owner == Some(*uid),
            Self::Guest | Self::Agent(_) | Self::Nobody => false,
        }
    }

    /// Whether this caller may append anything an origin sends. A user may append what was counted for
    /// his own jobs, which is decided batch by batch.
    pub(crate) fn appends_all_of(&self, origin: &Origin) -> bool {
        match self {
            Self::Admin(_) | Self::Agent(None) => true,
            Self::Agent(Some(own)) => own == origin,
            Self::User(_) | Self::Guest | Self::Nobody => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights() {
        let n1 = Origin::new("n1").unwrap();
        let n2 = Origin::new("n2").unwrap();
        let sees = |caller: &Caller, owner| caller.reader().map(|reader| reader.may_see(owner));
        for (caller, see_own, see_other, see_unknown, n1_ok, n2_ok) in [
            (Caller::Admin(None), Some(true), Some(true), Some(true), true, true),
            (Caller::User(7), Some(true), Some(false), Some(false), false, false),
            (Caller::Guest, Some(false), Some(false), Some(false), false, false),
            (Caller::Agent(None), None, None, None, true, true),
            (Caller::Agent(Some(n1.clone())), None, None, None, true, false),
            (Caller::Nobody, None, None, None, false, false),
        ] {
            assert_eq!(sees(&caller, Some(7)), see_own, "{caller:?}");
            assert_eq!(sees(&caller, Some(8)), see_other, "{caller:?}");
            assert_eq!(sees(&caller, None), see_unknown, "{caller:?}");
            assert_eq!(caller.appends_all_of(&n1), n1_ok, "{caller:?}");
            assert_eq!(caller.appends_all_of(&n2), n2_ok, "{caller:?}");
            assert_eq!(caller.may_end(Some(7)), see_own == Some(true), "{caller:?}");
            assert_eq!(caller.may_end(None), caller == Caller::Admin(None));
        }
        assert_eq!(Caller::Admin(Some(3)).registers_for(), Some(3));
        assert_eq!(Caller::Admin(None).registers_for(), None);
        assert_eq!(Caller::Guest.registers_for(), None);
    }
}
