//! The server's answer to a request of frames.

use crate::decode::job_id;
use crate::limits::{LimitError, TEXT_BYTES_MAX};
use crate::{DecodeError, message};
use model::{Boot, ClusterId, JobId, JobKey, Timestamp};
use prost::Message;

/// Result of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckStatus {
    /// It is on the server's disk.
    Stored,
    /// It was already stored.
    Duplicate,
    /// Rejected permanently: set it aside.
    RejectedPermanently,
    /// Rejected temporarily: keep it and send it again.
    RejectedTemporarily,
}

impl AckStatus {
    const ALL: [Self; 4] =
        [Self::Stored, Self::Duplicate, Self::RejectedPermanently, Self::RejectedTemporarily];
}

/// Result of one batch, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The batch's boot.
    pub boot: Boot,
    /// The batch's number.
    pub seq: u64,
    /// Its result.
    pub status: AckStatus,
    /// Reason of a rejection, for people.
    pub reason: String,
    /// Number of rejected samples of a stored batch.
    pub samples_rejected: u32,
    /// Reason of their rejection.
    pub samples_reason: String,
}

/// The answer to a request: an ack for each frame, and requests to the sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// One for each frame, in the request's order.
    pub acks: Vec<Ack>,
    /// Generation of the settings that the sender should apply; 0 for none.
    pub generation: u64,
    /// These settings, encoded, if the request named another generation: [`decode_settings`](crate::decode_settings).
    pub settings: Vec<u8>,
    /// Unfinished jobs of `jobmeter run` registered for the sender's device, with their users' IDs.
    pub local_jobs: Vec<(JobId, u32)>,
    /// Jobs on the sender's device as reported to the server, with the creation time of their cgroups.
    pub open_jobs: Vec<(JobKey, Timestamp)>,
    /// Identity of the server, a part of the names of its `jobmeter run` cgroups; at most 64 bytes.
    pub server: String,
}

/// Maximum length of a server's identity.
const SERVER_MAX: usize = 64;

impl Answer {
    /// The answer's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let ack = |ack: &Ack| message::Ack {
            boot: ack.boot.0.to_vec(),
            seq: ack.seq,
            status: AckStatus::ALL
                .iter()
                .zip(0..)
                .find(|(s, _)| **s == ack.status)
                .map_or(0, |(_, n)| n),
            reason: cut(&ack.reason),
            samples_rejected: ack.samples_rejected,
            samples_reason: cut(&ack.samples_reason),
        };
        let answer = message::Answer {
            ack: self.acks.iter().map(ack).collect(),
            generation: self.generation,
            settings: self.settings.clone(),
            local_job: self.local_jobs.iter().map(local_job).collect(),
            open_job: self.open_jobs.iter().map(open_job).collect(),
            server: self.server.clone(),
        };
        answer.encode_to_vec()
    }

    /// Decodes an answer.
    ///
    /// # Errors
    /// The bytes are not an answer, or a status is unknown.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let answer = message::Answer::decode(bytes)?;
        let ack = |ack: message::Ack| {
            let number = ack.status;
            let status = usize::try_from(number).ok().and_then(|n| AckStatus::ALL.get(n).copied());
            let boot = ack.boot.len();
            Ok(Ack {
                boot: Boot(ack.boot.try_into().map_err(|_| LimitError::Boot(boot))?),
                seq: ack.seq,
                status: status.ok_or(LimitError::Word { what: "status", number })?,
                reason: ack.reason,
                samples_rejected: ack.samples_rejected,
                samples_reason: ack.samples_reason,
            })
        };
        let local_jobs: Result<Vec<_>, LimitError> =
            answer.local_job.iter().map(|job| Ok((job_id(job.id)?, job.uid))).collect();
        Ok(Self {
            acks: answer.ack.into_iter().map(ack).collect::<Result<_, LimitError>>()?,
            generation: answer.generation,
            settings: answer.settings,
            local_jobs: local_jobs?,
            open_jobs: answer
                .open_job
                .into_iter()
                .map(opened)
                .collect::<Result<_, LimitError>>()?,
            server: Some(answer.server).filter(|id| id.len() <= SERVER_MAX).unwrap_or_default(),
        })
    }
}

fn local_job(job: &(JobId, u32)) -> message::LocalJob {
    message::LocalJob { id: job.0.get().unsigned_abs(), uid: job.1 }
}

fn open_job((key, start): &(JobKey, Timestamp)) -> message::OpenJob {
    let id = key.id.get().unsigned_abs();
    message::OpenJob { cluster: key.cluster.as_str().to_owned(), id, start: start.0 }
}

fn opened(job: message::OpenJob) -> Result<(JobKey, Timestamp), LimitError> {
    let cluster = ClusterId::new(&job.cluster)?;
    Ok((JobKey { cluster, id: job_id(job.id)? }, Timestamp(job.start)))
}

/// The text, cut to the limit between two characters.
pub(crate) fn cut(text: &str) -> String {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let ack = Ack {
            boot: Boot([3; 16]),
            seq: 9,
            status: AckStatus::RejectedPermanently,
            reason: "no".to_owned(),
            samples_rejected: 2,
            samples_reason: "time".to_owned(),
        };
        let settings = b"any bytes".to_vec();
        let local_jobs = vec![(JobId::new(7).unwrap(), 1000)];
        let server = "3f2a91bc0d1e".to_owned();
        let key = JobKey { cluster: ClusterId::new("oar").unwrap(), id: JobId::new(8).unwrap() };
        let open_jobs = vec![(key, Timestamp(1_767_225_600_000_000))];
        let answer =
            Answer { acks: vec![ack], generation: 4, settings, local_jobs, open_jobs, server };
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        assert!(Answer::decode(b"\xff").is_err());
    }

    #[test]
    fn long_reasons_are_cut_between_characters() {
        assert_eq!(cut(&"é".repeat(300)).len(), 500);
        assert_eq!(cut(&format!("x{}", "é".repeat(300))).len(), 499);
    }
}
