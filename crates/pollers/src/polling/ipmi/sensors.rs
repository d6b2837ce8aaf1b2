//! The sensors that a BMC has, and their readings.

use super::sdr_cache::SdrCache;
use super::session::Session;
use crate::descriptions::Target;
use crate::polling::reading::Failure;
use kernel::ipmi::{Analog, RepositoryWalk, Request as Command};
use tokio::sync::Semaphore;

/// The sensors' records, as of a state of the repository.
pub(super) struct Sensors {
    state: Vec<u8>,
    sensors: Vec<Analog>,
}

impl Sensors {
    /// Reads all records, from the disk if they are stored there.
    pub(super) async fn read(
        session: &mut Session,
        (cache, target, readings): (&SdrCache, &Target, &Semaphore),
    ) -> Result<Self, Failure> {
        let state = state(session).await?;
        if let Some(sensors) = cache.load(target, &state).await {
            return Ok(Self { state, sensors });
        }
        // A BMC has one reservation: another session of this poller must not take it away. The semaphore is never closed.
        let _turn = readings.acquire().await.ok();
        let mut walk = RepositoryWalk::default();
        while let Some(request) = walk.request() {
            let answer = session.command(&request).await?;
            walk.answer(&answer).map_err(|error| Failure::broken(error.to_string()))?;
        }
        cache.store(target, &state, &walk.sensor_records).await;
        Ok(Self { state, sensors: walk.repository.sensors })
    }

    /// Reads the records again if they changed.
    pub(super) async fn refresh(
        &mut self,
        session: &mut Session,
        of: (&SdrCache, &Target, &Semaphore),
    ) -> Result<(), Failure> {
        if state(session).await? != self.state {
            *self = Self::read(session, of).await?;
        }
        Ok(())
    }

    /// The value of a sensor, by the ID of its record or by its name; `None` if it has no reading now. The outer error ends the
    /// session.
    pub(super) async fn value(
        &self,
        session: &mut Session,
        wanted: &str,
    ) -> Result<Result<Option<f64>, Failure>, Failure> {
        let id = wanted.parse::<u16>().ok();
        let mut found = self.sensors.iter().filter(|sensor| Some(sensor.id) == id);
        let mut named = self.sensors.iter().filter(|sensor| *sensor.name == *wanted);
        let shown = wanted.escape_debug();
        let sensor = match (found.next(), named.next(), named.next()) {
            (Some(sensor), ..) | (None, Some(sensor), None) => sensor,
            (None, Some(_), Some(_)) => {
                let what = format!("several sensors have the name `{shown}`; use an ID");
                return Ok(Err(Failure::broken(what)));
            }
            (None, None, _) => {
                let what = format!("the BMC has no numeric sensor `{shown}`");
                return Ok(Err(Failure::broken(what)));
            }
        };
        let request = Command::new(0x04, sensor.unit, 0x2d, &[sensor.number]);
        let answer = session.command(&request).await?;
        Ok(Ok(sensor.value(&answer)))
    }
}

/// The state of the repository (section 33.9): the number of records, and the times of the latest addition and erasure.
async fn state(session: &mut Session) -> Result<Vec<u8>, Failure> {
    let answer = session.command(&Command::new(0x0a, 0, 0x20, &[])).await?;
    // Completion code, version, number of records, free bytes; then two times of four bytes.
    let parts = [answer.get(2..4), answer.get(6..14)];
    Ok(parts.map(Option::unwrap_or_default).concat())
}
