//! Derives the limits of retention from the settings and the size of the file system.
//!
//! At startup the server logs how long the data will last at the current rate.

use crate::ingest::declared_metrics::declared;
use config::paths::ACKNOWLEDGED_FILE;
use config::{Bytes, RetentionSettings, ServerConfig};
use model::Timestamp;
use std::path::Path;
use std::time::Duration;
use storage::{RetentionLimits, Stats, Storage};
use store::ArchiveSettings;

/// Default limit of samples, in bytes, or a tenth of the file system if that is less.
const SAMPLES_BYTES: u64 = 10_000_000_000;
/// How long the embedded store accepts late samples by default.
const LATE_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Smallest limit of a merged block, in bytes.
const BLOCK_BYTES: u64 = 1 << 20;
const DAY: f64 = 86_400.0;

/// Returns the settings of the store.
pub(crate) fn settings(config: &ServerConfig, data: &Path) -> store::Settings {
    let keep = &config.keep;
    let default = store::Settings::default();
    let RetentionSettings { samples_bytes_max, samples_age_max, .. } = config.retention;
    let samples = samples(samples_bytes_max, samples_age_max, file_system_bytes(data));
    let RetentionSettings { minutes_bytes_max, minutes_age_max, .. } = config.retention;
    let RetentionSettings { hours_bytes_max, hours_age_max, .. } = config.retention;
    store::Settings {
        senders: senders(config),
        log_bytes_max: keep.log_bytes_max.0,
        head_bytes_max: count(keep.head_bytes_max.0),
        // As many samples as fill half of the head.
        head_samples_max: default.head_samples_max.max(keep.head_bytes_max.0 / 16),
        head_age_us: micros(keep.block_every),
        settle_after_us: micros(config.retention.late_max.unwrap_or(LATE_MAX)),
        keep_samples: samples,
        archive: archive(&config.retention),
        keep_rollups: [
            kept(minutes_bytes_max, minutes_age_max),
            kept(hours_bytes_max, hours_age_max),
        ],
        // The store deletes samples block by block: the oldest block must be a small part of the whole.
        block_bytes_max: (samples.bytes_max / 32).clamp(BLOCK_BYTES, default.block_bytes_max),
        ..default
    }
}

/// Returns the settings of the store on PostgreSQL. Only a limit of age deletes something.
pub(crate) fn postgres_settings(config: &ServerConfig, data: &Path) -> postgres::Settings {
    let RetentionSettings { samples_age_max, minutes_age_max, hours_age_max, late_max, .. } =
        config.retention;
    let archive_us = kept(None, config.retention.archive_age_max).age_us;
    let archive = config
        .store
        .archive_tablespace
        .clone()
        .map(|tablespace| postgres::ArchiveSettings { tablespace, keep_us: archive_us });
    let default = postgres::Settings::default();
    postgres::Settings {
        archive,
        acknowledged: Some(data.join(ACKNOWLEDGED_FILE)),
        settle_after_us: late_max.map_or(default.settle_after_us, micros),
        rejects_late: late_max.is_some(),
        statement_time_max_ms: u32::try_from(config.query.time_max.as_millis()).unwrap_or(0),
        keep_samples_us: kept(None, samples_age_max).age_us,
        keep_rollups_us: [minutes_age_max, hours_age_max].map(|age| kept(None, age).age_us),
        senders: senders(config),
        ..default
    }
}

fn senders(config: &ServerConfig) -> senders::Limits {
    let keep = &config.keep;
    senders::Limits {
        series_per_origin_max: count(keep.series_per_origin_max),
        series_max: count(keep.series_max),
        declared: declared(),
        metrics_max: count(keep.metrics_max),
        origins_max: count(keep.origins_max),
        ..senders::Limits::default()
    }
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn samples(
    bytes_max: Option<Bytes>,
    age_max: Option<Duration>,
    file_system: Option<u64>,
) -> RetentionLimits {
    let default = file_system.map_or(SAMPLES_BYTES, |bytes| (bytes / 10).min(SAMPLES_BYTES));
    kept(Some(bytes_max.unwrap_or(Bytes(default))), age_max)
}

fn archive(retention: &RetentionSettings) -> Option<ArchiveSettings> {
    let RetentionSettings { archive, archive_bytes_max, archive_age_max, .. } = retention;
    // The manifest stores this path: it must not depend on the working directory of its reader.
    let dir =
        archive.as_ref().map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.clone()))?;
    let most = file_system_bytes(&dir).map(|bytes| Bytes(bytes / 10 * 9));
    let keep = kept(archive_bytes_max.or(most), *archive_age_max);
    Some(ArchiveSettings { dir, keep })
}

fn kept(bytes_max: Option<Bytes>, age_max: Option<Duration>) -> RetentionLimits {
    RetentionLimits {
        bytes_max: bytes_max.map_or(u64::MAX, |bytes| bytes.0),
        age_us: age_max.map_or(i64::MAX, micros),
    }
}

