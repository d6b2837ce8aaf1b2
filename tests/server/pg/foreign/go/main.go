// Clients of PostgreSQL in Go, which Grafana uses, against a running server: lib/pq and pgx.
//
// Arguments: the port, the password of a reader, and that of a program that inserts rows.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
)

// A statement without end.
const endless = `SELECT count(*) FROM pg_type a, pg_type b, pg_type c, pg_type d, pg_type e, pg_type f
	WHERE a.oid + b.oid + c.oid + d.oid + e.oid + f.oid < 0`

var columns = []string{"timestamp", "device_id", "metric_id", "value", "labels"}
var at = time.Now().UTC().Truncate(time.Microsecond)

func check(what string, err error) {
	if err != nil {
		log.Fatalf("%s: %v", what, err)
	}
}

func equal(what string, found, wanted any) {
	if !reflect.DeepEqual(found, wanted) {
		log.Fatalf("%s: %#v, not %#v", what, found, wanted)
	}
}

func url(password string) string {
	return fmt.Sprintf("postgres://token:%s@127.0.0.1:%s/jobmeter?sslmode=disable", password, os.Args[1])
}

// The SQLSTATE of an error of either driver.
func state(err error) string {
	var ofPq *pq.Error
	var ofPgx *pgconn.PgError
	switch {
	case errors.As(err, &ofPq):
		return string(ofPq.Code)
	case errors.As(err, &ofPgx):
		return ofPgx.Code
	default:
		return fmt.Sprint(err)
	}
}

// Rows of a device, inserted in a transaction by a prepared COPY of lib/pq.
func pqWrites(device string) {
	db, err := sql.Open("postgres", url(os.Args[3]))
	check("open", err)
	defer db.Close()
	transaction, err := db.Begin()
	check("begin", err)
	copied, err := transaction.Prepare(pq.CopyIn("metrics", columns...))
	check("prepare copy", err)
	for number := range 100 {
		_, err = copied.Exec(at.Add(-time.Duration(number)*time.Second), device, "watts", float64(number), `{"port": "1"}`)
		check("row", err)
	}
	_, err = copied.Exec()
	check("copy", err)
	check("close", copied.Close())
	check("commit", transaction.Commit())
	insert := `INSERT INTO metrics(timestamp, device_id, metric_id, value, labels) VALUES ($1, $2, $3, $4, $5)`
	result, err := db.Exec(insert, at, device, "volts", 230.5, `{"port": "2"}`)
	check("insert", err)
	count, err := result.RowsAffected()
	check("count", err)
	equal("inserted rows", count, int64(1))
}

// Reads by database/sql: lib/pq with texts and with binary parameters, and pgx.
func readsBySQL(driver, address, device string) {
	db, err := sql.Open(driver, address)
	check("open", err)
	defer db.Close()
	query := `SELECT timestamp, device_id, value, labels, job_id FROM metrics WHERE device_id = $1 AND value > $2 AND timestamp <= $3`
	prepared, err := db.Prepare(query)
	check("prepare", err)
	for range 3 {
		var when time.Time
		var name, labels string
		var value float64
		var job sql.NullInt64
		check(driver, prepared.QueryRow(device, 200.0, at.Add(time.Minute)).Scan(&when, &name, &value, &labels, &job))
		equal("time", when.UTC(), at)
		equal("row", []any{name, value, labels, job.Valid}, []any{device, 230.5, `{"port": "2"}`, false})
	}
	check("close", prepared.Close())
	var count int64
	check("count", db.QueryRow(`SELECT count(*) FROM metrics WHERE device_id = $1 AND metric_id = $2`, device, "watts").Scan(&count))
	equal("copied rows", count, int64(100))
	check("array", db.QueryRow(`SELECT count(*) FROM metrics WHERE device_id = ANY($1)`, pq.Array([]string{device, "none"})).Scan(&count))
	equal("rows of an array", count, int64(101))
	for statement, wanted := range map[string]string{
		"SELECT nix FROM metrics":                     "42703",
		"SELECT * FROM nix":                           "42P01",
		"SELECT 1 +":                                  "42601",
		"UPDATE metrics SET value = 1":                "25006",
		"INSERT INTO metrics(device_id) VALUES ('d')": "42501",
		"SELECT * FROM api.get_metrics(start_time => 'no time', devices => 'd')": "22007",
	} {
		_, err := db.Exec(statement)
		equal(statement, state(err), wanted)
	}
	limited, end := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer end()
	begun := time.Now()
	_, err = db.QueryContext(limited, endless)
	if err == nil || time.Since(begun) > 5*time.Second {
		log.Fatalf("%s: no cancellation: %v", driver, err)
	}
	check("after the cancellation", db.QueryRow("SELECT count(*) FROM metrics WHERE device_id = $1", device).Scan(&count))
	transaction, err := db.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
	check("read only", err)
	check("in it", transaction.QueryRow("SELECT count(*) FROM catalogue WHERE name = $1", "watts").Scan(&count))
	equal("catalogue", count, int64(1))
	check("rollback", transaction.Rollback())
}

