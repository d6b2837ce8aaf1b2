//! Rows of tables that one GETBULK reads: neighbouring rows with the same columns.
//!
//! GETBULK returns the values that follow some OIDs. So a request of one OID per column reads many rows. Values of other OIDs
//! are never used, and what is missing in the response is read by GET.

use super::limits::bytes;
use super::requests::Variable;
use async_snmp::{Oid, Value, VarBind};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Rows below which GET is as good.
const ROWS_MIN: usize = 4;
/// Largest distance of two rows that are read together.
const DISTANCE_MAX: u32 = 3;

/// Neighbouring rows of some columns.
pub(super) struct Block {
    columns: Vec<Oid>,
    /// Index of the first row.
    first: u32,
    /// Rows from the first to the last, some of which may not exist.
    pub(super) rows: u32,
    /// What is requested of them.
    pub(super) variables: Vec<Variable>,
}

impl Block {
    /// A block of a run of rows; its variables if it is too short.
    fn of(run: Vec<(u32, Row)>) -> Result<Self, Vec<Variable>> {
        let bounds = run.first().zip(run.last()).filter(|_| run.len() >= ROWS_MIN);
        let found = bounds.map(|((first, row), (last, _))| {
            (row.columns.iter().cloned().collect(), *first, last - first + 1)
        });
        let variables: Vec<Variable> = run.into_iter().flat_map(|(_, row)| row.variables).collect();
        match found {
            Some((columns, first, rows)) => Ok(Self { columns, first, rows, variables }),
            None => Err(variables),
        }
    }

    /// The OIDs before those of the first row.
    pub(super) fn starts(&self) -> Vec<Oid> {
        let before = self.first.checked_sub(1);
        let start = |column: &Oid| before.map_or_else(|| column.clone(), |row| column.child(row));
        self.columns.iter().map(start).collect()
    }

    /// Values of a whole response.
    pub(super) fn values(&self) -> usize {
        self.columns.len() * usize::try_from(self.rows).unwrap_or(usize::MAX)
    }

    /// About the bytes of a whole response.
    pub(super) fn bytes(&self) -> usize {
        let last = self.first.saturating_add(self.rows);
        let row: usize = self.columns.iter().map(|column| bytes(&column.child(last))).sum();
        row * usize::try_from(self.rows).unwrap_or(usize::MAX)
    }
}

/// Finds the blocks among the variables, with at most `bytes_max` bytes in each response, and the variables that are in no block.
pub(super) fn find(variables: Vec<Variable>, bytes_max: usize) -> (Vec<Block>, Vec<Variable>) {
    let (mut rows, mut rest): (BTreeMap<u32, Row>, _) = (BTreeMap::new(), Vec::new());
    for variable in variables {
        match cell(&variable) {
            Some((index, columns)) => {
                let row = rows.entry(index).or_default();
                row.columns.extend(columns);
                row.variables.push(variable);
            }
            None => rest.push(variable),
        }
    }
    let (mut blocks, mut run) = (Vec::new(), Vec::<(u32, Row)>::new());
    let mut end = |run: &mut Vec<(u32, Row)>| match Block::of(std::mem::take(run)) {
        Ok(block) => blocks.push(block),
        Err(few) => rest.extend(few),
    };
    for (index, row) in rows {
        let is_next = run.first().zip(run.last()).is_some_and(|((first, one), (last, _))| {
            let rows = usize::try_from(index - first).unwrap_or(usize::MAX).saturating_add(1);
            let of_row = row.columns.iter().map(|column| bytes(&column.child(index)));
            one.columns == row.columns
                && index - last <= DISTANCE_MAX
                && rows.saturating_mul(of_row.sum::<usize>()) <= bytes_max
        });
        if !is_next {
            end(&mut run);
        }
        run.push((index, row));
    }
    end(&mut run);
    (blocks, rest)
}

/// The variables of a row.
#[derive(Default)]
struct Row {
    columns: BTreeSet<Oid>,
    variables: Vec<Variable>,
}

/// The row and the columns of a variable: of its value, and of the text of its row. `None` if they are in different rows.
fn cell(variable: &Variable) -> Option<(u32, Vec<Oid>)> {
    let (index, column) = split(&variable.oid)?;
    let mut columns = vec![column];
    if let Some(text) = &variable.row {
        let (of_text, column) = split(&text.oid)?;
        if of_text != index {
            return None;
        }
        columns.push(column);
    }
    Some((index, columns))
}