/// Longest age of stored data. `None`: some of it has no limit of age.
pub(crate) fn longest_us(config: &ServerConfig) -> Option<i64> {
    let retention = &config.retention;
    let RetentionSettings { samples_age_max, archive_age_max, .. } = retention;
    let RetentionSettings { minutes_age_max, hours_age_max, .. } = retention;
    let has_archive = retention.archive.is_some() || config.store.archive_tablespace.is_some();
    let samples = if has_archive { archive_age_max } else { samples_age_max };
    let longest = (*samples)?.max((*minutes_age_max)?).max((*hours_age_max)?);
    Some(micros(longest))
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Size of the file system of a folder, in bytes, if it is known.
fn file_system_bytes(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    stat.f_blocks.checked_mul(stat.f_frsize).filter(|bytes| *bytes > 0)
}

/// Logs the limits of samples, and how long the space lasts at the rate so far.
pub(crate) fn log_limits(store: &dyn Storage, keep: &RetentionLimits) {
    let span = store.snapshot().extent();
    let span = span.map_or(0.0, |(from, to)| to.since(from) as f64 / 1e6);
    log::info!("{}", words(&store.stats(), span, keep));
}

/// Builds the log line. `span` is the time between the first and the last stored sample, in seconds.
fn words(stats: &Stats, span: f64, keep: &RetentionLimits) -> String {
    let RetentionLimits { bytes_max, age_us } = *keep;
    let gigabytes = |bytes: u64| bytes as f64 / 1e9;
    let mut text = format!("samples may use {:.1} GB", gigabytes(bytes_max));
    if age_us < i64::MAX {
        text.push_str(&format!(" and be {:.0} days old", Timestamp(age_us).seconds() / DAY));
    }
    let samples = stats.block_samples.saturating_add(stats.samples_removed);
    if stats.block_samples == 0 || span < 600.0 {
        text.push_str("; the number of days can be estimated once some hours are stored");
        return text;
    }
    let a_second = samples as f64 / span;
    let bytes = stats.block_bytes as f64 / stats.block_samples as f64;
    let days = bytes_max as f64 / (a_second * bytes) / DAY;
    text.push_str(&format!(
        "; they use {:.1} GB now, {bytes:.2} bytes per sample; at the present mean of \
         {a_second:.0} samples/s this is enough for {days:.0} days",
        gigabytes(stats.block_bytes.saturating_sub(stats.archived_bytes))
    ));
    if stats.archived_bytes > 0 {
        text.push_str(&format!("; {:.1} GB are in the archive", gigabytes(stats.archived_bytes)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_file_system_and_ten_gigabytes_at_most() {
        let bytes = |file_system| samples(None, None, file_system).bytes_max;
        assert_eq!(bytes(Some(20_000_000_000)), 2_000_000_000);
        assert_eq!(bytes(Some(u64::MAX)), 10_000_000_000);
        assert_eq!(bytes(None), 10_000_000_000);
        let limits = samples(Some(Bytes(7)), Some(Duration::from_secs(2)), Some(10));
        assert_eq!(limits, RetentionLimits { bytes_max: 7, age_us: 2_000_000 });
        assert!(file_system_bytes(Path::new("/")).is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn requests_to_nodes_are_kept_as_long_as_anything() {
        let flags = |flags: &[(&str, &str)]| {
            let one = |(key, value): &(&str, &str)| {
                ((*key).to_owned(), config::Raw::One((*value).to_owned()))
            };
            let flags = flags.iter().map(one).collect();
            let file = config::ConfigFile::None;
            let given = config::ConfigInputs { file, environment: &|_| None, flags };
            longest_us(&config::load_server(&given, &[]).unwrap().config)
        };
        let ages = [
            ("retention.samples_age_max", "30d"),
            ("retention.minutes_age_max", "90d"),
            ("retention.hours_age_max", "60d"),
        ];
        let day = 86_400 * Timestamp::SECOND;
        assert_eq!(flags(&ages), Some(90 * day));
        assert_eq!(flags(&ages[..2]), None, "rollups of an hour stay");
        let archive = [("retention.archive", "/archive"), ("retention.archive_age_max", "365d")];
        assert_eq!(flags(&[&ages[1..], &archive].concat()), Some(365 * day));
        let tablespace = [
            ("store", "postgres"),
            ("postgres.database", "host=/run/postgresql"),
            ("postgres.archive_tablespace", "archive"),
        ];
        assert_eq!(flags(&[&ages[..], &archive[1..], &tablespace].concat()), Some(365 * day));
    }

    #[test]
    fn the_duration_of_a_promotion_is_shown() {
        let keep = RetentionLimits { bytes_max: 10_000_000_000, ..RetentionLimits::ALL };
        let stats = Stats {
            block_samples: 86_400_000,
            block_bytes: 172_800_000,
            samples_removed: 86_400_000,
            ..Stats::default()
        };
        // Two days at 1000 samples/s and 2 bytes per sample: 173 MB a day.
        let text = words(&stats, 2.0 * DAY, &keep);
        assert_eq!(
            text,
            "samples may use 10.0 GB; they use 0.2 GB now, 2.00 bytes per sample; at the present \
             mean of 1000 samples/s this is enough for 58 days"
        );
        let archived = Stats { archived_bytes: 100_000_000, ..stats };
        let text = words(&archived, 2.0 * DAY, &keep);
        assert!(text.contains("they use 0.1 GB now, 2.00 bytes per sample"), "{text}");
        assert!(text.ends_with("; 0.1 GB are in the archive"), "{text}");
        let old = RetentionLimits { age_us: 30 * 86_400_000_000, ..keep };
        let text = words(&Stats::default(), 0.0, &old);
        assert!(
            text.starts_with("samples may use 10.0 GB and be 30 days old; the number of days"),
            "{text}"
        );
    }
}
