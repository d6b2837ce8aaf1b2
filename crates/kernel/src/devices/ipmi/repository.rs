//! The BMC's repository of sensors' records (Intelligent Platform Management Interface 2.0, §33), read from
//! the first to the last.

use super::records::{good, u16_at};
use super::{Analog, Bmc, IpmiError, Request, SensorRecord};

/// Most sensors that are stored.
pub const SENSORS_MAX: usize = 512;
/// Most records that are read: it ends a repository with a cycle, too.
const RECORDS_MAX: usize = 2048;
/// Bytes of a record per request; few BMCs return many more.
const PART_BYTES: u8 = 16;
/// Bytes of a record's header.
const HEADER_BYTES: u8 = 5;
/// Restarts of reading after the repository changed meanwhile.
const TRIES_MAX: u32 = 8;

/// Completion codes: the reservation has lapsed; the requested number of bytes is not available.
const RESERVATION_LAPSED: u8 = 0xc5;
const TOO_MANY_BYTES: u8 = 0xca;

/// The content of a repository.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Repository {
    /// The numeric sensors.
    pub sensors: Vec<Analog>,
    /// Number of further numeric sensors: not readable here, or beyond [`SENSORS_MAX`].
    pub left_out: usize,
}

impl Repository {
    /// The sensors of records, one after the other; `None` if one of them is damaged or not a numeric sensor's.
    pub fn sensors_of(mut records: &[u8]) -> Option<Vec<Analog>> {
        let mut sensors = Vec::new();
        while !records.is_empty() {
            let length = usize::from(HEADER_BYTES) + usize::from(*records.get(4)?);
            let (record, rest) = records.split_at_checked(length)?;
            match SensorRecord::parse(record)? {
                SensorRecord::Analog(sensor) if sensors.len() < SENSORS_MAX => sensors.push(sensor),
                _ => return None,
            }
            records = rest;
        }
        Some(sensors)
    }
}

/// Reads the whole repository: some hundred requests of some milliseconds each.
///
/// # Errors
/// The BMC does not answer, or rejects reading its records.
pub fn read_repository(bmc: &mut Bmc) -> Result<Repository, IpmiError> {
    let mut walk = RepositoryWalk::default();
    while let Some(request) = walk.request() {
        walk.answer(bmc.send_request(&request)?)?;
    }
    Ok(walk.repository)
}

/// The way through a repository, without a connection: the caller sends each request and passes its answer.
#[derive(Debug, Default)]
pub struct RepositoryWalk {
    reservation: Option<u16>,
    /// ID of the record that is read.
    id: u16,
    record: Vec<u8>,
    /// Bytes of the next part, halved for a BMC with short answers.
    at_once: u8,
    records: usize,
    restarts: u32,
    is_done: bool,
    /// The records so far; all of them after the last request.
    pub repository: Repository,
    /// The records of its sensors, one after the other.
    pub sensor_records: Vec<u8>,
}

impl RepositoryWalk {
    /// The next request; `None` after the last record.
    pub fn request(&self) -> Option<Request> {
        let Some(reservation) = self.reservation else {
            return Some(Request::new(0x0a, 0, 0x22, &[]));
        };
        let [reservation_low, reservation_high] = reservation.to_le_bytes();
        let [id_low, id_high] = self.id.to_le_bytes();
        let from = u8::try_from(self.record.len()).unwrap_or(u8::MAX);
        let data = [reservation_low, reservation_high, id_low, id_high, from, self.count()];
        (!self.is_done).then(|| Request::new(0x0a, 0, 0x23, &data))
    }

    /// Takes the answer to the request, from its completion code on.
    ///
    /// # Errors
    /// The BMC rejects reading its records, or they keep changing.
    pub fn answer(&mut self, answer: &[u8]) -> Result<(), IpmiError> {
        let code = answer.first().copied().unwrap_or_default();
        let data = good(answer);
        if self.reservation.is_none() {
            self.reservation = data.and_then(|data| u16_at(data, 0));
            self.begin_record(0);
            let why = || format!("the BMC denies reading its records: code {code:02x}");
            return self.reservation.map(|_| ()).ok_or_else(|| IpmiError::Failed(why()));
        }
        let Some(data) = data else { return self.rejected(code) };
        let (Some(next), Some(bytes)) = (u16_at(data, 0), data.get(2..)) else {
            return self.rejected(0);
        };
        let bytes = bytes.get(..usize::from(self.count())).unwrap_or(bytes);
        // An empty part would be requested for ever, as a part beyond the last that a request can name.
        if bytes.is_empty() || self.record.len() > usize::from(u8::MAX) {
            return self.rejected(0);
        }
        self.record.extend_from_slice(bytes);
        if self.record.len() >= self.length() {
            self.end_record(next);
        }
        Ok(())
    }

    /// Bytes of the next part.
    fn count(&self) -> u8 {
        let left = u8::try_from(self.length() - self.record.len()).unwrap_or(u8::MAX);
        if self.record.is_empty() { HEADER_BYTES } else { left.min(self.at_once) }
    }

    /// Bytes of the record, as far as its header is known.
    fn length(&self) -> usize {
        usize::from(HEADER_BYTES) + self.record.get(4).map_or(0, |length| usize::from(*length))
    }

