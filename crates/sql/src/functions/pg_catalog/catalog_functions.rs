//! Functions of `pg_catalog`: constants, names and IDs. Nothing of the machine.

use crate::common::wire::WireStatement;
use crate::functions::pg_catalog::catalog_tables::{JOBMETER, id_of_table, table_of_id};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use pg_wire::oid;
use std::sync::Arc;

/// Facts about the session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Facts {
    user: String,
    session: u32,
    settings: Vec<(String, String)>,
}

impl Facts {
    pub(crate) fn of(statement: &WireStatement) -> Self {
        let WireStatement { user, session, settings, .. } = statement;
        Self { user: user.clone(), session: *session, settings: settings.clone() }
    }
}

type Arguments<'a> = &'a [Option<String>];
type Call = fn(Arguments<'_>, &Facts) -> Option<String>;

/// Result types: text, number, boolean.
const T: DataType = DataType::Utf8;
const N: DataType = DataType::Int64;
const B: DataType = DataType::Boolean;

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn first<'a>(arguments: Arguments<'a>) -> Option<&'a str> {
    arguments.first()?.as_deref()
}

const TRUE: Call = |_, _| text("true");
const FALSE: Call = |_, _| text("false");
const NONE: Call = |_, _| None;
const ZERO: Call = |_, _| text("0");
const OWNER: Call = |_, _| text(JOBMETER);
const USER: Call = |_, facts| Some(facts.user.clone());
const ENCODING: Call = |_, _| text("UTF8");
const VERSION: Call =
    |_, _| text(concat!("PostgreSQL 15.0 (jobmeter ", env!("CARGO_PKG_VERSION"), ")"));

/// Name, result type and implementation.
const FUNCTIONS: &[(&str, DataType, Call)] = &[
    ("version", T, VERSION),
    ("current_database", T, OWNER),
    ("current_catalog", T, OWNER),
    ("current_schema", T, |_, _| text("public")),
    ("current_user", T, USER),
    ("current_role", T, USER),
    ("session_user", T, USER),
    ("user", T, USER),
    ("pg_backend_pid", N, |_, facts| Some(facts.session.to_string())),
    ("pg_client_encoding", T, ENCODING),
    ("getdatabaseencoding", T, ENCODING),
    ("pg_encoding_to_char", T, ENCODING),
    ("pg_get_userbyid", T, OWNER),
    ("current_setting", T, |arguments, facts| {
        let name = first(arguments)?.to_lowercase();
        let mut settings = facts.settings.iter();
        settings.find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }),
    ("set_config", T, |arguments, _| arguments.get(1)?.clone()),
    ("format_type", T, |arguments, _| type_name(first(arguments)?)),
    ("regtype_name", T, |arguments, _| type_name(first(arguments)?)),
    ("to_regtype", N, |arguments, _| type_id(first(arguments)?)),
    ("regtype_id", N, |arguments, _| type_id(first(arguments)?)),
    ("regclass_name", T, |arguments, _| {
        let id = first(arguments)?;
        text(id.parse().ok().and_then(table_of_id).unwrap_or(id))
    }),
    ("regclass_id", N, |arguments, _| {
        let name = first(arguments)?;
        name.parse().ok().or_else(|| id_of_table(name)).map(|id: i64| id.to_string())
    }),
    ("to_regclass", N, |arguments, _| id_of_table(first(arguments)?).map(|id| id.to_string())),
    ("regnamespace_id", N, |arguments, _| match first(arguments)? {
        "pg_catalog" => text("11"),
        "information_schema" => text("13000"),
        "public" => text("2200"),
        _ => None,
    }),
    ("regnamespace_name", T, |arguments, _| match first(arguments)? {
        "11" => text("pg_catalog"),
        "13000" => text("information_schema"),
        "2200" => text("public"),
        other => text(other),
    }),
    ("quote_ident", T, |arguments, _| {
        let name = first(arguments)?;
        let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_');
        let quoted = || format!("\"{}\"", name.replace('"', "\"\""));
        Some(if is_plain { name.to_owned() } else { quoted() })
    }),
    ("quote_literal", T, |arguments, _| {
        Some(format!("'{}'", first(arguments)?.replace('\'', "''")))
    }),
    ("pg_table_is_visible", B, |arguments, _| {
        Some(table_of_id(first(arguments)?.parse().ok()?).is_some().to_string())
    }),
    ("pg_is_in_recovery", B, FALSE),
    ("pg_relation_is_publishable", B, FALSE),
    ("pg_type_is_visible", B, TRUE),
    ("pg_collation_is_visible", B, TRUE),
    ("pg_conversion_is_visible", B, TRUE),
    ("pg_operator_is_visible", B, TRUE),
    ("pg_opclass_is_visible", B, TRUE),
    ("pg_opfamily_is_visible", B, TRUE),
    ("pg_statistics_obj_is_visible", B, TRUE),
    ("pg_ts_config_is_visible", B, TRUE),
    ("pg_ts_dict_is_visible", B, TRUE),
    ("pg_ts_parser_is_visible", B, TRUE),
    ("pg_ts_template_is_visible", B, TRUE),
    ("pg_function_is_visible", B, TRUE),
    ("pg_has_role", B, TRUE),
    ("has_table_privilege", B, TRUE),
    ("has_column_privilege", B, TRUE),
    ("has_any_column_privilege", B, TRUE),
    ("has_schema_privilege", B, TRUE),
    ("has_database_privilege", B, TRUE),
    ("has_sequence_privilege", B, TRUE),
    ("pg_my_temp_schema", N, ZERO),
    // Only of tables without rows: indexes and constraints.
    ("generate_subscripts", N, NONE),
    ("array_upper", N, NONE),
    ("array_lower", N, NONE),
    ("json_build_object", T, NONE),
    ("jsonb_build_object", T, NONE),
    ("pg_relation_size", N, ZERO),
    ("pg_database_size", N, ZERO),
    ("pg_tablespace_size", N, ZERO),
    ("pg_char_to_encoding", N, |_, _| text("6")),
    ("pg_size_pretty", T, |arguments, _| Some(format!("{} bytes", first(arguments)?))),
    ("pg_table_size", N, ZERO),
    ("pg_total_relation_size", N, ZERO),
    ("pg_advisory_unlock_all", T, |_, _| text("")),
    ("pg_get_expr", T, NONE),
    ("obj_description", T, NONE),
    ("col_description", T, NONE),
    ("shobj_description", T, NONE),
    ("pg_get_indexdef", T, NONE),
    ("pg_get_constraintdef", T, NONE),
    ("pg_get_viewdef", T, NONE),
    ("pg_get_triggerdef", T, NONE),
    ("pg_get_ruledef", T, NONE),
    ("pg_get_serial_sequence", T, NONE),
    ("pg_get_partkeydef", T, NONE),
    ("pg_get_statisticsobjdef_columns", T, NONE),
    ("pg_get_function_result", T, NONE),
    ("pg_get_function_sqlbody", T, NONE),
    ("pg_get_function_arguments", T, NONE),
    ("pg_get_function_identity_arguments", T, NONE),
    ("pg_tablespace_location", T, NONE),
    ("inet_server_addr", T, NONE),
    ("inet_client_addr", T, NONE),
];

