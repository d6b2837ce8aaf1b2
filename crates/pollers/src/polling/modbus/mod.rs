//! Modbus TCP: numbers in registers (Modbus Application Protocol 1.1b3).

use super::poller::{Exchange, Poller, Running, Turns, still_silent, waits_for_turn};
use super::reading::Failure;
use crate::descriptions::{Description, Target};
use crate::protocols::{
    ByteOrder, ModbusFormat, ModbusRequest, NumberType, RegisterTable, Request,
};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout_at;

/// Registers of one request (section 6.3).
const REGISTERS_MAX: u16 = 125;
/// Function codes (sections 6.3 and 6.4), and the bit of an exception (section 7).
const READ_HOLDING_REGISTERS: u8 = 3;
const READ_INPUT_REGISTERS: u8 = 4;
const EXCEPTION: u8 = 0x80;
/// A gateway finds no path to the unit, or the unit does not answer it.
const GATEWAY_EXCEPTIONS: [u8; 2] = [10, 11];

/// A Modbus service. The connection is kept between exchanges.
pub(super) struct Modbus {
    target: Arc<Target>,
    connection: Option<Connection>,
    units: Turns<u8>,
}

struct Connection {
    stream: TcpStream,
    /// Number of the latest request.
    transaction: u16,
}

/// Why a request returns no registers.
enum ReadError {
    /// The device rejects the request, by this exception.
    Exception(u8),
    /// The connection fails.
    Transport(io::Error),
    /// The response does not belong to the request.
    Foreign,
    /// The response has not the registers that were requested.
    Registers { bytes: u8, requested: u16 },
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Transport(error)
    }
}

/// Neighbouring registers, and the descriptions that they serve.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    unit: u8,
    table: RegisterTable,
    first: u16,
    count: u16,
    places: Vec<usize>,
    /// Whether it is requested again after a response that belonged to no request.
    is_repeated: bool,
}

impl Modbus {
    pub(super) fn new(target: &Arc<Target>) -> Self {
        Self { target: Arc::clone(target), connection: None, units: Turns::default() }
    }

    /// Reads each block. Units that failed are read last: a gateway may wait for one of them until the exchange ends.
    async fn read(&mut self, due: &[&Description], exchange: &mut Exchange) {
        let mut blocks = blocks(due);
        blocks.sort_by_key(|block| self.units.place(&block.unit));
        blocks.reverse();
        // The device may have closed a connection since the exchange before.
        let mut is_kept = self.connection.is_some();
        while let Some(block) = blocks.pop() {
            if exchange.is_over_for(self.units.place(&block.unit)) {
                exchange.fail_all(&block.places, &waits_for_turn());
                continue;
            }
            // A connection that an exchange leaves in the middle is not used again.
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => match connect(&self.target).await {
                    Ok(connection) => connection,
                    Err(failure) => return exchange.fail_rest(&failure),
                },
            };
            exchange.send(block.places.iter().copied());
            let must_be_short = self.units.begin(block.unit);
            let until = exchange.deadline(must_be_short);
            let Ok(read) = timeout_at(until, connection.registers(&block)).await else {
                self.units.failed(&block.unit);
                exchange.fail_all(&block.places, &still_silent());
                continue;
            };
            match read {
                Err(ReadError::Transport(_)) if is_kept => {
                    is_kept = false;
                    blocks.push(block);
                    continue;
                }
                // Another unit may have sent more than its response.
                Err(ReadError::Foreign) if !block.is_repeated => {
                    blocks.push(Block { is_repeated: true, ..block });
                    continue;
                }
                // What else comes by this connection may belong to this request.
                Err(error) if !matches!(error, ReadError::Exception(_)) => {
                    self.units.failed(&block.unit);
                    exchange.fail_all(&block.places, &failed(&error));
                    continue;
                }
                // The gateway answers, not the unit, and may need the time of other units for it.
                Err(ReadError::Exception(code)) if GATEWAY_EXCEPTIONS.contains(&code) => {
                    self.units.failed(&block.unit);
                    exchange.fail_all(&block.places, &rejected(code));
                    (is_kept, self.connection) = (false, Some(connection));
                    continue;
                }
                Ok(registers) => add(&block, &registers, due, exchange),
                // One register that is not there must not cost the others.
                Err(_) if block.places.len() > 1 => blocks.extend(single(&block, due)),
                Err(error) => {
                    exchange.fail_all(&block.places, &failed(&error));
                }
            }
            is_kept = false;
            self.units.answered(&block.unit);
            self.connection = Some(connection);
        }
    }
}

