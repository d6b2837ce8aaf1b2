//! `chr(number)`: the character of a number, with PostgreSQL's errors.

use datafusion::arrow::array::{AsArray, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{exec_datafusion_err, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Chr {
    signature: Signature,
}

impl Chr {
    pub(crate) const NAME: &'static str = "chr";

    pub(crate) fn function() -> ScalarUDF {
        let signature = Signature::exact(vec![DataType::Int64], Volatility::Immutable);
        ScalarUDF::from(Self { signature })
    }
}

impl ScalarUDFImpl for Chr {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [numbers] = args.args.as_slice() else {
            return exec_err!("chr has one number");
        };
        let numbers = numbers.to_array(args.number_rows)?;
        let numbers = numbers.as_primitive::<Int64Type>();
        let texts = numbers.iter().map(|number| number.map(character).transpose());
        let texts = texts.collect::<Result<StringViewArray>>()?;
        Ok(ColumnarValue::Array(Arc::new(texts)))
    }
}

fn character(number: i64) -> Result<String> {
    match number {
        0 => exec_err!("null character not permitted"),
        ..0 => exec_err!("character number must be positive"),
        _ => {
            let found = u32::try_from(number).ok().and_then(char::from_u32);
            found.map(String::from).ok_or_else(|| {
                exec_datafusion_err!("requested character too large for encoding: {number}")
            })
        }
    }
}
