//! Promotions: optional metrics that a node collects until a time or until a job ends.

use super::{BY_RULE_MAX, DemandError, DemandLimits, DemandStore, Wanted, count};
use model::{NodeList, Timestamp};
use rusqlite::{Connection, Row, Transaction, params};
use std::collections::{BTreeMap, HashMap};

/// The cause of a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PromotionOrigin {
    /// A request to the server.
    Api,
    /// A job's own request.
    Job,
    /// A rule of the server.
    Rule,
    /// A row that a person wrote into the file.
    Hand,
}

impl PromotionOrigin {
    /// All origins.
    pub const ALL: [Self; 4] = [Self::Api, Self::Job, Self::Rule, Self::Hand];

    /// Returns the origin's name in the file and in responses.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Job => "job",
            Self::Rule => "rule",
            Self::Hand => "hand",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|origin| origin.word() == word)
    }
}

/// A new promotion that a client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPromotion {
    /// The nodes.
    pub nodes: NodeList,
    /// The metric names, as a validated regular expression.
    pub metric: Box<str>,
    /// Time of expiry.
    pub until: Timestamp,
    /// The requester.
    pub by: Box<str>,
    /// The user ID, if the requester is a user.
    pub uid: Option<u32>,
    /// The job whose end also ends the promotion, if any.
    pub job: Option<Box<str>>,
}

/// An active promotion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// The ID.
    pub number: i64,
    /// The nodes.
    pub nodes: NodeList,
    /// The metric names, as a regular expression. A row written by hand is not validated.
    pub metric: Box<str>,
    /// Time of expiry; `None`: until a person or the end of its job ends it.
    pub until: Option<Timestamp>,
    /// Time of creation.
    pub made: Timestamp,
    /// The requester.
    pub by: Box<str>,
    /// The cause.
    pub origin: PromotionOrigin,
    /// The job, `CLUSTER:ID`.
    pub job: Option<Box<str>>,
    /// The user ID.
    pub uid: Option<u32>,
}

/// Quota of a user's promotions by requests to the server. Promotions by their jobs have separate
/// limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The user ID.
    pub uid: u32,
    /// Maximum number of active promotions.
    pub most: u64,
}

/// Maximum number of promotions of one user on one node. Users share a node's capacity.
pub const PROMOTIONS_ON_NODE_MAX: u64 = 16;

/// Counts of promotions by jobs and rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FromJobs {
    /// New promotions.
    pub began: u64,
    /// Ended promotions, no longer needed.
    pub ended: u64,
    /// Promotions beyond the limit of one user's jobs or of all jobs.
    pub left_out: u64,
}

const COLUMNS: &str = "number, device, metric, until, made, made_by, origin, job, uid";
/// Condition for active rows; `?1` is the current time.
const HELD: &str = "ended IS NULL AND (until IS NULL OR until > ?1)";

impl DemandStore {
    /// Adds promotions, all or none, and returns their IDs.
    ///
    /// # Errors
    /// SQLite fails, or the limit of active promotions is reached, of the user or in total.
    pub fn promote(
        &self,
        new: &[NewPromotion],
        quota: Option<Quota>,
        now: Timestamp,
    ) -> Result<Vec<i64>, DemandError> {
        self.write(|change| {
            let more = u64::try_from(new.len()).unwrap_or(u64::MAX);
            let mut most = self.limits.promotions_max;
            if let Some(quota) = quota {
                within(change, new, quota, now)?;
                // The last tenth is reserved for administrators.
                most -= most / 10;
            }
            if count(change, "promotions", now)?.saturating_add(more) > most {
                return Err(DemandError::Full { what: "promotions", most });
            }
            let line = |new| Line::of_request(new, PromotionOrigin::Api);
            new.iter().map(|new| insert(change, &line(new), now)).collect()
        })
    }

    /// Adds a promotion by a rule and returns its ID. It ends at its expiry, even if the rule is removed.
    ///
    /// # Errors
    /// SQLite fails, or the limit of active promotions is reached, of this rule or in total.
    pub fn promote_by_rule(&self, new: &NewPromotion, now: Timestamp) -> Result<i64, DemandError> {
        self.write(|change| {
            let most = BY_RULE_MAX;
            let sql = format!(
                "SELECT count(*) FROM promotions WHERE {HELD} AND origin = 'rule' AND made_by = ?2"
            );
            let own: i64 = change.query_row(&sql, params![now.0, new.by], |row| row.get(0))?;
            if u64::try_from(own).unwrap_or(0) >= most {
                return Err(DemandError::Full { what: "promotions by this rule", most });
            }
            let most = self.limits.promotions_max;
            if count(change, "promotions", now)? >= most {
                return Err(DemandError::Full { what: "promotions", most });
            }
            insert(change, &Line::of_request(new, PromotionOrigin::Rule), now)
        })
    }

