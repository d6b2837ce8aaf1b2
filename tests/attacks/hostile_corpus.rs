//! Inputs of an attacker: statements, frames and requests, each with a description. The whole-program tests
//! send them, and the bench `http --attacks` measures their effect on other clients.

/// Statements that exceed the memory or time limit of a statement, each in a way that the SQL engine does not
/// account.
pub(crate) fn statements() -> Vec<(&'static str, String)> {
    let lists =
        (0..12).fold("1".to_owned(), |inner, _| format!("[{}]", [inner.as_str(); 2].join(",")));
    let wide = (0..400).map(|i| format!("a.value + {i} AS a{i}")).collect::<Vec<_>>().join(",");
    let format = "YYYY-MM-DD ".repeat(4000);
    let endless = "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t)";
    let doubling = "WITH RECURSIVE t AS (SELECT [1] AS l UNION ALL SELECT [l, l] FROM t)";
    let numbers =
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < 3000)";
    vec![
        (
            "nested lists",
            format!("{numbers} SELECT {} FROM t a, t b", [lists.as_str(); 3].join(",")),
        ),
        ("gathered lists", format!("{numbers} SELECT array_agg({lists}) FROM t a, t b")),
        ("lists that double", format!("{doubling} SELECT count(*) FROM t")),
        (
            "a long format",
            format!(
                "{numbers} SELECT max(to_char(now() + n * interval '1 s', '{format}')) FROM t a, t b"
            ),
        ),
        ("a long format", format!("{numbers} SELECT to_char(now(), '{format}') FROM t a, t b")),
        ("wide rows", format!("{numbers} SELECT {} FROM t a, t b", wide.replace("a.value", "a.n"))),
        (
            "a sort",
            format!("{numbers} SELECT a.n, b.n FROM t a, t b, t c ORDER BY b.n + a.n * c.n"),
        ),
        (
            "a search",
            format!(
                "{numbers} SELECT count(*) FROM t a, t b WHERE regexp_like(repeat('a', 9000), '(a*)*b')"
            ),
        ),
        ("no end", format!("{endless} SELECT count(*) FROM t")),
        ("a cross join", format!("{numbers} SELECT sum(a.n * b.n + c.n) FROM t a, t b, t c")),
        (
            "texts",
            format!(
                "{numbers} SELECT string_agg(cast(a.n AS text) || '{}', '') FROM t a, t b",
                "x".repeat(1000)
            ),
        ),
    ]
}

/// Request bodies for `POST /v1/batches`.
pub(crate) fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let whole = frame(&zeros(b"", 1 << 20));
    // A batch of the origin n1: field 7, the indices of its samples, is longer than a batch may be.
    let head = b"\x0a\x02n1\x12\x10sixteen-bytes-id\x3a\x80\x80\x80\x07";
    let samples = frame(&zeros(head, 14 << 20));
    let damaged = whole.iter().rev().skip(1).rev().chain(b"x").copied().collect();
    vec![
        ("no frame", vec![b'x'; 64 << 10]),
        ("a frame that is cut short", whole.iter().take(40).copied().collect()),
        ("a frame with a wrong checksum", damaged),
        ("frames of zeros", whole.repeat(64)),
        ("frames of more samples than a batch may have", samples.repeat(16)),
        ("a frame larger than any", frame(&zeros(b"", 1 << 30))),
    ]
}

/// Builds a frame with a payload, as in `proto/batch.proto`.
fn frame(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
    [b"JMB1", &length[..], &crc32c(payload).to_le_bytes(), payload].concat()
}

/// Builds a zstd payload that expands to a prefix and `count` zeros (RFC 8878, blocks of one repeated byte).
fn zeros(begin: &[u8], count: usize) -> Vec<u8> {
    const BLOCK: usize = 128 << 10;
    let header = |kind: usize, size: usize, last: bool| {
        let bits = u32::try_from(size << 3 | kind << 1 | usize::from(last)).unwrap_or(0);
        bits.to_le_bytes().into_iter().take(3)
    };
    let size = u32::try_from(begin.len() + count).unwrap_or(u32::MAX);
    let mut payload = [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0][..], &size.to_le_bytes()].concat();
    payload.extend(header(0, begin.len(), false).chain(begin.iter().copied()));
    for block in 1..=count / BLOCK {
        payload.extend(header(1, BLOCK, block == count / BLOCK).chain([0]));
    }
    payload
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _: u32| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Bytes of requests, each for a separate connection.
pub(crate) fn requests() -> Vec<(&'static str, Vec<u8>)> {
    let post = |path: &str, headers: &str, body: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}\r\n{body}"
        )
        .into_bytes()
    };
    let nested = "[".repeat(100_000);
    let of_nested = format!("Content-Length: {}\r\n", nested.len());
    let ready = "GET /api/v1/ready HTTP/1.1\r\nHost: localhost\r\n";
    vec![
        ("no HTTP", (0..=255).cycle().take(64 << 10).collect()),
        ("a TLS greeting", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
        ("half a request", ready.into()),
        ("a long path", format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(100_000)).into_bytes()),
        ("many headers", format!("{ready}{}\r\n", "A: b\r\n".repeat(20_000)).into_bytes()),
        ("a thousand requests at once", format!("{ready}\r\n").repeat(1000).into_bytes()),
        ("a body that does not come", post("/api/v1/sql", "Content-Length: 60000\r\n", "")),
        ("a body without end", post("/api/v1/sql", "Content-Length: 99999999999\r\n", "x")),
        ("chunks of no size", post("/api/v1/sql", "Transfer-Encoding: chunked\r\n", "zz\r\n\r\n")),
        ("two lengths", post("/api/v1/sql", "Content-Length: 1\r\nContent-Length: 2\r\n", "{}")),
        ("nested JSON", post("/api/v1/jobs", &of_nested, &nested)),
    ]
}
