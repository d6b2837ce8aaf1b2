//! Statements that need no engine: transactions, settings, cursors and writes.

use crate::insert::{Copy, Insert, Value, copy, insert};
use crate::parser::Parser;
pub use crate::prepare::Count;
use crate::prepare::{declare, execute, fetch, prepare, written_with};
use crate::scanner::{SyntaxError, Token};
use crate::setting::{Setting, set, setting, show};
use crate::transaction::{Modes, ending, modes};
use std::sync::Arc;

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Nothing.
    Empty,
    /// Begins a transaction.
    Begin {
        /// Whether it is START TRANSACTION.
        starts: bool,
        /// Its modes.
        modes: Modes,
    },
    /// Ends a transaction.
    Commit,
    /// Ends a transaction without its writes.
    Rollback,
    /// Names a point of the transaction.
    Savepoint(String),
    /// Drops a savepoint.
    Release(String),
    /// Returns to a savepoint.
    RollbackTo(String),
    /// Sets a parameter.
    Set {
        /// Its name.
        name: String,
        /// Its value; `None`: its default.
        value: Option<String>,
        /// Whether it ends with the transaction.
        local: bool,
    },
    /// Sets modes of the transaction.
    SetTransaction(Modes),
    /// Sets modes of all later transactions.
    SetSession(Modes),
    /// Returns a parameter.
    Show(String),
    /// Sets a parameter to its default; `None`: all parameters.
    Reset(Option<String>),
    /// Drops state of the session; `all` drops everything.
    Discard(String),
    /// Names the statement that begins at this byte.
    Prepare {
        /// Its name.
        name: String,
        /// Types of its parameters; of further ones they are unknown.
        types: Vec<u32>,
        /// First byte of its statement.
        query: usize,
    },
    /// Executes a named statement with these values.
    Execute {
        /// Its name.
        name: String,
        /// Values of its parameters.
        values: Vec<Value>,
    },
    /// Drops a prepared statement, or all.
    Deallocate(Option<String>),
    /// Opens a cursor for the statement that begins at this byte.
    Declare {
        /// Its name.
        name: String,
        /// Whether its values are binary.
        binary: bool,
        /// Whether it outlives its transaction.
        hold: bool,
        /// First byte of its statement.
        query: usize,
    },
    /// Returns or skips rows of a cursor.
    Fetch {
        /// Its name.
        name: String,
        /// How many rows.
        count: Count,
        /// Whether the rows are skipped.
        skips: bool,
    },
    /// Closes a cursor, or all.
    Close(Option<String>),
    /// Stops listening, which never began.
    Unlisten,
    /// Inserts rows.
    Insert(Arc<Insert>),
    /// Copies rows.
    Copy(Copy),
    /// A statement that would write elsewhere, by its first keyword.
    Write(String),
    /// Any other statement: the engine reads it.
    Read,
}

/// First keywords of statements that write, or that change the database.
const WRITES: &[&str] = &[
    "insert",
    "update",
    "delete",
    "merge",
    "create",
    "drop",
    "alter",
    "truncate",
    "grant",
    "revoke",
    "comment",
    "vacuum",
    "reindex",
    "cluster",
    "refresh",
    "lock",
    "import",
    "security",
    "reassign",
    "notify",
    "copy",
    "analyze",
    "checkpoint",
];
/// Statements that this server does not support.
const UNSUPPORTED: &[&str] = &["listen", "call", "do", "load"];

