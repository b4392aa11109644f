//! The words of ACL SETUSER, as Redis 7 has them, and what they say of a user in the same words.

use std::borrow::Cow;
use std::fmt::Write as _;

use bytes::Bytes;
use quorate_store::glob::PATTERN_LIMIT;
use quorate_store::{CommandError, CommandRule, KeyRule, PasswordHash, Permissions, User, UserRule};

use super::super::commands::{lookup, named};
use super::{CATEGORIES, hash};

/// A user's name is a part of every listing.
const NAME_LIMIT: usize = 1024;

/// Why a user cannot be called so.
pub(crate) fn check_name(name: &[u8]) -> Result<(), String> {
    if name.is_empty() || name.iter().any(|byte| *byte == 0 || byte.is_ascii_whitespace()) {
        return Err("Usernames can't contain spaces or null characters".to_owned());
    }
    match name.len() > NAME_LIMIT {
        true => Err(format!("usernames are limited to {NAME_LIMIT} bytes")),
        false => Ok(()),
    }
}

/// The words of rules, those of a selector `(… …)` joined to one.
///
/// # Errors
///
/// The word that begins a selector without an end.
pub(crate) fn join_selectors<'a>(
    words: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Cow<'a, [u8]>>, &'a [u8]> {
    let mut joined = Vec::new();
    // The first word of a selector that has not ended, and all its words so far.
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for word in words {
        match &mut open {
            None if word.starts_with(b"(") && !word.ends_with(b")") => open = Some((word, word.to_vec())),
            None => joined.push(Cow::Borrowed(word)),
            Some((_, selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(word);
                if word.ends_with(b")") {
                    joined.extend(open.take().map(|(_, selector)| Cow::Owned(selector)));
                }
            }
        }
    }
    open.map_or(Ok(joined), |(first, _)| Err(first))
}

/// What one of the [joined](join_selectors) words of ACL SETUSER says; nothing for those about what there is not:
/// channels, and the sanitizing of dumps.
pub(crate) fn parse(word: &[u8]) -> Result<Option<UserRule>, String> {
    let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let rule = match word {
        _ if is("on") => UserRule::Enable,
        _ if is("off") => UserRule::Disable,
        _ if is("nopass") => UserRule::NoPassword,
        _ if is("resetpass") => UserRule::ResetPasswords,
        _ if is("reset") => UserRule::Reset,
        _ if is("clearselectors") => UserRule::ClearSelectors,
        _ if is("sanitize-payload") || is("skip-sanitize-payload") => return Ok(None),
        [b'>', password @ ..] => UserRule::AddPassword(hash(password)),
        [b'<', password @ ..] => UserRule::RemovePassword(hash(password)),
        [b'#', hex @ ..] => UserRule::AddPassword(read_hash(hex)?),
        [b'!', hex @ ..] => UserRule::RemovePassword(read_hash(hex)?),
        [b'(', words @ .., b')'] => UserRule::AddSelector(selector(words)?),
        _ => return permission(word),
    };
    Ok(Some(rule))
}

fn selector(words: &[u8]) -> Result<Permissions, String> {
    let mut permissions = Permissions::default();
    for word in words.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        if let Some(rule) = permission(word)? {
            permissions.change(&rule).map_err(refusal)?;
        }
    }
    Ok(permissions)
}

/// What a word says of commands and keys, be it in a selector or not.
fn permission(word: &[u8]) -> Result<Option<UserRule>, String> {
    let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let rule = match word {
        _ if is("allkeys") || word == b"~*" => UserRule::AllKeys,
        _ if is("resetkeys") => UserRule::ResetKeys,
        _ if is("allcommands") || is("+@all") => UserRule::AllCommands(true),
        _ if is("nocommands") || is("-@all") => UserRule::AllCommands(false),
        _ if is("allchannels") || is("resetchannels") => return Ok(None),
        [b'&', ..] => return Ok(None),
        [b'~', pattern @ ..] => keys(true, true, pattern)?,
        [b'%', rest @ ..] => {
            let tilde = rest.iter().position(|byte| *byte == b'~').ok_or("Syntax error")?;
            let (mut read, mut write) = (false, false);
            for letter in rest[..tilde].to_ascii_uppercase() {
                match letter {
                    b'R' if !read => read = true,
                    b'W' if !write => write = true,
                    _ => return Err("Syntax error".to_owned()),
                }
            }
            if !read && !write {
                return Err("Syntax error".to_owned());
            }
            keys(read, write, &rest[tilde + 1..])?
        }
        [sign @ (b'+' | b'-'), name @ ..] => commands(*sign == b'+', name)?,
        _ => return Err("Syntax error".to_owned()),
    };
    Ok(Some(rule))
}

