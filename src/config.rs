//! The module's settings, `card.…`.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::Duration;

use time::{OffsetDateTime, UtcOffset};

use crate::redis::config::{Number, Setting};

/// What the seed's service said of every card, whenever its list was loaded.
const CONSTANT_DARKVER: &str = "1970-01-01 08:00:00";

pub static SETTINGS: [Setting; 3] = [
    Setting {
        name: "darkver",
        default: "constant",
        fixed: false,
        set: set_darkver,
        get: || lock().darkver.name().into(),
    },
    Setting {
        name: "timezone",
        default: "+08:00",
        fixed: false,
        set: set_timezone,
        get: || show_offset(lock().timezone),
    },
    Setting { name: "load-dir", default: "", fixed: true, set: set_load_dir, get: load_dir },
];

/// Memory for sorting, threads (0: one for each core), bad rows that are left out of a load, and seconds between two looks
/// into the directory (0: none).
pub static NUMBERS: [Number; 4] = [
    Number::new("load-memory", 256 << 20, 1 << 20, 1 << 40).memory(),
    Number::new("load-threads", 0, 0, 1024),
    Number::new("load-max-errors", 0, 0, i64::MAX),
    Number::new("watch-interval", 0, 0, 86_400),
];

pub fn load_memory() -> usize {
    NUMBERS[0].get() as usize
}

pub fn load_threads() -> usize {
    match NUMBERS[1].get() as usize {
        0 => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
        threads => threads,
    }
}

pub fn load_max_errors() -> u64 {
    NUMBERS[2].get() as u64
}

/// How often the directory is looked into, if at all.
pub fn watch_interval() -> Option<Duration> {
    match NUMBERS[3].get() as u64 {
        0 => None,
        seconds => Some(Duration::from_secs(seconds)),
    }
}

/// The directory that files are loaded from; empty if there is none.
pub fn load_dir() -> String {
    lock().load_dir.clone()
}

fn set_load_dir(text: &str) -> Result<(), String> {
    lock().load_dir = text.into();
    Ok(())
}

struct Settings {
    darkver: Darkver,
    timezone: UtcOffset,
    load_dir: String,
}

/// What an answer says in `darkver0`.
#[derive(Clone, Copy, PartialEq)]
enum Darkver {
    Constant,
    /// When the list took effect.
    Effective,
}

impl Darkver {
    fn name(self) -> &'static str {
        match self {
            Darkver::Constant => "constant",
            Darkver::Effective => "effective",
        }
    }
}

static CURRENT: Mutex<Settings> =
    Mutex::new(Settings { darkver: Darkver::Constant, timezone: UtcOffset::UTC, load_dir: String::new() });

fn lock() -> std::sync::MutexGuard<'static, Settings> {
    CURRENT.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn set_darkver(text: &str) -> Result<(), String> {
    let known = [Darkver::Constant, Darkver::Effective];
    let darkver = known.into_iter().find(|known| known.name() == text);
    lock().darkver = darkver.ok_or("card.darkver is constant or effective")?;
    Ok(())
}

fn set_timezone(text: &str) -> Result<(), String> {
    lock().timezone = parse_offset(text).ok_or("card.timezone is an offset from UTC, such as +08:00 or -03:30")?;
    Ok(())
}

fn parse_offset(text: &str) -> Option<UtcOffset> {
    let bytes = text.as_bytes();
    let &[sign @ (b'+' | b'-'), a, b, b':', c, d] = bytes else { return None };
    let two = |tens: u8, ones: u8| -> Option<i8> {
        (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| ((tens - b'0') * 10 + ones - b'0') as i8)
    };
    let (hours, minutes) = (two(a, b)?, two(c, d)?);
    if hours > 14 || minutes > 59 {
        return None;
    }
    let sign = if sign == b'-' { -1 } else { 1 };
    UtcOffset::from_hms(sign * hours, sign * minutes, 0).ok()
}

fn show_offset(offset: UtcOffset) -> String {
    let (hours, minutes, _) = offset.as_hms();
    let sign = if offset.is_negative() { '-' } else { '+' };
    format!("{sign}{:02}:{:02}", hours.abs(), minutes.abs())
}

/// What `darkver0` says of a list that took effect so many milliseconds after 1970.
pub fn darkver(since: u64) -> String {
    let Settings { darkver, timezone, .. } = *lock();
    match darkver {
        Darkver::Constant => CONSTANT_DARKVER.into(),
        Darkver::Effective => date(since, timezone),
    }
}

fn date(milliseconds: u64, timezone: UtcOffset) -> String {
    let date = i64::try_from(milliseconds / 1000)
        .ok()
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
        .and_then(|date| date.checked_to_offset(timezone));
    let Some(date) = date else { return CONSTANT_DARKVER.into() };
    let (year, month, day) = date.to_calendar_date();
    let (hour, minute, second) = date.to_hms();
    format!("{year:04}-{:02}-{day:02} {hour:02}:{minute:02}:{second:02}", month as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_signed_hours_and_minutes() {
        for text in ["+08:00", "-03:30", "+00:00", "+14:00", "-00:30"] {
            assert_eq!(show_offset(parse_offset(text).unwrap()), text);
        }
        for text in ["", "8", "08:00", "+8:00", "+08:60", "+15:00", "+08-00", "UTC", "+0a:00", "+08:00 "] {
            assert_eq!(parse_offset(text), None, "{text}");
        }
    }

    #[test]
    fn a_date_is_that_of_the_time_zone() {
        let zone = |text| parse_offset(text).unwrap();
        assert_eq!(date(0, zone("+08:00")), "1970-01-01 08:00:00");
        assert_eq!(date(1_501_718_400_999, zone("+00:00")), "2017-08-03 00:00:00");
        assert_eq!(date(1_501_718_400_000, zone("-03:30")), "2017-08-02 20:30:00");
        assert_eq!(date(u64::MAX, zone("+08:00")), CONSTANT_DARKVER);
    }
}
