//! The five transactions, as sections 2.4 to 2.8 of the specification have them.

use super::random::{last_name, non_uniform};
use super::{CUSTOMERS, DISTRICTS, ITEMS};
use fastrand::Rng;
use rusqlite::{Connection, OptionalExtension, params};

/// A terminal, which runs one transaction after the other.
#[derive(Debug)]
pub struct Terminal<'a> {
    db: &'a Connection,
    rng: Rng,
    warehouses: i64,
    /// The time of the last transaction: their number.
    now: i64,
}

type Result<T> = rusqlite::Result<T>;

impl<'a> Terminal<'a> {
    /// Makes a terminal. Equal seeds give equal transactions.
    pub fn new(db: &'a Connection, warehouses: i64, seed: u64) -> Terminal<'a> {
        Terminal { db, rng: Rng::with_seed(seed), warehouses, now: 0 }
    }

    /// Runs a transaction of the mixture.
    ///
    /// # Errors
    /// Returns the error of SQLite.
    pub fn step(&mut self) -> Result<()> {
        self.now += 1;
        let kind = self.rng.u8(0..100);
        self.execute(if kind < 88 { "BEGIN IMMEDIATE" } else { "BEGIN" })?;
        let is_complete = match kind {
            0..45 => self.new_order()?,
            45..88 => self.payment()?,
            88..92 => self.order_status()?,
            92..96 => self.delivery()?,
            _ => self.stock_level()?,
        };
        self.execute(if is_complete { "COMMIT" } else { "ROLLBACK" })
    }

    fn execute(&self, sql: &str) -> Result<()> {
        self.db.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    fn warehouse(&mut self) -> i64 {
        self.rng.i64(1..=self.warehouses)
    }

    /// Returns another warehouse, if there is one.
    fn other(&mut self, w: i64) -> i64 {
        if self.warehouses == 1 {
            return w;
        }
        let n = self.rng.i64(1..self.warehouses);
        if n < w { n } else { n + 1 }
    }

    /// Enters an order. Returns `false` for the one in a hundred that names an unknown item.
    fn new_order(&mut self) -> Result<bool> {
        let (w, d) = (self.warehouse(), self.rng.i64(1..=DISTRICTS));
        let c = non_uniform(&mut self.rng, 1023, 1, CUSTOMERS);
        let (lines, is_wrong) = (self.rng.i64(5..=15), self.rng.u8(0..100) == 0);
        let db = self.db;
        db.prepare_cached("SELECT w_tax FROM warehouse WHERE w_id = ?")?
            .query_row([w], |row| row.get::<_, i64>(0))?;
        let o: i64 = db
            .prepare_cached("SELECT d_next_o_id, d_tax FROM district WHERE d_w_id=? AND d_id=?")?
            .query_row([w, d], |row| row.get(0))?;
        let sql = "UPDATE district SET d_next_o_id = ? WHERE d_w_id = ? AND d_id = ?";
        db.prepare_cached(sql)?.execute([o + 1, w, d])?;
        let sql = "SELECT c_discount, c_last, c_credit FROM customer
                   WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
        db.prepare_cached(sql)?.query_row([w, d, c], |row| row.get::<_, i64>(0))?;
        let mut is_local = true;
        let mut suppliers = Vec::new();
        for _ in 0..lines {
            let is_remote = self.rng.u8(0..100) == 0 && self.warehouses > 1;
            suppliers.push(if is_remote { self.other(w) } else { w });
            is_local &= !is_remote;
        }
        db.prepare_cached("INSERT INTO orders VALUES (?,?,?,?,?,NULL,?,?)")?
            .execute(params![w, d, o, c, self.now, lines, is_local])?;
        db.prepare_cached("INSERT INTO new_order VALUES (?,?,?)")?.execute([w, d, o])?;
        for (n, supplier) in (1..).zip(suppliers) {
            let item = non_uniform(&mut self.rng, 8191, 1, ITEMS);
            let item = if is_wrong && n == lines { ITEMS + 1 } else { item };
            if !self.line([w, d, o, n], item, supplier)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Enters a line of an order: warehouse, district, order and number. Returns `false` if the
    /// item is not known.
    fn line(&mut self, [w, d, o, n]: [i64; 4], item: i64, supplier: i64) -> Result<bool> {
        let db = self.db;
        let price: Option<i64> = db
            .prepare_cached("SELECT i_price, i_name, i_data FROM item WHERE i_id = ?")?
            .query_row([item], |row| row.get(0))
            .optional()?;
        let Some(price) = price else { return Ok(false) };
        let quantity = self.rng.i64(1..=10);
        let sql = format!(
            "SELECT s_quantity, s_dist_{d:02}, s_data FROM stock WHERE s_w_id = ? AND s_i_id = ?"
        );
        let (there, info): (i64, String) = db
            .prepare_cached(&sql)?
            .query_row([supplier, item], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let left = there - quantity + if there - quantity < 10 { 91 } else { 0 };
        let sql =
            "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1,
                   s_remote_cnt = s_remote_cnt + ? WHERE s_w_id = ? AND s_i_id = ?";
        let remote = i64::from(supplier != w);
        db.prepare_cached(sql)?.execute([left, quantity, remote, supplier, item])?;
        db.prepare_cached("INSERT INTO order_line VALUES (?,?,?,?,?,?,NULL,?,?,?)")?
            .execute(params![w, d, o, n, item, supplier, quantity, quantity * price, info])?;
        Ok(true)
    }

    /// Returns a customer of the district: six of ten times by the name.
    fn customer(&mut self, w: i64, d: i64) -> Result<i64> {
        if self.rng.u8(0..10) >= 6 {
            return Ok(non_uniform(&mut self.rng, 1023, 1, CUSTOMERS));
        }
        let name = last_name(non_uniform(&mut self.rng, 255, 0, 999));
        let sql = "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ?
                   ORDER BY c_first";
        let mut statement = self.db.prepare_cached(sql)?;
        let found: Vec<i64> =
            statement.query_map(params![w, d, name], |row| row.get(0))?.collect::<Result<_>>()?;
        // The one in the middle, rounded up.
        Ok(found[found.len().div_ceil(2) - 1])
    }

    fn payment(&mut self) -> Result<bool> {
        let (w, d) = (self.warehouse(), self.rng.i64(1..=DISTRICTS));
        let (c_w, c_d) = match self.rng.u8(0..100) {
            0..85 => (w, d),
            _ => (self.other(w), self.rng.i64(1..=DISTRICTS)),
        };
        let amount = self.rng.i64(100..=500_000);
        let db = self.db;
        let sql = "UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ? RETURNING w_name";
        let w_name: String = db.prepare_cached(sql)?.query_row([amount, w], |row| row.get(0))?;
        let sql = "UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?
                   RETURNING d_name";
        let d_name: String = db.prepare_cached(sql)?.query_row([amount, w, d], |row| row.get(0))?;
        let c = self.customer(c_w, c_d)?;
        let sql = "UPDATE customer SET c_balance = c_balance - ?1,
                   c_ytd_payment = c_ytd_payment + ?1, c_payment_cnt = c_payment_cnt + 1
                   WHERE c_w_id = ?2 AND c_d_id = ?3 AND c_id = ?4 RETURNING c_credit";
        let credit: String =
            db.prepare_cached(sql)?.query_row([amount, c_w, c_d, c], |row| row.get(0))?;
        if credit == "BC" {
            let sql = "UPDATE customer SET c_data = substr(?1 || c_data, 1, 500)
                       WHERE c_w_id = ?2 AND c_d_id = ?3 AND c_id = ?4";
            let told = format!("{c} {c_d} {c_w} {d} {w} {amount} ");
            db.prepare_cached(sql)?.execute(params![told, c_w, c_d, c])?;
        }
        let told = format!("{w_name}    {d_name}");
        db.prepare_cached("INSERT INTO history VALUES (?,?,?,?,?,?,?,?)")?
            .execute(params![c, c_d, c_w, d, w, self.now, amount, told])?;
        Ok(true)
    }

    fn order_status(&mut self) -> Result<bool> {
        let (w, d) = (self.warehouse(), self.rng.i64(1..=DISTRICTS));
        let c = self.customer(w, d)?;
        let sql = "SELECT o_id, o_carrier_id, o_entry_d FROM orders
                   WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? ORDER BY o_id DESC LIMIT 1";
        let found: Option<i64> =
            self.db.prepare_cached(sql)?.query_row([w, d, c], |row| row.get(0)).optional()?;
        let sql = "SELECT sum(ol_amount), count(ol_delivery_d) FROM order_line
                   WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?";
        if let Some(o) = found {
            self.db
                .prepare_cached(sql)?
                .query_row([w, d, o], |row| row.get::<_, Option<i64>>(0))?;
        }
        Ok(true)
    }

    /// Delivers the oldest order of each district.
    fn delivery(&mut self) -> Result<bool> {
        let (w, carrier) = (self.warehouse(), self.rng.i64(1..=10));
        let db = self.db;
        for d in 1..=DISTRICTS {
            let sql = "SELECT min(no_o_id) FROM new_order WHERE no_w_id = ? AND no_d_id = ?";
            let oldest: Option<i64> =
                db.prepare_cached(sql)?.query_row([w, d], |row| row.get(0))?;
            let Some(o) = oldest else { continue };
            let sql = "DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?";
            db.prepare_cached(sql)?.execute([w, d, o])?;
            let sql = "UPDATE orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ?
                       AND o_id = ? RETURNING o_c_id";
            let c: i64 = db.prepare_cached(sql)?.query_row([carrier, w, d, o], |row| row.get(0))?;
            let sql = "UPDATE order_line SET ol_delivery_d = ? WHERE ol_w_id = ? AND ol_d_id = ?
                       AND ol_o_id = ?";
            db.prepare_cached(sql)?.execute([self.now, w, d, o])?;
            let sql = "SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = ? AND ol_d_id = ?
                       AND ol_o_id = ?";
            let amount: i64 = db.prepare_cached(sql)?.query_row([w, d, o], |row| row.get(0))?;
            let sql = "UPDATE customer SET c_balance = c_balance + ?,
                       c_delivery_cnt = c_delivery_cnt + 1
                       WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
            db.prepare_cached(sql)?.execute([amount, w, d, c])?;
        }
        Ok(true)
    }

    fn stock_level(&mut self) -> Result<bool> {
        let (w, d) = (self.warehouse(), self.rng.i64(1..=DISTRICTS));
        let least = self.rng.i64(10..=20);
        let sql = "SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?";
        let next: i64 = self.db.prepare_cached(sql)?.query_row([w, d], |row| row.get(0))?;
        let sql = "SELECT count(DISTINCT s_i_id) FROM order_line, stock
                   WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id >= ?3 - 20 AND ol_o_id < ?3
                   AND s_w_id = ?1 AND s_i_id = ol_i_id AND s_quantity < ?4";
        self.db.prepare_cached(sql)?.query_row([w, d, next, least], |row| row.get::<_, i64>(0))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check, load};
    use super::*;

    #[test]
    fn the_conditions_hold_after_a_mixture_and_notice_a_lost_line() {
        let db = Connection::open_in_memory().expect("open");
        load(&db, 1).expect("load");
        check(&db, "loaded").expect("check");
        let mut terminal = Terminal::new(&db, 1, 7);
        for _ in 0..300 {
            terminal.step().expect("a transaction");
        }
        check(&db, "after a mixture").expect("check");
        for broken in [
            "UPDATE warehouse SET w_ytd = w_ytd + 1",
            "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = 3",
            "DELETE FROM new_order WHERE no_o_id = (SELECT min(no_o_id) + 1 FROM new_order)",
            "DELETE FROM order_line WHERE ol_number = 5 AND ol_o_id = 7",
        ] {
            db.execute_batch("SAVEPOINT s").expect("savepoint");
            db.execute_batch(broken).expect("break");
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                check(&db, "broken").expect("check");
            }));
            assert!(found.is_err(), "not noticed: {broken}");
            db.execute_batch("ROLLBACK TO s").expect("rollback");
        }
    }
}