fn keys(read: bool, write: bool, pattern: &[u8]) -> Result<UserRule, String> {
    if pattern.len() > PATTERN_LIMIT {
        return Err(format!("the pattern is longer than the limit of {PATTERN_LIMIT} bytes"));
    }
    if pattern.iter().any(|byte| *byte == 0 || byte.is_ascii_whitespace()) {
        return Err("Syntax error".to_owned());
    }
    Ok(UserRule::Keys(KeyRule { read, write, pattern: Bytes::copy_from_slice(pattern) }))
}

fn commands(allow: bool, name: &[u8]) -> Result<UserRule, String> {
    let name = name.to_ascii_lowercase();
    let is_known = match name.strip_prefix(b"@") {
        Some(category) => CATEGORIES.iter().any(|known| known.as_bytes() == category),
        None => lookup(&name).is_some(),
    };
    if is_known {
        return Ok(UserRule::Commands(CommandRule { allow, name: name.into() }));
    }
    let parts: Vec<_> = name.splitn(3, |byte| *byte == b'|').collect();
    Err(match parts[..] {
        [command, sub, _] if allow && named(command).is_some_and(|spec| spec.subcommand(sub).is_some()) => {
            "Allowing first-arg of a subcommand is not supported".to_owned()
        }
        _ => "Unknown command or category name in ACL".to_owned(),
    })
}

fn read_hash(hex: &[u8]) -> Result<PasswordHash, String> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 32];
    let is_read = hex.len() == 64
        && hex.chunks(2).zip(&mut bytes).all(|(pair, byte)| match (digit(pair[0]), digit(pair[1])) {
            (Some(high), Some(low)) => {
                *byte = high << 4 | low;
                true
            }
            _ => false,
        });
    match is_read {
        true => Ok(PasswordHash(bytes)),
        false => Err(
            "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
                .to_owned(),
        ),
    }
}

/// What is wrong with a rule for a user, as Redis words it.
pub(crate) fn refusal(error: CommandError) -> String {
    match error {
        CommandError::NoSuchPassword => {
            "The password you are trying to remove from the user does not exist".to_owned()
        }
        CommandError::AllKeysAlready => {
            "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. \
             Try 'resetkeys' to start with an empty list of patterns"
                .to_owned()
        }
        error => error.to_string(),
    }
}

/// A hash as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Patterns of keys, in the words that make them.
pub(crate) fn key_words(permissions: &Permissions) -> Vec<u8> {
    if permissions.all_keys {
        return b"~*".to_vec();
    }
    let words = permissions.keys.iter().map(|rule| {
        let sign: &[u8] = match (rule.read, rule.write) {
            (true, false) => b"%R~",
            (false, true) => b"%W~",
            _ => b"~",
        };
        [sign, &rule.pattern].concat()
    });
    words.collect::<Vec<_>>().join(&b' ')
}

/// Rules of commands, in the words that make them.
pub(crate) fn command_words(permissions: &Permissions) -> Vec<u8> {
    let all: &[u8] = if permissions.all_commands { b"+@all" } else { b"-@all" };
    let sign = |rule: &CommandRule| if rule.allow { b"+" } else { b"-" };
    let rules = permissions.commands.iter().map(|rule| [sign(rule), &rule.name[..]].concat());
    std::iter::once(all.to_vec()).chain(rules).collect::<Vec<_>>().join(&b' ')
}

fn permission_words(permissions: &Permissions) -> Vec<u8> {
    let keys = Some(key_words(permissions)).filter(|words| !words.is_empty());
    keys.into_iter().chain([command_words(permissions)]).collect::<Vec<_>>().join(&b' ')
}

