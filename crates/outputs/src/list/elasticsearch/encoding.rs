//! The documents of a portion.

use super::document::{Content, Document, Sample, key, time};
use super::settings::{Documents, Settings};
use crate::portion::{Portion, rows};
use crate::row::text;
use colmet::record::{Record, Value, involved_jobs, jobs_of};
use colmet::text::python_float;
use model::{Gap, Series, Timestamp};
use rustc_hash::FxHashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use storage::{OutputGap, SeriesInfo};

/// The documents of a portion, in its order.
pub(super) fn encode(portion: &Portion, settings: &Settings) -> Vec<Document> {
    match &settings.documents {
        Documents::Stream => stream(portion, &settings.index),
        Documents::Colmet(layout) => {
            let record = |record| colmet_document(record, &settings.index, layout.cluster.as_str());
            portion.records.iter().map(record).collect()
        }
    }
}

/// Samples with the same group and instant are one document.
struct Group {
    /// What identifies it, but for the instant.
    identity: [String; 4],
    /// The text of it, after the instant.
    text: String,
}

fn stream(portion: &Portion, index: &str) -> Vec<Document> {
    let index: Arc<str> = index.into();
    let mut groups: Vec<Group> = Vec::new();
    let mut known: FxHashMap<[String; 4], usize> = FxHashMap::default();
    let mut of_series: FxHashMap<*const SeriesInfo, usize> = FxHashMap::default();
    // The documents of each group and instant; a further one holds a second value of a series.
    let mut places: FxHashMap<(usize, i64), Vec<usize>> = FxHashMap::default();
    let mut documents: Vec<Document> = Vec::new();
    for row in rows(&portion.samples) {
        let group = *of_series.entry(Arc::as_ptr(row.series)).or_insert_with(|| {
            let new = Group::of(&row.series.series);
            *known.entry(new.identity.clone()).or_insert_with(|| {
                groups.push(new);
                groups.len() - 1
            })
        });
        let Some(of) = groups.get(group) else { continue };
        let metric = &row.series.series.metric;
        let sample = Sample { metric: Arc::clone(metric), value: row.value, start: row.start };
        let places = places.entry((group, row.at)).or_default();
        let free = places.iter().copied().find(|place| {
            documents.get(*place).is_some_and(|document| !has_metric(document, metric))
        });
        let place = free.unwrap_or_else(|| {
            let part = u32::try_from(places.len()).unwrap_or(u32::MAX);
            documents.push(of.document(row.at, part, &index));
            places.push(documents.len() - 1);
            documents.len() - 1
        });
        if let Some(Content::Samples { samples, .. }) =
            documents.get_mut(place).map(|document| &mut document.content)
        {
            samples.push(sample);
        }
    }
    documents.extend(portion.gaps.iter().map(|gap| gap_document(gap, &index)));
    documents.extend(portion.lost.iter().map(|lost| lost_document(lost, &index)));
    documents
}

/// Whether it has a sample of this metric. The samples of an instant are ordered by series, so it is the last one.
fn has_metric(document: &Document, metric: &str) -> bool {
    match &document.content {
        Content::Samples { samples, .. } => {
            samples.last().is_some_and(|sample| *sample.metric == *metric)
        }
        Content::Whole(_) => true,
    }
}

impl Group {
    fn of(Series { device, metric, job, labels }: &Series) -> Self {
        let source = metric.split('_').next().unwrap_or_default();
        let job_text = job.as_ref().map(ToString::to_string).unwrap_or_default();
        let identity = [
            device.as_str().to_owned(),
            source.to_owned(),
            job_text.clone(),
            labels.as_str().to_owned(),
        ];
        let mut out = format!(",\"device\":{},\"source\":{}", text(device.as_str()), text(source));
        // Writing to a string cannot fail.
        if let Some(job) = job {
            let (cluster, id) = (text(job.cluster.as_str()), job.id);
            write!(out, ",\"job\":{},\"cluster\":{cluster},\"job_id\":{id}", text(&job_text)).ok();
        }
        if !labels.is_empty() {
            write!(out, ",\"labels\":{}", labels.as_str()).ok();
        }
        Self { identity, text: out }
    }

    fn document(&self, at: i64, part: u32, index: &Arc<str>) -> Document {
        let [device, source, job, labels] = &self.identity;
        let at_bytes = at.to_le_bytes();
        let parts = [device.as_bytes(), source.as_bytes(), job.as_bytes(), labels.as_bytes()];
        let key = key(&[&b"samples"[..], parts[0], parts[1], parts[2], parts[3], &at_bytes]);
        let head = format!("{{\"@timestamp\":\"{}\"{}", time(at), self.text);
        let content = Content::Samples { head, part, samples: Vec::new() };
        Document { index: Arc::clone(index), key, content }
    }
}

fn gap_document(gap: &Gap, index: &Arc<str>) -> Document {
    let Gap { origin, device, source, from, to, cause, detail } = gap;
    let whole = format!(
        "{{\"@timestamp\":\"{from}\",\"device\":{},\"gap\":{{\"origin\":{},\"source\":{},\"from\":\"{from}\",\"to\":\"{}\",\
         \"cause\":{},\"detail\":{}}}}}",
        text(device.as_str()),
        text(origin.as_str()),
        text(source),
        time(to.0),
        text(cause.words()),
        text(detail),
        from = time(from.0),
    );
    whole_document(index, whole, b"gap")
}

fn lost_document(lost: &OutputGap, index: &Arc<str>) -> Document {
    let OutputGap { from, to, samples, why } = lost;
    let whole = format!(
        "{{\"@timestamp\":\"{from}\",\"output_gap\":{{\"from\":\"{from}\",\"to\":\"{}\",\"samples\":{samples},\"why\":{}}}}}",
        time(to.0),
        text(why),
        from = time(from.0),
    );
    whole_document(index, whole, b"output_gap")
}

fn whole_document(index: &Arc<str>, whole: String, of: &[u8]) -> Document {
    let key = key(&[of, whole.as_bytes()]);
    Document { index: Arc::clone(index), key, content: Content::Whole(whole) }
}

/// A record as Colmet's collector sends it, with the spaces of Python's `json`. Missing values are absent.
fn colmet_document(record: &Record, prefix: &str, cluster: &str) -> Document {
    let seconds = record.at.0.div_euclid(Timestamp::SECOND);
    let mut out = format!(
        "{{\"hostname\": {}, \"job_id\": {}, \"timestamp\": {seconds}",
        text(&record.host),
        record.job
    );
    for (column, value) in record.columns() {
        let value = match value {
            None => continue,
            Some(Value::Unsigned(number)) => number.to_string(),
            Some(Value::Signed(number)) => number.to_string(),
            Some(Value::Float(number)) => python_float(f64::from(*number)),
            // Colmet sends a text that is JSON as what it means: a list of jobs is an array.
            Some(Value::Text(list)) => jobs_of(list).map_or_else(|| text(list), involved_jobs),
        };
        write!(out, ", {}: {value}", text(column.row.theirs)).ok();
    }
    out.push('}');
    let index = format!("{prefix}{}", record.backend.id.to_lowercase());
    // Records of one second have different instants, and those of two clusters the same text.
    let instant = record.at.0.to_le_bytes();
    let key =
        key(&[&b"colmet"[..], cluster.as_bytes(), index.as_bytes(), &instant, out.as_bytes()]);
    Document { index: index.into(), key, content: Content::Whole(out) }
}

#[cfg(test)]
mod tests;
