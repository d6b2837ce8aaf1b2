//! The trigger that records the rows of other programs (decision 0055).

/// Whether a trigger on `metrics` records the rows of other programs.
pub const IS_RECORDING: &str = "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass('metrics') \
                                AND tgname LIKE 'jobmeter\\_record\\_%' AND tgenabled IN ('O', 'A'))";

/// The triggers: the first where transition tables are possible.
pub(crate) const TRIGGERS: [&str; 2] = ["jobmeter_record_rows", "jobmeter_record_row"];

/// The setting that a connection of the server sets to `on`: the trigger does not record its rows.
pub const IS_SERVER: &str = "jobmeter.is_server";

/// The statements that create a trigger on `metrics`, which records the rows of other programs in `jobmeter.other_rows`.
/// A hypertable of TimescaleDB before 2.18 has no transition tables; there the trigger is called for each row.
pub fn recording() -> String {
    let function = |name: &str, rows: &str| {
        include_str!("../sql/record_rows.sql").replace("{name}", name).replace("{rows}", rows)
    };
    let of_statement = function("record_rows", "added");
    let of_row = function("record_row", "(SELECT NEW.*)");
    // The owner's role creates the trigger. Only a session of this role may be the server's.
    let unless_server = format!(
        "WHEN (current_setting(''{IS_SERVER}'', true) IS DISTINCT FROM ''on'' OR current_user <> %L)"
    );
    format!(
        "{of_statement}{of_row}-- A role that may execute such a function could call its own code with the owner's rights.
REVOKE ALL ON FUNCTION jobmeter.record_rows(), jobmeter.record_row() FROM PUBLIC;
DROP TRIGGER IF EXISTS jobmeter_record_rows ON metrics;
DROP TRIGGER IF EXISTS jobmeter_record_row ON metrics;
DO $do$ BEGIN
    EXECUTE format('CREATE TRIGGER jobmeter_record_rows AFTER INSERT ON metrics REFERENCING NEW TABLE AS added
        FOR EACH STATEMENT {unless_server} EXECUTE FUNCTION jobmeter.record_rows()', current_user);
EXCEPTION WHEN feature_not_supported THEN
    EXECUTE format('CREATE TRIGGER jobmeter_record_row AFTER INSERT ON metrics
        FOR EACH ROW {unless_server} EXECUTE FUNCTION jobmeter.record_row()', current_user);
END $do$;
"
    )
}