/// The line of ACL LIST, which makes the same user from nothing.
pub(crate) fn line(name: &[u8], user: &User) -> Vec<u8> {
    let mut words = vec![b"user".to_vec(), name.to_vec()];
    words.push(if user.enabled { b"on".to_vec() } else { b"off".to_vec() });
    words.extend(user.no_password.then(|| b"nopass".to_vec()));
    words.extend(user.passwords.iter().map(|hash| format!("#{}", hex(&hash.0)).into_bytes()));
    words.push(permission_words(&user.permissions));
    let selectors = user.selectors.iter();
    words.extend(selectors.map(|selector| [b"(", &permission_words(selector)[..], b")"].concat()));
    words.join(&b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH_OF_P: &str = "148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940";

    fn carry_out(words: &str, user: &mut User) -> Result<(), String> {
        let words = join_selectors(words.split_whitespace().map(str::as_bytes));
        let words = words.map_err(|word| format!("no end of {}", String::from_utf8_lossy(word)))?;
        words.iter().try_for_each(|word| match parse(word)? {
            Some(rule) => user.change(&rule).map_err(refusal),
            None => Ok(()),
        })
    }

    #[test]
    fn words_are_rules_and_rules_are_words() {
        let table = "
            on nopass ~* +@all            → user x on nopass ~* +@all
            ON AllKeys ALLCOMMANDS        → user x on ~* +@all
            on ~a* %R~b %w~c %RW~d        → user x on ~a* %R~b %W~c ~d -@all
            +GET +@Read -client|ID        → user x off -@all +get +@read -client|id
            &* allchannels resetchannels  → user x off -@all
            sanitize-payload on           → user x on -@all
            >p                            → user x off #HASH -@all
            >p <p                         → user x off -@all
            >p !HASH → user x off -@all
            +nocmd                        → Unknown command or category name in ACL
            +@nocat                       → Unknown command or category name in ACL
            +config|nosub                 → Unknown command or category name in ACL
            -get|x                        → Unknown command or category name in ACL
            +                             → Unknown command or category name in ACL
            foo                           → Syntax error
            %~x                           → Syntax error
            %X~a                          → Syntax error
            %RR~a                         → Syntax error
            %R                            → Syntax error
            ~a (~b +get) (+@all)          → user x off ~a -@all (~b -@all +get) (+@all)
            (~b +get -get +get)           → user x off -@all (~b -@all +get)
            (%R~b %W~b allkeys &x) ()     → user x off -@all (~* -@all) (-@all)
            (~b +get ) +get               → user x off -@all +get (~b -@all +get)
            (~b) clearselectors (~c)      → user x off -@all (~c -@all)
            (~b) reset                    → user x off -@all
            (+get                         → no end of (+get
            (+get (~b)                    → Syntax error
            ((+get))                      → Syntax error
            +get)                         → Unknown command or category name in ACL
            (                             → no end of (
            )                             → Syntax error
            (+nocmd)                      → Unknown command or category name in ACL
            (on)                          → Syntax error
            (>p)                          → Syntax error
            (clearselectors)              → Syntax error
            (~* ~b)                       → REFUSAL
            <p                            → The password you are trying to remove from the user does not exist
        ";
        for row in table.lines().map(str::trim).filter(|row| !row.is_empty()) {
            let row =
                row.replace("HASH", HASH_OF_P).replace("REFUSAL", &refusal(CommandError::AllKeysAlready));
            let (words, expected) = row.split_once('→').unwrap();
            let mut user = User::new(1);
            let done = carry_out(words, &mut user);
            let found = done.map_or_else(|why| why, |()| String::from_utf8(line(b"x", &user)).unwrap());
            assert_eq!(found, expected.trim(), "{row}");
            // A line that was shown makes the same user again.
            if let Some(rules) = found.strip_prefix("user x ") {
                let mut again = User::new(1);
                carry_out(rules, &mut again).unwrap();
                assert_eq!(again, user, "{row}");
            }
        }
        for hash in ["#zz", &format!("#{}", HASH_OF_P.to_uppercase()), &format!("!{HASH_OF_P}0")] {
            let error = parse(hash.as_bytes()).unwrap_err();
            assert!(error.starts_with("The password hash must be exactly 64 characters"), "{hash}: {error}");
        }
    }
}