// pgx without database/sql: binary values, each way of executing, COPY, cursors of rows, cancellation.
func pgxReadsAndWrites(device string) {
	ctx := context.Background()
	writer, err := pgx.Connect(ctx, url(os.Args[3]))
	check("connect", err)
	rows := [][]any{}
	for number := range 100 {
		rows = append(rows, []any{at.Add(-time.Duration(number) * time.Second), device, "watts", float64(number), `{"port": "1"}`})
	}
	count, err := writer.CopyFrom(ctx, pgx.Identifier{"metrics"}, columns, pgx.CopyFromRows(rows))
	check("copy", err)
	equal("copied rows", count, int64(100))
	_, err = writer.Exec(ctx, `INSERT INTO metrics(timestamp, device_id, metric_id, value, labels) VALUES ($1, $2, $3, $4, $5)`,
		at, device, "volts", 230.5, map[string]string{"port": "2"})
	check("insert", err)
	check("close", writer.Close(ctx))
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		config, err := pgx.ParseConfig(url(os.Args[2]))
		check("settings", err)
		config.DefaultQueryExecMode = mode
		reader, err := pgx.ConnectConfig(ctx, config)
		check("connect", err)
		var when time.Time
		var value float64
		var labels map[string]string
		var job *int64
		query := `SELECT timestamp, value, labels, job_id FROM metrics WHERE device_id = $1 AND value > $2`
		check(mode.String(), reader.QueryRow(ctx, query, device, 200.0).Scan(&when, &value, &labels, &job))
		equal("time", when.UTC(), at)
		equal("row", []any{value, labels, job == nil}, []any{230.5, map[string]string{"port": "2"}, true})
		sum := 0.0
		lines, err := reader.Query(ctx, `SELECT value FROM metrics WHERE device_id = $1 AND metric_id = 'watts'`, device)
		check("rows", err)
		for lines.Next() {
			check("row", lines.Scan(&value))
			sum += value
		}
		check("end of rows", lines.Err())
		equal("sum", sum, 4950.0)
		var nan float64
		check("NaN", reader.QueryRow(ctx, "SELECT 'NaN'::float8").Scan(&nan))
		equal("NaN", math.IsNaN(nan), true)
		_, err = reader.Exec(ctx, "SELECT * FROM nix WHERE a = $1", "x")
		equal(mode.String(), state(err), "42P01")
		check("close", reader.Close(ctx))
	}
	reader, err := pgx.Connect(ctx, url(os.Args[2]))
	check("connect", err)
	batch := &pgx.Batch{}
	batch.Queue("SELECT count(*) FROM metrics WHERE device_id = $1", device)
	batch.Queue("SELECT labels FROM metrics WHERE device_id = $1 AND value > 200", device)
	results := reader.SendBatch(ctx, batch)
	var found int64
	check("first of a batch", results.QueryRow().Scan(&found))
	equal("first of a batch", found, int64(101))
	var labels json.RawMessage
	check("second of a batch", results.QueryRow().Scan(&labels))
	equal("second of a batch", string(labels), `{"port": "2"}`)
	check("batch", results.Close())
	time.AfterFunc(300*time.Millisecond, func() { check("cancel", reader.PgConn().CancelRequest(ctx)) })
	_, err = reader.Exec(ctx, endless)
	equal("cancelled", state(err), "57014")
	check("after it", reader.QueryRow(ctx, "SELECT count(*) FROM metrics WHERE device_id = $1", device).Scan(&found))
	check("close", reader.Close(ctx))
	_, err = pgx.Connect(ctx, url("wrong-password"))
	equal("wrong password", state(err), "28P01")
}

func main() {
	pqWrites("go-pq")
	readsBySQL("postgres", url(os.Args[2]), "go-pq")
	readsBySQL("postgres", url(os.Args[2])+"&binary_parameters=yes", "go-pq")
	readsBySQL("pgx", url(os.Args[2]), "go-pq")
	pgxReadsAndWrites("go-pgx")
	fmt.Println("every client of Go read what it wrote")
}
