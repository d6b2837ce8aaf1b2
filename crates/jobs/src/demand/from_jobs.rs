//! Which promotions follow from the jobs that run: from the words a job was submitted with (OAR:
//! `-t monitor=REGEX`, Slurm: `--comment monitor=REGEX`), from its environment (`JOBMETER_MONITOR=REGEX`), and from the
//! server's rules.

use super::Origin;
use crate::{Filter, Listed, Registry, RegistryError};
use model::{ClusterId, DeviceId, JobKey, JobState, NodeList, REJECTED_REQUEST, Timestamp};
use std::collections::BTreeSet;

/// The word by which a job asks for optional metrics; alone it asks for all, with `=REGEX` for some.
const WORD: &str = "monitor";
/// Every metric: what `monitor` alone asks for.
const ALL: &str = ".*";
/// Most expressions that one job asks for.
const EXPRESSIONS_MAX: usize = 20;
/// Longest expression of a job's, in bytes: what is longer can be no expression that agents take.
const EXPRESSION_BYTES_MAX: usize = 1000;
/// Most reasons of one kind why something was dropped.
const REASONS_MAX: usize = 4;
/// Names of nodes in one promotion; a job with more has several.
const NODES_IN_ONE: usize = 60;
/// A scheduler lets a job run a little longer than its limit.
const GRACE_US: i64 = 10 * 60 * Timestamp::SECOND;

/// What promotions depend on, of a job that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFacts {
    /// Which job.
    pub key: JobKey,
    /// Login name.
    pub user: Option<Box<str>>,
    /// The user's number.
    pub uid: Option<u32>,
    /// Who pays.
    pub account: Option<Box<str>>,
    /// The project.
    pub project: Option<Box<str>>,
    /// The queue or partition.
    pub queue: Option<Box<str>>,
    /// Words that it was submitted with.
    pub types: Vec<Box<str>>,
    /// What it asks for by its environment, as nodes read it: each value once.
    pub monitor: Vec<Box<str>>,
    /// Where it runs.
    pub nodes: Vec<DeviceId>,
    /// When it started, where that is known.
    pub start: Option<Timestamp>,
    /// When it will have ended at the latest, where that is known.
    pub until: Option<Timestamp>,
}

/// Whether an agent put the reason of a rejection in the place of the request.
fn is_rejected(value: &str) -> bool {
    value.starts_with(REJECTED_REQUEST)
}

impl JobFacts {
    /// The facts of a job that runs: what its scheduler says, and where its nodes see it.
    fn of(listed: Listed) -> Self {
        let Listed { job, devices } = listed;
        let limit = job.requested.wall_seconds.filter(|s| (0.0..1e10).contains(s));
        #[expect(clippy::cast_possible_truncation, reason = "bounded by the line above")]
        let limit_us = limit.map(|seconds| (seconds * 1e6) as i64 + GRACE_US);
        let until = job.start.zip(limit_us).map(|(start, limit)| start.plus(limit));
        Self {
            key: job.key,
            user: job.user,
            uid: job.uid,
            account: job.account,
            project: job.project,
            queue: job.queue,
            types: job.types,
            monitor: Vec::new(),
            nodes: devices,
            start: job.start,
            until,
        }
    }

