//! Thousands of agents in one thread. Each has its own connection, sends a request like `jobmeter-agent` and
//! waits for the acks before the next.
//!
//! One thread with epoll, because the client shares the machine with the measured server: a thread per agent
//! would measure the scheduler.

use model::Timestamp;
use model::setting::AgentStatus;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, UNIX_EPOCH};
use wire::{AckStatus, Answer};

/// Interval of housekeeping.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// Without any answer for this time, the server hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// The event of the timer; those of connections are their indexes.
const TIMER: u64 = u64::MAX;

/// When an agent sends its frames.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// Each frame as soon as the previous one is acknowledged.
    Next,
    /// One frame per period, regardless of earlier ones; `spread`: whether agents differ in phase.
    Every { period: Duration, spread: bool },
}

impl Pace {
    /// Due time of a round's frame, if it does not depend on answers.
    fn due(self, agent: usize, round: usize) -> Option<Duration> {
        let Self::Every { period, spread } = self else { return None };
        let chance = (agent as u32 + 1).wrapping_mul(0x9e37_79b9);
        let phase = f64::from(chance) / f64::from(u32::MAX);
        let phase = if spread { period.mul_f64(phase) } else { Duration::ZERO };
        Some(period * round as u32 + phase)
    }
}

/// Frames of the agents.
pub(crate) trait Supply {
    /// Number of frames of an agent.
    fn rounds(&self, agent: usize) -> usize;
    /// The frame of a round; called once each, in the order of rounds.
    fn frame(&mut self, agent: usize, round: usize) -> Cow<'_, [u8]>;
}

/// Prepared frames, by agent and round.
impl Supply for &[&[Vec<u8>]] {
    fn rounds(&self, agent: usize) -> usize {
        self.get(agent).map_or(0, |frames| frames.len())
    }

    fn frame(&mut self, agent: usize, round: usize) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.get(agent).and_then(|frames| frames.get(round)).unwrap())
    }
}

/// Measurements of some requests.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) requests: usize,
    /// From the first request to the last answer.
    pub(crate) wall: Duration,
    /// From the due time of each request to the end of its answer, in milliseconds.
    pub(crate) latencies: Vec<f64>,
    /// Delay of each request after its due time with a free connection, in milliseconds: the client's own.
    pub(crate) late: Vec<f64>,
    /// Answers that requested a retry, which was done.
    pub(crate) rejected: usize,
}

/// An agent's connection.
struct Line {
    stream: TcpStream,
    request: Vec<u8>,
    sent: usize,
    answer: Vec<u8>,
    /// The round of the next or current frame.
    round: usize,
    due: Duration,
    /// Since when it is idle.
    free: Duration,
    /// Whether the current request is sent once more.
    again: bool,
}

/// A complete answer.
struct Answered {
    status: u16,
    retry_after: Option<Duration>,
    body: Vec<u8>,
}