/// Classifies a statement.
///
/// # Errors
/// A statement of those above has another form than PostgreSQL's, or an unsupported part.
pub fn command(text: &str) -> Result<Command, SyntaxError> {
    let mut parser = Parser::new(text)?;
    let start = parser.at();
    let Some(Token::Word(first)) = parser.peek().cloned() else {
        return Ok(if parser.peek().is_none() { Command::Empty } else { Command::Read });
    };
    parser.take()?;
    let found = match &*first {
        "start" if parser.peek().is_none_or(|token| !token.is("transaction")) => {
            return Err(parser.wrong("TRANSACTION"));
        }
        "begin" | "start" => {
            Command::Begin { starts: first == "start", modes: modes(&mut parser)? }
        }
        "commit" | "end" => ending(&mut parser).map(|()| Command::Commit)?,
        "abort" => ending(&mut parser).map(|()| Command::Rollback)?,
        "rollback" => rollback(&mut parser)?,
        "savepoint" => Command::Savepoint(parser.name()?),
        "release" => {
            parser.accept("savepoint")?;
            Command::Release(parser.name()?)
        }
        "set" => match set(&mut parser, text)? {
            Setting::Parameter { name, value, local } => Command::Set { name, value, local },
            Setting::Transaction(modes) => Command::SetTransaction(modes),
            Setting::Session(modes) => Command::SetSession(modes),
        },
        "show" => show(&mut parser)?.map_or(Command::Read, Command::Show),
        "reset" if parser.accept("all")? => Command::Reset(None),
        "reset" => Command::Reset(Some(setting(&mut parser)?)),
        "discard" => Command::Discard(parser.name()?),
        "prepare" | "execute" | "deallocate" => prepared(&first, start, &mut parser)?,
        "with" => written_with(&mut parser)?.map_or(Command::Read, Command::Write),
        "declare" => {
            let (name, (binary, hold), query) = declare(&mut parser)?;
            return Ok(Command::Declare { name, binary, hold, query });
        }
        "fetch" | "move" => {
            let (name, count) = fetch(&mut parser)?;
            Command::Fetch { name, count, skips: first == "move" }
        }
        "close" => {
            let all = parser.accept("all")?;
            Command::Close(if all { None } else { Some(parser.name()?) })
        }
        "unlisten" => {
            parser.take()?;
            Command::Unlisten
        }
        "insert" => match insert(&mut parser)? {
            Some(insert) => Command::Insert(Arc::new(insert)),
            None => Command::Write(first),
        },
        "copy" => {
            copy(text, &mut parser)?.map_or_else(|| Command::Write(first.clone()), Command::Copy)
        }
        word if WRITES.contains(&word) => return Ok(Command::Write(first)),
        word if UNSUPPORTED.contains(&word) => {
            let what = format!("{} is not supported here", first.to_uppercase());
            return Err(SyntaxError::unsupported(start, what));
        }
        _ => return Ok(Command::Read),
    };
    if !matches!(found, Command::Write(_) | Command::Read | Command::Prepare { .. }) {
        parser.end()?;
    }
    Ok(found)
}

/// Reads a statement about named statements.
fn prepared(first: &str, start: usize, parser: &mut Parser<'_>) -> Result<Command, SyntaxError> {
    match first {
        "prepare" if parser.peek().is_some_and(|token| token.is("transaction")) => {
            let what = "two-phase transactions are not supported";
            Err(SyntaxError::unsupported(start, what))
        }
        "prepare" => {
            let (name, types, query) = prepare(parser)?;
            Ok(Command::Prepare { name, types, query })
        }
        "execute" => {
            let (name, values) = execute(parser)?;
            Ok(Command::Execute { name, values })
        }
        _ => {
            parser.accept("prepare")?;
            let all = parser.accept("all")?;
            Ok(Command::Deallocate(if all { None } else { Some(parser.name()?) }))
        }
    }
}

