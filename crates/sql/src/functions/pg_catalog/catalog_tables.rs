//! Tables of `pg_catalog`.

use crate::common::schema::{Column, Table};
use crate::functions::pg_catalog::empty_tables::{EMPTY, Spec};
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray, new_null_array,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{MemTable, MemorySchemaProvider, SchemaProvider};
use datafusion::error::Result;
use datafusion::execution::context::SessionContext;
use pg_wire::oid;
use std::sync::Arc;

/// ID of the first table; the others follow in their order.
const FIRST_TABLE: i64 = 16_384;
/// Name of the role that owns the tables, and of the database.
pub(crate) const JOBMETER: &str = "jobmeter";

const CLASS: Spec = (
    "pg_class",
    "oid:n tableoid:n relname:t relnamespace:n=2200 reltype:n=0 reloftype:n=0 relowner:n=10 relam:n=2 relfilenode:n=0 \
     reltablespace:n=0 relpages:n=0 reltuples:f=-1 relallvisible:n=0 reltoastrelid:n=0 relhasindex:b=f relisshared:b=f \
     relpersistence:t=p relkind:t=r relnatts:n relchecks:n=0 relhasrules:b=f relhastriggers:b=f relhassubclass:b=f \
     relrowsecurity:b=f relforcerowsecurity:b=f relispopulated:b=t relreplident:t=d relispartition:b=f relrewrite:n=0 \
     relfrozenxid:n=0 relminmxid:n=0 relacl:a reloptions:a relpartbound:t relhasoids:b=f",
);
const ATTRIBUTE: Spec = (
    "pg_attribute",
    "attrelid:n attname:t atttypid:n attstattarget:n=-1 attlen:n attnum:n attndims:n=0 attcacheoff:n=-1 atttypmod:n=-1 \
     attbyval:b=f attalign:t=d attstorage:t=p attcompression:t= attnotnull:b atthasdef:b=f atthasmissing:b=f \
     attidentity:t= attgenerated:t= attisdropped:b=f attislocal:b=t attinhcount:n=0 attcollation:n=0 attacl:a \
     attoptions:a attfdwoptions:a attmissingval:t",
);
const TYPE: Spec = (
    "pg_type",
    "oid:n tableoid:n typname:t typnamespace:n=11 typowner:n=10 typlen:n typbyval:b=f typtype:t=b typcategory:t \
     typispreferred:b=f typisdefined:b=t typdelim:t=, typrelid:n=0 typsubscript:n=0 typelem:n typarray:n typinput:t \
     typoutput:t typreceive:t typsend:t typalign:t=d typstorage:t=p typnotnull:b=f typbasetype:n=0 typtypmod:n=-1 \
     typndims:n=0 typcollation:n=0 typdefaultbin:t typdefault:t typacl:a",
);
const NAMESPACE: Spec = ("pg_namespace", "oid:n tableoid:n nspname:t nspowner:n=10 nspacl:a");
const DATABASES: Spec = (
    "pg_database",
    "oid:n datname:t datdba:n=10 encoding:n=6 datlocprovider:t=c datistemplate:b=f datallowconn:b=t datconnlimit:n=-1 \
     datfrozenxid:n=0 datminmxid:n=0 dattablespace:n=1663 datcollate:t=C.UTF-8 datctype:t=C.UTF-8 daticulocale:t \
     datcollversion:t datacl:a",
);
const ROLES: Spec = (
    "pg_roles",
    "rolname:t rolsuper:b=f rolinherit:b=t rolcreaterole:b=f rolcreatedb:b=f rolcanlogin:b=t rolreplication:b=f \
     rolconnlimit:n=-1 rolpassword:t=******** rolvaliduntil:t rolbypassrls:b=f rolconfig:a oid:n",
);
const AM: Spec = ("pg_am", "oid:n amname:t amhandler:t amtype:t=t");
const TABLES: Spec = (
    "pg_tables",
    "schemaname:t tablename:t tableowner:t tablespace:t hasindexes:b=f hasrules:b=f hastriggers:b=f rowsecurity:b=f",
);
const SETTINGS: Spec = (
    "pg_settings",
    "name:t setting:t unit:t category:t short_desc:t context:t vartype:t source:t boot_val:t reset_val:t",
);

