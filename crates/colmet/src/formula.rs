//! Formulas over metrics, as values: other programs' values are computed from ours, and ours from theirs.

use Formula::{Difference, Each, Metric, Number, Product, Quotient, Scaled, Selected, Sum};
use std::fmt;

/// The series of a metric that a formula sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector<'a> {
    /// The metric.
    pub metric: &'static str,
    /// Only series with this label and value; `None`: all.
    pub label: Option<(&'static str, &'a str)>,
}

/// The factor between another program's value and ours: `theirs = ours * times / over`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Numerator.
    pub times: u64,
    /// Denominator, never 0.
    pub over: u64,
}

impl Scale {
    /// Both have the same unit.
    pub const ONE: Self = Self { times: 1, over: 1 };

    /// Their value in our unit. One multiplication and one division: whole numbers of theirs below 2^53 are restored
    /// by [`Self::to_theirs`] and rounding.
    pub fn to_ours(self, theirs: f64) -> f64 {
        theirs * self.over as f64 / self.times as f64
    }

    /// Our value in their unit.
    pub fn to_theirs(self, ours: f64) -> f64 {
        ours * self.times as f64 / self.over as f64
    }
}

/// A value computed from metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formula {
    /// A constant.
    Number(u64),
    /// The sum of a metric's series.
    Metric(&'static str),
    /// The sum of a metric's series, multiplied by the first number and divided by the second.
    Scaled(&'static str, u64, u64),
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
            Metric(name) | Scaled(name, ..) | Selected(name, ..) | Each(name, ..) => vec![name],
            Sum(all) => all.iter().flat_map(Self::metrics).collect(),
            Difference(a, b) | Product(a, b) | Quotient(a, b) => {
                [a.metrics(), b.metrics()].concat()
            }
        }
    }

    /// The formula's value; `value` returns the sum of a metric's series, and `theirs` is the name that [`Each`] stands
    /// for. `None` without one of the metrics, and for a result that is no number.
    pub fn compute(
        &self,
        theirs: &str,
        value: &dyn Fn(Selector<'_>) -> Option<f64>,
    ) -> Option<f64> {
        let both =
            |a: &Self, b: &Self| Some((a.compute(theirs, value)?, b.compute(theirs, value)?));
        let found = match self {
            Number(number) => *number as f64,
            Metric(metric) => value(Selector { metric, label: None })?,
            Scaled(metric, times, over) => {
                let scale = Scale { times: *times, over: *over };
                scale.to_theirs(value(Selector { metric, label: None })?)
            }
            Selected(metric, label, of) => value(Selector { metric, label: Some((label, of)) })?,
            Each(metric, label, _) => value(Selector { metric, label: Some((label, theirs)) })?,
            Sum(all) => {
                all.iter().try_fold(0.0, |sum, one| Some(sum + one.compute(theirs, value)?))?
            }
            Difference(a, b) => both(a, b).map(|(a, b)| a - b)?,
            Product(a, b) => both(a, b).map(|(a, b)| a * b)?,
            Quotient(a, b) => both(a, b).map(|(a, b)| a / b)?,
        };
        found.is_finite().then_some(found)
    }

    /// The factor between the formula's value and the unit of its metrics; `None` if their values do not only add up.
    pub fn scale(&self) -> Option<Scale> {
        match self {
            Number(_) => None,
            Metric(_) | Selected(..) | Each(..) => Some(Scale::ONE),
            Scaled(_, times, over) => Some(Scale { times: *times, over: *over }),
            Product(a, Number(number)) => {
                let Scale { times, over } = a.scale()?;
                Some(Scale { times: times.checked_mul(*number)?, over })
            }
            Quotient(a, Number(number)) => {
                let Scale { times, over } = a.scale()?;
                Some(Scale { times, over: over.checked_mul(*number)? })
            }
            Sum([first, rest @ ..]) => {
                let scale = first.scale()?;
                rest.iter().all(|one| one.scale() == Some(scale)).then_some(scale)
            }
            Difference(a, b) => a.scale().filter(|scale| b.scale() == Some(*scale)),
            Sum([]) | Product(..) | Quotient(..) => None,
        }
    }

    /// The only series of the formula, and its factor: such a formula is also computed backwards. `None` for every other.
    pub fn inverse(&self) -> Option<(Selector<'static>, Scale)> {
        let selector = match self {
            Metric(metric) | Scaled(metric, ..) => Selector { metric, label: None },
            Selected(metric, label, of) => Selector { metric, label: Some((label, of)) },
            Product(a, Number(_)) | Quotient(a, Number(_)) => a.inverse()?.0,
            _ => return None,
        };
        Some((selector, self.scale()?))
    }

    /// How strongly the outermost operator binds.
    const fn precedence(&self) -> u8 {
        match self {
            Sum(_) | Difference(..) => 1,
            Product(..) | Quotient(..) | Scaled(..) => 2,
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
            Scaled(name, times, over) => {
                f.write_str(name)?;
                if *times != 1 {
                    write!(f, " * {times}")?;
                }
                return if *over == 1 { Ok(()) } else { write!(f, " / {over}") };
            }
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
            (Scaled("a", 2, 3), "a * 2 / 3"),
            (Quotient(&TWO, &Scaled("a", 1, 3)), "2 / (a / 3)"),
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

    /// `a` is 3, and `b` 5 with the label, else 50.
    fn values(selector: Selector<'_>) -> Option<f64> {
        match selector {
            Selector { metric: "a", label: None } => Some(3.0),
            Selector { metric: "b", label: Some(("cpu", "0")) } => Some(5.0),
            Selector { metric: "b", label: None } => Some(50.0),
            _ => None,
        }
    }

    #[test]
    fn values_of_formulas() {
        for (formula, found) in [
            (Sum(&[A, Product(&A, &TWO), Difference(&B, &TWO)]), Some(12.0)),
            (Quotient(&B, &Difference(&A, &A)), None),
            (Scaled("b", 3, 10), Some(15.0)),
            (Each("b", "cpu", "N"), Some(5.0)),
            (Sum(&[A, Metric("c")]), None),
        ] {
            assert_eq!(formula.compute("0", &values), found, "{formula}");
        }
    }

    #[test]
    fn a_formula_of_one_series_is_computed_backwards() {
        let label = Some(("cpu", "0"));
        for (formula, selector, times, over) in [
            (A, Selector { metric: "a", label: None }, 1, 1),
            (Product(&B, &TWO), Selector { metric: "b", label }, 2, 1),
            (Scaled("a", 2, 3), Selector { metric: "a", label: None }, 2, 3),
            (Quotient(&Product(&B, &TWO), &Number(7)), Selector { metric: "b", label }, 2, 7),
        ] {
            let scale = Scale { times, over };
            assert_eq!(formula.inverse(), Some((selector, scale)), "{formula}");
            let theirs = formula.compute("", &values).unwrap();
            assert_eq!(Some(scale.to_ours(theirs)), values(selector), "{formula}");
        }
        for formula in [TWO, Sum(&[A, B]), Product(&A, &B), Product(&TWO, &A), Quotient(&TWO, &A)] {
            assert_eq!(formula.inverse(), None, "{formula}");
        }
    }

    #[test]
    fn the_factor_of_a_difference_is_that_of_its_parts() {
        let scaled = Quotient(&Difference(&Difference(&A, &B), &A), &TWO);
        assert_eq!(scaled.scale(), Some(Scale { times: 1, over: 2 }));
        assert_eq!(Sum(&[A, Scaled("b", 2, 1)]).scale(), None);
        assert_eq!(Difference(&A, &TWO).scale(), None);
    }
}