/// Reads ROLLBACK after its keyword.
fn rollback(parser: &mut Parser<'_>) -> Result<Command, SyntaxError> {
    if parser.accept("work")? || parser.accept("transaction")? {
        // Either word may precede TO.
    }
    if !parser.accept("to")? {
        return ending(parser).map(|()| Command::Rollback);
    }
    parser.accept("savepoint")?;
    Ok(Command::RollbackTo(parser.name()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::{Format, Options};
    use crate::insert::Direction;
    use crate::oid;
    use proptest::prelude::*;

    #[test]
    fn statements_of_a_session() {
        let set = |name: &str, value: Option<&str>, local| Command::Set {
            name: name.to_owned(),
            value: value.map(str::to_owned),
            local,
        };
        for (text, want) in [
            (
                "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
                Command::Begin {
                    starts: false,
                    modes: Modes { is_read_only: Some(true), isolation: Some("repeatable read") },
                },
            ),
            ("start transaction", Command::Begin { starts: true, modes: Modes::default() }),
            (
                "BEGIN WORK NOT DEFERRABLE ISOLATION LEVEL SERIALIZABLE",
                Command::Begin {
                    starts: false,
                    modes: Modes { is_read_only: None, isolation: Some("serializable") },
                },
            ),
            ("END", Command::Commit),
            ("ROLLBACK WORK TO SAVEPOINT a", Command::RollbackTo("a".into())),
            ("ROLLBACK", Command::Rollback),
            (
                "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
                Command::SetSession(Modes { is_read_only: Some(true), isolation: None }),
            ),
            (
                "SET TRANSACTION READ WRITE",
                Command::SetTransaction(Modes { is_read_only: Some(false), isolation: None }),
            ),
            ("RESET ALL", Command::Reset(None)),
            ("RESET TIME ZONE", Command::Reset(Some("timezone".into()))),
            ("COMMIT AND NO CHAIN", Command::Commit),
            ("SET LOCAL DateStyle TO ISO, MDY", set("datestyle", Some("iso, mdy"), true)),
            ("SET TIME ZONE 'Europe/Paris'", set("timezone", Some("Europe/Paris"), false)),
            ("SET statement_timeout = '5s'", set("statement_timeout", Some("5s"), false)),
            ("SET x TO DEFAULT", set("x", None, false)),
            ("SHOW TRANSACTION ISOLATION LEVEL", Command::Show("transaction_isolation".into())),
            ("SHOW tables", Command::Read),
            ("DISCARD ALL", Command::Discard("all".into())),
            ("CLOSE ALL", Command::Close(None)),
            ("UPDATE metrics SET value = 1", Command::Write("update".into())),
            ("INSERT INTO jobs VALUES (1)", Command::Write("insert".into())),
            ("COPY jobs FROM STDIN", Command::Write("copy".into())),
            ("(SELECT 1)", Command::Read),
            ("-- nothing", Command::Empty),
            (
                "WITH x AS (DELETE FROM metrics RETURNING *) SELECT 1",
                Command::Write("delete".into()),
            ),
            ("WITH x AS (SELECT 1) INSERT INTO metrics SELECT 1", Command::Write("insert".into())),
            (
                "WITH x AS NOT MATERIALIZED (UPDATE a SET b = 1) TABLE x",
                Command::Write("update".into()),
            ),
            ("WITH x AS (SELECT 'delete' AS \"insert\") SELECT 1 AS insert", Command::Read),
        ] {
            assert_eq!(command(text), Ok(want), "{text}");
        }
        let declare = "DECLARE c NO SCROLL CURSOR WITH HOLD FOR SELECT 1";
        let want = Command::Declare { name: "c".into(), binary: false, hold: true, query: 41 };
        assert_eq!(command(declare), Ok(want));
    }

    #[test]
    fn rows_of_cursors() {
        let fetch = |count, skips| Command::Fetch { name: "c 1".to_owned(), count, skips };
        for (text, want) in [
            ("FETCH FORWARD 5 FROM \"c 1\"", fetch(Count::Next(5), false)),
            ("FETCH \"c 1\"", fetch(Count::Next(1), false)),
            ("MOVE ALL IN \"c 1\"", fetch(Count::All, true)),
            ("FETCH 0 \"c 1\"", fetch(Count::Current, false)),
            ("FETCH -1 \"c 1\"", fetch(Count::Backward, false)),
            ("FETCH +2 IN \"c 1\"", fetch(Count::Next(2), false)),
            ("FETCH FIRST \"c 1\"", fetch(Count::Absolute(1), false)),
            ("FETCH LAST \"c 1\"", fetch(Count::Backward, false)),
            ("FETCH ABSOLUTE 7 FROM \"c 1\"", fetch(Count::Absolute(7), false)),
            ("FETCH RELATIVE 2 FROM \"c 1\"", fetch(Count::Relative(2), false)),
            ("FETCH FORWARD ALL FROM \"c 1\"", fetch(Count::All, false)),
            ("FETCH FORWARD -3 FROM \"c 1\"", fetch(Count::Backward, false)),
            ("FETCH BACKWARD -3 FROM \"c 1\"", fetch(Count::Next(3), false)),
            ("MOVE BACKWARD 0 \"c 1\"", fetch(Count::Current, true)),
            ("FETCH BACKWARD ALL FROM \"c 1\"", fetch(Count::Backward, false)),
        ] {
            assert_eq!(command(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn statements_with_errors() {
        for (text, code, at) in [
            ("FETCH 99999999999 FROM c", "42601", 6),
            ("START", "42601", 5),
            ("BEGIN ISOLATION LEVEL READ", "42601", 6),
            ("BEGIN READ WRITE ONLY", "42601", 17),
            ("COMMIT PREPARED 'x'", "0A000", 7),
            ("SET ROLE postgres", "0A000", 4),
            ("BEGIN; SELECT", "42601", 5),
            ("INSERT INTO metrics SELECT 1", "0A000", 20),
            ("INSERT INTO metrics(valeu) VALUES (1)", "42703", 20),
            ("INSERT INTO metrics(value) VALUES (1, 2)", "42601", 34),
            ("INSERT INTO metrics(metric_id, value) VALUES ('m')", "42601", 45),
            ("INSERT INTO metrics VALUES (now(), 'd'), (now())", "42601", 41),
            ("INSERT INTO metrics VALUES (now(), 'd', 'm', 1, '{}', 6)", "42601", 27),
            ("INSERT INTO metrics VALUES (now()::date)", "0A000", 35),
            ("INSERT INTO metrics(value) VALUES (1e-400)", "22003", 35),
            ("INSERT INTO metrics(value) VALUES (1), (-1e999)", "22003", 40),
            ("INSERT INTO metrics(value) VALUES (random())", "0A000", 35),
            ("INSERT INTO metrics(value) VALUES (1) RETURNING value", "0A000", 38),
            ("COPY metrics FROM '/etc/passwd'", "42501", 18),
            ("COPY metrics FROM PROGRAM 'id'", "42501", 18),
            ("COPY metrics TO '/tmp/x'", "42501", 16),
            ("COPY metrics FROM STDIN (FORCE_NULL value)", "0A000", 25),
            ("PREPARE p (nix) AS SELECT 1", "42704", 11),
            ("PREPARE p SELECT 1", "42601", 10),
            ("PREPARE TRANSACTION 'x'", "0A000", 0),
            ("COMMIT AND CHAIN", "0A000", 11),
            ("COMMIT READ ONLY", "42601", 7),
            ("ROLLBACK ISOLATION LEVEL SERIALIZABLE", "42601", 9),
            ("BEGIN AND NO CHAIN", "42601", 6),
            ("INSERT INTO metrics(value) VALUES ('x'::nope)", "42704", 40),
            ("INSERT INTO metrics(value) VALUES (1, '1'::text)", "42601", 34),
            ("INSERT INTO metrics(value) VALUES ('1'::text)", "42804", 35),
            ("INSERT INTO metrics(value) VALUES (now())", "42804", 35),
            ("INSERT INTO metrics(labels) VALUES ($1::int)", "42804", 36),
            ("INSERT INTO metrics(device_id) VALUES (0x10)", "42601", 39),
            ("INSERT INTO metrics(value) VALUES (DEFAULT::int)", "42601", 35),
            ("INSERT INTO metrics(value) VALUES (-'5')", "0A000", 35),
            ("ROLLBACK AND CHAIN", "0A000", 13),
            (&format!("SAVEPOINT {}", "x".repeat(257)), "42622", 10),
            ("EXECUTE p(now() - 1)", "42601", 16),
        ] {
            let error = command(text).unwrap_err();
            assert_eq!((error.code, error.at), (code, at), "{text}: {error}");
        }
    }

    #[test]
    fn values_of_insert_are_stored_as_postgresql_stores_them() {
        let row = |text: &str| {
            let Ok(Command::Insert(insert)) = command(text) else { panic!("{:?}", command(text)) };
            let mut rows = insert.rows(&[]).unwrap();
            rows.pop().unwrap().map(Option::unwrap_or_default)
        };
        let few = row("INSERT INTO metrics VALUES (now()::timestamptz, 1e3)");
        assert_eq!(few, ["", "1000", "", "", ""]);
        let texts =
            row("INSERT INTO metrics VALUES (NULL::timestamptz::date, 0005, 't'::bool, 5, '{}')");
        assert_eq!(texts, ["", "5", "true", "5", "{}"]);
    }

    #[test]
    fn rows_of_insert() {
        let text = "INSERT INTO public.metrics (device_id, metric_id, value, labels) VALUES \
                    ('d', 'm', -1.5e3, '{}'::jsonb), ($1, 'm', $2, NULL), ('d', 'm', 'NaN'::double precision, DEFAULT)";
        let Ok(Command::Insert(insert)) = command(text) else { panic!("{:?}", command(text)) };
        assert_eq!(insert.parameter_types(), [oid::TEXT, oid::FLOAT8]);
        assert_eq!(insert.rows(&[]).unwrap_err().code, "42P02");
        let rows = insert.rows(&[Some("e".into()), None]).unwrap();
        let texts = |row: [Option<&str>; 5]| row.map(|text| text.map(str::to_owned));
        let want = [
            texts([None, Some("d"), Some("m"), Some("-1.5e3"), Some("{}")]),
            texts([None, Some("e"), Some("m"), None, None]),
            texts([None, Some("d"), Some("m"), Some("NaN"), None]),
        ];
        assert_eq!(rows, want);
    }

    #[test]
    fn values_have_their_signs_and_casts() {
        let rows = |column: &str, values: &str, parameters: &[Option<String>]| {
            let text = format!("INSERT INTO metrics({column}) VALUES ({values})");
            match command(&text) {
                Ok(Command::Insert(insert)) => insert.rows(parameters).map_err(|error| error.code),
                other => panic!("{text}: {other:?}"),
            }
        };
        for (given, want) in [
            ("-+7", "-7"),
            ("-+-4", "4"),
            ("+-+4", "-4"),
            ("- -5", "5"),
            ("2.7::integer", "3"),
            ("-2.5::int", "-3"),
            ("2.5::float8::int", "2"),
            ("16777217::real", "1.6777216e7"),
            ("int '7'", "7"),
            ("double precision '1.5'", "1.5e0"),
            ("-'1.50'::numeric(3, 1)", "-1.5"),
        ] {
            let found = rows("value", given, &[]).unwrap();
            assert_eq!(found.first().and_then(|row| row[3].as_deref()), Some(want), "{given}");
        }
        let given = [Some("2.7".to_owned())];
        assert_eq!(rows("value", "$1::int", &given), Err("22P02"));
        assert_eq!(rows("value", "$1::float8", &given).unwrap()[0][3].as_deref(), Some("2.7e0"));
        assert_eq!(
            rows("device_id", "$1::varchar(2)", &given).unwrap()[0][1].as_deref(),
            Some("2.")
        );
        let many = format!("INSERT INTO metrics(value) VALUES (1){}", ",(1)".repeat(9999));
        let Ok(Command::Insert(insert)) = command(&many) else { panic!("no INSERT") };
        assert!(insert.bytes() < 10 * many.len(), "{} bytes", insert.bytes());
        assert_eq!(insert.rows(&[]).unwrap().len(), 10_000);
    }

    #[test]
    fn copies() {
        let copy = |text: &str| match command(text) {
            Ok(Command::Copy(copy)) => copy,
            other => panic!("{text}: {other:?}"),
        };
        let all = || Direction::In(vec![0, 1, 2, 3, 4]);
        let binary = Copy { direction: all(), options: Options::of(Format::Binary) };
        assert_eq!(copy("COPY metrics FROM STDIN WITH (FORMAT binary)"), binary);
        assert_eq!(copy("copy \"metrics\" from stdin binary"), binary);
        let found =
            copy("COPY metrics (device_id, value) FROM STDIN (FORMAT csv, HEADER, DELIMITER ';')");
        let csv = Options { header: true, delimiter: ';', ..Options::of(Format::Csv) };
        assert_eq!(found, Copy { direction: Direction::In(vec![1, 3]), options: csv });
        let found = copy("COPY (SELECT ')', (1)) TO STDOUT WITH CSV HEADER");
        assert_eq!(found.direction, Direction::Out("SELECT ')', (1)".into()));
        assert!(found.options.header && found.options.format == Format::Csv);
        let found = copy("COPY public.jobs (job_id, name) TO STDOUT");
        assert_eq!(found.direction, Direction::Out("SELECT job_id, name FROM public.jobs".into()));
        let written = "SELECT timestamp, device_id, metric_id, value, labels FROM metrics";
        let found = copy("COPY metrics TO STDOUT");
        assert_eq!(found.direction, Direction::Out(written.into()));
    }

    proptest! {
        #[test]
        fn any_text_has_a_result(text: String, rest in "[a-z0-9 '\"(),:;$=.-]{0,60}") {
            command(&text).ok();
            for word in ["SET", "FETCH", "DECLARE", "COPY", "COPY metrics", "INSERT INTO metrics", "ROLLBACK"] {
                command(&format!("{word} {rest}")).ok();
            }
        }
    }
}
