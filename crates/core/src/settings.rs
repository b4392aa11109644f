//! `--set key=value` and the configuration file, as one flat table that a protocol takes its settings from.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

/// What is wrong with a setting, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// There is no `=` in it.
    #[error("`{0}` is not a setting: write key=value")]
    Form(String),
    /// A value of the wrong kind or outside its limits.
    #[error("setting {key}={value}: expected {expected}")]
    Value {
        /// The name of the setting, as it was written.
        key: String,
        /// What it was given.
        value: String,
        /// What the setting takes: its kind and its range.
        expected: String,
    },
    /// Nobody takes a setting of this name.
    #[error("unknown setting `{key}`; known here: {known}")]
    Unknown {
        /// The name of the setting, as it was written.
        key: String,
        /// Those that were looked up.
        known: String,
    },
    /// Valid settings that do not fit together.
    #[error("{0}")]
    Conflict(String),
}

/// A setting as the code that takes it describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The value in force where none is given.
    pub default: String,
    /// Its form, unit and limits.
    pub expected: String,
    /// What it does, in a line.
    pub meaning: &'static str,
}

/// Settings by name. Whoever understands one takes it; what is left over at the end is an error.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    given: BTreeMap<String, String>,
    /// What counts as the default in the place of what the code that takes a setting says.
    suggested: BTreeMap<String, String>,
    /// Every setting that was looked up, with the value in force: the digest that peers compare.
    effective: BTreeMap<String, String>,
    described: BTreeMap<String, Setting>,
}

impl Settings {
    /// From `key=value` words; a later one wins.
    pub fn parse<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> Result<Settings, SettingsError> {
        let mut settings = Settings::default();
        settings.put_all(words)?;
        Ok(settings)
    }

    /// Gives settings as `key=value` words; a later one wins.
    pub fn put_all<S: AsRef<str>>(
        &mut self,
        words: impl IntoIterator<Item = S>,
    ) -> Result<(), SettingsError> {
        for word in words {
            let word = word.as_ref();
            match word.split_once('=') {
                Some((key, value)) if !key.trim().is_empty() => self.put(key.trim(), value.trim()),
                _ => return Err(SettingsError::Form(word.to_owned())),
            }
        }
        Ok(())
    }

    /// Gives a setting; a later value wins.
    pub fn put(&mut self, key: &str, value: &str) {
        self.given.insert(key.to_owned(), value.to_owned());
    }

    /// Makes this the default of a setting, if it is looked up; nobody need know it.
    pub fn suggest(&mut self, key: &str, value: &str) {
        self.suggested.insert(key.to_owned(), value.to_owned());
    }