    /// The expressions that the job asks for. What is dropped of its request stands among them as a reason, which the
    /// owner's list of promotions shows.
    fn expressions(&self) -> Vec<String> {
        let words = self.types.iter().flat_map(|words| words.split_whitespace());
        let by_words = words.filter_map(|word| match word.strip_prefix(WORD)? {
            "" => Some(ALL),
            rest => rest.strip_prefix('='),
        });
        let requests = || self.monitor.iter().filter(|value| !is_rejected(value));
        let blank = requests().any(|value| value.trim().is_empty()).then_some(ALL);
        let by_environment = requests().flat_map(|value| value.split_whitespace());
        let asked = by_words.chain(blank).chain(by_environment);
        let asked = asked.map(|regex| regex.trim_matches(['\'', '"'])).filter(|it| !it.is_empty());
        let (asked, long): (BTreeSet<&str>, BTreeSet<&str>) =
            asked.partition(|it| it.len() <= EXPRESSION_BYTES_MAX);
        let more = asked.len().saturating_sub(EXPRESSIONS_MAX);
        let mut all: Vec<String> =
            asked.into_iter().take(EXPRESSIONS_MAX).map(str::to_owned).collect();
        let reason = |why: String| format!("{REJECTED_REQUEST}{why}");
        if more > 0 {
            let why = format!("{more} expressions are dropped: {EXPRESSIONS_MAX} per job at most");
            all.push(reason(why));
        }
        let sizes: BTreeSet<usize> = long.iter().map(|text| text.len()).collect();
        all.extend(sizes.into_iter().take(REASONS_MAX).map(|bytes| {
            let most = EXPRESSION_BYTES_MAX;
            reason(format!("an expression of {bytes} bytes is dropped: {most} bytes at most"))
        }));
        let rejected = self.monitor.iter().filter(|value| is_rejected(value));
        all.extend(rejected.take(REASONS_MAX).map(ToString::to_string));
        all
    }
}

impl Registry {
    /// The facts of every job that runs.
    ///
    /// # Errors
    /// SQLite fails, or more jobs run than a list may have.
    pub fn running_facts(&self) -> Result<Vec<JobFacts>, RegistryError> {
        let running = Filter { state: Some(JobState::Running), ..Filter::default() };
        let mut facts: Vec<_> = self.list(&running)?.into_iter().map(JobFacts::of).collect();
        let mut asked = self.asked_by_environment()?;
        for job in &mut facts {
            let run = job.start.map(|start| (job.key.clone(), start));
            job.monitor = run.and_then(|run| asked.remove(&run)).unwrap_or_default();
        }
        // On which node a job of `jobmeter run` is its user says himself.
        if facts.iter().any(|job| job.key.cluster == ClusterId::local()) {
            let proven = self.proven_local()?;
            for job in facts.iter_mut().filter(|job| job.key.cluster == ClusterId::local()) {
                job.nodes.retain(|node| proven.contains(&(job.key.id, node.clone())));
            }
        }
        Ok(facts)
    }
}

/// A rule: whose metrics are promoted, without that anybody asks. What is empty or `None` is not looked at;
/// a rule that looks at nothing of a job promotes on its nodes all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: Box<str>,
    /// What is promoted, as a regular expression that was checked.
    pub metric: Box<str>,
    /// Only on these nodes.
    pub nodes: Option<NodeList>,
    /// Only for jobs of these clusters.
    pub clusters: Vec<ClusterId>,
    /// Only for jobs of these users.
    pub users: Vec<Box<str>>,
    /// Only for jobs of these accounts.
    pub accounts: Vec<Box<str>>,
    /// Only for jobs of these projects.
    pub projects: Vec<Box<str>>,
    /// Only for jobs of these queues.
    pub queues: Vec<Box<str>>,
    /// For jobs at all, though none of the above says which.
    pub jobs: bool,
}

impl Rule {
    /// Whether it is for jobs, and not for nodes all the time.
    pub fn is_of_jobs(&self) -> bool {
        let names = [&self.users, &self.accounts, &self.projects, &self.queues];
        self.jobs || !self.clusters.is_empty() || names.iter().any(|names| !names.is_empty())
    }

    fn is_for(&self, job: &JobFacts) -> bool {
        let one_of = |names: &[Box<str>], name: &Option<Box<str>>| {
            names.is_empty() || name.as_ref().is_some_and(|name| names.contains(name))
        };
        (self.clusters.is_empty() || self.clusters.contains(&job.key.cluster))
            && one_of(&self.users, &job.user)
            && one_of(&self.accounts, &job.account)
            && one_of(&self.projects, &job.project)
            && one_of(&self.queues, &job.queue)
    }
}

