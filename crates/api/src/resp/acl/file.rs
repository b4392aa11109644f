//! The first users of a cluster, from a file in the form of Redis's `aclfile`: lines `user NAME RULE …`.

use bytes::Bytes;
use quorate_store::{DEFAULT_USER, User, UserRule};

use super::{FirstUsers, rules};

/// Reads it. The error says in which line something is wrong, never with a password.
pub fn parse(text: &str) -> Result<FirstUsers, String> {
    let mut users = FirstUsers::new();
    for (number, line) in text.lines().enumerate() {
        let wrong = |what: String| format!("line {}: {what}", number + 1);
        let mut words = line.split_whitespace();
        let name = match words.next() {
            None => continue,
            Some(word) if word.starts_with('#') => continue,
            Some("user") => {
                words.next().ok_or_else(|| wrong("a name comes after `user`".to_owned()))?.as_bytes()
            }
            Some(_) => {
                return Err(wrong("each line is `user NAME RULE …`, as in Redis's aclfile".to_owned()));
            }
        };
        rules::check_name(name).map_err(wrong)?;
        if users.iter().any(|(known, _)| known[..] == *name) {
            return Err(wrong("this user has a line already".to_owned()));
        }
        let (mut user, mut all) = (User::new(1), vec![UserRule::Reset]);
        let words = rules::join_selectors(words.map(str::as_bytes))
            .map_err(|_| wrong("`(` begins a selector, and `)` is missing".to_owned()))?;
        for (index, word) in words.iter().enumerate() {
            let wrong = |what: String| {
                // What is a password, or was meant as one, is not for logs.
                let text = String::from_utf8_lossy(word);
                let is_no_password =
                    |word: &str| word.trim_start_matches('(').starts_with(['+', '-', '~', '%']);
                match text.split(' ').all(is_no_password) {
                    true => wrong(format!("rule `{text}`: {what}")),
                    false => wrong(format!("rule {}: {what}", index + 1)),
                }
            };
            if let Some(rule) = rules::parse(word).map_err(wrong)? {
                user.change(&rule).map_err(|error| wrong(rules::refusal(error)))?;
                all.push(rule);
            }
        }
        users.push((Bytes::copy_from_slice(name), all));
    }
    if !users.iter().any(|(name, _)| name[..] == *DEFAULT_USER) {
        return Err(
            "there is no line for the user `default`, and so connections that name no user could still do \
                    everything: add `user default off`, or `user default on nopass ~* +@all` if that is meant"
                .to_owned(),
        );
    }
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_makes_users_or_says_what_is_wrong_and_where() {
        let users = parse("# first\n\nuser default off\n  user ann on >secret ~* +@all\n").unwrap();
        let names: Vec<_> = users.iter().map(|(name, rules)| (&name[..], rules.len())).collect();
        assert_eq!(names, [(&b"default"[..], 2), (b"ann", 5)]);
        for (text, expected) in [
            ("ann on", "line 1: each line is `user NAME RULE …`"),
            ("\nuser", "line 2: a name comes after `user`"),
            ("user default off\nuser default on", "line 2: this user has a line already"),
            ("user default +gett", "line 1: rule `+gett`: Unknown command or category name in ACL"),
            ("user default on <gone", "line 1: rule 2: The password you are trying to remove"),
            ("user default secret", "line 1: rule 1: Syntax error"),
            ("user default (~a +get (secret", "line 1: `(` begins a selector, and `)` is missing"),
            (
                "user default off (~a +gett)",
                "line 1: rule `(~a +gett)`: Unknown command or category name in ACL",
            ),
            ("user default off (~a >secret)", "line 1: rule 2: Syntax error"),
            ("user default ~* ~a", "line 1: rule `~a`: Adding a pattern after the * pattern"),
            ("user ann on nopass ~* +@all", "there is no line for the user `default`"),
            ("", "there is no line for the user `default`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
            assert!(!error.contains("secret") && !error.contains("gone"), "{error}");
        }
    }
}
