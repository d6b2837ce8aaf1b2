//! IPMI over LAN: sensors of BMCs (Intelligent Platform Management Interface 2.0, revision 1.1).
//!
//! - `crypto`: the algorithms of the cipher suites
//! - `packets`: messages of a session as bytes
//! - `session`: a session with a BMC, kept between polls
//! - `sdr_cache`: their records on disk
//! - `sensors`: the sensors that a BMC has, and their readings

mod crypto;
mod packets;
mod sdr_cache;
mod sensors;
mod session;

pub(crate) use sdr_cache::SdrCache;

use super::poller::{Exchange, Place, Poller, Running, Turns, still_silent, waits_for_turn};
use super::reading::Failure;
use crate::descriptions::{Description, Target};
use crate::protocols::{IpmiReading, IpmiRequest, Request};
use kernel::ipmi::{DcmiPower, DellPower, Request as Command};
use model::{Cause, Labels};
use sensors::Sensors;
use session::Session;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::time::error::Elapsed;
use tokio::time::timeout_at;

/// The commands that read the records of the sensors.
const RECORDS: &str = "records";

/// A BMC.
pub(super) struct Ipmi {
    target: Arc<Target>,
    /// The session, kept between polls.
    session: Option<Session>,
    sensors: Option<Sensors>,
    /// The commands by their readings: those that were not answered are sent after the others.
    commands: Turns<String>,
    cache: SdrCache,
    /// The readings of this BMC's records.
    readings: Arc<Semaphore>,
}

impl Ipmi {
    pub(super) fn new(target: &Arc<Target>, cache: &SdrCache, readings: Arc<Semaphore>) -> Self {
        let (target, cache) = (Arc::clone(target), cache.clone());
        let commands = Turns::default();
        Self { target, session: None, sensors: None, commands, cache, readings }
    }

    async fn read(&mut self, due: &[&Description], exchange: &mut Exchange) {
        let Some(first) = due.iter().find_map(|one| request(one)) else { return };
        // A session that an exchange left in the middle is not used again.
        let kept = match self.session.take() {
            Some(session) if session.is_stale() => {
                session.close().await;
                None
            }
            kept => kept,
        };
        // The BMC may have ended a kept one.
        let has_answered = kept.is_none();
        let mut session = match kept {
            Some(session) => session,
            None => match Session::open(&self.target, first).await {
                Ok(session) => session,
                Err(failure) => return exchange.fail_rest(&failure),
            },
        };
        match self.read_in((&mut session, has_answered), due, exchange).await {
            Ok(()) => self.session = Some(session),
            Err(failure) => {
                session.close().await;
                exchange.fail_rest(&failure);
            }
        }
    }

    /// Reads in a session. An error ends it.
    async fn read_in(
        &mut self,
        (session, mut has_answered): (&mut Session, bool),
        due: &[&Description],
        exchange: &mut Exchange,
    ) -> Result<(), Failure> {
        let readings = due.iter().enumerate();
        let mut readings: Vec<(usize, &IpmiReading)> =
            readings.filter_map(|(place, one)| Some((place, &request(one)?.reading))).collect();
        readings.sort_by_key(|(_, reading)| self.place(reading));
        let mut records = None;
        for (place, reading) in readings {
            if exchange.is_over_for(self.place(reading)) {
                exchange.fail(place, waits_for_turn());
                continue;
            }
            if matches!(reading, IpmiReading::Sensor(_)) {
                if records.is_none() {
                    let until = exchange.deadline(self.commands.begin(RECORDS.to_owned()));
                    let read = timeout_at(until, self.read_records(session)).await;
                    records = Some(self.end(RECORDS, read, &mut has_answered)?);
                }
                if let Some(Err(failure)) = &records {
                    exchange.fail(place, failure.clone());
                    continue;
                }
            }
            let command = command(reading);
            let until = exchange.deadline(self.commands.begin(command.clone()));
            exchange.send([place]);
            let read = timeout_at(until, self.value(session, reading)).await;
            let labels = due.get(place).map(|one| one.labels.clone()).unwrap_or_default();
            match self.end(&command, read, &mut has_answered)? {
                Ok(read) => settle(exchange, place, due, labels, read),
                Err(failure) => exchange.fail(place, failure),
            }
        }
        Ok(())
    }

    /// The place of a reading in the order.
    fn place(&self, reading: &IpmiReading) -> Place {
        let own = self.commands.place(&*command(reading));
        match reading {
            IpmiReading::Sensor(_) => own.max(self.commands.place(RECORDS)),
            IpmiReading::DcmiPower | IpmiReading::DellPower => own,
        }
    }