/// A promotion that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// On which nodes.
    pub nodes: NodeList,
    /// What.
    pub metric: Box<str>,
    /// Until when at the latest.
    pub until: Option<Timestamp>,
    /// By whom: the user, or the rule.
    pub by: Box<str>,
    /// From a job's own word or from a rule.
    pub origin: Origin,
    /// For which job.
    pub job: Option<Box<str>>,
    /// Whose job.
    pub uid: Option<u32>,
    /// When the job started: what was undone since stays so.
    pub since: Option<Timestamp>,
}

impl Wanted {
    /// What makes it another.
    pub(super) fn key(&self) -> (Origin, &str, &str, Option<&str>) {
        (self.origin, self.nodes.as_str(), &self.metric, self.job.as_deref())
    }
}

/// Every promotion that follows from the jobs that run and the rules.
pub fn wanted(jobs: &[JobFacts], rules: &[Rule]) -> Vec<Wanted> {
    let mut all = Vec::new();
    for rule in rules.iter().filter(|rule| !rule.is_of_jobs()) {
        all.extend(rule.nodes.iter().map(|nodes| Wanted {
            nodes: nodes.clone(),
            metric: rule.metric.clone(),
            until: None,
            by: format!("rule {}", rule.name).into(),
            origin: Origin::Rule,
            job: None,
            uid: None,
            since: None,
        }));
    }
    for job in jobs {
        let user = job.user.as_deref().unwrap_or("the job's user");
        for metric in job.expressions() {
            all.extend(of_job(job, None, &metric, user, Origin::Job));
        }
        for rule in rules.iter().filter(|rule| rule.is_of_jobs() && rule.is_for(job)) {
            let by = format!("rule {}", rule.name);
            all.extend(of_job(job, rule.nodes.as_ref(), &rule.metric, &by, Origin::Rule));
        }
    }
    all
}