fn split(oid: &Oid) -> Option<(u32, Oid)> {
    let (index, column) = oid.arcs().split_last()?;
    // The library encodes two numbers at least.
    (column.len() >= 2).then(|| (*index, Oid::from_slice(column)))
}

/// The values of a response to GETBULK. The end of the agent's values has the OID of the last one, so it is no value.
pub(super) fn values(response: Vec<VarBind>) -> HashMap<Oid, Value> {
    let mut values = HashMap::new();
    for VarBind { oid, value, .. } in response {
        if !matches!(value, Value::EndOfMibView | Value::NoSuchObject | Value::NoSuchInstance) {
            values.entry(oid).or_insert(value);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::super::requests::RowText;
    use super::*;

    fn variable(column: &[u32], row: u32) -> Variable {
        Variable::of(Oid::from_slice(column).child(row))
    }

    /// Columns, first row, rows and variables of each block.
    fn shown(found: &(Vec<Block>, Vec<Variable>)) -> Vec<(usize, u32, u32, usize)> {
        let block = |one: &Block| (one.columns.len(), one.first, one.rows, one.variables.len());
        found.0.iter().map(block).collect()
    }

    /// 25 rows of two columns: 19 bytes for each value.
    const BYTES: usize = 25 * 2 * 19;
    const OCTETS: [u32; 4] = [1, 3, 6, 10];
    const ERRORS: [u32; 4] = [1, 3, 6, 14];

    #[test]
    fn neighbouring_rows_with_the_same_columns_are_a_block() {
        let all = |rows: &[u32]| {
            let both = |row: &u32| [variable(&OCTETS, *row), variable(&ERRORS, *row)];
            rows.iter().flat_map(both).collect::<Vec<_>>()
        };
        let found = find(all(&[8, 1, 2, 5, 4]), BYTES);
        assert_eq!(shown(&found), [(2, 1, 8, 10)], "in any order, with gaps");
        assert_eq!(found.0[0].starts(), [OCTETS, ERRORS].map(|one| Oid::from_slice(&one).child(0)));
        assert_eq!((found.0[0].values(), found.0[0].bytes()), (16, 16 * 19));
        assert_eq!(find(all(&[1, 2, 3]), BYTES).1.len(), 6, "too few rows");
        assert_eq!(find(all(&[1, 5, 9, 13]), BYTES).1.len(), 8, "too far apart");
        let many: Vec<u32> = (0..30).collect();
        assert_eq!(shown(&find(all(&many), BYTES)), [(2, 0, 25, 50), (2, 25, 5, 10)]);
        assert_eq!(
            find(all(&many), BYTES).0[0].starts(),
            [OCTETS, ERRORS].map(|one| Oid::from_slice(&one))
        );
        let (blocks, rest) = find(all(&many), BYTES / 8);
        assert_eq!((blocks.len(), rest.len()), (0, 60), "an agent with short responses");
        let last = find((0..4).map(|row| variable(&OCTETS, u32::MAX - row)).collect(), BYTES);
        assert_eq!(shown(&last), [(1, u32::MAX - 3, 4, 4)]);
    }

    #[test]
    fn the_text_of_a_row_is_in_the_block_of_its_value() {
        let named = |row: u32, text_row: u32| {
            let oid = Oid::from_slice(&ERRORS).child(text_row);
            let text = RowText { oid, text: "eth".into(), column: Oid::from_slice(&ERRORS) };
            Variable { row: Some(text), ..variable(&OCTETS, row) }
        };
        let found = find((1..=4).map(|row| named(row, row)).collect(), BYTES);
        assert_eq!(shown(&found), [(2, 1, 4, 4)]);
        let (blocks, rest) = find((1..=4).map(|row| named(row, 7)).collect(), BYTES);
        assert_eq!((blocks.len(), rest.len()), (0, 4));
    }

    #[test]
    fn the_end_of_the_values_replaces_none() {
        let one = |value| VarBind::new(Oid::from_slice(&[1, 3, 5]), value);
        let found =
            values(vec![one(Value::Integer(7)), one(Value::EndOfMibView), one(Value::Integer(8))]);
        assert_eq!(found.into_values().collect::<Vec<_>>(), [Value::Integer(7)]);
    }
}
