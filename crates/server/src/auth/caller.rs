//! Callers and their rights. [`Reader`] decides which jobs and nodes a query sees; this module decides all
//! other rights. Every query is bound to a [`Reader`] before it is executed.
//! `docs/decisions/0016-sight.md`.

use crate::auth::audit::Actor;
use jobs::Reader;
use model::{ClusterId, DeviceId, Origin};

/// An identified caller and their rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) rights: Rights,
    /// The caller and their request, for the log and the audit.
    pub(crate) actor: Actor,
    /// Whether users see a node only while a job visible to them runs there.
    pub(crate) own_nodes: bool,
    /// Whether the caller came with a user-created token or a JSON Web Token: they create no other token.
    pub(crate) by_user_token: bool,
    /// Whether the kernel identified the caller as a user of the server's own machine.
    pub(crate) is_here: bool,
}

/// Rights of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Root, the server's own user, or an administrator's token: may do everything. Holds the user ID, if
    /// the kernel reports one.
    Admin(Option<u32>),
    /// A user of this machine, or a user's token. They read what is visible to them, register and end jobs,
    /// and send samples attributed to these jobs.
    User(u32),
    /// A user's read-only token: reads what is visible to them.
    Reading(u32),
    /// A user of this machine who is staff: has a user's rights and reads everything.
    StaffUser(u32),
    /// A staff token: reads everything and writes nothing. Holds the user ID, if the token names a user.
    Staff(Option<u32>),
    /// A token without a user: reads node samples.
    Guest,
    /// A token for prologues and epilogues: reports job changes like a scheduler, and reads nothing.
    /// Limited to this cluster, or unlimited when `None`.
    JobReporter(Option<ClusterId>),
    /// An unidentified caller, where the settings allow anonymous reads: reads node samples.
    Anonymous,
    /// An agent's token or certificate: appends batches of this origin, or of any origin when `None`.
    Agent(Option<Origin>),
    /// A poller's token: appends batches of this poller's groups.
    Poller(DeviceId),
    /// A token of the input that receives the messages of Colmet's nodes: appends batches of this cluster's groups.
    Colmet(ClusterId),
    /// A token that inserts rows of any device, and reads nothing.
    Push(Option<DeviceId>),
    /// A caller whom neither the kernel nor a token nor a certificate identifies: may do nothing.
    Nobody,
}

impl Caller {
    /// Whether the device of a job that the caller registers is verified. The kernel verifies it for the
    /// server's own machine; an administrator is trusted for any device.
    pub(crate) fn verifies(&self, device: &str, own_device: &str) -> bool {
        self.rights.is_admin() || (self.is_here && device == own_device)
    }

    /// The reader to which queries of this caller are bound; `None` if the caller may not read.
    pub(crate) const fn reader(&self) -> Option<Reader> {
        match self.rights {
            Rights::Admin(_) | Rights::Staff(_) | Rights::StaffUser(_) => Some(Reader::Everything),
            Rights::User(uid) | Rights::Reading(uid) if self.own_nodes => Some(Reader::Tenant(uid)),
            Rights::User(uid) | Rights::Reading(uid) => Some(Reader::User(uid)),
            Rights::Guest | Rights::Anonymous => Some(Reader::Nodes),
            Rights::Agent(_)
            | Rights::JobReporter(_)
            | Rights::Poller(_)
            | Rights::Colmet(_)
            | Rights::Push(_)
            | Rights::Nobody => None,
        }
    }
}

