//! The tables, and their rows at the beginning.

use super::random::{data, last_name, non_uniform, text};
use super::{CUSTOMERS, DISTRICTS, ITEMS};
use fastrand::Rng;
use rusqlite::{Connection, params};

const TABLES: &str = "
CREATE TABLE warehouse (w_id INTEGER PRIMARY KEY, w_name TEXT, w_street_1 TEXT, w_street_2 TEXT,
    w_city TEXT, w_state TEXT, w_zip TEXT, w_tax INTEGER, w_ytd INTEGER);
CREATE TABLE district (d_w_id INTEGER, d_id INTEGER, d_name TEXT, d_street_1 TEXT, d_street_2 TEXT,
    d_city TEXT, d_state TEXT, d_zip TEXT, d_tax INTEGER, d_ytd INTEGER, d_next_o_id INTEGER,
    PRIMARY KEY (d_w_id, d_id)) WITHOUT ROWID;
CREATE TABLE customer (c_w_id INTEGER, c_d_id INTEGER, c_id INTEGER, c_first TEXT, c_middle TEXT,
    c_last TEXT, c_street_1 TEXT, c_street_2 TEXT, c_city TEXT, c_state TEXT, c_zip TEXT,
    c_phone TEXT, c_since INTEGER, c_credit TEXT, c_credit_lim INTEGER, c_discount INTEGER,
    c_balance INTEGER, c_ytd_payment INTEGER, c_payment_cnt INTEGER, c_delivery_cnt INTEGER,
    c_data TEXT, PRIMARY KEY (c_w_id, c_d_id, c_id)) WITHOUT ROWID;
CREATE TABLE history (h_c_id INTEGER, h_c_d_id INTEGER, h_c_w_id INTEGER, h_d_id INTEGER,
    h_w_id INTEGER, h_date INTEGER, h_amount INTEGER, h_data TEXT);
CREATE TABLE new_order (no_w_id INTEGER, no_d_id INTEGER, no_o_id INTEGER,
    PRIMARY KEY (no_w_id, no_d_id, no_o_id)) WITHOUT ROWID;
CREATE TABLE orders (o_w_id INTEGER, o_d_id INTEGER, o_id INTEGER, o_c_id INTEGER,
    o_entry_d INTEGER, o_carrier_id INTEGER, o_ol_cnt INTEGER, o_all_local INTEGER,
    PRIMARY KEY (o_w_id, o_d_id, o_id)) WITHOUT ROWID;
CREATE TABLE order_line (ol_w_id INTEGER, ol_d_id INTEGER, ol_o_id INTEGER, ol_number INTEGER,
    ol_i_id INTEGER, ol_supply_w_id INTEGER, ol_delivery_d INTEGER, ol_quantity INTEGER,
    ol_amount INTEGER, ol_dist_info TEXT,
    PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)) WITHOUT ROWID;
CREATE TABLE item (i_id INTEGER PRIMARY KEY, i_im_id INTEGER, i_name TEXT, i_price INTEGER,
    i_data TEXT);
CREATE TABLE stock (s_w_id INTEGER, s_i_id INTEGER, s_quantity INTEGER, s_dist_01 TEXT,
    s_dist_02 TEXT, s_dist_03 TEXT, s_dist_04 TEXT, s_dist_05 TEXT, s_dist_06 TEXT, s_dist_07 TEXT,
    s_dist_08 TEXT, s_dist_09 TEXT, s_dist_10 TEXT, s_ytd INTEGER, s_order_cnt INTEGER,
    s_remote_cnt INTEGER, s_data TEXT, PRIMARY KEY (s_w_id, s_i_id)) WITHOUT ROWID;
CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first);
CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id);
";

/// Makes the tables with the rows of this number of warehouses, in one transaction.
///
/// # Errors
/// Returns the error of SQLite.
pub fn load(db: &Connection, warehouses: i64) -> rusqlite::Result<()> {
    let mut rng = Rng::with_seed(0x79CC);
    db.execute_batch("BEGIN")?;
    db.execute_batch(TABLES)?;
    let mut item = db.prepare("INSERT INTO item VALUES (?,?,?,?,?)")?;
    for i in 1..=ITEMS {
        let (name, data) = (text(&mut rng, 14, 24), data(&mut rng));
        item.execute(params![i, rng.i64(1..=10_000), name, rng.i64(100..=10_000), data])?;
    }
    for w in 1..=warehouses {
        warehouse(db, &mut rng, w)?;
        stock(db, &mut rng, w)?;
        for d in 1..=DISTRICTS {
            customers(db, &mut rng, w, d)?;
            orders(db, &mut rng, w, d)?;
        }
    }
    db.execute_batch("COMMIT")
}

