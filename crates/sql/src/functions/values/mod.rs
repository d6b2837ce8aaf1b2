//! Values as PostgreSQL has them.
//!
//! - `literals`: checks of literals, exact decimals. `quotient`: division, which fails at a divisor of 0.
//! - `chr`: characters by number. `text_casts`: texts of times, intervals, lists and labels.

pub(crate) mod chr;
pub(crate) mod literals;
pub(crate) mod quotient;
pub(crate) mod text_casts;
