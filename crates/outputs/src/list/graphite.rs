//! The output `graphite`: points for Carbon, the receiver of Graphite.
//!
//! Carbon never answers. A point that comes again replaces itself, so whatever may be lost is sent again.

use crate::fructosa::Fructosa;
use crate::graphite_path::{is_plain, path_of, write_path};
use crate::portion::{Portion, rows};
use crate::spec::{Guarantee, Output, Spec, WriteError};
use crate::written_file::option;
use config::OutputConfig;
use model::Timestamp;
use model::setting::{Kind, OptionSpec, parse_duration};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use storage::{FollowMark, TimeSlice};

/// The protocols.
const PICKLE: &str = "pickle";
const PLAINTEXT: &str = "plaintext";
/// The trees.
const JOBMETER: &str = "jobmeter";
const FRUCTOSA: &str = "fructosa";
/// A pickle frame ends after so many bytes; Carbon accepts 1 MiB.
const FRAME_BYTES: usize = 64 << 10;
/// Longest path, in bytes: Linux allows 4096 for the name of its file, and Carbon 16 384 for a line.
const PATH_BYTES_MAX: usize = 3000;
/// Time to connect to one address.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// After so many connections that Carbon closed at once, each portion waits for `CLOSE_TIME` whether it is closed again.
const SHORT_MAX: u32 = 3;
const CLOSE_TIME: Duration = Duration::from_millis(500);
/// Longest time in which Carbon reads nothing.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// Percentages need the sample before a range: longest distance between samples of a processor.
const LEAD: Duration = Duration::from_secs(120);

/// The kind.
pub(super) const SPEC: Spec = Spec {
    name: "graphite",
    help: "Graphite: a point for each sample, or the values of FrUCToSA's sensors, to carbon-cache, carbon-relay or any program with their protocols.",
    guarantee_help: "sent: Carbon never answers; `resend` covers what it loses when it is killed",
    options: &[
        OptionSpec {
            name: "address",
            kind: Kind::TextOf("HOST:PORT", is_address),
            default: "",
            help: "Carbon's receiver: by default it has port 2004 for pickle and 2003 for plaintext.",
        },
        OptionSpec {
            name: "protocol",
            kind: Kind::Choice(&[PICKLE, PLAINTEXT]),
            default: PICKLE,
            help: "Carbon's protocol: pickle, or lines of text.",
        },
        OptionSpec {
            name: "tree",
            kind: Kind::Choice(&[JOBMETER, FRUCTOSA]),
            default: JOBMETER,
            help: "Paths: `DEVICE.METRIC[.job.CLUSTER.ID][.LABEL.VALUE]...`, or `HOST.SENSOR.KEY` as FrUCToSA.",
        },
        OptionSpec {
            name: "prefix",
            kind: Kind::TextOf("PATH", is_prefix),
            default: "",
            help: "Precedes each path, such as `cluster.nodes`.",
        },
        OptionSpec {
            name: "resend",
            kind: Kind::Duration { min: Duration::ZERO, max: Duration::from_secs(86_400) },
            default: "5m",
            help: "After a broken connection, samples that were sent within this time before the break are sent again: a killed Carbon loses what it has not written. `0s`: none.",
        },
    ],
    guarantee: |_| Guarantee::Sent,
    check,
    open: |config, _| open(config),
    fill: |_| Ok(|config, _, _| open(config)),
    sends_jobs: |config| option(config, "tree") != FRUCTOSA,
    resend: |config| parse_duration(option(config, "resend")).filter(|time| !time.is_zero()),
    ..Spec::DEFAULT
};

fn is_address(text: &str) -> Result<(), String> {
    let parts = text.rsplit_once(':');
    let port = |port: &str| port.parse().is_ok_and(|port: u16| port > 0);
    let host = |host: &str| !host.is_empty() && !host.contains(['/', ' ', '@']);
    let is = text.is_empty() || parts.is_some_and(|(name, of)| host(name) && port(of));
    is.then_some(()).ok_or_else(|| format!("`{text}` is no HOST:PORT, such as graphite:2004"))
}

fn is_prefix(text: &str) -> Result<(), String> {
    let is_part = |part: &str| !part.is_empty() && part.chars().all(is_plain);
    let is = text.is_empty() || text.len() <= 200 && text.split('.').all(is_part);
    is.then_some(()).ok_or_else(|| {
        format!(
            "`{text}` is no path of letters, digits, `_`, `-` and `:`, with dots between its parts"
        )
    })
}

