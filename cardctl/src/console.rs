//! What people and scripts see: progress on the standard error, and one report on the standard output.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use serde_json::Value;

use crate::failure::Failure;

/// Between two looks at the clock of a bar that does not move.
const TICK: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Console {
    /// Bars for somebody who watches.
    Bars,
    /// A line for each step, for a log.
    Lines,
    /// Nothing but the report, as JSON.
    Json,
}

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub enum Unit {
    Bytes,
    Rows,
    Percent,
}

impl Console {
    pub fn new(json: bool) -> Console {
        match (json, io::stderr().is_terminal()) {
            (true, _) => Console::Json,
            (false, true) => Console::Bars,
            (false, false) => Console::Lines,
        }
    }

    /// Begins a step. The bar is gone when the last handle of it is.
    pub fn step(self, what: impl Display, total: u64, unit: Unit) -> ProgressBar {
        if self != Console::Bars {
            if self == Console::Lines {
                tell(&what);
            }
            return ProgressBar::hidden();
        }
        let counts = match unit {
            Unit::Bytes => "{binary_bytes} of {binary_total_bytes}, {eta} left",
            Unit::Rows => "{human_pos} of {human_len}, {eta} left",
            Unit::Percent => "{percent} %",
        };
        let style = ProgressStyle::with_template(&format!("{{msg}} {{bar:30}} {counts}"));
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr())
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            .with_message(what.to_string())
            .with_finish(ProgressFinish::AndClear);
        bar.enable_steady_tick(TICK);
        bar
    }
}

/// A line on the standard error. If nobody reads that, there is nobody to tell.
pub fn tell(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// What a command has to say in the end.
pub struct Report {
    pub text: String,
    pub json: Value,
    /// Whether all is well.
    pub fine: bool,
}

impl Report {
    pub fn fine(text: String, json: Value) -> Report {
        Report { text, json, fine: true }
    }

    pub fn print(&self, console: Console) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let written = match console {
            Console::Json => writeln!(out, "{}", self.json),
            _ if self.text.is_empty() => Ok(()),
            _ => writeln!(out, "{}", self.text),
        };
        written.and_then(|()| out.flush()).map_err(|error| Failure::stdout(&error))
    }
}

/// Bytes from outside as text that does no harm to a terminal.
pub fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.into() }).collect()
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn what_would_steer_a_terminal_is_shown_as_text() {
        assert_eq!(shown(b"blacklist:0"), "blacklist:0");
        assert_eq!(shown("名单".as_bytes()), "名单");
        assert_eq!(shown(b"a\x1b[2J\n\xff"), "a\\u{1b}[2J\\n\u{fffd}");
    }
}
