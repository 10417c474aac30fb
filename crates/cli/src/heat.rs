//! How many writes each part of a file had, and pictures of it.

use crate::report::human;
use std::fmt::Write;

const PAGE: u64 = 4096;
/// Cells in a row of a picture, and its most rows.
const COLUMNS: usize = 64;
const ROWS: usize = 32;
/// Pixels of a cell's edge.
const CELL: usize = 12;
/// The colours from few writes to many, and the colour of none.
const RAMP: [[u8; 3]; 5] =
    [[49, 18, 92], [140, 41, 129], [222, 73, 104], [254, 159, 109], [252, 253, 191]];
const NONE: [u8; 3] = [16, 14, 24];
const SHADES: [char; 4] = ['░', '▒', '▓', '█'];

/// A file in equal parts, row by row, with a count for each.
pub struct Heat {
    /// The length of the file, in bytes.
    len: u64,
    /// Pages of 4 KiB of a cell.
    pages: u64,
    counts: Vec<u64>,
}

impl Heat {
    pub fn new(len: u64) -> Self {
        let all = len.div_ceil(PAGE).max(1);
        let pages = all.div_ceil((COLUMNS * ROWS) as u64);
        Heat { len, pages, counts: vec![0; all.div_ceil(pages) as usize] }
    }

    /// Adds `count` to the cell of the byte at `offset`. Leaves out what lies past the end.
    pub fn add(&mut self, offset: u64, count: u64) {
        if let Some(cell) = self.counts.get_mut((offset / PAGE / self.pages) as usize) {
            *cell += count;
        }
    }

    /// Returns the bytes of a cell.
    pub fn cell_len(&self) -> u64 {
        self.pages * PAGE
    }

    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns a level for each count: 0 for none, and from `LEAST` to 1 between the smallest and
    /// the largest one, by their logarithms. So few writes are seen beside many.
    fn levels(&self) -> impl Iterator<Item = f64> {
        const LEAST: f64 = 0.05;
        let counts = || self.counts.iter().filter(|count| **count > 0);
        let low = (counts().min().copied().unwrap_or(1) as f64).ln();
        let high = (counts().max().copied().unwrap_or(1) as f64).ln();
        self.counts.iter().map(move |count| match *count {
            0 => 0.0,
            count if high > low => {
                LEAST + (1.0 - LEAST) * ((count as f64).ln() - low) / (high - low)
            }
            _ => 1.0,
        })
    }

    fn columns(&self) -> usize {
        self.counts.len().min(COLUMNS)
    }

    fn rows(&self) -> usize {
        self.counts.len().div_ceil(COLUMNS)
    }

    pub fn text(&self, unit: &str) -> String {
        let mut text = String::new();
        let levels: Vec<f64> = self.levels().collect();
        for (n, row) in levels.chunks(COLUMNS).enumerate() {
            let at = human((n * COLUMNS) as u64 * self.cell_len());
            let shade = |level: &f64| match *level {
                0.0 => '·',
                level => SHADES[((level * SHADES.len() as f64) as usize).min(SHADES.len() - 1)],
            };
            let row: String = row.iter().map(shade).collect();
            let _into_a_string = writeln!(text, "{at:>11} {row}");
        }
        let most = self.counts.iter().max().unwrap_or(&0);
        let cell = human(self.cell_len());
        let _into_a_string =
            writeln!(text, "{:>11} a cell is {cell}; █ is {most} {unit}, · is none", "");
        text
    }

    fn pixels(&self) -> (usize, usize, Vec<u8>) {
        let (width, height) = (self.columns() * CELL, self.rows() * CELL);
        // A line between cells, in the colour of the ground.
        let mut pixels: Vec<u8> = [30_u8, 28, 40].repeat(width * height);
        for (n, level) in self.levels().enumerate() {
            let (left, top) = (n % COLUMNS * CELL, n / COLUMNS * CELL);
            let colour = colour(level);
            for y in top..top + CELL - 1 {
                for x in left..left + CELL - 1 {
                    pixels[(y * width + x) * 3..][..3].copy_from_slice(&colour);
                }
            }
        }
        (width, height, pixels)
    }

