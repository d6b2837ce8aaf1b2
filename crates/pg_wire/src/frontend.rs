//! Messages of clients.

/// Longest message before the authentication, in bytes; as in PostgreSQL.
pub const STARTUP_BYTES_MAX: usize = 10_000;
/// Most parameters of a statement.
pub const PARAMETERS_MAX: usize = 1024;
/// Longest name of a statement or portal, in bytes.
pub const NAME_BYTES_MAX: usize = 256;

const SSL: u32 = 80_877_103;
const GSS: u32 = 80_877_104;
const CANCEL: u32 = 80_877_102;
const VERSION: u16 = 3;

/// A message that violates the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

fn malformed<T>(what: &str) -> Result<T, Malformed> {
    Err(Malformed(what.to_owned()))
}

/// The first message of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Startup {
    /// A request for TLS.
    Ssl,
    /// A request for encryption by GSSAPI.
    Gss,
    /// A request to cancel the statement of a session.
    Cancel {
        /// ID of the session.
        session: u32,
        /// Its secret.
        secret: Vec<u8>,
    },
    /// The start of a session.
    Session {
        /// Minor version of the protocol.
        minor: u16,
        /// Names and values.
        parameters: Vec<(String, String)>,
    },
}

/// Part of a session that a client names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A prepared statement.
    Statement,
    /// A portal.
    Portal,
}

/// A message of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Statements without parameters.
    Query(String),
    /// A statement to prepare, with the types of its parameters; 0: unknown.
    Parse {
        /// Name of the statement.
        name: String,
        /// The statement.
        text: String,
        /// Types of its parameters.
        types: Vec<u32>,
    },
    /// Values for a prepared statement.
    Bind {
        /// Name of the new portal.
        portal: String,
        /// Name of the statement.
        statement: String,
        /// Values, each with whether it is binary.
        values: Vec<(bool, Option<Vec<u8>>)>,
        /// Whether result columns are binary: none, one for all, or one for each.
        results: Vec<bool>,
    },
    /// A request for the columns of a result.
    Describe(Target, String),
    /// Runs a portal up to a number of rows; 0: all.
    Execute(String, u32),
    /// Drops a statement or portal.
    Close(Target, String),
    /// A request to send all pending messages.
    Flush,
    /// The end of an extended query.
    Sync,
    /// A part of the rows of COPY.
    CopyData(Vec<u8>),
    /// The end of these rows.
    CopyDone,
    /// The client's failure to send the rows of COPY.
    CopyFail(String),
    /// A password.
    Password(String),
    /// The end of the session.
    Terminate,
}

/// Reads the first message of a connection, without its length.
///
/// # Errors
/// The message violates the protocol, or its version is not 3.
pub fn startup(body: &[u8]) -> Result<Startup, Malformed> {
    let mut take = Reader(body);
    let code = take.u32()?;
    match code {
        SSL | GSS if !take.0.is_empty() => malformed("a request for encryption is too long"),
        SSL => Ok(Startup::Ssl),
        GSS => Ok(Startup::Gss),
        CANCEL => {
            let session = take.u32()?;
            if !(4..=256).contains(&take.0.len()) {
                return malformed("a request to cancel has no key");
            }
            Ok(Startup::Cancel { session, secret: take.0.to_vec() })
        }
        _ if code >> 16 == u32::from(VERSION) => {
            let minor = u16::try_from(code & 0xffff).unwrap_or(u16::MAX);
            let mut parameters = Vec::new();
            loop {
                let name = take.text()?;
                if name.is_empty() {
                    break;
                }
                parameters.push((name, take.text()?));
            }
            take.end()?;
            Ok(Startup::Session { minor, parameters })
        }
        _ => malformed("this is not version 3 of PostgreSQL's protocol"),
    }
}

/// Whether a client may send a message of this kind.
pub const fn is_kind(kind: u8) -> bool {
    matches!(
        kind,
        b'Q' | b'P' | b'B' | b'D' | b'E' | b'C' | b'H' | b'S' | b'd' | b'c' | b'f' | b'p' | b'X'
    )
}

/// Reads a message of a session, without its kind and length.
///
/// # Errors
/// The message violates the protocol.
pub fn message(kind: u8, body: &[u8]) -> Result<Message, Malformed> {
    let mut take = Reader(body);
    let message = match kind {
        b'Q' => Message::Query(take.text()?),
        b'P' => {
            let (name, text) = (take.name()?, take.text()?);
            let types = take.list(Reader::u32)?;
            Message::Parse { name, text, types }
        }
        b'B' => bind(&mut take)?,
        b'D' | b'C' => {
            let target = match take.u8()? {
                b'S' => Target::Statement,
                b'P' => Target::Portal,
                _ => return malformed("the message names neither a statement nor a portal"),
            };
            let name = take.name()?;
            if kind == b'D' {
                Message::Describe(target, name)
            } else {
                Message::Close(target, name)
            }
        }
        b'E' => Message::Execute(take.name()?, take.u32()?),
        b'H' => Message::Flush,
        b'S' => Message::Sync,
        b'd' => Message::CopyData(std::mem::take(&mut take.0).to_vec()),
        b'c' => Message::CopyDone,
        b'f' => Message::CopyFail(take.text()?),
        b'p' => Message::Password(take.text()?),
        b'X' => Message::Terminate,
        _ => return malformed("the kind of the message is unknown"),
    };
    take.end()?;
    Ok(message)
}

