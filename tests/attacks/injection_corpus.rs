//! Texts of an attacker who hopes that a program pastes them into SQL, a path, a header, a format or a pattern.

/// Begins every secret of the other user.
pub(crate) const SECRET: &str = "quokka";

/// Texts for any parameter, some of which are no UTF-8.
pub(crate) fn texts() -> Vec<Vec<u8>> {
    let mut texts: Vec<Vec<u8>> = WRITTEN.iter().map(|text| text.as_bytes().to_vec()).collect();
    // NUL, overlong forms of a quote, half a pair of UTF-16, and bytes that begin no character.
    let bytes: [&[u8]; 7] = [
        b"\0",
        b"n1\0'; DROP TABLE metrics; --",
        b"\xc0\xa7 OR 1=1",
        b"\xe0\x80\xa7",
        b"\xed\xa0\x80",
        b"\xff\xfe'",
        b"n1\xc0\xae\xc0\xae/",
    ];
    texts.extend(bytes.map(<[u8]>::to_vec));
    texts.push(b"A".repeat(8000));
    texts.push(b"[".repeat(3000));
    texts.push(b"'".repeat(501));
    texts
}

const WRITTEN: &[&str] = &[
    // Quotes, comments and further statements.
    "'",
    "\"",
    "' OR '1'='1",
    "') OR 1=1 --",
    "'; DROP TABLE metrics; --",
    "\"; DROP TABLE metrics; --",
    "'/**/UNION/**/SELECT/**/name/**/FROM/**/jobs--",
    "' UNION ALL SELECT * FROM jobs --",
    "'||(SELECT string_agg(name, ',') FROM jobs)||'",
    "\\'; DELETE FROM metrics; --",
    "\\",
    "$$; DROP TABLE metrics; $$",
    "$x$'$x$",
    "E'\\x27",
    "%27%20OR%201=1",
    "1; UPDATE metrics SET value = 0",
    "1) UNION ALL SELECT * FROM jobs; --",
    "n1'/*",
    "*/ OR 1=1 /*",
    // Functions of PostgreSQL that read, write or wait.
    "'||pg_read_file('/etc/passwd')||'",
    "'; COPY metrics TO PROGRAM 'id'; --",
    "'; SELECT lo_import('/etc/passwd'); --",
    "'||(SELECT dblink('host=127.0.0.1', 'SELECT 1'))||'",
    "'; SELECT pg_sleep(30); --",
    "(SELECT pg_sleep(30))",
    "'||pg_sleep(30)||'",
    "'; SET search_path TO pg_temp, public; --",
    "'||set_config('role', 'postgres', false)||'",
    "'; SET SESSION AUTHORIZATION postgres; --",
    "'; CREATE FUNCTION x() RETURNS int LANGUAGE plpython3u AS 'return 1'; --",
    // Characters that resemble quotes.
    "\u{2bc} OR 1=1",
    "\u{ff07} OR \u{ff07}1\u{ff07}=\u{ff07}1",
    "\u{2019}; DROP TABLE metrics",
    "n1\u{202e}'",
    // Paths, headers, formats and shells.
    "../../../../etc/passwd",
    "..%2f..%2f..%2fetc%2fpasswd",
    "....//....//etc/passwd",
    "/etc/passwd",
    "file:///etc/passwd",
    "x\r\nX-Injected: 1\r\n\r\n<html>",
    "x\nSet-Cookie: a=b",
    "%s%s%s%n%x",
    "{0}{}{{}}{x!r}",
    "${jndi:ldap://127.0.0.1/x}",
    "$(id)`id`|id;id",
    // Numbers.
    "-1",
    "99999999999999999999999999999",
    "9223372036854775808",
    "1e400",
    "NaN",
    "-Infinity",
    "0x41",
    "1/0",
    // Patterns.
    "(a+)+$",
    "^(a|a?)+$",
    "((a{1,100}){1,100}){1,100}",
    ".*.*.*.*.*.*.*.*=.*",
    "(",
    "%",
    "*",
    "_%",
    // JSON and labels.
    "{\"a\": {\"$gt\": \"\"}}",
    "{\"__proto__\": {\"x\": 1}}",
    "{\"_user\": \"54002\"}",
    "{\"_job_id\": \"7002\"}",
    "{\"job_id\": \"7002\", \"devices\": [\"n1\"]}",
    "{\"a\": \"\\u0000\"}",
    "{\"a\": \"\\ud800\"}",
    "{\"a\": 1, \"a\": 2}",
    // The other user's job.
    "7002",
    "site:7002",
    "site:7002' OR '1'='1",
    "54002",
    // Conditions of PostgREST.
    "eq.7002",
    "ilike.*quok*",
    "(name.ilike.*quok*)",
    "(job_id.eq.7002,or(name.not.is.null))",
    "not.is.null",
    "name::regclass",
    "*,jobs(*)",
    "labels->>_job_id,name",
    "name.desc,(select 1)",
];

/// Statements that read files, wait, write, or read what is another user's. Each must fail or return none of it.
pub(crate) const STATEMENTS: &[&str] = &[
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_read_binary_file('/etc/passwd')",
    "SELECT * FROM pg_ls_dir('/')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_parquet('/etc/passwd')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT dblink('host=127.0.0.1', 'SELECT 1')",
    "SELECT pg_sleep(30)",
    "SELECT pg_terminate_backend(1)",
    "SELECT query_to_xml('SELECT * FROM jobs', true, true, '')",
    "COPY metrics TO '/tmp/x'",
    "COPY metrics TO PROGRAM 'id'",
    "COPY (SELECT 1) TO '/tmp/x'",
    "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
    "CREATE TABLE x AS SELECT 1",
    "CREATE VIEW jobs AS SELECT 1",
    "SELECT 1 INTO x",
    "SET ROLE postgres",
    "SET SESSION AUTHORIZATION postgres",
    "DELETE FROM metrics",
    "WITH x AS (DELETE FROM metrics RETURNING *) SELECT * FROM x",
    "DO $$ BEGIN PERFORM 1; END $$",
    "ALTER SYSTEM SET log_directory = '/tmp'",
    "EXPLAIN ANALYZE DELETE FROM metrics",
    "PREPARE x AS DELETE FROM metrics",
    "SELECT 1; DROP TABLE metrics",
    "SELECT name, project FROM jobs WHERE job_id = 7002 OR true",
    "SELECT * FROM jobs WHERE name LIKE 'quok%'",
    "SELECT * FROM api.get_metrics(job_id => 7002)",
    "SELECT * FROM get_job_metrics(job_id => 7002)",
    "SELECT * FROM metrics_by_job WHERE job_id = 7002",
    "SELECT * FROM metrics WHERE metric_id LIKE 'quok%'",
    "SELECT * FROM metrics WHERE value / (CASE WHEN job_id = 7002 THEN 0 ELSE 1 END) > 0",
    "SELECT metric_id::int FROM metrics",
    "SELECT name::int FROM jobs",
    "SELECT * FROM jobs j, allocations a WHERE a.job_id = 7002 AND j.job_id = a.job_id",
    "SELECT current_setting('data_directory'), current_setting('config_file')",
    "SELECT * FROM pg_settings, pg_roles, pg_tablespace",
    "SELECT * FROM pg_stat_activity",
    "SELECT * FROM information_schema.df_settings",
    "SHOW ALL",
    "SELECT regexp_like(repeat('a', 30), '(a+)+$')",
    "SELECT 'a' ~ '((a{1,100}){1,100}){1,100}'",
];
