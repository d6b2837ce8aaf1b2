//! Promotions that follow from running jobs.
//!
//! Their sources are the submission words of the job (OAR: `-t monitor=REGEX`, Slurm: `--comment
//! monitor=REGEX`), the job's environment (`JOBMETER_MONITOR=REGEX`), and the server's rules.

use super::PromotionOrigin;
use jobs::RunningJob;
use model::{ClusterId, DeviceId, NodeList, REJECTED_REQUEST, Timestamp};
use std::collections::BTreeSet;

/// The submission word for optional metrics. Alone it requests all metrics, with `=REGEX` a subset.
const REQUEST_PREFIX: &str = "monitor";
/// The expression for all metrics, which `monitor` alone requests.
const ALL: &str = ".*";
/// Maximum number of expressions of one job.
const EXPRESSIONS_MAX: usize = 20;
/// Maximum length of a job's expression, in bytes. Agents accept no longer expression.
const EXPRESSION_BYTES_MAX: usize = 1000;
/// Maximum number of reasons of one kind for dropped requests.
const REASONS_MAX: usize = 4;
/// Maximum number of node names in one promotion. A job with more nodes has several promotions.
const NODES_IN_ONE: usize = 60;
/// Tests whether an agent replaced the request by the reason of a rejection.
fn is_rejected(value: &str) -> bool {
    value.starts_with(REJECTED_REQUEST)
}

/// Returns the expressions that the job requests. A dropped part of the request appears as a reason,
/// which the owner's list of promotions shows.
fn expressions(job: &RunningJob) -> Vec<String> {
    let words = job.facts.types.iter().flatten().flat_map(|words| words.split_whitespace());
    let by_words = words.filter_map(|word| match word.strip_prefix(REQUEST_PREFIX)? {
        "" => Some(ALL),
        rest => rest.strip_prefix('='),
    });
    let requests = || job.monitor.iter().filter(|value| !is_rejected(value));
    let blank = requests().any(|value| value.trim().is_empty()).then_some(ALL);
    let by_environment = requests().flat_map(|value| value.split_whitespace());
    let requested = by_words.chain(blank).chain(by_environment);
    let requested =
        requested.map(|regex| regex.trim_matches(['\'', '"'])).filter(|it| !it.is_empty());
    let (requested, long): (BTreeSet<&str>, BTreeSet<&str>) =
        requested.partition(|it| it.len() <= EXPRESSION_BYTES_MAX);
    let more = requested.len().saturating_sub(EXPRESSIONS_MAX);
    let mut all: Vec<String> =
        requested.into_iter().take(EXPRESSIONS_MAX).map(str::to_owned).collect();
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
    let rejected = job.monitor.iter().filter(|value| is_rejected(value));
    all.extend(rejected.take(REASONS_MAX).map(ToString::to_string));
    all
}

/// A rule that promotes metrics without a request. Empty and `None` conditions are ignored. A rule
/// without job conditions promotes on its nodes permanently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The rule's name.
    pub name: Box<str>,
    /// The metrics, as a validated regular expression.
    pub metric: Box<str>,
    /// Limits the rule to these nodes.
    pub nodes: Option<NodeList>,
    /// Limits the rule to jobs of these clusters.
    pub clusters: Vec<ClusterId>,
    /// Limits the rule to jobs of these users.
    pub users: Vec<Box<str>>,
    /// Limits the rule to jobs of these accounts.
    pub accounts: Vec<Box<str>>,
    /// Limits the rule to jobs of these projects.
    pub projects: Vec<Box<str>>,
    /// Limits the rule to jobs of these queues.
    pub queues: Vec<Box<str>>,
    /// Applies the rule to all jobs, even without the conditions above.
    pub jobs: bool,
}

impl Rule {
    /// Tests whether the rule applies to jobs, not permanently to nodes.
    pub fn is_of_jobs(&self) -> bool {
        let names = [&self.users, &self.accounts, &self.projects, &self.queues];
        self.jobs || !self.clusters.is_empty() || names.iter().any(|names| !names.is_empty())
    }

    fn is_for(&self, job: &RunningJob) -> bool {
        let one_of = |names: &[Box<str>], name: &Option<Box<str>>| {
            names.is_empty() || name.as_ref().is_some_and(|name| names.contains(name))
        };
        (self.clusters.is_empty() || self.clusters.contains(&job.key.cluster))
            && one_of(&self.users, &job.facts.user)
            && one_of(&self.accounts, &job.facts.account)
            && one_of(&self.projects, &job.facts.project)
            && one_of(&self.queues, &job.facts.queue)
    }
}

