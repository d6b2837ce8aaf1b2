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
        Self { target: Arc::clone(target), connection: None, units: Turns::new() }
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
            let must_be_short = self.units.begin(block.unit);
            let until = exchange.deadline(must_be_short);
            let Ok(read) = timeout_at(until, connection.registers(&block)).await else {
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
                    exchange.fail_all(&block.places, &failed(&error));
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
    let stream = stream.map_err(|error| Failure::broken(format!("cannot connect: {error}")))?;
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
            Failure::broken("the device closed the connection")
        }
        ReadError::Transport(error) => Failure::broken(format!("the connection fails: {error}")),
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
mod tests {
    use super::*;
    use crate::descriptions::{Directory, read_text};
    use model::Timestamp;
    use std::path::Path;
    use tokio::net::TcpListener;

    fn descriptions(paths: &[&str]) -> Vec<Description> {
        let entry =
            |path: &&str| format!("- {{name: a, device_id: m, url: 'modbus://m/{path}'}}\n");
        let text: String = paths.iter().map(entry).collect();
        let mut directory = Directory::default();
        read_text(&Path::new("file").into(), &text, &mut directory);
        assert_eq!(directory.findings, []);
        directory.descriptions
    }

    #[test]
    fn neighbouring_registers_are_read_together() {
        let all = descriptions(&[
            "1/10/be_be_u16",
            "1/12/be_be_u32",
            "1/11/be_be_u16",
            "1/20/be_be_u16",
            "2/14/be_be_u16",
            "1/14/be_be_u16?table=input",
            "1/12/be_be_u16",
        ]);
        let due: Vec<&Description> = all.iter().collect();
        let found = blocks(&due);
        let found: Vec<_> =
            found.iter().map(|b| (b.unit, b.table, b.first, b.count, &*b.places)).collect();
        let (holding, input) = (RegisterTable::Holding, RegisterTable::Input);
        assert_eq!(
            found,
            [
                (1, holding, 10, 4, &[0, 2, 1, 6][..]),
                (1, holding, 20, 1, &[3]),
                (1, input, 14, 1, &[5]),
                (2, holding, 14, 1, &[4]),
            ]
        );
        let many: Vec<String> = (0..100).map(|n| format!("1/{}/be_be_f64", n * 4)).collect();
        let many: Vec<&str> = many.iter().map(|path| &**path).collect();
        let all = descriptions(&many);
        let found = blocks(&all.iter().collect::<Vec<_>>());
        assert!(found.iter().all(|block| block.count <= REGISTERS_MAX) && found.len() == 4);
    }

    #[test]
    fn orders_of_bytes_and_words() {
        let of = |format: &str, registers: &[u16]| {
            let all = descriptions(&[&format!("1/1/{format}")]);
            let due: Vec<&Description> = all.iter().collect();
            number(request(0, &due).unwrap().format, registers).unwrap()
        };
        assert_eq!(of("be_be_i16", &[0xfffe]), -2.0);
        assert_eq!(of("le_be_u16", &[0x0100]), 1.0);
        assert_eq!(of("be_be_u32", &[1, 2]), 65_538.0);
        assert_eq!(of("be_le_u32", &[2, 1]), 65_538.0);
        let [a, b, c, d] = 42.5_f32.to_be_bytes();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        assert_eq!(of("be_be_f32", &[high, low]), 42.5);
        assert_eq!(of("le_le_f32", &[low.swap_bytes(), high.swap_bytes()]), 42.5);
        assert_eq!(of("be_be_i64", &[0xffff, 0xffff, 0xffff, 0xfff0]), -16.0);
        assert_eq!(of("be_le_f64", &[0, 0, 0, 0x4000]), 2.0);
    }

