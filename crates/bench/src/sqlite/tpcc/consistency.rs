//! The conditions of consistency 1 to 4 (TPC-C, 3.3.2), and SQLite's own check.

use rusqlite::Connection;

/// Statements that count what breaks a condition.
const CONDITIONS: [(&str, &str); 4] = [
    (
        "1: a warehouse's year-to-date amount is the sum of its districts'",
        "SELECT count(*) FROM warehouse WHERE w_ytd <>
            (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id)",
    ),
    (
        "2: the next order follows the last order and the last new order",
        "SELECT count(*) FROM district WHERE
            d_next_o_id - 1 <> (SELECT max(o_id) FROM orders
                WHERE o_w_id = d_w_id AND o_d_id = d_id)
            OR d_next_o_id - 1 <> (SELECT max(no_o_id) FROM new_order
                WHERE no_w_id = d_w_id AND no_d_id = d_id)",
    ),
    (
        "3: the new orders of a district have consecutive numbers",
        "SELECT count(*) FROM (SELECT max(no_o_id) - min(no_o_id) + 1 AS span, count(*) AS n
            FROM new_order GROUP BY no_w_id, no_d_id) WHERE span <> n",
    ),
    (
        "4: orders have the lines that they count",
        "SELECT count(*) FROM district WHERE
            (SELECT sum(o_ol_cnt) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) <>
            (SELECT count(*) FROM order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id)",
    ),
];

/// Checks the conditions and the structure of the database.
///
/// # Panics
/// Panics if a condition does not hold: then no measurement is valid.
///
/// # Errors
/// Returns the error of SQLite.
pub fn check(db: &Connection, name: &str) -> rusqlite::Result<()> {
    for (condition, sql) in CONDITIONS {
        let broken: i64 = db.query_row(sql, [], |row| row.get(0))?;
        assert_eq!(broken, 0, "{name}: condition {condition}");
    }
    let found: String = db.query_row("PRAGMA quick_check", [], |row| row.get(0))?;
    assert_eq!(found, "ok", "{name}");
    Ok(())
}