/// A promotion that follows from a job or a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The nodes.
    pub nodes: NodeList,
    /// The metrics, as a regular expression.
    pub metric: Box<str>,
    /// Latest end.
    pub until: Option<Timestamp>,
    /// The source: the user or the rule.
    pub by: Box<str>,
    /// Whether a job's own request or a rule caused it.
    pub origin: PromotionOrigin,
    /// The job, if any.
    pub job: Option<Box<str>>,
    /// User ID of the job's owner.
    pub uid: Option<u32>,
    /// Start of the job. A promotion that a person ended since then stays ended.
    pub since: Option<Timestamp>,
}

impl Wanted {
    /// Returns the fields that identify the promotion.
    pub(super) fn key(&self) -> (PromotionOrigin, &str, &str, Option<&str>) {
        (self.origin, self.nodes.as_str(), &self.metric, self.job.as_deref())
    }
}

/// Returns all promotions that follow from the running jobs and the rules.
pub fn wanted(jobs: &[RunningJob], rules: &[Rule]) -> Vec<Wanted> {
    let mut all = Vec::new();
    for rule in rules.iter().filter(|rule| !rule.is_of_jobs()) {
        all.extend(rule.nodes.iter().map(|nodes| Wanted {
            nodes: nodes.clone(),
            metric: rule.metric.clone(),
            until: None,
            by: format!("rule {}", rule.name).into(),
            origin: PromotionOrigin::Rule,
            job: None,
            uid: None,
            since: None,
        }));
    }
    for job in jobs {
        let user = job.facts.user.as_deref().unwrap_or("the job's user");
        for metric in expressions(job) {
            all.extend(of_job(job, None, &metric, user, PromotionOrigin::Job));
        }
        for rule in rules.iter().filter(|rule| rule.is_of_jobs() && rule.is_for(job)) {
            let by = format!("rule {}", rule.name);
            all.extend(of_job(job, rule.nodes.as_ref(), &rule.metric, &by, PromotionOrigin::Rule));
        }
    }
    all
}

/// Builds the promotions of one expression on the nodes of a job.
fn of_job(
    job: &RunningJob,
    only: Option<&NodeList>,
    metric: &str,
    by: &str,
    origin: PromotionOrigin,
) -> Vec<Wanted> {
    let mut nodes: Vec<&str> = job.nodes.iter().map(DeviceId::as_str).collect();
    // Drop names that would parse as a list of several nodes. No scheduler uses such names.
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
        uid: job.facts.uid,
        since: job.start,
    };
    lists.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{JobFacts, JobId, JobKey};

    fn job(types: &[&str], nodes: &[&str]) -> RunningJob {
        RunningJob {
            key: JobKey { cluster: ClusterId::new("oar").unwrap(), id: JobId::new(7).unwrap() },
            monitor: Vec::new(),
            nodes: nodes.iter().map(|node| DeviceId::new(node).unwrap()).collect(),
            start: Some(Timestamp(1_000_000)),
            until: Some(Timestamp(61_000_000)),
            facts: JobFacts {
                user: Some("alice".into()),
                uid: Some(1000),
                project: Some("solver".into()),
                queue: Some("gpu".into()),
                types: Some(types.iter().map(|word| (*word).into()).collect()),
                ..JobFacts::default()
            },
        }
    }

    #[test]
    fn a_job_requests_metrics_by_a_submission_word() {
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
    fn a_job_requests_metrics_by_its_environment_and_both_count() {
        for (monitor, want) in [
            (&["perf_.*"][..], &["net_.*", "perf_.*"][..]),
            (&[" perf_.*\t'bmc_.*' ", "net_.*"], &["bmc_.*", "net_.*", "perf_.*"]),
            (&[""], &[".*", "net_.*"]),
            (&[" \t"], &[".*", "net_.*"]),
            (&["''"], &["net_.*"]),
        ] {
            let monitor = monitor.iter().map(|value| (*value).into()).collect();
            let requests = RunningJob { monitor, ..job(&["monitor=net_.*"], &["n1", "n2"]) };
            let all = wanted(&[requests], &[]);
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
        let all = wanted(&[RunningJob { monitor, ..job(&[], &["n1"]) }], &[]);
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
        let node_count: usize = all.iter().map(|one| one.nodes.plain().unwrap().len()).sum();
        assert_eq!((all.len(), node_count), (2, NODES_IN_ONE + 1));
    }

    #[test]
    fn rules_look_at_what_they_name() {
        let rule = |name: &str| Rule { name: name.into(), metric: "m".into(), ..Rule::default() };
        let always = Rule { nodes: Some(NodeList::new("gpu-*").unwrap()), ..rule("standing") };
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
        let rules = [&[always, every, gpu][..], &others].concat();
        let all = wanted(&[job(&[], &["n1", "n2"])], &rules);
        let node_count: Vec<_> =
            all.iter().map(|one| (&*one.by, one.nodes.as_str(), one.job.as_deref())).collect();
        let want = [
            ("rule standing", "gpu-*", None),
            ("rule every", "n1,n2", Some("oar:7")),
            ("rule gpu", "n2", Some("oar:7")),
        ];
        assert_eq!(node_count, want);
    }
}