fn check(config: &OutputConfig) -> Vec<(&'static str, String)> {
    let is_absent = option(config, "address").is_empty();
    is_absent.then(|| ("address", NEEDS_ADDRESS.to_owned())).into_iter().collect()
}

const NEEDS_ADDRESS: &str =
    "it needs `address`: the host and port of Carbon, such as graphite:2004";

fn open(config: &OutputConfig) -> Result<Box<dyn Output>, WriteError> {
    let address = option(config, "address").to_owned();
    if address.is_empty() {
        return Err(WriteError::new(NEEDS_ADDRESS));
    }
    Ok(Box::new(Graphite {
        address,
        encoder: Encoder::of(config),
        unsent: None,
        connection: None,
        has_broken: false,
        writes: 0,
        short: 0,
    }))
}

/// A connection to Carbon.
struct Graphite {
    address: String,
    encoder: Encoder,
    /// The bytes of a portion that was not written: its samples are not counted twice.
    unsent: Option<(FollowMark, Vec<u8>)>,
    connection: Option<TcpStream>,
    has_broken: bool,
    /// Writes on this connection.
    writes: u32,
    /// Connections in a row that Carbon closed after their first write, as it does with another protocol.
    short: u32,
}

impl Output for Graphite {
    fn write(&mut self, portion: &Portion) -> Result<(), WriteError> {
        let bytes = match self.unsent.take() {
            Some((mark, bytes)) if mark == portion.mark => bytes,
            _ => self.encoder.encode(&portion.samples),
        };
        let written = self.send(&bytes);
        if written.is_err() {
            self.unsent = Some((portion.mark, bytes));
        }
        written
    }

    fn lead(&self) -> Duration {
        if self.encoder.fructosa.is_some() { LEAD } else { Duration::ZERO }
    }

    fn observe(&mut self, samples: &TimeSlice) {
        if let Some(fructosa) = &mut self.encoder.fructosa {
            fructosa.take(samples, &mut |_, _, _| {});
        }
    }

    fn has_broken(&mut self) -> bool {
        self.close_if_broken();
        std::mem::take(&mut self.has_broken)
    }

    fn left_out(&mut self) -> u64 {
        let of_fructosa = self.encoder.fructosa.as_mut().map_or(0, Fructosa::left_out);
        std::mem::take(&mut self.encoder.left_out) + of_fructosa
    }
}

impl Graphite {
    fn send(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.close_if_broken();
        if bytes.is_empty() {
            return Ok(());
        }
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                self.writes = 0;
                connect(&self.address)?
            }
        };
        match connection.write_all(bytes) {
            Ok(()) if self.short >= SHORT_MAX && is_closed_soon(&mut connection) => {
                self.has_broken = true;
                return Err(WriteError::new(format!(
                    "Carbon at {} closes each connection after its first data; is `protocol` that of this port?",
                    self.address
                )));
            }
            Ok(()) => {
                if self.short >= SHORT_MAX {
                    self.short = 0;
                }
                self.writes = self.writes.saturating_add(1);
                self.connection = Some(connection);
            }
            Err(error) => {
                self.has_broken = true;
                let why = match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        format!("it reads nothing for {} s; see its log", WRITE_TIME.as_secs())
                    }
                    _ => format!("{error}; it was stopped, or does not accept this protocol"),
                };
                return Err(WriteError::new(format!("Carbon at {}: {why}", self.address)));
            }
        }
        Ok(())
    }

    /// Notices that Carbon closed the connection. A write would succeed once more, and its bytes be lost.
    fn close_if_broken(&mut self) {
        if self.connection.as_mut().is_some_and(|connection| !is_open(connection)) {
            (self.connection, self.has_broken) = (None, true);
            self.short = if self.writes <= 1 { self.short.saturating_add(1) } else { 0 };
        }
    }
}

/// Whether the other side closes a connection within a moment.
fn is_closed_soon(connection: &mut TcpStream) -> bool {
    let read = connection
        .set_read_timeout(Some(CLOSE_TIME))
        .and_then(|()| connection.read(&mut [0; 4096]));
    match read {
        Ok(bytes) => bytes == 0,
        Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
    }
}

