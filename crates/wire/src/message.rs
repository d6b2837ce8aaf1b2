//! The messages of `proto/batch.proto`, field by field. Maintained by hand, so that no build needs a
//! protobuf compiler; `testdata/wire` tests them.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Batch {
    #[prost(string, tag = "1")]
    pub(crate) origin: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) boot: Vec<u8>,
    #[prost(uint64, tag = "3")]
    pub(crate) seq: u64,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) table: Vec<u8>,
    #[prost(sint64, repeated, tag = "5")]
    pub(crate) tick_delta: Vec<i64>,
    #[prost(uint32, repeated, tag = "6")]
    pub(crate) tick_samples: Vec<u32>,
    #[prost(uint64, repeated, tag = "7")]
    pub(crate) refs: Vec<u64>,
    #[prost(sint64, repeated, tag = "8")]
    pub(crate) step: Vec<i64>,
    #[prost(double, repeated, tag = "9")]
    pub(crate) real: Vec<f64>,
    #[prost(message, repeated, tag = "10")]
    pub(crate) gap: Vec<Gap>,
    #[prost(message, repeated, tag = "11")]
    pub(crate) job: Vec<JobEvent>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Table {
    #[prost(message, repeated, tag = "1")]
    pub(crate) metric: Vec<Metric>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) device: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) cluster: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) labels: Vec<String>,
    #[prost(uint32, repeated, tag = "5")]
    pub(crate) series_metric: Vec<u32>,
    #[prost(uint32, repeated, tag = "6")]
    pub(crate) series_device: Vec<u32>,
    #[prost(uint32, repeated, tag = "7")]
    pub(crate) series_labels: Vec<u32>,
    #[prost(uint32, repeated, tag = "8")]
    pub(crate) series_cluster: Vec<u32>,
    #[prost(uint64, repeated, tag = "9")]
    pub(crate) series_job: Vec<u64>,
    #[prost(sint64, repeated, tag = "10")]
    pub(crate) series_start: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metric {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint32, tag = "2")]
    pub(crate) unit: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) kind: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) divisor: u32,
    #[prost(string, tag = "5")]
    pub(crate) help: String,
    #[prost(bool, tag = "6")]
    pub(crate) assumed: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Gap {
    #[prost(string, tag = "1")]
    pub(crate) device: String,
    #[prost(string, tag = "2")]
    pub(crate) source: String,
    #[prost(sint64, tag = "3")]
    pub(crate) from: i64,
    #[prost(sint64, tag = "4")]
    pub(crate) to: i64,
    #[prost(uint32, tag = "5")]
    pub(crate) cause: u32,
    #[prost(string, tag = "6")]
    pub(crate) detail: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Answer {
    #[prost(message, repeated, tag = "1")]
    pub(crate) ack: Vec<Ack>,
    #[prost(uint64, tag = "2")]
    pub(crate) generation: u64,
    #[prost(message, repeated, tag = "4")]
    pub(crate) local_job: Vec<LocalJob>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) open_job: Vec<OpenJob>,
    #[prost(string, tag = "6")]
    pub(crate) server: String,
    #[prost(bytes = "vec", tag = "7")]
    pub(crate) settings: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OpenJob {
    #[prost(string, tag = "1")]
    pub(crate) cluster: String,
    #[prost(uint64, tag = "2")]
    pub(crate) id: u64,
    #[prost(sint64, tag = "3")]
    pub(crate) start: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LocalJob {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) uid: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct JobEvent {
    #[prost(string, tag = "1")]
    pub(crate) cluster: String,
    #[prost(uint64, tag = "2")]
    pub(crate) id: u64,
    #[prost(string, tag = "3")]
    pub(crate) display_id: String,
    #[prost(string, tag = "4")]
    pub(crate) device: String,
    #[prost(string, tag = "5")]
    pub(crate) user: String,
    #[prost(uint32, tag = "6")]
    pub(crate) uid: u32,
    #[prost(sint64, tag = "7")]
    pub(crate) start: i64,
    #[prost(sint64, tag = "8")]
    pub(crate) stop: i64,
    #[prost(string, optional, tag = "9")]
    pub(crate) monitor: Option<String>,
    #[prost(message, repeated, tag = "10")]
    pub(crate) oom_kill: Vec<OomKill>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OomKill {
    #[prost(sint64, tag = "1")]
    pub(crate) at: i64,
    #[prost(uint32, tag = "2")]
    pub(crate) pid: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) uid: u32,
    #[prost(string, tag = "4")]
    pub(crate) task: String,
    #[prost(uint64, tag = "5")]
    pub(crate) task_bytes: u64,
    #[prost(uint64, tag = "6")]
    pub(crate) limit_bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ack {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) boot: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub(crate) seq: u64,
    #[prost(uint32, tag = "3")]
    pub(crate) status: u32,
    #[prost(string, tag = "4")]
    pub(crate) reason: String,
    #[prost(uint32, tag = "5")]
    pub(crate) samples_rejected: u32,
    #[prost(string, tag = "6")]
    pub(crate) samples_reason: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Settings {
    #[prost(message, repeated, tag = "1")]
    pub(crate) source: Vec<Override>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) burst: Vec<Override>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) promotion: Vec<Promotion>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) flush: Vec<Flush>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Override {
    #[prost(string, tag = "1")]
    pub(crate) source: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) setting: Vec<Setting>,
    #[prost(sint64, optional, tag = "3")]
    pub(crate) until: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Setting {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(oneof = "SettingValue", tags = "2, 3, 4, 5, 6")]
    pub(crate) value: Option<SettingValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum SettingValue {
    #[prost(bool, tag = "2")]
    Switch(bool),
    #[prost(uint64, tag = "3")]
    Number(u64),
    #[prost(uint64, tag = "4")]
    Micros(u64),
    #[prost(string, tag = "5")]
    Text(String),
    #[prost(message, tag = "6")]
    List(Texts),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Texts {
    #[prost(string, repeated, tag = "1")]
    pub(crate) text: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Promotion {
    #[prost(string, tag = "1")]
    pub(crate) metric: String,
    #[prost(sint64, tag = "2")]
    pub(crate) until: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Flush {
    #[prost(string, tag = "1")]
    pub(crate) source: String,
    #[prost(uint64, tag = "2")]
    pub(crate) number: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AgentStatus {
    #[prost(sint64, tag = "1")]
    pub(crate) now: i64,
    #[prost(uint64, tag = "2")]
    pub(crate) generation: u64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) rejected: Vec<Rejection>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) source: Vec<SourceStatus>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) unread: Vec<UnreadSource>,
    #[prost(uint64, tag = "6")]
    pub(crate) wait_us: u64,
    #[prost(bool, tag = "7")]
    pub(crate) stops: bool,
    #[prost(uint32, tag = "8")]
    pub(crate) cut: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Rejection {
    #[prost(string, tag = "1")]
    pub(crate) setting: String,
    #[prost(uint32, tag = "2")]
    pub(crate) code: u32,
    #[prost(string, tag = "3")]
    pub(crate) reason: String,
    #[prost(sint64, optional, tag = "4")]
    pub(crate) until: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SourceStatus {
    #[prost(string, tag = "1")]
    pub(crate) source: String,
    #[prost(uint32, tag = "2")]
    pub(crate) state: u32,
    #[prost(string, tag = "3")]
    pub(crate) reason: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UnreadSource {
    #[prost(string, tag = "1")]
    pub(crate) source: String,
    #[prost(uint32, tag = "2")]
    pub(crate) reason: u32,
    #[prost(string, repeated, tag = "3")]
    pub(crate) optional: Vec<String>,
}