async fn connect(target: &Target) -> Result<Connection, Failure> {
    let stream = TcpStream::connect((&*target.host, target.port)).await;
    let stream =
        stream.map_err(|error| Failure::unreachable(format!("cannot connect: {error}")))?;
    Ok(Connection { stream, transaction: 0 })
}

impl Connection {
    /// Reads the registers of a block. Between requests it has no buffer: a poller has thousands of connections.
    async fn registers(&mut self, block: &Block) -> Result<Vec<u16>, ReadError> {
        self.transaction = self.transaction.wrapping_add(1);
        let function = match block.table {
            RegisterTable::Holding => READ_HOLDING_REGISTERS,
            RegisterTable::Input => READ_INPUT_REGISTERS,
        };
        let [transaction, first, count] =
            [self.transaction, block.first, block.count].map(u16::to_be_bytes);
        let request = [&transaction[..], &[0, 0, 0, 6, block.unit, function], &first, &count];
        self.stream.write_all(&request.concat()).await?;
        // An exception has its code where a response has the number of its bytes.
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await?;
        let [t0, t1, p0, p1, l0, l1, unit, returned, last] = head;
        let length = u16::from_be_bytes([l0, l1]);
        let is_own = ([t0, t1], [p0, p1], unit) == (transaction, [0, 0], block.unit);
        if is_own && returned == function | EXCEPTION && length == 3 {
            return Err(ReadError::Exception(last));
        }
        if !is_own || returned != function || length != 3 + u16::from(last) {
            return Err(ReadError::Foreign);
        }
        if u16::from(last) != 2 * block.count {
            return Err(ReadError::Registers { bytes: last, requested: block.count });
        }
        let mut bytes = vec![0; usize::from(last)];
        self.stream.read_exact(&mut bytes).await?;
        let (pairs, _) = bytes.as_chunks();
        Ok(pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect())
    }
}

impl Poller for Modbus {
    fn exchange<'a>(
        &'a mut self,
        due: &'a [&'a Description],
        exchange: &'a mut Exchange,
    ) -> Running<'a> {
        Box::pin(self.read(due, exchange))
    }
}

fn request<'a>(place: usize, due: &[&'a Description]) -> Option<&'a ModbusRequest> {
    match &due.get(place)?.request {
        Request::Modbus(request) => Some(request),
        _ => None,
    }
}

/// Joins neighbouring registers into blocks.
fn blocks(due: &[&Description]) -> Vec<Block> {
    let block = |place| {
        let ModbusRequest { unit, register, format, table } = *request(place, due)?;
        let count = format.number.registers();
        Some(Block { unit, table, first: register, count, places: vec![place], is_repeated: false })
    };
    let mut single: Vec<Block> = (0..due.len()).filter_map(block).collect();
    single.sort_by_key(|block| (block.unit, block.table, block.first));
    let mut blocks: Vec<Block> = Vec::new();
    for block in single {
        let end = u32::from(block.first) + u32::from(block.count);
        let joined = blocks.last_mut().filter(|last| {
            let last_end = u32::from(last.first) + u32::from(last.count);
            (last.unit, last.table) == (block.unit, block.table)
                && u32::from(block.first) <= last_end
                && end - u32::from(last.first) <= u32::from(REGISTERS_MAX)
        });
        match joined {
            Some(last) => {
                let count = u16::try_from(end - u32::from(last.first)).unwrap_or(REGISTERS_MAX);
                last.count = last.count.max(count);
                last.places.extend(block.places);
            }
            None => blocks.push(block),
        }
    }
    blocks
}

/// A block for each of its descriptions.
fn single(block: &Block, due: &[&Description]) -> Vec<Block> {
    let one = |place: &usize| {
        let ModbusRequest { unit, register, format, table } = *request(*place, due)?;
        let count = format.number.registers();
        Some(Block {
            unit,
            table,
            first: register,
            count,
            places: vec![*place],
            is_repeated: false,
        })
    };
    block.places.iter().filter_map(one).collect()
}