/// Values of a row that are no defaults, by name.
type Row = Vec<(&'static str, String)>;

/// Registers the tables.
pub(crate) fn register(context: &SessionContext) -> Result<()> {
    let provider = MemorySchemaProvider::new();
    let one = |id: &str, column: &'static str, name: &str| {
        vec![vec![("oid", id.to_owned()), (column, name.to_owned())]]
    };
    let filled: [(Spec, Vec<Row>); 9] = [
        (CLASS, class()),
        (ATTRIBUTE, attributes()),
        (TYPE, types()),
        (NAMESPACE, namespaces()),
        (DATABASES, one("16000", "datname", JOBMETER)),
        (ROLES, one("10", "rolname", JOBMETER)),
        (AM, one("2", "amname", "heap")),
        (TABLES, tables()),
        (SETTINGS, settings()),
    ];
    let empty = EMPTY.iter().map(|spec| (*spec, Vec::new()));
    for ((name, columns), rows) in filled.into_iter().chain(empty) {
        let batch = batch(columns, &rows)?;
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
        provider.register_table(name.to_owned(), Arc::new(table))?;
    }
    let catalog = context.catalog_names().first().and_then(|name| context.catalog(name));
    if let Some(catalog) = catalog {
        catalog.register_schema("pg_catalog", Arc::new(provider))?;
    }
    Ok(())
}

/// The tables with their IDs.
fn numbered() -> impl Iterator<Item = (Table, i64)> {
    Table::ALL.into_iter().zip(FIRST_TABLE..)
}

/// Tables of the catalogue that clients name, with their IDs.
const NAMED: [(&str, i64); 10] = [
    ("pg_type", 1247),
    ("pg_attribute", 1249),
    ("pg_proc", 1255),
    ("pg_class", 1259),
    ("pg_database", 1262),
    ("pg_constraint", 2606),
    ("pg_namespace", 2615),
    ("pg_trigger", 2620),
    ("pg_extension", 3079),
    ("pg_statistic_ext", 3381),
];

/// ID of a table by its name.
pub(crate) fn id_of_table(name: &str) -> Option<i64> {
    let name = name.strip_prefix("pg_catalog.").or(name.strip_prefix("public.")).unwrap_or(name);
    let name = name.trim_matches('"');
    let own = numbered().find(|(table, _)| table.name() == name).map(|(_, id)| id);
    own.or_else(|| NAMED.into_iter().find(|(known, _)| *known == name).map(|(_, id)| id))
}

/// Name of a table by its ID.
pub(crate) fn table_of_id(id: i64) -> Option<&'static str> {
    numbered().find(|(_, known)| *known == id).map(|(table, _)| table.name())
}

fn class() -> Vec<Row> {
    let row = |(table, id): (Table, i64)| {
        vec![
            ("oid", id.to_string()),
            ("relname", table.name().to_owned()),
            ("relnatts", table.columns().len().to_string()),
        ]
    };
    numbered().map(row).collect()
}

fn attributes() -> Vec<Row> {
    let mut rows = Vec::new();
    for (table, id) in numbered() {
        for ((name, column, nullable), place) in table.columns().iter().zip(1_u32..) {
            let kind = match column {
                Column::Text if *name == "labels" => oid::JSONB,
                Column::Text => oid::TEXT,
                Column::Time => oid::TIMESTAMPTZ,
                Column::Number => oid::INT8,
                Column::Value => oid::FLOAT8,
            };
            rows.push(vec![
                ("attrelid", id.to_string()),
                ("attname", (*name).to_owned()),
                ("atttypid", kind.to_string()),
                ("attlen", oid::size(kind).to_string()),
                ("attnum", place.to_string()),
                ("attnotnull", (!nullable).to_string()),
            ]);
        }
    }
    rows
}

