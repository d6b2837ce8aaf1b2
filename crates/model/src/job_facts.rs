//! What a scheduler reports about a job: one list of fields, from which tables take their columns.

use std::borrow::Cow;
use std::sync::LazyLock;

/// Declares a struct of facts. Its fields are columns, or further facts whose columns have the field's
/// name as their prefix.
macro_rules! facts {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name { $($(#[$field_doc])* pub $field: $kind,)* }

        impl Facts for $name {
            fn columns(prefix: &str, to: &mut Vec<FactColumn>) {
                let split = if prefix.is_empty() { "" } else { "_" };
                $(<$kind>::columns(&format!("{prefix}{split}{}", stringify!($field)), to);)*
            }

            fn values<'a>(&'a self, to: &mut Vec<FactValue<'a>>) {
                $(self.$field.values(to);)*
            }

            fn read<'a>(from: &mut impl Iterator<Item = FactValue<'a>>) -> Option<Self> {
                Some(Self { $($field: Facts::read(from)?,)* })
            }

            fn or(self, earlier: Self) -> Self {
                Self { $($field: Facts::or(self.$field, earlier.$field),)* }
            }
        }
    };
}

facts! {
    /// What a scheduler reports about a job, beside its ID, its state and its times. `None`: not reported.
    /// The tables of the registry and of SQL have a column for each field, in this order.
    JobFacts {
        /// Login name.
        user: Option<Box<str>>,
        /// User ID on the nodes.
        uid: Option<u32>,
        /// The account charged.
        account: Option<Box<str>>,
        /// Name given by the user.
        name: Option<Box<str>>,
        /// Exit status of the job's command: an exit code, or 128 plus a signal.
        exit_code: Option<i32>,
        /// Colmet's and OAR's project.
        project: Option<Box<str>>,
        /// The queue or partition.
        queue: Option<Box<str>>,
        /// The scheduler's own word for the state, such as `COMPLETING` or `Hold`.
        state_word: Option<Box<str>>,
        /// ID of the array or heterogeneous job that contains it.
        part_of: Option<i64>,
        /// Index in its array.
        array_index: Option<i64>,
        /// Words of the submission. OAR: types such as `besteffort` or `monitor=perf_.*`. Slurm: the words
        /// of `--comment`.
        types: Option<Vec<Box<str>>>,
        /// Requested resources.
        requested: Resources,
        /// Used resources.
        used: Resources,
    }
}

facts! {
    /// Amounts of resources; `None` if unknown.
    Resources {
        /// Nodes.
        nodes: Option<u32>,
        /// Processor cores, over all nodes, as the scheduler counts them.
        cpus: Option<u32>,
        /// Accelerators, over all nodes.
        gpus: Option<u32>,
        /// Memory in bytes. Requested: over all nodes; used: the largest of any task.
        memory_bytes: Option<u64>,
        /// Time in seconds. Requested: the limit; used: from start to stop.
        wall_seconds: Option<f64>,
        /// Processor time in seconds; only for used resources.
        cpu_seconds: Option<f64>,
    }
}

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactKind {
    /// A text.
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Real,
}

/// A column of [`JobFacts`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactColumn {
    /// Its name, such as `uid` or `requested_cpus`.
    pub name: String,
    /// Its type.
    pub kind: FactKind,
}

/// Value of a column. Words are lines of a text.
#[derive(Clone, Debug, PartialEq)]
pub enum FactValue<'a> {
    /// Not reported.
    None,
    /// A text.
    Text(Cow<'a, str>),
    /// A whole number. Greater ones are [`i64::MAX`].
    Integer(i64),
    /// A number.
    Real(f64),
}

impl JobFacts {
    /// The columns, in the order of the fields.
    pub fn columns() -> &'static [FactColumn] {
        static COLUMNS: LazyLock<Vec<FactColumn>> = LazyLock::new(|| {
            let mut columns = Vec::new();
            <JobFacts as Facts>::columns("", &mut columns);
            columns
        });
        &COLUMNS
    }

    /// The value of each column.
    pub fn values(&self) -> Vec<FactValue<'_>> {
        let mut values = Vec::with_capacity(Self::columns().len());
        Facts::values(self, &mut values);
        values
    }

    /// The facts with a value for each column. `None`: a value is missing, of another type, or out of
    /// range.
    pub fn from_values<'a>(values: impl IntoIterator<Item = FactValue<'a>>) -> Option<Self> {
        Facts::read(&mut values.into_iter())
    }

    /// Completes facts with those of an earlier report.
    #[must_use]
    pub fn or(self, earlier: Self) -> Self {
        Facts::or(self, earlier)
    }
}

/// One or more columns.
trait Facts: Sized {
    fn columns(name: &str, to: &mut Vec<FactColumn>);
    fn values<'a>(&'a self, to: &mut Vec<FactValue<'a>>);
    fn read<'a>(from: &mut impl Iterator<Item = FactValue<'a>>) -> Option<Self>;
    fn or(self, earlier: Self) -> Self;
}