    /// Notes how a command ended. The inner error concerns this command only, the outer one the session: nothing was answered
    /// in it.
    fn end<T>(
        &mut self,
        command: &str,
        read: Result<Result<T, Failure>, Elapsed>,
        has_answered: &mut bool,
    ) -> Result<Result<T, Failure>, Failure> {
        match read.unwrap_or_else(|_| Err(still_silent())) {
            Ok(read) => {
                self.commands.answered(command);
                *has_answered = true;
                Ok(Ok(read))
            }
            Err(failure) => {
                self.commands.failed(command);
                let is_silence = *has_answered && failure.cause == Cause::SourceTimeout;
                if is_silence { Ok(Err(failure)) } else { Err(failure) }
            }
        }
    }

    async fn read_records(&mut self, session: &mut Session) -> Result<(), Failure> {
        let of = (&self.cache, &*self.target, &*self.readings);
        match &mut self.sensors {
            Some(sensors) => sensors.refresh(session, of).await,
            None => {
                self.sensors = Some(Sensors::read(session, of).await?);
                Ok(())
            }
        }
    }

    async fn value(
        &self,
        session: &mut Session,
        reading: &IpmiReading,
    ) -> Result<Result<Option<f64>, Failure>, Failure> {
        match (reading, &self.sensors) {
            (IpmiReading::Sensor(name), Some(sensors)) => sensors.value(session, name).await,
            (IpmiReading::Sensor(_), None) => Ok(Ok(None)),
            (IpmiReading::DcmiPower, _) => dcmi_power(session).await,
            (IpmiReading::DellPower, _) => dell_power(session).await,
        }
    }
}

/// The name of a reading's command.
fn command(reading: &IpmiReading) -> String {
    match reading {
        IpmiReading::Sensor(name) => format!("sensor {name}"),
        IpmiReading::DcmiPower => "DCMI power".to_owned(),
        IpmiReading::DellPower => "power of Dell".to_owned(),
    }
}

impl Poller for Ipmi {
    fn exchange<'a>(
        &'a mut self,
        due: &'a [&'a Description],
        exchange: &'a mut Exchange,
    ) -> Running<'a> {
        Box::pin(self.read(due, exchange))
    }

    fn close(&mut self) -> Running<'_> {
        Box::pin(async {
            if let Some(session) = self.session.take() {
                session.close().await;
            }
        })
    }
}

fn request(description: &Description) -> Option<&IpmiRequest> {
    match &description.request {
        Request::Ipmi(request) => Some(request),
        _ => None,
    }
}

fn settle(
    exchange: &mut Exchange,
    place: usize,
    due: &[&Description],
    labels: Labels,
    read: Result<Option<f64>, Failure>,
) {
    match read {
        Ok(Some(value)) => exchange.value(place, due, labels, value),
        // A sensor without a reading, such as that of an absent fan.
        Ok(None) => exchange.fail(place, Failure::broken("the sensor has no reading (N/A)")),
        Err(failure) => exchange.fail(place, failure),
    }
}

/// The node's power by DCMI 1.5, section 6.6.1.
async fn dcmi_power(session: &mut Session) -> Result<Result<Option<f64>, Failure>, Failure> {
    let answer = session.command(&Command::new(0x2c, 0, 0x02, &[0xdc, 1, 0, 0])).await?;
    let power = DcmiPower::parse(&answer);
    let none = || no_power(&answer, "DCMI power");
    Ok(power.map(|power| Some(f64::from(power.now_watts))).ok_or_else(none))
}

/// The node's power by Dell's own command.
async fn dell_power(session: &mut Session) -> Result<Result<Option<f64>, Failure>, Failure> {
    let answer = session.command(&Command::new(0x30, 0, 0xb3, &[0x0a, 0])).await?;
    let power = DellPower::parse(&answer);
    let none = || no_power(&answer, "power of Dell");
    Ok(power.map(|power| Some(f64::from(power.watts))).ok_or_else(none))
}

/// Why an answer has no power, by its completion code (IPMI 2.0, table 5-2).
fn no_power(answer: &[u8], what: &str) -> Failure {
    match answer.first() {
        Some(0xd4) => Failure::denied(format!("the user's privilege does not permit the {what}")),
        _ => Failure::broken(format!("the BMC has no {what}: code {}", code(answer))),
    }
}

/// The completion code of an answer.
fn code(answer: &[u8]) -> String {
    answer.first().map_or_else(|| "none".to_owned(), |code| format!("{code:02x}"))
}

/// Reads bytes as each packet and message of a BMC.
pub fn parse_any(bytes: &[u8]) {
    session::parse_any(bytes);
    packets::parse_any(bytes);
}

#[cfg(test)]
mod tests;
