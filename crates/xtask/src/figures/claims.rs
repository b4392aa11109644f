//! A register of a paper's claims, as text: which there are, and what each says.
//!
//! A claim is a line `- XX-1.2 text`, under the heading (`## …`) of the figure or section that it belongs to. What is
//! indented below it belongs to it.

use std::collections::BTreeMap;

use super::Result;

/// The claims of a paper by their IDs.
#[derive(Debug, Default)]
pub struct Claims {
    texts: BTreeMap<String, String>,
}

impl Claims {
    /// Reads a register; `prefix` begins every ID, such as `LG`.
    pub fn parse(text: &str, prefix: &str) -> Result<Claims> {
        let mut claims = Claims::default();
        for line in text.lines() {
            let Some((id, text)) = line.strip_prefix("- ").and_then(|line| line.split_once(' ')) else {
                continue;
            };
            let Some(number) = id.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-')) else {
                continue;
            };
            if !is_number(number) {
                continue;
            }
            if claims.texts.insert(id.to_owned(), text.trim().to_owned()).is_some() {
                return Err(format!("the claim {id} is there twice"));
            }
        }
        match claims.texts.is_empty() {
            true => Err(format!("no claim begins with {prefix}-")),
            false => Ok(claims),
        }
    }

    /// Every ID, in no useful order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.texts.keys().map(String::as_str)
    }

    /// What a claim says.
    pub fn text(&self, id: &str) -> Option<&str> {
        self.texts.get(id).map(String::as_str)
    }
}

/// `7.2`, `A.1`, `T1.11`: a section and a number.
fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('.').is_some_and(|(section, number)| {
        let plain = section.strip_prefix(|first: char| first.is_ascii_uppercase()).unwrap_or(section);
        digits(number) && !section.is_empty() && (plain.is_empty() || digits(plain))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTER: &str = "\
# Claims
- `LG-N.k` is claim k of Figure N; see LG-9.9.
## Figure 6
Claims:
- LG-6.1 Reads take no time (text).
- LG-6.12 Writes do.
- LG-A.2 Headline: a | b.
- LG-T1.3 Table 1.
- LG-figures are many
";

    #[test]
    fn claims_are_the_lines_that_begin_with_an_id() {
        let claims = Claims::parse(REGISTER, "LG").unwrap();
        assert_eq!(claims.ids().collect::<Vec<_>>(), ["LG-6.1", "LG-6.12", "LG-A.2", "LG-T1.3"]);
        assert_eq!(claims.text("LG-6.1"), Some("Reads take no time (text)."));
        assert_eq!(claims.text("LG-6.2"), None);
    }

    #[test]
    fn a_register_without_claims_or_with_one_twice_is_refused() {
        assert!(Claims::parse(REGISTER, "BD").is_err());
        assert!(Claims::parse("- LG-1.1 a\n- LG-1.1 b", "LG").is_err());
    }
}
