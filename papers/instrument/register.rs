//! A register of a paper's claims, as text: which there are, and what each says.
//!
//! A claim is a line `- XX-1.2 text`, under the heading (`## …`) of the figure or section that it belongs to.

use super::Result;

/// The claims of a paper and their texts, in the register's order.
#[derive(Debug, Default)]
pub struct Register(pub Vec<(String, String)>);

impl Register {
    /// Reads a register; `prefix` begins every ID, such as `LG`.
    pub fn parse(text: &str, prefix: &str) -> Result<Register> {
        let mut claims: Vec<(String, String)> = Vec::new();
        for line in text.lines() {
            let Some((id, text)) = line.strip_prefix("- ").and_then(|line| line.split_once(' ')) else {
                continue;
            };
            let number = id.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-'));
            if !number.is_some_and(is_number) {
                continue;
            }
            if claims.iter().any(|(other, _)| other == id) {
                return Err(format!("the claim {id} is there twice"));
            }
            claims.push((id.to_owned(), text.trim().to_owned()));
        }
        match claims.is_empty() {
            true => Err(format!("no claim begins with {prefix}-")),
            false => Ok(Register(claims)),
        }
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
- LG-6.12 Writes do.
- LG-6.1 Reads take no time (text).
- LG-T1.3 Table 1.
- LG-figures are many
";

    #[test]
    fn claims_are_the_lines_that_begin_with_an_id() {
        let Register(claims) = Register::parse(REGISTER, "LG").unwrap();
        let ids: Vec<_> = claims.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["LG-6.12", "LG-6.1", "LG-T1.3"]);
        assert_eq!(claims[1].1, "Reads take no time (text).");
    }

    #[test]
    fn a_register_without_claims_or_with_one_twice_is_refused() {
        assert!(Register::parse(REGISTER, "BD").is_err());
        assert!(Register::parse("- LG-1.1 a\n- LG-1.1 b", "LG").is_err());
    }
}
