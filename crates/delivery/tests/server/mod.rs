//! A scripted HTTP server for tests.

#![allow(dead_code, reason = "each of the test programs uses its part")]
#![allow(clippy::unwrap_used, reason = "a server that cannot serve fails the test")]

use model::setting::AgentStatus;
use model::{Batch, Boot, SeriesEntry, Timestamp};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::{Ack, AckStatus, Answer, Decoder, Frames};

/// A request that the server received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Post {
    pub(crate) connection: usize,
    pub(crate) head: Vec<String>,
    /// The status that the request reports.
    pub(crate) status: AgentStatus,
    pub(crate) frames: Vec<(Boot, u64)>,
    pub(crate) batches: Vec<Arc<Batch>>,
    /// Metric and timestamp of each sample.
    pub(crate) samples: Vec<(String, i64)>,
    /// The source of each gap.
    pub(crate) gaps: Vec<String>,
}

/// Reply of the server to a request.
pub(crate) enum Reply {
    /// The same acknowledgement for each frame.
    All(AckStatus),
    /// A given answer.
    Answer(Answer),
    /// An HTTP status with a body.
    Status(u16, &'static str),
    /// No reply, until the client gives up.
    Silence,
    /// Closes the connection.
    Close,
}

pub(crate) struct Server {
    pub(crate) url: String,
    posts: Arc<Mutex<Vec<Post>>>,
    /// The reply to pollers' requests of promotions, in JSON. Without one, the connection is closed.
    pub(crate) demand: Arc<Mutex<Option<String>>>,
}

/// The path of pollers' requests of promotions. They are no posts.
const DEMAND: &str = "/v1/poller/promotions";

pub(crate) type Script = Box<dyn FnMut(usize, &Post) -> Reply + Send>;

impl Server {
    /// Starts a server. `script` determines the reply to the n-th request.
    pub(crate) fn start(script: Script) -> Self {
        Self::over("http", script, |stream| stream)
    }

    /// Starts a server with TLS, or with another transport that `wrap` makes of a connection.
    pub(crate) fn over<S: Read + Write>(
        scheme: &str,
        script: Script,
        wrap: impl Fn(TcpStream) -> S + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let wrap = Arc::new(wrap);
        let posts = Arc::new(Mutex::new(Vec::new()));
        let (seen, script) = (Arc::clone(&posts), Arc::new(Mutex::new(script)));
        let demand: Arc<Mutex<Option<String>>> = Arc::default();
        let of_pollers = Arc::clone(&demand);
        std::thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
                let (wrap, of_pollers) = (Arc::clone(&wrap), Arc::clone(&of_pollers));
                std::thread::spawn(move || {
                    let mut stream = wrap(stream.unwrap());
                    while serve(&mut stream, connection, (&seen, &of_pollers), &script).is_some() {}
                });
            }
        });
        Self { url, posts, demand }
    }

    pub(crate) fn posts(&self) -> Vec<Post> {
        self.posts.lock().unwrap().clone()
    }

    /// Timestamps of all samples of a metric in microseconds, in the order received.
    pub(crate) fn times(&self, metric: &str) -> Vec<i64> {
        let posts = self.posts();
        let samples = posts.iter().flat_map(|post| &post.samples);
        samples.filter(|(name, _)| name == metric).map(|(_, at)| *at).collect()
    }

    /// The sources of all gaps.
    pub(crate) fn gaps(&self) -> Vec<String> {
        self.posts().iter().flat_map(|post| post.gaps.clone()).collect()
    }

    /// Sequence numbers of all frames, in the order received.
    pub(crate) fn seqs(&self) -> Vec<u64> {
        self.posts().iter().flat_map(|post| post.frames.iter().map(|(_, seq)| *seq)).collect()
    }
}

/// Serves one request. Returns `None` once the connection has ended.
fn serve(
    stream: &mut (impl Read + Write),
    connection: usize,
    (seen, demand): (&Mutex<Vec<Post>>, &Mutex<Option<String>>),
    script: &Mutex<Script>,
) -> Option<()> {
    let mut reader = BufReader::new(&mut *stream);
    let mut post = Post { connection, ..Post::default() };
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(": ")
            && name.eq_ignore_ascii_case(wire::STATUS_HEADER)
        {
            post.status = wire::decode_status(value.as_bytes()).unwrap();
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        post.head.push(line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let write = |stream: &mut dyn Write, head: &str, body: &[u8]| {
        let length = body.len();
        let text = format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\n\r\n");
        let written = stream.write_all(text.as_bytes()).and_then(|()| stream.write_all(body));
        written.and_then(|()| stream.flush()).ok()
    };
    if post.head.first().is_some_and(|line| line.contains(DEMAND)) {
        let reply = demand.lock().unwrap().clone()?;
        return write(stream, "200 OK", reply.as_bytes());
    }
    let mut decoder = Decoder::default();
    for frame in Frames::of(&body) {
        let batch = decoder.decode(&frame.unwrap()).unwrap().into_batch().unwrap();
        post.frames.push((batch.boot, batch.seq));
        let named =
            |(entry, at, _): (&SeriesEntry, Timestamp, f64)| (entry.metric.name.to_string(), at.0);
        post.samples.extend(batch.samples().map(named));
        post.gaps.extend(batch.gaps.iter().map(|gap| gap.source.to_string()));
        post.batches.push(Arc::new(batch));
    }
    let number = seen.lock().unwrap().len();
    seen.lock().unwrap().push(post.clone());
    let reply = (script.lock().unwrap())(number, &post);
    match reply {
        Reply::All(status) => write(stream, "200 OK", &answer(&post, status).encode()),
        Reply::Answer(answer) => write(stream, "200 OK", &answer.encode()),
        Reply::Status(status, words) => write(stream, &format!("{status} X"), words.as_bytes()),
        Reply::Silence => {
            std::thread::sleep(Duration::from_secs(3));
            None
        }
        Reply::Close => None,
    }
}

pub(crate) fn answer(post: &Post, status: AckStatus) -> Answer {
    let ack = |(boot, seq): &(Boot, u64)| Ack {
        boot: *boot,
        seq: *seq,
        status,
        reason: "because".to_owned(),
        samples_rejected: 0,
        samples_reason: String::new(),
    };
    Answer { acks: post.frames.iter().map(ack).collect(), ..Answer::default() }
}
