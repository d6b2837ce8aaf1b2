//! The BMC's repository of sensors' records (Intelligent Platform Management Interface 2.0, §33), read from
//! the first to the last.

use super::records::{RECORD_BYTES_MAX, good, u16_at};
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

/// The result of a request for a part of a record.
enum Part {
    /// The ID of the next record.
    Read(u16),
    /// The repository changed, or another reader has begun.
    Lapsed,
    /// The BMC rejects the request.
    Rejected(u8),
}

/// Reads the whole repository: some hundred requests of some milliseconds each.
///
/// # Errors
/// The BMC does not answer, or rejects reading its records.
pub fn read_repository(bmc: &mut Bmc) -> Result<Repository, IpmiError> {
    for _ in 0..TRIES_MAX {
        if let Some(repository) = read_once(bmc)? {
            return Ok(repository);
        }
    }
    Err(IpmiError::Failed("the BMC's records keep changing".to_owned()))
}

/// Reads it; `None` if it changed meanwhile.
fn read_once(bmc: &mut Bmc) -> Result<Option<Repository>, IpmiError> {
    let answer = bmc.send_request(&Request::new(0x0a, 0, 0x22, &[]))?;
    let Some(reservation) = good(answer).and_then(|data| u16_at(data, 0)) else {
        let code = answer.first().copied().unwrap_or_default();
        let why = format!("the BMC denies reading its records: code {code:02x}");
        return Err(IpmiError::Failed(why));
    };
    let mut repository = Repository::default();
    let (mut id, mut record) = (0, Vec::with_capacity(RECORD_BYTES_MAX));
    for _ in 0..RECORDS_MAX {
        record.clear();
        let next = match read_record(bmc, reservation, id, &mut record)? {
            Part::Read(next) => next,
            Part::Lapsed => return Ok(None),
            Part::Rejected(code) => {
                let why = format!("record {id:04x} of the BMC cannot be read: code {code:02x}");
                return Err(IpmiError::Failed(why));
            }
        };
        match SensorRecord::parse(&record) {
            Some(SensorRecord::Analog(sensor)) if repository.sensors.len() < SENSORS_MAX => {
                repository.sensors.push(sensor);
            }
            Some(SensorRecord::Analog(_) | SensorRecord::Other) | None => repository.left_out += 1,
            Some(SensorRecord::NoNumber) => {}
        }
        // FFFFh follows the last record.
        if next == u16::MAX || next == id {
            break;
        }
        id = next;
    }
    Ok(Some(repository))
}

/// Reads a record: its header, then the rest by the header's length, in parts.
fn read_record(
    bmc: &mut Bmc,
    reservation: u16,
    id: u16,
    record: &mut Vec<u8>,
) -> Result<Part, IpmiError> {
    let next = match read_part(bmc, reservation, id, record, HEADER_BYTES)? {
        Part::Read(next) => next,
        other => return Ok(other),
    };
    let length = usize::from(HEADER_BYTES) + record.get(4).map_or(0, |length| usize::from(*length));
    let mut at_once = PART_BYTES;
    while record.len() < length {
        let left = u8::try_from(length - record.len()).unwrap_or(u8::MAX);
        match read_part(bmc, reservation, id, record, left.min(at_once))? {
            Part::Read(_) => {}
            Part::Rejected(TOO_MANY_BYTES) if at_once > 1 => at_once /= 2,
            other => return Ok(other),
        }
    }
    Ok(Part::Read(next))
}

/// Reads a part of a record, from the end of `record`.
fn read_part(
    bmc: &mut Bmc,
    reservation: u16,
    id: u16,
    record: &mut Vec<u8>,
    count: u8,
) -> Result<Part, IpmiError> {
    let Ok(from) = u8::try_from(record.len()) else { return Ok(Part::Rejected(TOO_MANY_BYTES)) };
    let [reservation_low, reservation_high] = reservation.to_le_bytes();
    let [id_low, id_high] = id.to_le_bytes();
    let data = [reservation_low, reservation_high, id_low, id_high, from, count];
    let answer = bmc.send_request(&Request::new(0x0a, 0, 0x23, &data))?;
    let Some(data) = good(answer) else {
        return Ok(match answer.first() {
            Some(&RESERVATION_LAPSED) => Part::Lapsed,
            code => Part::Rejected(code.copied().unwrap_or_default()),
        });
    };
    let (Some(next), Some(bytes)) = (u16_at(data, 0), data.get(2..)) else {
        return Ok(Part::Rejected(0));
    };
    let bytes = bytes.get(..usize::from(count)).unwrap_or(bytes);
    // An empty part would be requested for ever.
    if bytes.is_empty() {
        return Ok(Part::Rejected(0));
    }
    record.extend_from_slice(bytes);
    Ok(Part::Read(next))
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
