//! IDs of PostgreSQL's types.
#![allow(missing_docs, reason = "the names are PostgreSQL's")]

pub const BOOL: u32 = 16;
pub const BYTEA: u32 = 17;
pub const NAME: u32 = 19;
pub const INT8: u32 = 20;
pub const INT2: u32 = 21;
pub const INT4: u32 = 23;
pub const TEXT: u32 = 25;
pub const OID: u32 = 26;
pub const JSON: u32 = 114;
pub const FLOAT4: u32 = 700;
pub const FLOAT8: u32 = 701;
pub const UNKNOWN: u32 = 705;
pub const BOOL_ARRAY: u32 = 1000;
pub const INT2_ARRAY: u32 = 1005;
pub const INT4_ARRAY: u32 = 1007;
pub const TEXT_ARRAY: u32 = 1009;
pub const VARCHAR_ARRAY: u32 = 1015;
pub const INT8_ARRAY: u32 = 1016;
pub const FLOAT8_ARRAY: u32 = 1022;
pub const BPCHAR: u32 = 1042;
pub const VARCHAR: u32 = 1043;
pub const DATE: u32 = 1082;
pub const TIME: u32 = 1083;
pub const TIMESTAMP: u32 = 1114;
pub const TIMESTAMPTZ: u32 = 1184;
pub const TIMESTAMPTZ_ARRAY: u32 = 1185;
pub const INTERVAL: u32 = 1186;
pub const NUMERIC: u32 = 1700;
pub const JSONB: u32 = 3802;

/// Types with their name in PostgreSQL's catalogue, their SQL name, size in bytes (-1: any), category, and the ID of
/// the type of their elements (0: no array).
pub const TYPES: &[(u32, &str, &str, i16, char, u32)] = &[
    (BOOL, "bool", "boolean", 1, 'B', 0),
    (BYTEA, "bytea", "bytea", -1, 'U', 0),
    (NAME, "name", "name", 64, 'S', 0),
    (INT8, "int8", "bigint", 8, 'N', 0),
    (INT2, "int2", "smallint", 2, 'N', 0),
    (INT4, "int4", "integer", 4, 'N', 0),
    (TEXT, "text", "text", -1, 'S', 0),
    (OID, "oid", "oid", 4, 'N', 0),
    (JSON, "json", "json", -1, 'U', 0),
    (FLOAT4, "float4", "real", 4, 'N', 0),
    (FLOAT8, "float8", "double precision", 8, 'N', 0),
    (UNKNOWN, "unknown", "unknown", -2, 'X', 0),
    (BOOL_ARRAY, "_bool", "boolean[]", -1, 'A', BOOL),
    (INT2_ARRAY, "_int2", "smallint[]", -1, 'A', INT2),
    (INT4_ARRAY, "_int4", "integer[]", -1, 'A', INT4),
    (TEXT_ARRAY, "_text", "text[]", -1, 'A', TEXT),
    (VARCHAR_ARRAY, "_varchar", "character varying[]", -1, 'A', VARCHAR),
    (INT8_ARRAY, "_int8", "bigint[]", -1, 'A', INT8),
    (FLOAT8_ARRAY, "_float8", "double precision[]", -1, 'A', FLOAT8),
    (BPCHAR, "bpchar", "character", -1, 'S', 0),
    (VARCHAR, "varchar", "character varying", -1, 'S', 0),
    (DATE, "date", "date", 4, 'D', 0),
    (TIME, "time", "time without time zone", 8, 'D', 0),
    (TIMESTAMP, "timestamp", "timestamp without time zone", 8, 'D', 0),
    (TIMESTAMPTZ, "timestamptz", "timestamp with time zone", 8, 'D', 0),
    (TIMESTAMPTZ_ARRAY, "_timestamptz", "timestamp with time zone[]", -1, 'A', TIMESTAMPTZ),
    (INTERVAL, "interval", "interval", 16, 'T', 0),
    (NUMERIC, "numeric", "numeric", -1, 'N', 0),
    (JSONB, "jsonb", "jsonb", -1, 'U', 0),
];

/// The size of a type in bytes, -1 for one of any size.
pub fn size(oid: u32) -> i16 {
    TYPES.iter().find(|one| one.0 == oid).map_or(-1, |one| one.3)
}

/// The type of an array's elements.
pub fn element(oid: u32) -> Option<u32> {
    TYPES.iter().find(|one| one.0 == oid && one.5 != 0).map(|one| one.5)
}