fn bind(take: &mut Reader<'_>) -> Result<Message, Malformed> {
    let (portal, statement) = (take.name()?, take.name()?);
    let formats = take.list(Reader::format)?;
    let count = take.u16()?;
    if usize::from(count) > PARAMETERS_MAX {
        return malformed("the statement has more than 1024 parameters");
    }
    if formats.len() > 1 && formats.len() != usize::from(count) {
        return malformed("the numbers of parameters and of their formats differ");
    }
    let mut values = Vec::new();
    for place in 0..usize::from(count) {
        let format = formats.get(place).or(formats.first().filter(|_| formats.len() == 1));
        values.push((format.copied().unwrap_or(false), take.value()?));
    }
    let results = take.list(Reader::format)?;
    Ok(Message::Bind { portal, statement, values, results })
}

/// Reads fields from the beginning of a message.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Takes a number of bytes.
    ///
    /// # Errors
    /// The message is shorter.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        match self.0.split_at_checked(count) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => malformed("the message is too short"),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let bytes = self.bytes(N)?;
        bytes.try_into().map_err(|_| Malformed("the message is too short".to_owned()))
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Takes a number of 2 bytes.
    ///
    /// # Errors
    /// The message is shorter.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    /// Takes a number of 4 bytes.
    ///
    /// # Errors
    /// The message is shorter.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes a value with its length; `None` is null.
    ///
    /// # Errors
    /// The message is shorter, or the length is negative.
    pub fn value(&mut self) -> Result<Option<Vec<u8>>, Malformed> {
        match self.u32()? {
            u32::MAX => Ok(None),
            length => {
                let length = i32::try_from(length).ok().and_then(|it| usize::try_from(it).ok());
                let length = length.ok_or_else(|| Malformed("a length is negative".to_owned()))?;
                self.bytes(length).map(|bytes| Some(bytes.to_vec()))
            }
        }
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let Some(length) = self.0.iter().position(|byte| *byte == 0) else {
            return malformed("a text has no end");
        };
        let bytes = self.bytes(length)?;
        self.u8()?;
        let text = std::str::from_utf8(bytes);
        text.map(str::to_owned).map_err(|_| Malformed("a text is not UTF-8".to_owned()))
    }

    fn name(&mut self) -> Result<String, Malformed> {
        let name = self.text()?;
        if name.len() > NAME_BYTES_MAX {
            return malformed("a name is longer than 256 bytes");
        }
        Ok(name)
    }

    fn format(&mut self) -> Result<bool, Malformed> {
        match self.u16()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => malformed("a format is neither text nor binary"),
        }
    }

    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.u16()?;
        (0..count).map(|_| item(self)).collect()
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() {
            Ok(())
        } else {
            malformed("the message goes on after its last field; texts have no NUL")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn first_messages() {
        assert_eq!(startup(&SSL.to_be_bytes()), Ok(Startup::Ssl));
        assert_eq!(startup(&GSS.to_be_bytes()), Ok(Startup::Gss));
        let cancel = [CANCEL.to_be_bytes(), 7_u32.to_be_bytes(), [1, 2, 3, 4]].concat();
        let secret = vec![1, 2, 3, 4];
        assert_eq!(startup(&cancel), Ok(Startup::Cancel { session: 7, secret }));
        let session = b"\0\x03\0\x02user\0alice\0database\0jobmeter\0\0";
        let parameters = [("user", "alice"), ("database", "jobmeter")];
        let parameters = parameters.map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec();
        assert_eq!(startup(session), Ok(Startup::Session { minor: 2, parameters }));
        for bad in
            [&b""[..], b"\0\x02\0\0\0", b"\0\x03\0\0user\0", b"\0\x03\0\0\0x", b"GET / HTTP/1.1"]
        {
            assert!(startup(bad).is_err(), "{bad:?}");
        }
        assert!(startup(&[&SSL.to_be_bytes()[..], b"x"].concat()).is_err());
        assert!(startup(&[CANCEL.to_be_bytes(), [0; 4]].concat()).is_err(), "no key");
    }

    #[test]
    fn values_of_a_statement() {
        let body = b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\0";
        let values = vec![(true, Some(b"x".to_vec())), (true, None)];
        let want =
            Message::Bind { portal: "p".into(), statement: "s".into(), values, results: vec![] };
        assert_eq!(message(b'B', body), Ok(want));
        // A length beyond the message, a negative one, and a count without values.
        for bad in
            [&b"\0\0\0\0\0\x01\x7f\xff\xff\xff"[..], b"\0\0\0\0\0\x01\x80\0\0\0", b"\0\0\0\0\x04\0"]
        {
            assert!(message(b'B', bad).is_err());
        }
        assert_eq!(message(b'Q', b"SELECT 1\0"), Ok(Message::Query("SELECT 1".into())));
        assert!(message(b'Q', b"SELECT 1").is_err() && message(b'Q', b"a\0b\0").is_err());
        assert!(message(b'Q', b"\xff\0").is_err(), "no UTF-8");
        assert!(message(b'P', &[&[b'n'; 300][..], b"\0\0\0\0"].concat()).is_err(), "a long name");
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_result(kind: u8, body: Vec<u8>) {
            startup(&body).ok();
            prop_assert!(message(kind, &body).is_err() || is_kind(kind));
        }
    }
}
