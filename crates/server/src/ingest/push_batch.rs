//! The batch of inserted rows, and the rows of the answer.

use crate::ingest::inserter::Inserter;
use crate::ingest::push_rows::PushRow;
use jiff::tz::TimeZone;
use model::{
    Batch, Boot, JobKey, Kind, Labels, Metric, MetricError, Origin, SeriesEntry, SeriesTable, Tick,
    USER_LABEL,
};
use query::{Format, Line, RowBatch, encoded_rows};
use senders::label_rejection;
use std::collections::HashMap;
use std::sync::Arc;
use storage::Incoming;
use wire::{Decoder, Encoder, Frames};

/// Rows of a request, checked, with their series.
#[derive(Clone, Debug)]
pub(crate) struct PushBatch {
    origin: Origin,
    inserter: Inserter,
    rows: Vec<PushRow>,
    table: Arc<SeriesTable>,
    /// The place of each row in the table.
    places: Vec<u32>,
}

/// Why rows make no batch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PushError {
    #[error(transparent)]
    Metric(#[from] MetricError),
    #[error(transparent)]
    Labels(#[from] model::LabelsError),
    #[error(transparent)]
    Encode(#[from] wire::EncodeError),
    #[error("the rows cannot be decoded again: {0}")]
    Decode(String),
}

impl PushBatch {
    /// The batch of rows. `jobs` holds the keys of the jobs that rows name.
    pub(crate) fn new(
        origin: Origin,
        rows: Vec<PushRow>,
        jobs: &HashMap<Box<str>, JobKey>,
        inserter: Inserter,
    ) -> Result<Self, PushError> {
        let user = inserter.user_label();
        let mut metrics: HashMap<Box<str>, Arc<Metric>> = HashMap::new();
        let (mut known, mut entries) = (HashMap::new(), Vec::new());
        let mut places = Vec::with_capacity(rows.len());
        for row in &rows {
            let job = row.job.as_ref().and_then(|job| jobs.get(job)).cloned();
            let labels = match user.as_ref().filter(|_| job.is_none()) {
                Some(user) => row.labels.with(USER_LABEL, user)?,
                None => row.labels.clone(),
            };
            let series = (row.device.clone(), row.metric.clone(), job, labels);
            if let Some(place) = known.get(&series) {
                places.push(*place);
                continue;
            }
            let metric = match metrics.get(&row.metric) {
                Some(metric) => Arc::clone(metric),
                None => {
                    let metric = Arc::new(Metric::assumed(&row.metric)?);
                    metrics.insert(row.metric.clone(), Arc::clone(&metric));
                    metric
                }
            };
            let (device, _, job, labels) = series.clone();
            let place = u32::try_from(entries.len()).unwrap_or(u32::MAX);
            entries.push(SeriesEntry { metric, device, job, labels, start: None });
            known.insert(series, place);
            places.push(place);
        }
        Ok(Self { origin, inserter, rows, table: Arc::new(SeriesTable { entries }), places })
    }

    /// Who inserts the rows.
    pub(crate) const fn inserter(&self) -> &Inserter {
        &self.inserter
    }

    /// Number of rows.
    pub(crate) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// The first row with a label that it may not have, with the reason.
    pub(crate) fn reserved_label(&self) -> Option<(usize, String)> {
        let mut entries = (0_u32..).zip(&self.table.entries);
        entries.find_map(|(place, entry)| {
            label_rejection(entry, &self.origin).map(|why| (self.row_of(place), why))
        })
    }

    /// The number of the first row with the series at a place of the table, from 1.
    pub(crate) fn row_of(&self, place: u32) -> usize {
        self.places.iter().position(|one| *one == place).map_or(1, |row| row + 1)
    }

    /// The devices of the rows, with the number of rows of each.
    pub(crate) fn devices(&self) -> HashMap<&str, usize> {
        let mut devices = HashMap::new();
        for row in &self.rows {
            *devices.entry(row.device.as_str()).or_default() += 1;
        }
        devices
    }

    /// The batch for the store, with its number.
    pub(crate) fn incoming(
        &self,
        (boot, seq): (Boot, u64),
        received: model::Timestamp,
    ) -> Result<Incoming, PushError> {
        let mut order: Vec<(&PushRow, u32)> =
            self.rows.iter().zip(self.places.iter().copied()).collect();
        order.sort_by_key(|(row, _)| row.at);
        let mut ticks: Vec<Tick> = Vec::new();
        for (row, _) in &order {
            match ticks.last_mut() {
                Some(tick) if tick.at == row.at => tick.samples += 1,
                _ => ticks.push(Tick { at: row.at, samples: 1 }),
            }
        }
        let batch = Batch {
            origin: self.origin.clone(),
            boot,
            seq,
            table: Arc::clone(&self.table),
            ticks,
            index: order.iter().map(|(_, place)| *place).collect(),
            values: order.iter().map(|(row, _)| row.value).collect(),
            gaps: Vec::new(),
            jobs: Vec::new(),
        };
        let mut frame = Vec::new();
        Encoder::default().encode(&batch, &mut frame)?;
        let one = Frames::of(&frame).next().ok_or_else(|| PushError::Decode("no frame".into()))?;
        let one = one.map_err(|error| PushError::Decode(error.to_string()))?;
        let decoded = Decoder::default().decode(&one);
        let decoded = decoded.map_err(|error| PushError::Decode(error.to_string()))?;
        Ok(Incoming { frame, decoded, received })
    }

    /// The rows as they are stored, in the order of the request.
    pub(crate) fn answer(&self, format: Format, zone: TimeZone) -> Vec<u8> {
        let line = |entry: &SeriesEntry| {
            Arc::new(Line {
                device: entry.device.clone(),
                metric: Arc::from(&*entry.metric.name),
                kind: Kind::Gauge,
                labels: Arc::from(Labels::as_str(&entry.labels)),
                job: entry.job.clone(),
                allocation: None,
            })
        };
        let mut batch =
            RowBatch::of_lines(self.table.entries.iter().map(line).collect(), self.rows.len());
        for (row, place) in self.rows.iter().zip(&self.places) {
            batch.push(*place, row.at.0, row.value, true);
        }
        encoded_rows(batch, format, zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ClusterId, DeviceId, JobId, Timestamp};

    fn row(metric: &str, at: i64, labels: &str, job: Option<&str>) -> PushRow {
        PushRow {
            device: DeviceId::new("d").unwrap(),
            metric: metric.into(),
            at: Timestamp::from_seconds(1_767_706_500 + at),
            value: 0.5,
            labels: Labels::from_json(labels).unwrap(),
            job: job.map(Into::into),
        }
    }

    #[test]
    fn rows_become_one_batch_in_the_order_of_time() {
        let rows = vec![
            row("m_watt", 2, "{}", None),
            row("n_total", 1, r#"{"cpu": 0}"#, None),
            row("m_watt", 1, "{}", None),
        ];
        let batch = PushBatch::new(
            Origin::of_push(None).unwrap(),
            rows,
            &HashMap::new(),
            Inserter::Program,
        )
        .unwrap();
        let incoming = batch.incoming((Boot([3; 16]), 7), Timestamp(5)).unwrap();
        let stored = incoming.decoded.into_batch().unwrap();
        assert_eq!((stored.seq, stored.index, stored.ticks.len()), (7, vec![1, 0, 0], 2));
        let metric = &stored.table.entries[0].metric;
        assert_eq!((metric.unit, metric.kind), (model::Unit::Watts, Kind::Gauge));
        assert_eq!((batch.row_of(1), batch.len(), batch.devices()["d"]), (2, 3, 3));
        let answer = batch.answer(Format::Csv, TimeZone::UTC);
        let want = "timestamp,device_id,metric_id,value,labels\n\"2026-01-06 13:35:02+00\",d,m_watt,0.5,{}\n\
                    \"2026-01-06 13:35:01+00\",d,n_total,0.5,\"{\"\"cpu\"\": 0}\"\n\
                    \"2026-01-06 13:35:01+00\",d,m_watt,0.5,{}\n";
        assert_eq!(String::from_utf8(answer).unwrap(), want);
    }

    #[test]
    fn a_users_rows_have_the_user_or_the_job() {
        let key = JobKey { cluster: ClusterId::local(), id: JobId::new(7).unwrap() };
        let rows = vec![row("m", 0, "{}", None), row("m", 0, "{}", Some("7"))];
        let jobs = HashMap::from([(Box::from("7"), key.clone())]);
        let batch =
            PushBatch::new(Origin::of_user_push(1000), rows, &jobs, Inserter::User(1000)).unwrap();
        let entries = &batch.table.entries;
        assert_eq!((entries[0].labels.as_str(), &entries[0].job), (r#"{"_user": "1000"}"#, &None));
        assert_eq!((entries[1].labels.as_str(), &entries[1].job), ("{}", &Some(key)));
    }
}
