//! CSV columns of lists: the fields of the element's type, independent of the rows.

use schemars::{JsonSchema, SchemaGenerator};

/// Columns that come first, in this order; the others follow by name.
const FIRST: [&str; 12] = [
    "time", "cluster", "id", "device", "name", "source", "user", "actor", "action", "state",
    "start", "stop",
];
/// The column with the fields of an element that its type does not name, as JSON.
pub const MORE: &str = "more";

/// The columns of a list of such elements.
pub fn columns<T: JsonSchema>() -> Vec<String> {
    let schema = SchemaGenerator::default().into_root_schema_for::<T>();
    let fields = schema.get("properties").and_then(|fields| fields.as_object());
    let mut columns: Vec<String> = fields.into_iter().flat_map(|all| all.keys().cloned()).collect();
    let place = |name: &str| FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len());
    columns.sort_by(|one, other| (place(one), one).cmp(&(place(other), other)));
    if schema.get("additionalProperties").is_some_and(|more| more.as_bool() != Some(false)) {
        columns.push(MORE.to_owned());
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_of_the_type() {
        let jobs = columns::<crate::Job>();
        assert_eq!(jobs[..4], ["cluster", "id", "name", "user"]);
        assert!(jobs.iter().any(|name| name == "usage"), "a field that an answer may lack");
        let audit = columns::<crate::AuditEntry>();
        assert_eq!(audit, ["time", "actor", "action", "address", "job", "owner", MORE]);
    }
}
