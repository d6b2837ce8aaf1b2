//! Encodes batches as bytes, and decodes them. The schema, with every limit, is `proto/batch.proto`.
//!
//! [`Encoder`] creates frames; [`Frames`] splits a body, a spool or a log into frames. [`Decoder::open`] decodes the
//! [`Head`] of a frame; [`Decoder::decode`] decodes it without its table, because a server may have it already;
//! [`Decoded::table`] and [`Decoded::into_batch`] decode the rest. [`encode_settings`] and [`encode_status`] encode what
//! travels beside batches.

mod answer;
mod batch_header;
mod bounds;
mod decode;
mod encode;
mod frame;
mod limits;
mod message;
mod settings;
mod splice;
mod status;

pub use answer::{Ack, AckStatus, Answer};
pub use batch_header::{Head, Opened};
pub use decode::{DecodeError, Decoded, Decoder, Value};
pub use encode::{EncodeError, Encoder};
pub use frame::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES, Frame, FrameError, Frames};
pub use limits::{
    DISPLAY_ID_BYTES_MAX, GAP_SOURCE_BYTES_MAX, GAPS_MAX, JOBS_MAX, LimitError, METRICS_MAX,
    MONITOR_BYTES_MAX, OOM_KILLS_MAX, PAYLOAD_BYTES_MAX, SERIES_MAX, TABLE_BYTES_MAX,
    TASK_BYTES_MAX, TEXT_BYTES_MAX, TICKS_MAX,
};
pub use settings::{
    decode_settings, encode_settings, flush_bytes, override_bytes, promotion_bytes,
};
pub use status::{STATUS_HEADER, decode_status, encode_status};
