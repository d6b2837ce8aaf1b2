// PostgreSQL's driver for Java (JDBC) against a running server: texts, binary values, batches, cursors, metadata, COPY,
// cancellation.
//
// Arguments: the port, the password of a reader, and that of a program that inserts rows.

import java.io.ByteArrayInputStream;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

public class Clients {
    static final String INSERT =
        "INSERT INTO metrics(timestamp, device_id, metric_id, value, labels) VALUES (?, ?, ?, ?, ?::jsonb)";
    static final String ENDLESS = "SELECT count(*) FROM pg_type a, pg_type b, pg_type c, pg_type d, pg_type e, pg_type f "
        + "WHERE a.oid + b.oid + c.oid + d.oid + e.oid + f.oid < 0";
    static final OffsetDateTime AT = OffsetDateTime.now(ZoneOffset.UTC).truncatedTo(ChronoUnit.MICROS);
    static String port;

    static Connection connect(String password, String... options) throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("user", "token");
        properties.setProperty("password", password);
        for (int place = 0; place < options.length; place += 2) {
            properties.setProperty(options[place], options[place + 1]);
        }
        return DriverManager.getConnection("jdbc:postgresql://127.0.0.1:" + port + "/jobmeter", properties);
    }

    static void equal(String what, Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError(what + ": " + found + ", not " + wanted);
        }
    }

    static void fails(Connection connection, String statement, String state) throws SQLException {
        try (Statement one = connection.createStatement()) {
            one.execute(statement);
        } catch (SQLException error) {
            equal(statement, error.getSQLState(), state);
            return;
        }
        throw new AssertionError(statement + " is no error");
    }

    static void writes(String password) throws Exception {
        try (Connection writer = connect(password)) {
            writer.setAutoCommit(false);
            try (PreparedStatement insert = writer.prepareStatement(INSERT)) {
                for (int number = 0; number < 100; number++) {
                    insert.setObject(1, AT.minusSeconds(number));
                    insert.setString(2, "jdbc");
                    insert.setString(3, "watts");
                    insert.setDouble(4, number);
                    insert.setString(5, "{\"port\": \"1\"}");
                    insert.addBatch();
                }
                equal("batch", insert.executeBatch().length, 100);
                insert.setObject(1, AT);
                insert.setString(2, "jdbc");
                insert.setString(3, "volts");
                insert.setDouble(4, 230.5);
                // A PGobject would query the catalogue for its type, which this token may not read.
                insert.setObject(5, "{\"port\": \"2\"}", Types.OTHER);
                equal("inserted rows", insert.executeUpdate(), 1);
            }
            writer.commit();
            writer.setAutoCommit(true);
            CopyManager copies = ((PGConnection) writer).getCopyAPI();
            String rows = AT + "\tjdbc-copy\twatts\t1.5\t{}\n" + AT.minusSeconds(1) + "\tjdbc-copy\twatts\t\\N\t\\N\n";
            byte[] bytes = rows.getBytes(StandardCharsets.UTF_8);
            String copy = "COPY metrics(timestamp, device_id, metric_id, value, labels) FROM STDIN";
            equal("copied rows", copies.copyIn(copy, new ByteArrayInputStream(bytes)), 2L);
            fails(writer, "SELECT * FROM metrics", "42501");
        }
    }

    static void reads(String password, String... options) throws Exception {
        try (Connection reader = connect(password, options)) {
            String query = "SELECT timestamp, device_id, value, labels, job_id FROM metrics "
                + "WHERE device_id = ? AND value > ? AND timestamp <= ?";
            try (PreparedStatement prepared = reader.prepareStatement(query)) {
                // The driver names a statement on the server after five uses.
                for (int time = 0; time < 8; time++) {
                    prepared.setString(1, "jdbc");
                    prepared.setDouble(2, 200);
                    prepared.setObject(3, AT.plusMinutes(1));
                    try (ResultSet rows = prepared.executeQuery()) {
                        equal("a row", rows.next(), true);
                        equal("time", rows.getObject(1, OffsetDateTime.class).toInstant(), AT.toInstant());
                        equal("name", rows.getString(2), "jdbc");
                        equal("value", rows.getDouble(3), 230.5);
                        equal("labels", rows.getString(4), "{\"port\": \"2\"}");
                        equal("type of labels", rows.getMetaData().getColumnTypeName(4), "jsonb");
                        equal("job", rows.getLong(5) == 0 && rows.wasNull(), true);
                        equal("one row", rows.next(), false);
                    }
                }
            }
            try (PreparedStatement array = reader.prepareStatement("SELECT count(*) FROM metrics WHERE device_id = ANY(?)")) {
                array.setArray(1, reader.createArrayOf("text", new String[] {"jdbc", "none"}));
                try (ResultSet rows = array.executeQuery()) {
                    rows.next();
                    equal("rows of an array", rows.getLong(1), 101L);
                }
            }
            try (Statement both = reader.createStatement(); ResultSet rows = both.executeQuery(
                    "SELECT value, labels FROM metrics WHERE device_id = 'jdbc-copy' ORDER BY timestamp")) {
                rows.next();
                equal("value", Double.isNaN(rows.getDouble(1)), true);
                equal("labels", rows.getString(2), "{}");
            }
            fails(reader, "SELECT nix FROM metrics", "42703");
            fails(reader, "SELECT * FROM nix", "42P01");
            fails(reader, "SELECT 1 +", "42601");
            fails(reader, "UPDATE metrics SET value = 1", "25006");
            fails(reader, "INSERT INTO metrics(device_id) VALUES ('d')", "42501");
        }
    }

    static void cursors(String password) throws Exception {
        try (Connection reader = connect(password)) {
            reader.setReadOnly(true);
            reader.setAutoCommit(false);
            try (Statement some = reader.createStatement()) {
                some.setFetchSize(30);
                try (ResultSet rows = some.executeQuery("SELECT value FROM metrics WHERE device_id = 'jdbc' AND metric_id = 'watts' ORDER BY 1")) {
                    for (int number = 0; number < 100; number++) {
                        equal("a row", rows.next(), true);
                        equal("value", rows.getDouble(1), (double) number);
                    }
                    equal("the end", rows.next(), false);
                }
            }
            reader.commit();
            StringWriter out = new StringWriter();
            CopyManager copies = ((PGConnection) reader).getCopyAPI();
            copies.copyOut("COPY (SELECT value FROM metrics WHERE device_id = 'jdbc' AND value > 200) TO STDOUT", out);
            equal("copy", out.toString(), "230.5\n");
        }
    }

    static void describes(String password) throws Exception {
        try (Connection reader = connect(password)) {
            DatabaseMetaData data = reader.getMetaData();
            List<String> tables = new ArrayList<>();
            try (ResultSet rows = data.getTables(null, "public", "%", new String[] {"TABLE", "VIEW"})) {
                while (rows.next()) {
                    tables.add(rows.getString("TABLE_NAME"));
                }
            }
            equal("metrics is a table", tables.contains("metrics"), true);
            Map<String, Integer> wanted = Map.of("timestamp", Types.TIMESTAMP, "value", Types.DOUBLE, "job_id", Types.BIGINT,
                "labels", Types.OTHER, "device_id", Types.VARCHAR);
            int found = 0;
            try (ResultSet rows = data.getColumns(null, "public", "metrics", "%")) {
                while (rows.next()) {
                    String name = rows.getString("COLUMN_NAME");
                    if (wanted.containsKey(name)) {
                        equal(name, rows.getInt("DATA_TYPE"), wanted.get(name));
                        found++;
                    }
                }
            }
            equal("columns", found, wanted.size());
            try (ResultSet rows = data.getPrimaryKeys(null, "public", "metrics")) {
                equal("keys", rows.next(), false);
            }
            try (ResultSet rows = data.getIndexInfo(null, "public", "metrics", false, false)) {
                equal("indexes", rows.next(), false);
            }
            try (ResultSet rows = data.getSchemas()) {
                equal("schemas", rows.next(), true);
            }
        }
    }

    static void cancels(String password) throws Exception {
        try (Connection reader = connect(password); Statement statement = reader.createStatement()) {
            Thread other = new Thread(() -> {
                try {
                    Thread.sleep(300);
                    statement.cancel();
                } catch (Exception error) {
                    throw new AssertionError(error);
                }
            });
            other.start();
            try {
                statement.execute(ENDLESS);
                throw new AssertionError("not cancelled");
            } catch (SQLException error) {
                equal("cancelled", error.getSQLState(), "57014");
            }
            other.join();
            statement.setQueryTimeout(1);
            try {
                statement.execute(ENDLESS);
                throw new AssertionError("no limit of time");
            } catch (SQLException error) {
                equal("timeout", error.getSQLState(), "57014");
            }
            statement.setQueryTimeout(0);
            try (ResultSet rows = statement.executeQuery("SELECT count(*) FROM metrics WHERE device_id = 'jdbc'")) {
                rows.next();
                equal("after it", rows.getLong(1), 101L);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        port = arguments[0];
        String reader = arguments[1];
        writes(arguments[2]);
        reads(reader);
        reads(reader, "binaryTransfer", "true", "prepareThreshold", "-1");
        reads(reader, "preferQueryMode", "simple");
        cursors(reader);
        describes(reader);
        cancels(reader);
        System.out.println("JDBC read what it wrote");
    }
}