fn warehouse(db: &Connection, rng: &mut Rng, w: i64) -> rusqlite::Result<()> {
    // Year-to-date amounts are 30,000.00 for each district.
    let ytd = 3_000_000;
    let street = |rng: &mut Rng| text(rng, 10, 20);
    db.prepare_cached("INSERT INTO warehouse VALUES (?,?,?,?,?,?,?,?,?)")?.execute(params![
        w,
        text(rng, 6, 10),
        street(rng),
        street(rng),
        street(rng),
        text(rng, 2, 2),
        "123411111",
        rng.i64(0..=2000),
        ytd * DISTRICTS
    ])?;
    for d in 1..=DISTRICTS {
        db.prepare_cached("INSERT INTO district VALUES (?,?,?,?,?,?,?,?,?,?,?)")?.execute(
            params![
                w,
                d,
                text(rng, 6, 10),
                street(rng),
                street(rng),
                street(rng),
                text(rng, 2, 2),
                "123411111",
                rng.i64(0..=2000),
                ytd,
                CUSTOMERS + 1
            ],
        )?;
    }
    Ok(())
}

fn stock(db: &Connection, rng: &mut Rng, w: i64) -> rusqlite::Result<()> {
    let mut stock =
        db.prepare_cached("INSERT INTO stock VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,0,0,0,?)")?;
    for i in 1..=ITEMS {
        let quantity = rng.i64(10..=100);
        let dist: [String; 10] = std::array::from_fn(|_| text(rng, 24, 24));
        let [a, b, c, d, e, f, g, h, j, k] = dist;
        let data = data(rng);
        stock.execute(params![w, i, quantity, a, b, c, d, e, f, g, h, j, k, data])?;
    }
    Ok(())
}

fn customers(db: &Connection, rng: &mut Rng, w: i64, d: i64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO customer VALUES (?,?,?,?,'OE',?,?,?,?,?,'123411111',?,0,?,5000000,?,\
               -1000,1000,1,0,?)";
    let mut customer = db.prepare_cached(sql)?;
    let mut history = db.prepare_cached("INSERT INTO history VALUES (?,?,?,?,?,0,1000,?)")?;
    for c in 1..=CUSTOMERS {
        let name = if c <= 1000 { c - 1 } else { non_uniform(rng, 255, 0, 999) };
        let credit = if rng.u8(0..10) == 0 { "BC" } else { "GC" };
        customer.execute(params![
            w,
            d,
            c,
            text(rng, 8, 16),
            last_name(name),
            text(rng, 10, 20),
            text(rng, 10, 20),
            text(rng, 10, 20),
            text(rng, 2, 2),
            text(rng, 16, 16),
            credit,
            rng.i64(0..=5000),
            text(rng, 300, 500)
        ])?;
        history.execute(params![c, d, w, d, w, text(rng, 12, 24)])?;
    }
    Ok(())
}

fn orders(db: &Connection, rng: &mut Rng, w: i64, d: i64) -> rusqlite::Result<()> {
    let mut order = db.prepare_cached("INSERT INTO orders VALUES (?,?,?,?,0,?,?,1)")?;
    let mut line = db.prepare_cached("INSERT INTO order_line VALUES (?,?,?,?,?,?,?,5,?,?)")?;
    let mut new = db.prepare_cached("INSERT INTO new_order VALUES (?,?,?)")?;
    let mut customers: Vec<i64> = (1..=CUSTOMERS).collect();
    rng.shuffle(&mut customers);
    for (o, c) in (1..).zip(customers) {
        // The last 900 orders of a district are not yet delivered.
        let is_delivered = o <= CUSTOMERS - 900;
        let lines = rng.i64(5..=15);
        order.execute(params![w, d, o, c, is_delivered.then(|| rng.i64(1..=10)), lines])?;
        for n in 1..=lines {
            let amount = if is_delivered { 0 } else { rng.i64(1..=999_999) };
            let (item, info) = (rng.i64(1..=ITEMS), text(rng, 24, 24));
            let date = is_delivered.then_some(0);
            line.execute(params![w, d, o, n, item, w, date, amount, info])?;
        }
        if !is_delivered {
            new.execute(params![w, d, o])?;
        }
    }
    Ok(())
}