    /// The failures of an exchange with a device that returns these bytes after the number of the request.
    async fn failures(response: &'static [u8]) -> Vec<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let device = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 12];
                stream.read_exact(&mut request).await.unwrap();
                assert_eq!(request[2..], [0, 0, 0, 6, 9, 4, 0, 2, 0, 1]);
                stream.write_all(&[&request[..2], response].concat()).await.unwrap();
            }
        });
        let text = format!(
            "{{name: a, device_id: m, url: 'modbus://127.0.0.1:{port}/9/2/be_be_u16?table=input'}}"
        );
        let all = crate::descriptions::entries_of(&text);
        let (due, mut exchange) = (all.iter().collect::<Vec<_>>(), Exchange::new(Timestamp(0), 1));
        Modbus::new(&all[0].target).exchange(&due, &mut exchange).await;
        device.abort();
        let values = exchange.readings.iter().map(|one| one.value.to_string());
        values.chain(exchange.failures.iter().map(|(_, one)| one.to_string())).collect()
    }

    /// A gateway whose unit 2 closes the connection, and whose unit 3 sends its response twice.
    async fn gateway(listener: TcpListener) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 12];
            while stream.read_exact(&mut request).await.is_ok() && request[6] != 2 {
                let response = [&request[..2], &[0, 0, 0, 5, request[6], 3, 2, 0, request[6]]];
                let times = if request[6] == 3 { 2 } else { 1 };
                stream.write_all(&response.concat().repeat(times)).await.ok();
            }
        }
    }

    #[tokio::test]
    async fn a_unit_that_fails_costs_no_other_unit() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let device = tokio::spawn(gateway(listener));
        let entry = |unit: u8| {
            format!(
                "- {{name: u{unit}, device_id: m, url: 'modbus://127.0.0.1:{port}/{unit}/0/be_be_u16'}}\n"
            )
        };
        let all = crate::descriptions::entries_of(&(1..=4).map(entry).collect::<String>());
        let due: Vec<&Description> = all.iter().collect();
        let mut modbus = Modbus::new(&all[0].target);
        for order in [[1.0, 3.0, 4.0]; 3] {
            let mut exchange = Exchange::new(Timestamp(0), 4);
            modbus.exchange(&due, &mut exchange).await;
            let values: Vec<f64> = exchange.readings.iter().map(|one| one.value).collect();
            assert_eq!(values, order);
            let [(1, failure)] = &exchange.failures[..] else { panic!("{exchange:?}") };
            assert_eq!(failure.to_string(), "the device closed the connection");
        }
        device.abort();
    }

    #[tokio::test]
    async fn a_response_is_that_of_the_request() {
        assert_eq!(failures(&[0, 0, 0, 5, 9, 4, 2, 1, 2]).await, ["258"]);
        let exception = "the device reports the exception illegal data address";
        assert_eq!(failures(&[0, 0, 0, 3, 9, 0x84, 2]).await, [exception]);
        assert_eq!(failures(&[0, 0, 0, 3, 9, 0x84, 99]).await, ["the device reports exception 99"]);
        let few = "the response has 0 bytes for 1 requested registers";
        assert_eq!(failures(&[0, 0, 0, 3, 9, 4, 0]).await, [few]);
        let many = "the response has 4 bytes for 1 requested registers";
        assert_eq!(failures(&[0, 0, 0, 7, 9, 4, 4, 0, 1, 0, 2]).await, [many]);
        let foreign = "the response does not belong to the request";
        for other in [[0, 1, 0, 5, 9, 4, 2], [0, 0, 0, 5, 8, 4, 2], [0, 0, 0, 5, 9, 3, 2]] {
            let other: &'static [u8] = Box::leak(Box::new(other));
            assert_eq!(failures(other).await, [foreign]);
        }
        assert_eq!(failures(&[0, 0, 0, 6, 9, 4, 2, 1, 2]).await, [foreign], "another length");
        let cut = failures(&[0, 0, 0, 5, 9, 4, 2, 1]).await;
        assert_eq!(cut, ["the device closed the connection"]);
    }
}