/// The promotions of one expression on the nodes of a job.
fn of_job(
    job: &JobFacts,
    only: Option<&NodeList>,
    metric: &str,
    by: &str,
    origin: Origin,
) -> Vec<Wanted> {
    let mut nodes: Vec<&str> = job.nodes.iter().map(DeviceId::as_str).collect();
    // A name that would be read as several nodes' is none that a scheduler gives.
    nodes.retain(|node| only.is_none_or(|only| only.has(node)) && NodeList::is_name(node));
    nodes.sort_unstable();
    nodes.dedup();
    let lists = nodes.chunks(NODES_IN_ONE).filter_map(|names| NodeList::new(&names.join(",")).ok());
    let one = |nodes| Wanted {
        nodes,
        metric: metric.into(),
        until: job.until,
        by: by.into(),
        origin,
        job: Some(job.key.to_string().into()),
        uid: job.uid,
        since: job.start,
    };
    lists.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::JobId;

    fn job(types: &[&str], nodes: &[&str]) -> JobFacts {
        JobFacts {
            key: JobKey { cluster: ClusterId::new("oar").unwrap(), id: JobId::new(7).unwrap() },
            user: Some("alice".into()),
            uid: Some(1000),
            account: None,
            project: Some("solver".into()),
            queue: Some("gpu".into()),
            types: types.iter().map(|word| (*word).into()).collect(),
            monitor: Vec::new(),
            nodes: nodes.iter().map(|node| DeviceId::new(node).unwrap()).collect(),
            start: Some(Timestamp(1_000_000)),
            until: Some(Timestamp(61_000_000)),
        }
    }

    #[test]
    fn a_job_asks_by_a_word() {
        for (types, want) in [
            (&["monitor"][..], &[".*"][..]),
            (&["besteffort", "monitor=perf_.*"], &["perf_.*"]),
            (&["run 7 monitor='bmc_.*' monitor monitor", "monitor=x"], &[".*", "bmc_.*", "x"]),
            (&["monitors", "premonitor=x", "monitor="], &[]),
        ] {
            let all = wanted(&[job(types, &["n2", "n1", "n2"])], &[]);
            let metrics: Vec<_> = all.iter().map(|one| &*one.metric).collect();
            assert_eq!(metrics, want, "{types:?}");
            for one in all {
                assert_eq!((one.nodes.as_str(), one.job.as_deref()), ("n1,n2", Some("oar:7")));
                assert_eq!(one.until, Some(Timestamp(61_000_000)));
                assert_eq!((&*one.by, one.uid), ("alice", Some(1000)));
            }
        }
    }

    #[test]
    fn a_job_asks_by_its_environment_and_both_count() {
        for (monitor, want) in [
            (&["perf_.*"][..], &["net_.*", "perf_.*"][..]),
            (&[" perf_.*\t'bmc_.*' ", "net_.*"], &["bmc_.*", "net_.*", "perf_.*"]),
            (&[""], &[".*", "net_.*"]),
            (&[" \t"], &[".*", "net_.*"]),
            (&["''"], &["net_.*"]),
        ] {
            let monitor = monitor.iter().map(|value| (*value).into()).collect();
            let asks = JobFacts { monitor, ..job(&["monitor=net_.*"], &["n1", "n2"]) };
            let all = wanted(&[asks], &[]);
            let metrics: Vec<_> = all.iter().map(|one| &*one.metric).collect();
            assert_eq!(metrics, want);
            assert!(all.iter().all(|one| one.nodes.as_str() == "n1,n2"), "{all:?}");
        }
    }

    #[test]
    fn what_is_dropped_of_a_request_leaves_a_reason() {
        let many: Vec<String> = (0..EXPRESSIONS_MAX + 3).map(|n| format!("m{n:02}")).collect();
        let long = "x".repeat(EXPRESSION_BYTES_MAX + 1);
        let rejected = "!JOBMETER_MONITOR: it has 2000 bytes; 1024 at most";
        let monitor = [&many.join(" "), &long, rejected].map(Into::into).to_vec();
        let all = wanted(&[JobFacts { monitor, ..job(&[], &["n1"]) }], &[]);
        let metrics: Vec<_> = all.iter().map(|one| &*one.metric).collect();
        assert_eq!(metrics[..EXPRESSIONS_MAX], many[..EXPRESSIONS_MAX]);
        assert_eq!(
            metrics[EXPRESSIONS_MAX..],
            [
                "!3 expressions are dropped: 20 per job at most",
                "!an expression of 1001 bytes is dropped: 1000 bytes at most",
                rejected,
            ]
        );
    }

    #[test]
    fn a_name_that_reads_as_several_nodes_is_none() {
        assert_eq!(wanted(&[job(&["monitor"], &["n[1-2]", "n*"])], &[]), []);
    }

    #[test]
    fn a_job_on_many_nodes_has_several_promotions() {
        let names: Vec<String> = (0..NODES_IN_ONE + 1).map(|n| format!("n{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let all = wanted(&[job(&["monitor"], &names)], &[]);
        let told: usize = all.iter().map(|one| one.nodes.plain().unwrap().len()).sum();
        assert_eq!((all.len(), told), (2, NODES_IN_ONE + 1));
    }

    #[test]
    fn rules_look_at_what_they_name() {
        let rule = |name: &str| Rule { name: name.into(), metric: "m".into(), ..Rule::default() };
        let standing = Rule { nodes: Some(NodeList::new("gpu-*").unwrap()), ..rule("standing") };
        let every = Rule { jobs: true, ..rule("every") };
        let gpu = Rule {
            queues: vec!["gpu".into()],
            nodes: Some(NodeList::new("n2").unwrap()),
            ..rule("gpu")
        };
        let others = [
            Rule { users: vec!["bob".into()], ..rule("user") },
            Rule { accounts: vec!["a".into()], ..rule("account") },
            Rule { clusters: vec![ClusterId::local()], ..rule("cluster") },
            Rule { projects: vec!["other".into()], ..rule("project") },
            rule("of nothing"),
        ];
        let rules = [&[standing, every, gpu][..], &others].concat();
        let all = wanted(&[job(&[], &["n1", "n2"])], &rules);
        let told: Vec<_> =
            all.iter().map(|one| (&*one.by, one.nodes.as_str(), one.job.as_deref())).collect();
        let want = [
            ("rule standing", "gpu-*", None),
            ("rule every", "n1,n2", Some("oar:7")),
            ("rule gpu", "n2", Some("oar:7")),
        ];
        assert_eq!(told, want);
    }
}