/// SQL name of a type.
fn type_name(id: &str) -> Option<String> {
    let id: u32 = id.parse().ok()?;
    text(oid::TYPES.iter().find(|one| one.0 == id).map_or("???", |one| one.2))
}

/// ID of a type by either of its names.
fn type_id(name: &str) -> Option<String> {
    let name = name.trim_start_matches("pg_catalog.");
    let mut types = oid::TYPES.iter();
    types.find(|one| one.1 == name || one.2 == name).map(|one| one.0.to_string())
}

/// The functions.
pub(crate) fn functions(facts: &Facts) -> Vec<Arc<ScalarUDF>> {
    let facts = Arc::new(facts.clone());
    let any = vec![TypeSignature::VariadicAny, TypeSignature::Nullary];
    let signature = Signature::one_of(any, Volatility::Stable);
    let function = |place| {
        let (facts, signature) = (Arc::clone(&facts), signature.clone());
        Arc::new(ScalarUDF::from(CatalogFunction { place, facts, signature }))
    };
    (0..FUNCTIONS.len()).map(function).collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CatalogFunction {
    /// Its place in [`FUNCTIONS`].
    place: usize,
    facts: Arc<Facts>,
    signature: Signature,
}

impl CatalogFunction {
    fn spec(&self) -> (&'static str, DataType, Call) {
        let spec = FUNCTIONS.get(self.place);
        spec.map_or(("unknown", T, NONE), |(name, kind, call)| (name, kind.clone(), *call))
    }
}

impl ScalarUDFImpl for CatalogFunction {
    fn name(&self) -> &'static str {
        self.spec().0
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.spec().1)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (_, kind, call) = self.spec();
        let rows = args.number_rows;
        // A list has no text, and none of these functions reads one.
        let texts = |value: &ColumnarValue| -> Result<Option<ArrayRef>> {
            Ok(cast(&value.to_array(rows)?, &DataType::Utf8).ok())
        };
        let arguments: Vec<_> = args.args.iter().map(texts).collect::<Result<_>>()?;
        let cell = |array: &Option<ArrayRef>, row: usize| {
            let array = array.as_ref().filter(|array| !array.is_null(row))?;
            Some(array.as_string::<i32>().value(row).to_owned())
        };
        let result = |row: usize| {
            let texts: Vec<_> = arguments.iter().map(|array| cell(array, row)).collect();
            call(&texts, &self.facts)
        };
        let results: StringArray = (0..rows).map(result).collect();
        Ok(ColumnarValue::Array(cast(&results, &kind)?))
    }
}