    pub fn png(&self) -> Result<Vec<u8>, png::EncodingError> {
        let (width, height, pixels) = self.pixels();
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.write_header()?.write_image_data(&pixels)?;
        Ok(bytes)
    }

    pub fn svg(&self, unit: &str) -> String {
        let (width, height) = (self.columns().max(40) * CELL, self.rows() * CELL + 24);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#1e1c28\"/>\n"
        );
        for (n, (level, count)) in self.levels().zip(&self.counts).enumerate() {
            let (x, y, size) = (n % COLUMNS * CELL, n / COLUMNS * CELL, CELL - 1);
            let [r, g, b] = colour(level);
            let at = n as u64 * self.cell_len();
            let _into_a_string = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{size}\" height=\"{size}\" \
                 fill=\"#{r:02x}{g:02x}{b:02x}\"><title>offset {at}: {count} {unit}</title></rect>"
            );
        }
        let said = format!(
            "{} in cells of {}; at most {} {unit}",
            human(self.len),
            human(self.cell_len()),
            self.counts.iter().max().unwrap_or(&0)
        );
        let y = height - 8;
        let _into_a_string = writeln!(
            svg,
            "<text x=\"4\" y=\"{y}\" fill=\"#d0d0d8\" font-family=\"sans-serif\" \
             font-size=\"12\">{said}</text>\n</svg>"
        );
        svg
    }
}

/// Returns the colour of a level between 0 and 1.
fn colour(level: f64) -> [u8; 3] {
    if level <= 0.0 {
        return NONE;
    }
    let at = level.min(1.0) * (RAMP.len() - 1) as f64;
    let from = (at as usize).min(RAMP.len() - 2);
    let share = at - from as f64;
    std::array::from_fn(|n| {
        let (low, high) = (f64::from(RAMP[from][n]), f64::from(RAMP[from + 1][n]));
        (low + (high - low) * share).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_cell_and_every_cell_bytes() {
        for len in [0, 1, 4096, 4097, 1 << 20, (64 * 32 * 4096) + 1, 3 << 30, 2 << 40] {
            let mut heat = Heat::new(len);
            let cells = heat.counts().len() as u64;
            assert!(cells <= (COLUMNS * ROWS) as u64 && cells * heat.cell_len() >= len, "{len}");
            assert!((cells - 1) * heat.cell_len() < len.max(1), "{len}");
            heat.add(len.saturating_sub(1), 3);
            assert_eq!(heat.counts().last(), Some(&3));
            heat.add(u64::MAX, 1);
            assert_eq!(heat.total(), 3);
        }
    }

    #[test]
    fn a_picture_shows_the_cell_that_was_written_to() {
        let mut heat = Heat::new(100 * PAGE);
        heat.add(65 * PAGE, 9);
        let text = heat.text("changes");
        assert_eq!(text.lines().nth(1).and_then(|row| row.chars().nth(13)), Some('█'));
        assert_eq!(text.matches('█').count(), 2, "the cell and the legend: {text}");
        let (width, height, pixels) = heat.pixels();
        assert_eq!((width, height), (64 * CELL, 2 * CELL));
        let at = |x: usize, y: usize| &pixels[(y * width + x) * 3..][..3];
        assert_eq!((at(CELL, CELL), at(0, 0)), (&RAMP[4][..], &NONE[..]));
        let bytes = heat.png().expect("encode");
        let decoder = png::Decoder::new(std::io::Cursor::new(&bytes));
        let mut reader = decoder.read_info().expect("a PNG");
        let mut back = vec![0; reader.output_buffer_size().expect("a length")];
        reader.next_frame(&mut back).expect("its pixels");
        assert_eq!(back, pixels);
        let svg = heat.svg("changes");
        assert_eq!(svg.matches("<title>").count(), 100);
        assert!(svg.contains("offset 266240: 9 changes"));
    }
}
