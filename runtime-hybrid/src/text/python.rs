//! What chat templates expect of Python: `tojson` with Python's spacing, and `strftime`.

use std::io;

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// The `tojson` filter as transformers defines it: `json.dumps(value, ensure_ascii=False, indent=indent)`, without the
/// HTML escapes of Jinja's own.
pub(super) fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    // Others (ensure_ascii, separators, sort_keys) are accepted and keep their defaults.
    let _: (Option<Value>, Option<Value>, Option<Value>) = (
        kwargs.get("ensure_ascii")?,
        kwargs.get("separators")?,
        kwargs.get("sort_keys")?,
    );
    kwargs.assert_all_used()?;
    let mut out = Vec::new();
    let done = match indent {
        Some(width) => {
            let indent = " ".repeat(width);
            value.serialize(&mut Serializer::with_formatter(
                &mut out,
                PrettyFormatter::with_indent(indent.as_bytes()),
            ))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut out, PythonSpacing)),
    };
    done.map_err(|e| {
        Error::new(ErrorKind::BadSerialization, "cannot write the value as JSON").with_source(e)
    })?;
    Ok(Value::from_safe_string(
        String::from_utf8(out).expect("serde_json writes UTF-8"),
    ))
}

/// `", "` and `": "`, as `json.dumps` separates by default.
struct PythonSpacing;

impl Formatter for PythonSpacing {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

/// `datetime.strftime` for a time in seconds since 1970, in UTC.
pub(super) fn strftime(format: &str, unix_seconds: i64) -> Result<String, Error> {
    let (days, second_of_day) = (unix_seconds.div_euclid(86_400), unix_seconds.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    let hour_12 = (hour + 11) % 12 + 1;
    let month_name = MONTHS[month as usize - 1];
    let day_name = DAYS[days.rem_euclid(7) as usize];
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = chars.next();
        let plain = directive == Some('-');
        if plain {
            directive = chars.next();
        }
        let number = |value: i64, width: usize| {
            if plain {
                value.to_string()
            } else {
                format!("{value:0width$}")
            }
        };
        out += &match directive {
            Some('Y') => year.to_string(),
            Some('y') => number(year.rem_euclid(100), 2),
            Some('m') => number(month, 2),
            Some('d') => number(day, 2),
            Some('e') => {
                if plain {
                    day.to_string()
                } else {
                    format!("{day:2}")
                }
            }
            Some('B') => month_name.to_owned(),
            Some('b' | 'h') => month_name[..3].to_owned(),
            Some('A') => day_name.to_owned(),
            Some('a') => day_name[..3].to_owned(),
            Some('H') => number(hour, 2),
            Some('I') => number(hour_12, 2),
            Some('M') => number(minute, 2),
            Some('S') => number(second, 2),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('j') => number(days - days_from_civil(year, 1, 1) + 1, 3),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('z') => "+0000".to_owned(),
            Some('Z') => "UTC".to_owned(),
            Some('%') => "%".to_owned(),
            other => {
                let directive = other.map_or_else(|| "%".to_owned(), |c| format!("%{c}"));
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    format!("strftime_now does not know {directive} in {format:?}"),
                ));
            }
        };
    }
    Ok(out)
}

/// Year, month and day of a number of days since 1970-01-01 (Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms").
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let shifted_year = year - i64::from(month <= 2);
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: &str, unix_seconds: i64, expected: &str) {
        assert_eq!(strftime(format, unix_seconds).unwrap(), expected);
    }

    #[test]
    fn dates_are_written_as_python_writes_them() {
        check("%d %b %Y", 1_722_297_600, "30 Jul 2024");
        check("%A, %B %-d, %Y", 1_709_164_800, "Thursday, February 29, 2024");
        check("%H:%M:%S %I %p %j %y", 1_735_689_599, "23:59:59 11 PM 366 24");
        check("%Y-%m-%d 100%%", 0, "1970-01-01 100%");
        check("%F %T %a", -1, "1969-12-31 23:59:59 Wed");
    }

    #[test]
    fn days_and_dates_invert_each_other() {
        for days in (-800_000..800_000).step_by(37) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
    }

    #[test]
    fn an_unknown_directive_is_an_error() {
        assert!(strftime("%Q", 0).unwrap_err().to_string().contains("%Q"));
        assert!(strftime("50%", 0).is_err());
    }
}