    fn rejected(&mut self, code: u8) -> Result<(), IpmiError> {
        match code {
            RESERVATION_LAPSED if self.restarts + 1 < TRIES_MAX => {
                *self = Self { restarts: self.restarts + 1, ..Self::default() };
                Ok(())
            }
            RESERVATION_LAPSED => {
                Err(IpmiError::Failed("the BMC's records keep changing".to_owned()))
            }
            TOO_MANY_BYTES if self.at_once > 1 && !self.record.is_empty() => {
                self.at_once /= 2;
                Ok(())
            }
            _ => {
                let id = self.id;
                let why = format!("record {id:04x} of the BMC cannot be read: code {code:02x}");
                Err(IpmiError::Failed(why))
            }
        }
    }

    fn begin_record(&mut self, id: u16) {
        (self.id, self.at_once) = (id, PART_BYTES);
        self.record.clear();
    }

    fn end_record(&mut self, next: u16) {
        let repository = &mut self.repository;
        match SensorRecord::parse(&self.record) {
            Some(SensorRecord::Analog(sensor)) if repository.sensors.len() < SENSORS_MAX => {
                repository.sensors.push(sensor);
                self.sensor_records.extend_from_slice(&self.record);
            }
            Some(SensorRecord::Analog(_) | SensorRecord::Other) | None => repository.left_out += 1,
            Some(SensorRecord::NoNumber) => {}
        }
        self.records += 1;
        // FFFFh follows the last record.
        self.is_done = next == u16::MAX || next == self.id || self.records >= RECORDS_MAX;
        self.begin_record(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Root;
    use crate::devices::ipmi::{Measures, REPLY};

    fn opened(lines: &str) -> (tempfile::TempDir, Bmc) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".jobmeter")).unwrap();
        std::fs::write(dir.path().join(REPLY), lines).unwrap();
        let bmc = Bmc::open(&Root::recorded(dir.path()).unwrap()).unwrap();
        (dir, bmc)
    }

    /// A sensor's record in parts of 16 bytes, after one that is no sensor's.
    const TWO: &str = "28 22 -> 00 07 00
        28 23 07 00 00 00 00 05 -> 00 04 00 01 00 51 11 03
        28 23 07 00 00 00 05 03 -> 00 04 00 01 02 03
        28 23 07 00 04 00 00 05 -> 00 ff ff 04 00 51 01 2f
        28 23 07 00 04 00 05 10 -> 00 ff ff 20 00 17 07 01 7f 68 01 01 00 00 00 00 00 00 80
        28 23 07 00 04 00 15 10 -> 00 ff ff 06 00 00 02 00 00 00 00 00 00 00 00 00 00 00 00
        28 23 07 00 04 00 25 0f -> 00 ff ff 00 00 00 00 00 00 00 00 00 00 c4 50 6f 77 65
    ";

    #[test]
    fn all_records_are_read() {
        let (_dir, mut bmc) = opened(TWO);
        let repository = read_repository(&mut bmc).unwrap();
        let [sensor] = &repository.sensors[..] else { panic!("{repository:?}") };
        assert_eq!(
            (&*sensor.name, sensor.number, sensor.measures),
            ("Powe", 0x17, Measures::Watts)
        );
        assert_eq!(repository.left_out, 0);
    }

    #[test]
    fn the_bytes_of_the_records_are_the_sensors() {
        let (_dir, mut bmc) = opened(TWO);
        let mut walk = RepositoryWalk::default();
        while let Some(request) = walk.request() {
            walk.answer(bmc.send_request(&request).unwrap()).unwrap();
        }
        let twice = [&walk.sensor_records[..], &walk.sensor_records].concat();
        let sensors = Repository::sensors_of(&twice).unwrap();
        assert_eq!(sensors, [&walk.repository.sensors[..], &walk.repository.sensors].concat());
        assert_eq!(Repository::sensors_of(&[]), Some(Vec::new()));
        assert_eq!(Repository::sensors_of(&twice[..twice.len() - 1]), None, "truncated");
        assert_eq!(Repository::sensors_of(&[4, 0, 0x51, 2, 0]), None, "not a numeric sensor");
    }

    #[test]
    fn a_cycle_a_rejection_and_an_endless_change_end() {
        let (_dir, mut bmc) = opened(&TWO.replace("00 ff ff", "00 00 00"));
        assert_eq!(read_repository(&mut bmc).unwrap().sensors.len(), SENSORS_MAX);
        let why = |lines: &str| {
            let (_dir, mut bmc) = opened(lines);
            read_repository(&mut bmc).unwrap_err().to_string()
        };
        assert!(why("").contains("denies reading its records: code c1"));
        let lapsed = "28 22 -> 00 07 00\n28 23 07 00 00 00 00 05 -> c5\n";
        assert!(why(lapsed).contains("keep changing"));
        assert!(why(&lapsed.replace("c5", "cb")).contains("record 0000 of the BMC cannot be read"));
        assert!(why(&lapsed.replace("c5", "00 04 00")).contains("code 00"));
    }

    #[test]
    fn requests_shrink_for_a_bmc_with_short_answers() {
        let lines = TWO.replace(
            "28 23 07 00 00 00 05 03 -> 00 04 00 01 02 03",
            "28 23 07 00 00 00 05 03 -> ca\n28 23 07 00 00 00 05 08 -> 00 04 00 01",
        );
        // Three bytes are fewer than eight: it rejects those, too, until one is requested.
        let lines = format!(
            "{lines}\n28 23 07 00 00 00 05 02 -> ca\n28 23 07 00 00 00 05 01 -> 00 04 00 01\n\
             28 23 07 00 00 00 06 01 -> 00 04 00 02\n28 23 07 00 00 00 07 01 -> 00 04 00 03\n"
        );
        let (_dir, mut bmc) = opened(&lines);
        assert_eq!(read_repository(&mut bmc).unwrap().sensors.len(), 1);
    }
}
