//! TPC-C on SQLite: its five transactions in their mixture, by one terminal without think times.
//!
//! The tables have the cardinalities of the specification for each warehouse. Money is in cents.
//! The conditions of consistency 1 to 4 are checked at the end of each run.
//!
//! | file | contents |
//! |---|---|
//! | `tables` | the tables, and their rows at the beginning |
//! | `transactions` | the five transactions |
//! | `consistency` | the conditions of consistency |
//! | `run` | the measurement |
//! | `random` | the numbers and names of the specification |

mod consistency;
mod random;
pub mod run;
mod tables;
mod transactions;

pub use consistency::check;
pub use tables::load;
pub use transactions::Terminal;

/// Districts of a warehouse.
const DISTRICTS: i64 = 10;
/// Customers of a district, and its orders at the beginning. Unit tests have fewer.
const CUSTOMERS: i64 = if cfg!(test) { 1000 } else { 3000 };
/// Items, and rows of stock in a warehouse.
const ITEMS: i64 = if cfg!(test) { 2000 } else { 100_000 };