    /// Takes a setting as it is read by `parse`, or its default.
    pub fn take<T>(
        &mut self,
        key: &str,
        default: &str,
        expected: &str,
        meaning: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, SettingsError> {
        let (described, expects) = (default.to_owned(), expected.to_owned());
        self.described.insert(key.to_owned(), Setting { default: described, expected: expects, meaning });
        let given = self.given.remove(key).or_else(|| self.suggested.get(key).cloned());
        let value = given.unwrap_or_else(|| default.to_owned());
        let parsed = parse(&value).ok_or_else(|| SettingsError::Value {
            key: key.to_owned(),
            value: value.clone(),
            expected: expected.to_owned(),
        })?;
        self.effective.insert(key.to_owned(), value);
        Ok(parsed)
    }

    /// Takes a setting of this process alone, if it is given: peers need not have the same.
    pub fn take_own<T>(
        &mut self,
        key: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, SettingsError> {
        let Some(value) = self.given.remove(key) else { return Ok(None) };
        let wrong = || SettingsError::Value {
            key: key.to_owned(),
            value: value.clone(),
            expected: expected.to_owned(),
        };
        parse(&value).map(Some).ok_or_else(wrong)
    }

    /// Takes a duration such as `250ms`, `2s` or `100us`.
    pub fn duration(
        &mut self,
        key: &str,
        default: &str,
        meaning: &'static str,
    ) -> Result<Duration, SettingsError> {
        self.take(key, default, "a duration such as 250ms, 2s or 100us", meaning, parse_duration)
    }

    /// Takes a whole number between two limits.
    pub fn number(
        &mut self,
        key: &str,
        default: u64,
        limits: std::ops::RangeInclusive<u64>,
        meaning: &'static str,
    ) -> Result<u64, SettingsError> {
        let expected = format!("a whole number from {} to {}", limits.start(), limits.end());
        self.take(key, &default.to_string(), &expected, meaning, |text| {
            text.parse().ok().filter(|number| limits.contains(number))
        })
    }

    /// Takes a number of bytes such as `64KiB`, `1MiB` or `4096`, between two limits.
    pub fn bytes(
        &mut self,
        key: &str,
        default: &str,
        limits: std::ops::RangeInclusive<u64>,
        meaning: &'static str,
    ) -> Result<u64, SettingsError> {
        let expected =
            format!("a size such as 64KiB, 1MiB or 4096, from {} to {} bytes", limits.start(), limits.end());
        self.take(key, default, &expected, meaning, |text| {
            parse_bytes(text).filter(|size| limits.contains(size))
        })
    }

    /// Takes one of a few words.
    pub fn choice<T: Copy>(
        &mut self,
        key: &str,
        default: &str,
        choices: &[(&str, T)],
        meaning: &'static str,
    ) -> Result<T, SettingsError> {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        self.take(key, default, &format!("one of {}", names.join(", ")), meaning, |text| {
            choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
        })
    }

    /// Takes `true` or `false`.
    pub fn flag(&mut self, key: &str, default: bool, meaning: &'static str) -> Result<bool, SettingsError> {
        let default = if default { "true" } else { "false" };
        self.choice(key, default, &[("true", true), ("false", false)], meaning)
    }

    /// Takes what another reader has taken of a copy: of several readers each takes what it knows.
    pub fn take_as(&mut self, other: Settings) {
        self.given.retain(|key, _| other.given.contains_key(key));
        self.effective.extend(other.effective);
        self.described.extend(other.described);
    }

    /// Refuses what nobody took.
    pub fn finish(&self) -> Result<(), SettingsError> {
        match self.given.keys().next() {
            None => Ok(()),
            Some(key) => Err(SettingsError::Unknown {
                key: key.clone(),
                known: self.effective.keys().cloned().collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// One word over every setting in force: members whose digests differ must not speak to each other.
    pub fn digest(&self) -> u64 {
        let text: String = self.effective.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        crate::digest(text.as_bytes())
    }

    /// Every setting in force with its value, in order of name: what peers must agree on.
    pub fn effective(&self) -> &BTreeMap<String, String> {
        &self.effective
    }

    /// Every setting that was looked up, as it was described, in order of name.
    pub fn described(&self) -> &BTreeMap<String, Setting> {
        &self.described
    }
}

/// Reads a duration such as `250ms`, `2s` or `100us`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let count: u64 = text[..digits].parse().ok()?;
    match &text[digits..] {
        "us" => Some(Duration::from_micros(count)),
        "ms" => Some(Duration::from_millis(count)),
        "s" => count.checked_mul(1000).map(Duration::from_millis),
        _ => None,
    }
}

/// Reads a number of bytes such as `64KiB`, `1MiB` or `4096`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let count: u64 = text[..digits].parse().ok()?;
    let shift = match &text[digits..] {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    count.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_in_their_units_or_refused_with_what_would_be_right() {
        let mut settings = Settings::parse(["a=250ms", "b=4KiB", "c=7", "d=log", "e=fast"]).unwrap();
        assert_eq!(settings.duration("a", "1s", "an interval"), Ok(Duration::from_millis(250)));
        assert_eq!(settings.duration("absent", "2s", "another"), Ok(Duration::from_secs(2)));
        assert_eq!(settings.bytes("b", "1", 0..=10_000, "a size"), Ok(4096));
        assert_eq!(
            settings.number("c", 1, 1..=5, "a count").unwrap_err().to_string(),
            "setting c=7: expected a whole number from 1 to 5"
        );
        assert_eq!(settings.choice("d", "lease", &[("lease", 1), ("log", 2)], "a way"), Ok(2));
        assert_eq!(
            settings.finish().unwrap_err().to_string(),
            "unknown setting `e`; known here: a, absent, b, d"
        );
        assert!(Settings::parse(["nonsense"]).is_err());
        assert!(Settings::parse(["=1"]).is_err());
    }

    #[test]
    fn of_several_readers_each_takes_what_it_knows_and_the_rest_is_refused() {
        let given = Settings::parse(["a=7", "b=8", "c=9"]).unwrap();
        let mut settings = given.clone();
        for keys in [["a", "b"], ["b", "d"]] {
            let mut own = given.clone();
            keys.iter().for_each(|key| assert!(own.number(key, 1, 1..=9, "a count").is_ok()));
            settings.take_as(own);
        }
        let effective: Vec<_> =
            settings.effective().iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(effective, ["a=7", "b=8", "d=1"]);
        assert!(settings.finish().unwrap_err().to_string().starts_with("unknown setting `c`"));
    }

    #[test]
    fn huge_numbers_are_refused_not_wrapped() {
        for text in ["99999999999999999999ms", "18446744073709551615s", "18446744073709551615KiB"] {
            assert!(parse_duration(text).is_none() && parse_bytes(text).is_none(), "{text}");
        }
    }
}