    /// Ends a promotion early. Returns whether it was active.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn demote(&self, number: i64, by: &str, now: Timestamp) -> Result<bool, DemandError> {
        self.end("promotions", number, by, now)
    }

    /// Makes the promotions by jobs and rules match `wanted`: adds missing ones and ends the others.
    ///
    /// - Promotions by requests and by hand stay. However, a promotion requested for a job ends when `runs`
    ///   reports that the job does not run.
    /// - A job's promotion that a person ended stays ended until the job ends.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn follow(
        &self,
        wanted: &[Wanted],
        runs: impl Fn(&str) -> bool,
        now: Timestamp,
    ) -> Result<FromJobs, DemandError> {
        let (held, _) = self.held(now)?;
        // Ignore jobs that still run after their time limit.
        let lasting = wanted.iter().filter(|one| one.until.is_none_or(|until| until > now));
        let mut missing: BTreeMap<_, _> = lasting.map(|one| (one.key(), one)).collect();
        let (mut over, mut moved) = (Vec::new(), Vec::new());
        for promotion in &held.promotions {
            let Promotion { number, nodes, metric, origin, job, .. } = promotion;
            match (origin, job.as_deref()) {
                // A value rule caused it, since it has an expiry and no job. The following arm handles other rules.
                (PromotionOrigin::Rule, None) if promotion.until.is_some() => {}
                (PromotionOrigin::Job | PromotionOrigin::Rule, job) => {
                    match missing.remove(&(*origin, nodes.as_str(), metric, job)) {
                        Some(wanted) if wanted.until == promotion.until => {}
                        Some(wanted) => moved.push((*number, wanted.until)),
                        None => over.push(*number),
                    }
                }
                (PromotionOrigin::Api, Some(job)) if !runs(job) => over.push(*number),
                _ => {}
            }
        }
        if !missing.is_empty() {
            let undone = undone(&self.reader.lock())?;
            missing.retain(|(origin, _, metric, job), wanted| {
                let key = job.map(|job| (origin.word().to_owned(), (*metric).into(), job.into()));
                let ended = key.and_then(|key| undone.get(&key));
                ended.is_none_or(|ended| wanted.since.is_some_and(|since| *ended < since))
            });
        }
        if over.is_empty() && moved.is_empty() && missing.is_empty() {
            return Ok(FromJobs::default());
        }
        let mut words = JobRequestCounts::default();
        for promotion in held.promotions.iter().filter(|one| !over.contains(&one.number)) {
            words.count(promotion.origin, promotion.uid);
        }
        self.write(|change| {
            for number in &over {
                change
                    .prepare_cached("UPDATE promotions SET ended = ?2 WHERE number = ?1")?
                    .execute(params![number, now.0])?;
            }
            for (number, until) in &moved {
                change
                    .prepare_cached("UPDATE promotions SET until = ?2 WHERE number = ?1")?
                    .execute(params![number, until.map(|until| until.0)])?;
            }
            let capacity =
                self.limits.promotions_max.saturating_sub(count(change, "promotions", now)?);
            let ended = u64::try_from(over.len()).unwrap_or(u64::MAX);
            let mut done = FromJobs { ended, ..FromJobs::default() };
            for wanted in missing.values() {
                if done.began >= capacity || words.are_full(wanted, &self.limits) {
                    done.left_out += 1;
                    continue;
                }
                words.count(wanted.origin, wanted.uid);
                insert(change, &Line::of_wanted(wanted), now)?;
                done.began += 1;
            }
            self.forget(change)?;
            Ok(done)
        })
    }
}

/// Checks a user's quota, in total and on each node.
fn within(
    change: &Transaction<'_>,
    new: &[NewPromotion],
    Quota { uid, most }: Quota,
    now: Timestamp,
) -> Result<(), DemandError> {
    let sql = format!("SELECT device FROM promotions WHERE {HELD} AND uid = ?2 AND origin = 'api'");
    let mut find = change.prepare_cached(&sql)?;
    let own = find.query_map(params![now.0, uid], |row| row.get::<_, String>(0))?;
    let own: Vec<String> = own.collect::<Result<_, _>>()?;
    let all = own.len().saturating_add(new.len());
    if u64::try_from(all).unwrap_or(u64::MAX) > most {
        return Err(DemandError::Full { what: "promotions of this user", most });
    }
    let mut on: BTreeMap<&str, u64> = BTreeMap::new();
    let lists = own.iter().map(String::as_str).chain(new.iter().map(|new| new.nodes.as_str()));
    // Users' promotions have lists of plain node names.
    for node in lists.flat_map(|list| list.split(',')) {
        *on.entry(node).or_default() += 1;
    }
    let node_names = new.iter().flat_map(|new| new.nodes.as_str().split(','));
    let most = PROMOTIONS_ON_NODE_MAX;
    if node_names.into_iter().any(|node| on.get(node).is_some_and(|count| *count > most)) {
        return Err(DemandError::Full { what: "promotions of this user on one node", most });
    }
    Ok(())
}

/// Counts of promotions by the jobs' own requests (submission words and environment).
#[derive(Debug, Default)]
struct JobRequestCounts {
    all: u64,
    by_user: BTreeMap<Option<u32>, u64>,
}