/// The agents.
pub(crate) struct Client {
    address: SocketAddr,
    lines: Vec<Line>,
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr, agents: usize) -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap();
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN).unwrap();
        let lines = (0..agents).map(|place| {
            let stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_nonblocking(true).unwrap();
            let data = EventData::new_u64(place as u64);
            epoll::add(&epoll, &stream, data, EventFlags::IN).unwrap();
            let (request, answer) = (Vec::new(), Vec::new());
            let (due, free) = (Duration::ZERO, Duration::ZERO);
            Line { stream, request, sent: 0, answer, round: 0, due, free, again: false }
        });
        let lines = lines.collect();
        Self { address, lines, epoll, timer }
    }

    /// Sends each agent's frames, one after another, and waits for all answers. Calls `housekeeping` once a second.
    pub(crate) fn send(
        &mut self,
        frames: &mut dyn Supply,
        pace: Pace,
        housekeeping: &mut dyn FnMut(),
    ) -> Measured {
        let (began, mut found) = (Instant::now(), Measured::default());
        let mut due = BinaryHeap::new();
        for (place, line) in self.lines.iter_mut().enumerate() {
            (line.round, line.free) = (0, Duration::ZERO);
            line.due = pace.due(place, 0).unwrap_or_default();
            if frames.rounds(place) > 0 {
                due.push(Reverse((line.due, place)));
            }
        }
        let mut left: usize = (0..self.lines.len()).map(|place| frames.rounds(place)).sum();
        let (mut checked, mut last_answer) = (Duration::ZERO, Duration::ZERO);
        let mut events = Vec::with_capacity(1024);
        while left > 0 {
            while let Some(Reverse((at, place))) = due.peek().copied()
                && at <= began.elapsed()
            {
                due.pop();
                self.begin(place, frames, began.elapsed(), &mut found);
            }
            let now = began.elapsed();
            if now - checked >= HOUSEKEEPING {
                checked = now;
                housekeeping();
            }
            assert!(now - last_answer < PATIENCE, "the server gave no answer for {PATIENCE:?}");
            let next = due
                .peek()
                .map_or(HOUSEKEEPING, |Reverse((at, _))| at.saturating_sub(now).min(HOUSEKEEPING));
            self.wait(next, &mut events);
            for event in &events {
                let Some(answered) = self.go_on(event.data.u64()) else { continue };
                let (place, now) = (event.data.u64() as usize, began.elapsed());
                last_answer = now;
                let line = self.lines.get_mut(place).unwrap();
                if let Some(wait) = settle(&answered) {
                    found.rejected += 1;
                    due.push(Reverse((now + wait, place)));
                    (line.free, line.again) = (now + wait, true);
                    continue;
                }
                found.latencies.push((now - line.due).as_secs_f64() * 1e3);
                (line.round, line.free, left) = (line.round + 1, now, left - 1);
                if line.round < frames.rounds(place) {
                    line.due = pace.due(place, line.round).unwrap_or(now);
                    due.push(Reverse((line.due, place)));
                }
            }
        }
        found.wall = began.elapsed();
        found
    }

    fn begin(
        &mut self,
        place: usize,
        frames: &mut dyn Supply,
        now: Duration,
        found: &mut Measured,
    ) {
        let line = self.lines.get_mut(place).unwrap();
        found.requests += 1;
        found.late.push((now - line.due.max(line.free)).as_secs_f64() * 1e3);
        if !std::mem::take(&mut line.again) {
            line.fill(self.address, &frames.frame(place, line.round));
        }
        line.sent = 0;
        if !line.write() {
            self.interest(place, EventFlags::IN | EventFlags::OUT);
        }
    }

    fn interest(&self, place: usize, flags: EventFlags) {
        let line = self.lines.get(place).unwrap();
        epoll::modify(&self.epoll, &line.stream, EventData::new_u64(place as u64), flags).unwrap();
    }

    /// Waits for an event, at most this long. A timer, because epoll's own timeout has whole milliseconds.
    fn wait(&self, most: Duration, events: &mut Vec<epoll::Event>) {
        let most = most.max(Duration::from_nanos(1));
        let it_value = Timespec::try_from(most).unwrap();
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let set = Itimerspec { it_interval, it_value };
        // Setting it also clears an earlier expiry.
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &set).unwrap();
        events.clear();
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), None).unwrap();
    }

    /// Writes and reads as far as possible; returns a complete answer.
    fn go_on(&mut self, event: u64) -> Option<Answered> {
        let place = (event != TIMER).then_some(event as usize)?;
        let line = self.lines.get_mut(place)?;
        if line.sent < line.request.len() && line.write() {
            self.interest(place, EventFlags::IN);
        }
        self.lines.get_mut(place)?.read()
    }
}

impl Line {
    /// Prepares the request of a frame in memory.
    fn fill(&mut self, address: SocketAddr, frame: &[u8]) {
        self.request.clear();
        let now_us = UNIX_EPOCH.elapsed().unwrap().as_micros();
        let now = Timestamp(i64::try_from(now_us).unwrap());
        let status = AgentStatus { now, ..AgentStatus::default() };
        write!(
            self.request,
            "POST /v1/batches HTTP/1.1\r\ncontent-length: {}\r\naccept: */*\r\nhost: {address}\r\n\
             content-type: application/x-jobmeter-batches\r\nuser-agent: jobmeter-agent/{}\r\n\
             {}: {}\r\n\r\n",
            frame.len(),
            env!("CARGO_PKG_VERSION"),
            wire::STATUS_HEADER,
            wire::encode_status(&status),
        )
        .unwrap();
        self.request.extend_from_slice(frame);
    }

    /// Whether the request is sent completely.
    fn write(&mut self) -> bool {
        while let Some(rest) = self.request.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => panic!("the server's connection: {error}"),
            }
        }
        true
    }

    fn read(&mut self) -> Option<Answered> {
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece) {
            Ok(0) => panic!("the server closed a connection"),
            Ok(bytes) => self.answer.extend_from_slice(piece.get(..bytes)?),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) => panic!("the server's connection: {error}"),
        }
        let head = self.answer.windows(4).position(|end| end == b"\r\n\r\n")?;
        let text = std::str::from_utf8(self.answer.get(..head)?).unwrap();
        let header = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        };
        let length: usize = header("content-length").unwrap().parse().unwrap();
        let body = self.answer.get(head + 4..head + 4 + length)?.to_vec();
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        let seconds = header("retry-after").and_then(|seconds| seconds.parse().ok());
        let retry_after = seconds.map(Duration::from_secs);
        self.answer.clear();
        Some(Answered { status, retry_after, body })
    }
}

/// How long to wait before the frame is sent again, if it was not stored.
fn settle(answered: &Answered) -> Option<Duration> {
    let Answered { status, retry_after, body } = answered;
    if matches!(status, 429 | 503 | 507) {
        return Some(retry_after.unwrap_or(HOUSEKEEPING));
    }
    assert_eq!(*status, 200, "{}", String::from_utf8_lossy(body));
    let acks = Answer::decode(body).unwrap().acks;
    let [ack] = &*acks else { panic!("one frame, and {} acks", acks.len()) };
    assert_eq!((ack.status, ack.samples_rejected), (AckStatus::Stored, 0), "{ack:?}");
    None
}
