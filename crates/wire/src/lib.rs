//! Batches as bytes, and back. The schema, with every limit, is `proto/batch.proto`.
//!
//! [`Encoder`] makes a frame; [`Frames`] cuts a body, a spool or a log into frames; [`Decoder::open`] reads
//! the [`Head`] of one, and [`Decoder::decode`] as much as a server needs that has seen its table before; [`Decoded::table`] and
//! [`Decoded::into_batch`] read the rest.

mod answer;
mod bounds;
mod decode;
mod encode;
mod frame;
mod head;
mod limits;
mod message;

pub use answer::{Ack, AckStatus, Answer};
pub use decode::{DecodeError, Decoded, Decoder, Value};
pub use encode::{EncodeError, Encoder};
pub use frame::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES, Frame, FrameError, Frames};
pub use head::{Head, Opened};
pub use limits::{
    GAP_SOURCE_BYTES_MAX, GAPS_MAX, JOBS_MAX, LimitError, METRICS_MAX, MONITOR_BYTES_MAX,
    OOM_KILLS_MAX, PAYLOAD_BYTES_MAX, SERIES_MAX, SPELLING_BYTES_MAX, TABLE_BYTES_MAX,
    TASK_BYTES_MAX, TEXT_BYTES_MAX, TICKS_MAX,
};
