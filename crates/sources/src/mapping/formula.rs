//! Formulas over metrics, as values: other programs' values are computed from ours, and ours from theirs.

use Formula::{Difference, Each, Metric, Number, Product, Quotient, Selected, Sum};
use std::fmt;

/// A value computed from metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formula {
    /// A constant.
    Number(u64),
    /// The sum of a metric's series.
    Metric(&'static str),
    /// The sum of a metric's series with a label: metric, label, value.
    Selected(&'static str, &'static str, &'static str),
    /// The sum of a metric's series with a label that has the other program's name as its value: metric, label, and
    /// the name that stands for each one in the row.
    Each(&'static str, &'static str, &'static str),
    /// The sum of all.
    Sum(&'static [Self]),
    /// The first minus the second.
    Difference(&'static Self, &'static Self),
    /// The first times the second.
    Product(&'static Self, &'static Self),
    /// The first divided by the second.
    Quotient(&'static Self, &'static Self),
}

impl Formula {
    /// The metrics in the formula, in its order.
    pub fn metrics(&self) -> Vec<&'static str> {
        match self {
            Number(_) => Vec::new(),
            Metric(name) | Selected(name, ..) | Each(name, ..) => vec![name],
            Sum(all) => all.iter().flat_map(Self::metrics).collect(),
            Difference(a, b) | Product(a, b) | Quotient(a, b) => {
                [a.metrics(), b.metrics()].concat()
            }
        }
    }

    /// How strongly the outermost operator binds.
    const fn precedence(&self) -> u8 {
        match self {
            Sum(_) | Difference(..) => 1,
            Product(..) | Quotient(..) => 2,
            Number(_) | Metric(_) | Selected(..) | Each(..) => 3,
        }
    }

    /// Writes the formula as an operand; in parentheses if it binds less strongly than `least`.
    fn operand(&self, least: u8, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.precedence() < least { write!(f, "({self})") } else { write!(f, "{self}") }
    }
}

/// Writes `+ - * /` with as few parentheses as possible.
impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, sign, b) = match self {
            Number(number) => return write!(f, "{number}"),
            Metric(name) => return f.write_str(name),
            Selected(name, label, value) | Each(name, label, value) => {
                return write!(f, "{name}{{{label}=\"{value}\"}}");
            }
            Sum(all) => {
                for (place, one) in all.iter().enumerate() {
                    f.write_str(if place > 0 { " + " } else { "" })?;
                    one.operand(1, f)?;
                }
                return Ok(());
            }
            Difference(a, b) => (a, '-', b),
            Product(a, b) => (a, '*', b),
            Quotient(a, b) => (a, '/', b),
        };
        let precedence = self.precedence();
        a.operand(precedence, f)?;
        write!(f, " {sign} ")?;
        b.operand(precedence + 1, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Formula = Metric("a");
    const B: Formula = Selected("b", "cpu", "0");
    const TWO: Formula = Number(2);

    #[test]
    fn parentheses_keep_the_order_of_operations() {
        for (formula, text) in [
            (Sum(&[A, Product(&A, &TWO), Difference(&B, &TWO)]), "a + a * 2 + b{cpu=\"0\"} - 2"),
            (Product(&TWO, &Sum(&[A, B])), "2 * (a + b{cpu=\"0\"})"),
            (Difference(&A, &Difference(&B, &TWO)), "a - (b{cpu=\"0\"} - 2)"),
            (Difference(&Difference(&A, &B), &TWO), "a - b{cpu=\"0\"} - 2"),
            (Quotient(&Product(&TWO, &A), &Product(&A, &TWO)), "2 * a / (a * 2)"),
        ] {
            assert_eq!(formula.to_string(), text);
        }
    }

    #[test]
    fn metrics_of_a_formula() {
        let formula = Quotient(&Product(&TWO, &Difference(&A, &B)), &Each("c", "cpu", "N"));
        assert_eq!(formula.metrics(), ["a", "b", "c"]);
        assert_eq!(TWO.metrics(), [""; 0]);
    }
}