fn add(block: &Block, registers: &[u16], due: &[&Description], exchange: &mut Exchange) {
    for place in &block.places {
        let Some(request) = request(*place, due) else { continue };
        let from = usize::from(request.register.saturating_sub(block.first));
        let to = from + usize::from(request.format.number.registers());
        match registers.get(from..to).and_then(|registers| number(request.format, registers)) {
            Some(value) => {
                let labels = due.get(*place).map(|one| one.labels.clone()).unwrap_or_default();
                exchange.value(*place, due, labels, value);
            }
            None => exchange.fail(*place, Failure::broken("the response has too few registers")),
        }
    }
}

/// The number in registers; `None` if there are too few.
fn number(format: ModbusFormat, registers: &[u16]) -> Option<f64> {
    let mut bytes = [0; 8];
    let used = bytes.get_mut(..registers.len() * 2)?;
    let words: Box<dyn Iterator<Item = &u16>> = match format.words {
        ByteOrder::Big => Box::new(registers.iter()),
        ByteOrder::Little => Box::new(registers.iter().rev()),
    };
    for (to, word) in used.chunks_exact_mut(2).zip(words) {
        let pair = match format.bytes {
            ByteOrder::Big => word.to_be_bytes(),
            ByteOrder::Little => word.to_le_bytes(),
        };
        to.copy_from_slice(&pair);
    }
    #[expect(clippy::as_conversions, reason = "a sample is a double")]
    Some(match (format.number, bytes) {
        (NumberType::I16, [a, b, ..]) => f64::from(i16::from_be_bytes([a, b])),
        (NumberType::U16, [a, b, ..]) => f64::from(u16::from_be_bytes([a, b])),
        (NumberType::I32, [a, b, c, d, ..]) => f64::from(i32::from_be_bytes([a, b, c, d])),
        (NumberType::U32, [a, b, c, d, ..]) => f64::from(u32::from_be_bytes([a, b, c, d])),
        (NumberType::F32, [a, b, c, d, ..]) => f64::from(f32::from_be_bytes([a, b, c, d])),
        (NumberType::I64, all) => i64::from_be_bytes(all) as f64,
        (NumberType::U64, all) => u64::from_be_bytes(all) as f64,
        (NumberType::F64, all) => f64::from_be_bytes(all),
    })
}

/// Reads bytes as registers, and these as a number of each type and order.
pub fn parse_any(bytes: &[u8]) {
    let registers: Vec<u16> = bytes
        .chunks_exact(2)
        .map(|pair| pair.iter().fold(0, |all, one| all << 8 | u16::from(*one)))
        .collect();
    let orders = [ByteOrder::Big, ByteOrder::Little];
    for number_type in NumberType::ALL {
        for (bytes, words) in orders.iter().flat_map(|one| orders.map(|other| (*one, other))) {
            let format = ModbusFormat { bytes, words, number: number_type };
            number(format, &registers);
            let count = usize::from(number_type.registers());
            assert!(
                registers.len() < count
                    || number(format, registers.get(..count).unwrap_or_default()).is_some()
            );
        }
    }
}

/// Section 7 of the protocol.
fn rejected(code: u8) -> Failure {
    let name = match code {
        1 => "illegal function",
        2 => "illegal data address",
        3 => "illegal data value",
        4 => "server device failure",
        5 => "acknowledge",
        6 => "server device busy",
        8 => "memory parity error",
        10 => "gateway path unavailable",
        11 => "gateway target device failed to respond",
        _ => return Failure::broken(format!("the device reports exception {code}")),
    };
    Failure::broken(format!("the device reports the exception {name}"))
}

fn failed(error: &ReadError) -> Failure {
    match error {
        ReadError::Exception(code) => rejected(*code),
        ReadError::Transport(error) if is_closed(error) => {
            Failure::unreachable("the device closed the connection")
        }
        ReadError::Transport(error) => {
            Failure::unreachable(format!("the connection fails: {error}"))
        }
        ReadError::Foreign => Failure::broken("the response does not belong to the request"),
        ReadError::Registers { bytes, requested } => Failure::broken(format!(
            "the response has {bytes} bytes for {requested} requested registers"
        )),
    }
}

/// Whether the device ended the connection.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::UnexpectedEof | Kind::ConnectionReset | Kind::BrokenPipe)
}

#[cfg(test)]
mod tests;
