//! A figure, and the table of them.

use serde_json::json;
use std::fmt;
use std::time::Duration;

/// Something measured, with the most it may be.
pub struct Figure {
    name: String,
    unit: Unit,
    measured: f64,
    /// The limit. `None` means that the figure is for information.
    at_most: Option<f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Unit {
    /// A number that is the same on every machine.
    Count,
    Seconds,
    Milliseconds,
    /// Millions of bytes.
    Megabytes,
    Percent,
}

impl Figure {
    pub fn count(name: impl Into<String>, measured: usize) -> Figure {
        Figure::new(name, Unit::Count, measured as f64)
    }

    pub fn seconds(name: impl Into<String>, measured: Duration) -> Figure {
        Figure::new(name, Unit::Seconds, measured.as_secs_f64())
    }

    pub fn milliseconds(name: impl Into<String>, measured: Duration) -> Figure {
        Figure::new(name, Unit::Milliseconds, measured.as_secs_f64() * 1e3)
    }

    pub fn bytes(name: impl Into<String>, measured: u64) -> Figure {
        Figure::new(name, Unit::Megabytes, measured as f64 / 1e6)
    }

    pub fn percent(name: impl Into<String>, part: usize, whole: usize) -> Figure {
        Figure::new(name, Unit::Percent, part as f64 / whole as f64 * 100.0)
    }

    fn new(name: impl Into<String>, unit: Unit, measured: f64) -> Figure {
        Figure { name: name.into(), unit, measured, at_most: None }
    }

    /// Sets the limit, in the unit of the figure.
    pub fn at_most(mut self, limit: f64) -> Figure {
        self.at_most = Some(limit);
        self
    }

    pub fn is_ok(&self) -> bool {
        self.at_most.is_none_or(|limit| self.measured <= limit)
    }

    /// Whether the figure is the same on every machine.
    pub fn is_count(&self) -> bool {
        self.unit == Unit::Count
    }

    fn cells(&self) -> [String; 4] {
        let (limit, ok) = match self.at_most {
            None => (String::new(), ""),
            Some(limit) if self.is_ok() => (self.unit.show(limit), "yes"),
            Some(limit) => (self.unit.show(limit), "NO"),
        };
        let measured = self.unit.show(self.measured);
        [self.name.clone(), measured, limit, ok.into()]
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [name, measured, limit, _] = self.cells();
        write!(f, "{name}: {measured}")?;
        match self.at_most {
            Some(_) => write!(f, ", at most {limit}"),
            None => Ok(()),
        }
    }
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Unit::Count => format!("{value:.0}"),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::Milliseconds => format!("{value:.1} ms"),
            Unit::Megabytes => format!("{value:.2} MB"),
            Unit::Percent => format!("{value:.1} %"),
        }
    }
}

/// Returns a Markdown table that is aligned for a terminal, and that can be pasted into tests/README.md.
pub fn table(figures: &[Figure]) -> String {
    let head = ["figure", "measured", "at most", "ok"].map(String::from);
    let rows: Vec<[String; 4]> = figures.iter().map(Figure::cells).collect();
    let mut widths = head.each_ref().map(String::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let [name, measured, limit, ok] = widths;
    let line = |[a, b, c, d]: &[String; 4]| {
        format!("| {a:name$} | {b:>measured$} | {c:>limit$} | {d:ok$} |\n")
    };
    let dashes = widths.map(|width| "-".repeat(width + 1));
    let [a, b, c, d] = &dashes;
    let ruler = format!("|{a}-|{b}:|{c}:|{d}-|\n");
    line(&head) + &ruler + &rows.iter().map(line).collect::<String>()
}

/// Returns a JSON object for each figure.
pub fn json_lines(figures: &[Figure]) -> String {
    let line = |figure: &Figure| {
        let [_, shown, ..] = figure.cells();
        let fields = json!({
            "figure": figure.name, "measured": figure.measured, "shown": shown,
            "atMost": figure.at_most, "ok": figure.is_ok(),
        });
        format!("{fields}\n")
    };
    figures.iter().map(line).collect()
}
