//! What other programs read from the database.

use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

/// The first column of the rows of a statement.
pub(crate) fn query(config: &Config, statement: &str) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, io) = config.connect(NoTls).await.unwrap();
        let io = tokio::spawn(io);
        let rows = client.simple_query(statement).await.unwrap();
        drop(client);
        io.await.unwrap().unwrap();
        let text = |row: &SimpleQueryMessage| match row {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
            _ => None,
        };
        rows.iter().filter_map(text).collect()
    })
}