impl JobRequestCounts {
    fn count(&mut self, origin: PromotionOrigin, uid: Option<u32>) {
        if origin == PromotionOrigin::Job {
            self.all += 1;
            *self.by_user.entry(uid).or_default() += 1;
        }
    }

    /// Tests whether the limit for jobs is reached. Half of the total is reserved for people and rules.
    fn are_full(&self, wanted: &Wanted, limits: &DemandLimits) -> bool {
        let own = self.by_user.get(&wanted.uid).copied().unwrap_or(0);
        wanted.origin == PromotionOrigin::Job
            && (own >= limits.words_per_user_max || self.all >= limits.promotions_max / 2)
    }
}

/// Key of a promotion by a job or by a rule for a job: origin, expression and job.
type JobPromotionKey = (String, Box<str>, Box<str>);

/// Returns the last time that a person ended each of them.
fn undone(db: &Connection) -> rusqlite::Result<HashMap<JobPromotionKey, Timestamp>> {
    let mut find = db.prepare_cached(
        "SELECT origin, metric, job, max(ended) FROM promotions
         WHERE ended_by IS NOT NULL AND job IS NOT NULL AND origin IN ('job', 'rule')
         GROUP BY job, metric, origin",
    )?;
    let rows = find.query_map([], |row| {
        Ok(((row.get(0)?, row.get(1)?, row.get(2)?), Timestamp(row.get(3)?)))
    })?;
    rows.collect()
}

/// The written columns of a promotion.
struct Line<'a> {
    nodes: &'a str,
    metric: &'a str,
    until: Option<Timestamp>,
    by: &'a str,
    origin: PromotionOrigin,
    job: Option<&'a str>,
    uid: Option<u32>,
}

impl<'a> Line<'a> {
    fn of_request(new: &'a NewPromotion, origin: PromotionOrigin) -> Self {
        Self {
            nodes: new.nodes.as_str(),
            metric: &new.metric,
            until: Some(new.until),
            by: &new.by,
            origin,
            job: new.job.as_deref(),
            uid: new.uid,
        }
    }

    fn of_wanted(wanted: &'a Wanted) -> Self {
        Self {
            nodes: wanted.nodes.as_str(),
            metric: &wanted.metric,
            until: wanted.until,
            by: &wanted.by,
            origin: wanted.origin,
            job: wanted.job.as_deref(),
            uid: wanted.uid,
        }
    }
}

fn insert(change: &Transaction<'_>, row: &Line<'_>, now: Timestamp) -> Result<i64, DemandError> {
    let mut insert = change.prepare_cached(
        "INSERT INTO promotions (device, metric, until, made, made_by, origin, job, uid)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let until = row.until.map(|until| until.0);
    Ok(insert.insert(params![
        row.nodes,
        row.metric,
        until,
        now.0,
        row.by,
        row.origin.word(),
        row.job,
        row.uid
    ])?)
}

/// Adds a promotion of origin `hand` without an end.
pub(super) fn insert_row(
    change: &Transaction<'_>,
    (nodes, metric): (&str, &str),
    by: &str,
    now: Timestamp,
) -> Result<i64, DemandError> {
    let origin = PromotionOrigin::Hand;
    insert(change, &Line { nodes, metric, until: None, by, origin, job: None, uid: None }, now)
}

/// Returns the promotions that are active at an instant. It adds a message for each invalid row written
/// by hand to `passed_over`.
pub(super) fn held(
    db: &Connection,
    now: Timestamp,
    passed_over: &mut Vec<String>,
) -> Result<Vec<Promotion>, DemandError> {
    let sql = format!("SELECT {COLUMNS} FROM promotions WHERE {HELD} ORDER BY number");
    let mut find = db.prepare_cached(&sql)?;
    let mut rows = find.query([now.0])?;
    let mut promotions = Vec::new();
    while let Some(row) = rows.next()? {
        match promotion(row)? {
            Ok(promotion) => promotions.push(promotion),
            Err(why) => passed_over.push(why),
        }
    }
    Ok(promotions)
}

fn promotion(row: &Row<'_>) -> rusqlite::Result<Result<Promotion, String>> {
    let (number, device): (i64, String) = (row.get(0)?, row.get(1)?);
    let nodes = match NodeList::new(&device) {
        Ok(nodes) => nodes,
        Err(error) => return Ok(Err(format!("promotion {number} is skipped: {error}"))),
    };
    let origin: String = row.get(6)?;
    Ok(Ok(Promotion {
        number,
        nodes,
        metric: row.get(2)?,
        until: row.get::<_, Option<i64>>(3)?.map(Timestamp),
        made: Timestamp(row.get(4)?),
        by: row.get(5)?,
        // The table's constraint allows no other value.
        origin: PromotionOrigin::from_word(&origin).unwrap_or(PromotionOrigin::Hand),
        job: row.get(7)?,
        uid: row.get::<_, Option<i64>>(8)?.and_then(|uid| u32::try_from(uid).ok()),
    }))
}
