//! jobmeter