/// Whether the other side has not closed a connection. Carbon sends nothing; what another program sends is dropped.
fn is_open(connection: &mut TcpStream) -> bool {
    let read = connection.set_nonblocking(true).and_then(|()| connection.read(&mut [0; 4096]));
    let is_open = match read {
        Ok(bytes) => bytes > 0,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    };
    is_open && connection.set_nonblocking(false).is_ok()
}

fn connect(address: &str) -> Result<TcpStream, WriteError> {
    let failed = |error: io::Error| {
        WriteError::new(format!(
            "cannot connect to Carbon at {address}: {error}; start Carbon, or correct `address`"
        ))
    };
    let mut last = io::Error::other("the name has no address");
    for one in address.to_socket_addrs().map_err(failed)? {
        let connected = TcpStream::connect_timeout(&one, CONNECT_TIME).and_then(|connection| {
            connection.set_write_timeout(Some(WRITE_TIME))?;
            connection.set_nodelay(true)?;
            Ok(connection)
        });
        match connected {
            Ok(connection) => return Ok(connection),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// Makes the bytes of samples.
struct Encoder {
    is_pickle: bool,
    /// Empty, or ends with a dot.
    prefix: String,
    /// `None`: the tree has names of jobmeter.
    fructosa: Option<Fructosa>,
    /// Values that Carbon cannot take.
    left_out: u64,
}

impl Encoder {
    fn of(config: &OutputConfig) -> Self {
        let prefix = option(config, "prefix");
        Self {
            is_pickle: option(config, "protocol") != PLAINTEXT,
            prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}.") },
            fructosa: (option(config, "tree") == FRUCTOSA).then(Fructosa::new),
            left_out: 0,
        }
    }

    /// The bytes of samples. Values of FrUCToSA need the earlier samples, too.
    fn encode(&mut self, samples: &TimeSlice) -> Vec<u8> {
        let mut points = Points { is_pickle: self.is_pickle, bytes: Vec::new(), frame: 0 };
        let (mut left_out, prefix) = (0, &self.prefix);
        let mut add = |path: &str, at: i64, value: f64| {
            let second = at.div_euclid(Timestamp::SECOND);
            if value.is_finite() && second >= 0 && path.len() <= PATH_BYTES_MAX {
                points.add(path, second, value);
            } else {
                left_out += 1;
            }
        };
        if let Some(fructosa) = &mut self.fructosa {
            let mut path = String::new();
            fructosa.take(samples, &mut |parts, at, value| {
                path.clone_from(prefix);
                write_path(parts, &mut path);
                add(&path, at, value);
            });
        } else {
            let path = |series| format!("{prefix}{}", path_of(series));
            let paths: Vec<String> = samples.series.iter().map(|info| path(&info.series)).collect();
            for (place, row) in samples.places.iter().zip(rows(samples)) {
                if let Some(path) = paths.get(*place as usize) {
                    add(path, row.at, row.value);
                }
            }
        }
        self.left_out += left_out;
        points.finish()
    }
}

/// Points in one of the protocols.
struct Points {
    is_pickle: bool,
    bytes: Vec<u8>,
    /// Where the open frame begins.
    frame: usize,
}

impl Points {
    fn add(&mut self, path: &str, second: i64, value: f64) {
        if !self.is_pickle {
            // Writing to memory cannot fail. The shortest text of the same number; Python reads exponents.
            writeln!(self.bytes, "{path} {value:?} {second}").ok();
            return;
        }
        if self.frame == self.bytes.len() {
            // Length of the frame, PROTO 2, EMPTY_LIST, MARK.
            self.bytes.extend_from_slice(b"\0\0\0\0\x80\x02](");
        }
        // BINUNICODE, with the length; paths are short.
        self.bytes.push(b'X');
        let length = u32::try_from(path.len()).unwrap_or(0);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(path.as_bytes());
        // BININT, or LONG1 after 2038.
        match i32::try_from(second) {
            Ok(second) => {
                self.bytes.push(b'J');
                self.bytes.extend_from_slice(&second.to_le_bytes());
            }
            Err(_) => {
                self.bytes.extend_from_slice(b"\x8a\x08");
                self.bytes.extend_from_slice(&second.to_le_bytes());
            }
        }
        // BINFLOAT, TUPLE2 (second, value), TUPLE2 (path, …).
        self.bytes.push(b'G');
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self.bytes.extend_from_slice(b"\x86\x86");
        if self.bytes.len() - self.frame >= FRAME_BYTES {
            self.end_frame();
        }
    }

    fn end_frame(&mut self) {
        // APPENDS, STOP.
        self.bytes.extend_from_slice(b"e.");
        let length = u32::try_from(self.bytes.len() - self.frame - 4).unwrap_or(0);
        if let Some(place) = self.bytes.get_mut(self.frame..self.frame + 4) {
            place.copy_from_slice(&length.to_be_bytes());
        }
        self.frame = self.bytes.len();
    }

    fn finish(mut self) -> Vec<u8> {
        if self.is_pickle && self.frame < self.bytes.len() {
            self.end_frame();
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::portion::{Row, slice_of};
    use model::{DeviceId, Kind as Growth, Labels, Series, Unit};
    use std::sync::Arc;
    use storage::SeriesInfo;

    fn slice(values: &[(i64, f64)]) -> TimeSlice {
        let device = DeviceId::new("n1").unwrap();
        let (metric, labels) = ("load_1m".into(), Labels::default());
        let series = Series { device, metric, job: None, labels };
        let info = SeriesInfo { series, unit: Unit::Count, kind: Growth::Gauge, divisor: 1 };
        let info = Arc::new(info);
        let start = TimeSlice::NO_START;
        slice_of(values.iter().map(|(at, value)| Row {
            series: &info,
            at: *at,
            value: *value,
            start,
        }))
    }

    fn encoder(is_pickle: bool) -> Encoder {
        Encoder { is_pickle, prefix: "a.".to_owned(), fructosa: None, left_out: 0 }
    }

    const VALUES: [(i64, f64); 4] = [
        (1_767_225_601_900_000, 0.5),
        (1_767_225_602_000_000, f64::NAN),
        (1_767_225_603_000_000, 1e300),
        (4_102_444_800_000_000, -0.1),
    ];

    #[test]
    fn points_as_carbon_reads_them() {
        let mut text = encoder(false);
        assert_eq!(
            String::from_utf8(text.encode(&slice(&VALUES))).unwrap(),
            "a.n1.load_1m 0.5 1767225601\na.n1.load_1m 1e300 1767225603\na.n1.load_1m -0.1 4102444800\n"
        );
        assert_eq!(text.left_out, 1);
        // `tests/receivers/graphite/pickles.rs` reads such bytes with CPython.
        let path = b"X\x0c\0\0\0a.n1.load_1m";
        let expected: &[&[u8]] = &[
            b"\0\0\0\x6e\x80\x02](",
            path,
            b"J\x01\xb9\x55\x69G\x3f\xe0\0\0\0\0\0\0\x86\x86",
            path,
            b"J\x03\xb9\x55\x69G\x7e\x37\xe4\x3c\x88\x00\x75\x9c\x86\x86",
            path,
            b"\x8a\x08\x00\x57\x86\xf4\0\0\0\0G\xbf\xb9\x99\x99\x99\x99\x99\x9a\x86\x86",
            b"e.",
        ];
        assert_eq!(encoder(true).encode(&slice(&VALUES)), expected.concat());
        assert_eq!(encoder(true).encode(&slice(&[])), b"");
    }

    #[test]
    fn frames_are_short() {
        let values: Vec<_> = (0..10_000).map(|second| (second * Timestamp::SECOND, 1.0)).collect();
        let bytes = encoder(true).encode(&slice(&values));
        let (mut rest, mut frames) = (&bytes[..], 0);
        while let Some((length, after)) = rest.split_first_chunk() {
            let (frame, after) = after.split_at(u32::from_be_bytes(*length) as usize);
            assert!(frame.len() < FRAME_BYTES + 100 && frame.ends_with(b"\x86\x86e."));
            (rest, frames) = (after, frames + 1);
        }
        assert_eq!((rest, frames), (&b""[..], 6));
    }

    #[test]
    fn options_are_checked() {
        for right in ["", "graphite:2004", "127.0.0.1:1", "[::1]:2004"] {
            assert_eq!(is_address(right), Ok(()), "{right}");
        }
        for wrong in ["graphite", ":2004", "graphite:0", "graphite:70000", "graphite:pickle"] {
            assert!(is_address(wrong).is_err(), "{wrong}");
        }
        for (prefix, is) in
            [("", true), ("a.b-c", true), ("a..b", false), (".a", false), ("a b", false)]
        {
            assert_eq!(is_prefix(prefix).is_ok(), is, "{prefix}");
        }
    }
}