impl Rights {
    /// The name of these rights in `/api/v1/me`.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Admin(_) => "admin",
            Self::User(_) => "user",
            Self::Reading(_) => "read",
            Self::Staff(_) | Self::StaffUser(_) => "staff",
            Self::Guest => "guest",
            Self::JobReporter(_) => "jobs",
            Self::Agent(_) => "agent",
            Self::Poller(_) => "poller",
            Self::Colmet(_) => "colmet",
            Self::Push(_) => "push",
            Self::Anonymous | Self::Nobody => "nobody",
        }
    }

    /// The caller's user ID, if known.
    pub(crate) const fn uid(&self) -> Option<u32> {
        match self {
            Self::Admin(uid) | Self::Staff(uid) => *uid,
            Self::User(uid) | Self::Reading(uid) | Self::StaffUser(uid) => Some(*uid),
            Self::Guest
            | Self::JobReporter(_)
            | Self::Anonymous
            | Self::Agent(_)
            | Self::Poller(_)
            | Self::Colmet(_)
            | Self::Push(_)
            | Self::Nobody => None,
        }
    }

    /// The scope that precedes the token in a token file.
    pub(crate) const fn scope(&self) -> &'static str {
        match self {
            // A token without a name has the scope `user`.
            Self::Guest => "user",
            rights => rights.word(),
        }
    }

    /// Whether the caller may do everything.
    pub(crate) const fn is_admin(&self) -> bool {
        matches!(self, Self::Admin(_))
    }

    /// The owner of jobs that this caller registers. The kernel or the token names them, never the request.
    pub(crate) const fn registers_for(&self) -> Option<u32> {
        match self {
            Self::Admin(uid) => *uid,
            Self::User(uid) | Self::StaffUser(uid) => Some(*uid),
            Self::Reading(_)
            | Self::Staff(_)
            | Self::Guest
            | Self::JobReporter(_)
            | Self::Anonymous
            | Self::Agent(_)
            | Self::Poller(_)
            | Self::Colmet(_)
            | Self::Push(_)
            | Self::Nobody => None,
        }
    }

    /// The name after the scope of a token that is not a user's.
    pub(crate) fn scope_name(&self) -> Option<&str> {
        match self {
            Self::Agent(origin) => origin.as_ref().map(Origin::as_str),
            Self::JobReporter(cluster) => cluster.as_ref().map(ClusterId::as_str),
            Self::Poller(name) => Some(name.as_str()),
            Self::Colmet(cluster) => Some(cluster.as_str()),
            Self::Push(name) => name.as_ref().map(DeviceId::as_str),
            _ => None,
        }
    }

    /// Whether this is a token of scope `jobs`.
    pub(crate) const fn is_job_reporter(&self) -> bool {
        matches!(self, Self::JobReporter(_))
    }

    /// Whether this caller may report jobs of that cluster like its scheduler.
    pub(crate) fn reports_jobs_of(&self, cluster: &ClusterId) -> bool {
        match self {
            Self::Admin(_) | Self::JobReporter(None) => true,
            Self::JobReporter(Some(own)) => own == cluster,
            _ => false,
        }
    }

    /// Whether this caller may end this owner's jobs and their on-demand requests.
    pub(crate) fn may_end(&self, owner: Option<u32>) -> bool {
        match self {
            Self::Admin(_) => true,
            Self::User(uid) | Self::StaffUser(uid) => owner == Some(*uid),
            _ => false,
        }
    }

    /// Whether this caller may append batches of an origin. [`crate::auth::origin_policy`] decides which
    /// content an agent's batches may have. A user may append samples of their own jobs, which is checked
    /// batch by batch. The server alone makes batches of inserted rows.
    pub(crate) fn appends_of(&self, origin: &Origin) -> bool {
        match self {
            _ if origin.is_push() => false,
            Self::Admin(_) | Self::Agent(None) => true,
            Self::Agent(Some(own)) => own == origin && !origin.is_poller_group(),
            Self::Poller(name) => origin.as_poller_group() == Some(name.as_str()),
            Self::Colmet(cluster) => origin.as_colmet_group() == Some(cluster.as_str()),
            _ => false,
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
        let (all, user, own) = (Reader::Everything, Reader::User(7), Reader::Tenant(7));
        let (some, only) = (|reader| Some((reader, reader)), |one, other| Some((one, other)));
        // Columns: appends batches of n1, of n2; ends their own jobs; registers jobs.
        for (rights, reads, [n1_ok, n2_ok, ends, registers]) in [
            (Rights::Admin(None), some(all), [true, true, true, false]),
            (Rights::Admin(Some(7)), some(all), [true, true, true, true]),
            (Rights::User(7), only(user, own), [false, false, true, true]),
            (Rights::Reading(7), only(user, own), [false; 4]),
            (Rights::StaffUser(7), some(all), [false, false, true, true]),
            (Rights::Staff(Some(7)), some(all), [false; 4]),
            (Rights::Guest, some(Reader::Nodes), [false; 4]),
            (Rights::Anonymous, some(Reader::Nodes), [false; 4]),
            (Rights::JobReporter(None), None, [false; 4]),
            (Rights::Agent(None), None, [true, true, false, false]),
            (Rights::Agent(Some(n1.clone())), None, [true, false, false, false]),
            (Rights::Poller(DeviceId::new("n1").unwrap()), None, [false; 4]),
            (Rights::Colmet(ClusterId::new("oar").unwrap()), None, [false; 4]),
            (Rights::Push(None), None, [false; 4]),
            (Rights::Nobody, None, [false; 4]),
        ] {
            for (own_nodes, reader) in [(false, reads.map(|r| r.0)), (true, reads.map(|r| r.1))] {
                let caller = Caller { own_nodes, ..Caller::of(rights.clone()) };
                assert_eq!(caller.reader(), reader, "{rights:?}");
            }
            assert_eq!(rights.appends_of(&n1), n1_ok, "{rights:?}");
            assert_eq!(rights.appends_of(&n2), n2_ok, "{rights:?}");
            assert_eq!(rights.may_end(Some(7)), ends, "{rights:?}");
            assert_eq!(rights.may_end(Some(8)), rights.is_admin(), "{rights:?}");
            assert_eq!(rights.registers_for(), registers.then_some(7), "{rights:?}");
        }
    }

    #[test]
    fn groups_of_pollers_and_origins_of_rows_have_their_own_senders() {
        let [lab, other] = ["lab", "other"].map(|name| DeviceId::new(name).unwrap());
        let group = Origin::of_poller_group(&lab, 3).unwrap();
        let rows = [Origin::of_push(Some(&lab)).unwrap(), Origin::of_user_push(7)];
        for (rights, may) in [
            (Rights::Poller(lab.clone()), true),
            (Rights::Poller(other), false),
            (Rights::Agent(None), true),
            (Rights::Admin(None), true),
            (Rights::Agent(Some(group.clone())), false),
            (Rights::Push(Some(lab.clone())), false),
            (Rights::User(7), false),
        ] {
            assert_eq!(rights.appends_of(&group), may, "{rights:?}");
            assert!(!rows.iter().any(|origin| rights.appends_of(origin)), "{rights:?}");
        }
        let oar = Rights::Colmet(ClusterId::new("oar").unwrap());
        for (name, may) in [
            ("poller-colmet-oar/group-0", true),
            ("poller-colmet-oar2/group-0", false),
            ("poller-oar/group-0", false),
            ("poller-colmet-/group-0", false),
            ("colmet-oar", false),
            ("n1", false),
        ] {
            assert_eq!(oar.appends_of(&Origin::new(name).unwrap()), may, "{name}");
        }
        let own = Rights::Agent(Some(rows[0].clone()));
        assert!(!own.appends_of(&rows[0]));
        for name in ["poller-lab", "lab", "x/poller-lab/group-3", "poller-lab/group-03"] {
            assert!(!Rights::Poller(lab.clone()).appends_of(&Origin::new(name).unwrap()), "{name}");
        }
    }

    #[test]
    fn tokens_report_jobs_of_their_clusters() {
        let [oar, slurm] = ["oar", "slurm"].map(|name| ClusterId::new(name).unwrap());
        for (rights, of_oar, of_slurm) in [
            (Rights::Admin(None), true, true),
            (Rights::JobReporter(None), true, true),
            (Rights::JobReporter(Some(oar.clone())), true, false),
            (Rights::User(7), false, false),
            (Rights::StaffUser(7), false, false),
            (Rights::Staff(None), false, false),
            (Rights::Agent(None), false, false),
            (Rights::Nobody, false, false),
        ] {
            assert_eq!(
                (rights.reports_jobs_of(&oar), rights.reports_jobs_of(&slurm)),
                (of_oar, of_slurm)
            );
        }
    }

    #[test]
    fn who_is_believed_where_he_is() {
        let caller = Caller::of(Rights::User(7));
        let here = Caller { is_here: true, ..caller.clone() };
        assert!(here.verifies("n1", "n1") && !here.verifies("n2", "n1"));
        assert!(!caller.verifies("n1", "n1"), "a token says nothing of where its user is");
        assert!(Caller::of(Rights::Admin(None)).verifies("n2", "n1"));
    }

    impl Caller {
        /// A caller with these rights.
        pub(crate) fn of(rights: Rights) -> Self {
            let word = |text: &str| text.into();
            let (who, from, what) = (word("somebody"), word("127.0.0.1"), word("GET /"));
            let actor = Actor { who, uid: rights.uid(), from, what };
            Self { rights, actor, own_nodes: false, by_user_token: false, is_here: false }
        }
    }
}