impl<T: Fact> Facts for Option<T> {
    fn columns(name: &str, to: &mut Vec<FactColumn>) {
        to.push(FactColumn { name: name.to_owned(), kind: T::KIND });
    }

    fn values<'a>(&'a self, to: &mut Vec<FactValue<'a>>) {
        to.push(self.as_ref().map_or(FactValue::None, T::value));
    }

    fn read<'a>(from: &mut impl Iterator<Item = FactValue<'a>>) -> Option<Self> {
        match from.next()? {
            FactValue::None => Some(None),
            value => T::parse(value).map(Some),
        }
    }

    fn or(self, earlier: Self) -> Self {
        self.or(earlier)
    }
}

/// Type of a field with one column.
trait Fact: Sized {
    const KIND: FactKind;
    fn value(&self) -> FactValue<'_>;
    fn parse(value: FactValue<'_>) -> Option<Self>;
}

impl Fact for Box<str> {
    const KIND: FactKind = FactKind::Text;

    fn value(&self) -> FactValue<'_> {
        FactValue::Text(Cow::Borrowed(self))
    }

    fn parse(value: FactValue<'_>) -> Option<Self> {
        if let FactValue::Text(text) = value { Some(text.into()) } else { None }
    }
}

impl Fact for Vec<Box<str>> {
    const KIND: FactKind = FactKind::Text;

    fn value(&self) -> FactValue<'_> {
        FactValue::Text(Cow::Owned(self.join("\n")))
    }

    fn parse(value: FactValue<'_>) -> Option<Self> {
        let FactValue::Text(text) = value else { return None };
        Some(text.lines().map(Box::from).collect())
    }
}

impl Fact for f64 {
    const KIND: FactKind = FactKind::Real;

    fn value(&self) -> FactValue<'_> {
        FactValue::Real(*self)
    }

    fn parse(value: FactValue<'_>) -> Option<Self> {
        if let FactValue::Real(number) = value { Some(number) } else { None }
    }
}

macro_rules! integers {
    ($($kind:ty)*) => {$(
        impl Fact for $kind {
            const KIND: FactKind = FactKind::Integer;

            fn value(&self) -> FactValue<'_> {
                FactValue::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
            }

            fn parse(value: FactValue<'_>) -> Option<Self> {
                let FactValue::Integer(number) = value else { return None };
                Self::try_from(number).ok()
            }
        }
    )*};
}

integers! { u32 i32 i64 u64 }

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> JobFacts {
        JobFacts {
            user: Some("alice".into()),
            uid: Some(1000),
            exit_code: Some(-1),
            part_of: Some(40),
            types: Some(vec!["besteffort".into(), "monitor".into()]),
            requested: Resources { memory_bytes: Some(u64::MAX), ..Resources::default() },
            used: Resources { wall_seconds: Some(1.5), ..Resources::default() },
            ..JobFacts::default()
        }
    }

    #[test]
    fn every_field_is_a_column_with_a_name_of_its_own() {
        let names: Vec<_> = JobFacts::columns().iter().map(|column| &*column.name).collect();
        assert_eq!(names.len(), facts().values().len());
        assert_eq!(
            (names[0], names[11], names[22]),
            ("user", "requested_nodes", "used_cpu_seconds")
        );
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), names.len(), "{names:?}");
    }

    #[test]
    fn values_are_read_back() {
        let mut read = JobFacts::from_values(facts().values()).unwrap();
        assert_eq!(read.requested.memory_bytes, Some(i64::MAX.unsigned_abs()), "the largest");
        read.requested.memory_bytes = Some(u64::MAX);
        assert_eq!(read, facts());
        let none = JobFacts { types: Some(Vec::new()), ..JobFacts::default() };
        assert_eq!(JobFacts::from_values(none.values()), Some(none), "no words are a report");
    }

    #[test]
    fn a_missing_value_or_one_of_another_type_is_an_error() {
        let facts = facts();
        for place in 0..JobFacts::columns().len() {
            let mut values = facts.values();
            values[place] = match JobFacts::columns()[place].kind {
                FactKind::Text => FactValue::Integer(1),
                FactKind::Integer | FactKind::Real => FactValue::Text("1".into()),
            };
            assert_eq!(JobFacts::from_values(values), None, "{place}");
            assert_eq!(JobFacts::from_values(facts.values().into_iter().take(place)), None);
        }
        let mut values = facts.values();
        values[1] = FactValue::Integer(-1);
        assert_eq!(JobFacts::from_values(values), None, "a user ID");
    }

    #[test]
    fn a_report_keeps_what_it_does_not_contain() {
        let later = JobFacts { uid: Some(7), ..JobFacts::default() };
        assert_eq!(later.or(facts()), JobFacts { uid: Some(7), ..facts() });
    }
}