fn types() -> Vec<Row> {
    let array_of = |kind: u32| oid::TYPES.iter().find(|one| one.5 == kind).map_or(0, |one| one.0);
    let row = |&(id, name, _, size, category, element): &(u32, &str, &str, i16, char, u32)| {
        let input = if element == 0 { format!("{name}in") } else { "array_in".to_owned() };
        vec![
            ("oid", id.to_string()),
            ("typname", name.to_owned()),
            ("typlen", size.to_string()),
            ("typcategory", category.to_string()),
            ("typelem", element.to_string()),
            ("typarray", array_of(id).to_string()),
            ("typinput", input),
        ]
    };
    oid::TYPES.iter().map(row).collect()
}

fn namespaces() -> Vec<Row> {
    [("11", "pg_catalog"), ("2200", "public"), ("13000", "information_schema")]
        .map(|(id, name)| vec![("oid", id.to_owned()), ("nspname", name.to_owned())])
        .to_vec()
}

/// Settings that drivers read.
fn settings() -> Vec<Row> {
    [("max_index_keys", "32"), ("default_transaction_isolation", "read committed")]
        .map(|(name, value)| vec![("name", name.to_owned()), ("setting", value.to_owned())])
        .to_vec()
}

fn tables() -> Vec<Row> {
    let row = |table: Table| {
        [("schemaname", "public"), ("tablename", table.name()), ("tableowner", JOBMETER)]
            .map(|(name, text)| (name, text.to_owned()))
            .to_vec()
    };
    Table::ALL.into_iter().map(row).collect()
}

/// A column of lists that are null.
fn lists(kind: DataType, rows: usize) -> ArrayRef {
    new_null_array(&DataType::List(Arc::new(Field::new_list_field(kind, true))), rows)
}

/// Whether a table has no rows.
pub(crate) fn is_empty(name: &str) -> bool {
    EMPTY.iter().any(|(table, _)| *table == name)
}

fn batch(columns: &'static str, rows: &[Row]) -> Result<RecordBatch> {
    let (mut fields, mut arrays) = (Vec::new(), Vec::new());
    for column in columns.split_whitespace() {
        let (column, default) =
            column.split_once('=').map_or((column, None), |(column, value)| (column, Some(value)));
        let (name, kind) = column.split_once(':').unwrap_or((column, "t"));
        let value = |row: &Row| {
            let own = row.iter().find(|(of, _)| *of == name).map(|(_, value)| value.clone());
            own.or_else(|| default.map(str::to_owned))
        };
        let values = rows.iter().map(value);
        let array: ArrayRef = match kind {
            "n" => Arc::new(values.map(|value| value?.parse().ok()).collect::<Int64Array>()),
            "f" => Arc::new(values.map(|value| value?.parse().ok()).collect::<Float64Array>()),
            "b" => {
                let flag = |value: Option<String>| value.map(|text| text.starts_with('t'));
                Arc::new(values.map(flag).collect::<BooleanArray>())
            }
            "l" => lists(DataType::Int64, rows.len()),
            "a" => lists(DataType::Utf8, rows.len()),
            _ => Arc::new(values.collect::<StringArray>()),
        };
        fields.push(Field::new(name, array.data_type().clone(), true));
        arrays.push(array);
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_of_our_tables_is_listed() {
        let columns: usize = Table::ALL.iter().map(|table| table.columns().len()).sum();
        assert_eq!(batch(ATTRIBUTE.1, &attributes()).unwrap().num_rows(), columns);
        assert_eq!(batch(CLASS.1, &class()).unwrap().num_rows(), Table::ALL.len());
        assert_eq!(table_of_id(id_of_table("public.metrics").unwrap()), Some("metrics"));
        assert_eq!(id_of_table("pg_catalog.pg_class"), Some(1259));
        for (name, columns) in EMPTY {
            assert_eq!(batch(columns, &[]).unwrap().num_rows(), 0, "{name}");
        }
    }
}
