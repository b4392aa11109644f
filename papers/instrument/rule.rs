//! A rule is one line beside a claim's ID. The words of the rule and of what was measured are made from it:
//!
//! ```text
//! rule("LG-6.4", FIG6.at("delay_ms", 10).ratio("write_p90", "quorum", "inconsistent").about(1.06, 0.03))
//! ```
//!
//! [`Figure::at`] selects points; [`Select::of`], [`Select::ratio`], [`Select::difference`], [`Select::quotient`] take
//! a number of each; an operator ([`Values::within`], …) must hold at every point. Nothing measured is no agreement.

use std::fmt::Display;
use std::rc::Rc;

use super::grid::{Data, Figure, MANY, Point, digits, is_same, median_interval};

/// Some points of a figure.
#[derive(Clone, Debug)]
pub struct Select {
    figure: &'static Figure,
    at: Vec<(&'static str, String)>,
}

impl Figure {
    /// Every point that was measured.
    pub fn all(&'static self) -> Select {
        Select { figure: self, at: Vec::new() }
    }

    /// The points at which a dimension has a value.
    pub fn at(&'static self, dim: &'static str, value: impl Display) -> Select {
        self.all().at(dim, value)
    }

    /// A condition in words and code, for the odd claim: code gives whether it holds and what was measured.
    pub fn holds(
        &'static self,
        words: &str,
        judge: impl Fn(&Data) -> Option<(bool, String)> + 'static,
    ) -> Check {
        let judge = move |data: &Data| judge(data).map(|(holds, ours)| (Some(holds), ours));
        Check { figures: vec![self], words: words.to_owned(), at_once: false, judge: Rc::new(judge) }
    }
}

impl Select {
    /// Only the points with this key in the dimension.
    pub fn at(mut self, dim: &'static str, value: impl Display) -> Select {
        self.figure.dim(dim);
        self.at.push((dim, value.to_string()));
        self
    }

    fn words(&self, what: &str) -> String {
        let at = self.at.iter().map(|(dim, value)| match self.figure.dim(dim) {
            0 => value.clone(),
            _ => format!("{} {value}", spaced(dim)),
        });
        let at: Vec<_> = at.collect();
        match at.is_empty() {
            true => what.to_owned(),
            false => format!("{what} ({})", at.join(", ")),
        }
    }

    fn unit(&self, number: &str) -> &'static str {
        self.figure.numbers[self.figure.column(number)].1
    }

    /// What makes a value of each point, or of each group of points that differ in one dimension alone.
    fn values(
        &self,
        words: String,
        unit: &'static str,
        of: impl Fn(&[Point]) -> Option<f64> + 'static,
        grouped: Option<usize>,
    ) -> Values {
        let (figure, at) = (self.figure, self.at.clone());
        let eval = move |data: &Data| {
            let mut groups: Vec<(Vec<String>, Vec<Point>)> = Vec::new();
            for point in data.points(figure) {
                if !at.iter().all(|(dim, value)| is_same(&point.keys[figure.dim(dim)], value)) {
                    continue;
                }
                let mut keys = point.keys.clone();
                if let Some(dim) = grouped {
                    keys[dim].clear();
                }
                match groups.iter_mut().find(|(group, _)| *group == keys) {
                    Some((_, points)) => points.push(point),
                    None => groups.push((keys, vec![point])),
                }
            }
            groups.into_iter().filter_map(|(keys, points)| Some((keys, of(&points)?))).collect()
        };
        Values { figure, words, unit, eval: Rc::new(eval) }
    }

    /// A number at each point.
    pub fn of(&self, number: &str) -> Values {
        let column = self.figure.column(number);
        let words = self.words(&spaced(number));
        self.values(words, self.unit(number), move |points| Some(points[0].cells[column]?.value), None)
    }

    /// One number divided by another of the same point.
    pub fn quotient(&self, over: &str, under: &str) -> Values {
        let [over_at, under_at] = [over, under].map(|number| self.figure.column(number));
        let words = self.words(&format!("{} ÷ {}", spaced(over), spaced(under)));
        let of =
            move |points: &[Point]| Some(points[0].cells[over_at]?.value / points[0].cells[under_at]?.value);
        self.values(words, "", of, None)
    }

    fn pair(
        &self,
        number: &str,
        dim: usize,
        (one, other): (&'static str, &'static str),
        sign: &str,
        unit: &'static str,
        of: fn(f64, f64) -> f64,
    ) -> Values {
        let column = self.figure.column(number);
        let varied = if dim == 0 { String::new() } else { format!("{} ", spaced(self.figure.dims[dim])) };
        let words = self.words(&format!("{}, {varied}{one} {sign} {other}", spaced(number)));
        let of = move |points: &[Point]| {
            let value =
                |name: &str| Some(points.iter().find(|point| point.keys[dim] == name)?.cells[column]?.value);
            Some(of(value(one)?, value(other)?))
        };
        self.values(words, unit, of, Some(dim))
    }

    /// A number of one of what is compared (the first dimension), divided by the same of another.
    pub fn ratio(&self, number: &str, over: &'static str, under: &'static str) -> Values {
        self.pair(number, 0, (over, under), "÷", "", |over, under| over / under)
    }

    /// A number at one value of a dimension, divided by the same at another.
    pub fn change(&self, number: &str, dim: &'static str, over: &'static str, under: &'static str) -> Values {
        self.pair(number, self.figure.dim(dim), (over, under), "÷", "", |over, under| over / under)
    }

    /// How much more a number is at one value of a dimension than at another.
    pub fn growth(&self, number: &str, dim: &'static str, from: &'static str, to: &'static str) -> Values {
        self.pair(number, self.figure.dim(dim), (to, from), "−", self.unit(number), |to, from| to - from)
    }

    /// One key's number less another's, where all other dimensions agree.
    pub fn difference(&self, number: &str, from: &'static str, less: &'static str) -> Values {
        self.pair(number, 0, (from, less), "−", self.unit(number), |from, less| from - less)
    }

    /// A number rises from each of what is compared (the first dimension) to the next.
    pub fn order(&self, number: &str, names: &'static [&'static str]) -> Check {
        let (column, unit) = (self.figure.column(number), self.unit(number));
        let of = self.at.iter().fold(self.figure.all(), |all, (dim, value)| all.at(dim, value));
        let words = self.words(&format!("{}: {}", spaced(number), names.join(" < ")));
        let figure = self.figure;
        let judge = move |data: &Data| {
            let mut all = Vec::new();
            let keep = |points: &[Point]| {
                let value = |name: &&str| {
                    Some(points.iter().find(|point| point.keys[0] == **name)?.cells[column]?.value)
                };
                names.iter().map(value).collect::<Option<Vec<_>>>()
            };
            for point in data.points(figure) {
                if of.at.iter().all(|(dim, value)| is_same(&point.keys[figure.dim(dim)], value)) {
                    all.push(point);
                }
            }
            let mut groups: Vec<(Vec<String>, Vec<Point>)> = Vec::new();
            for point in all {
                match groups.iter_mut().find(|(keys, _)| keys[..] == point.keys[1..]) {
                    Some((_, points)) => points.push(point),
                    None => groups.push((point.keys[1..].to_vec(), vec![point])),
                }
            }
            let listed: Option<Vec<_>> = groups.iter().map(|(_, points)| keep(points)).collect();
            let listed = listed.filter(|listed| !listed.is_empty())?;
            let holds = listed.iter().all(|values| values.windows(2).all(|pair| pair[0] < pair[1]));
            let ours = listed.iter().map(|values| {
                let each = names.iter().zip(values).map(|(name, value)| format!("{name} {}", digits(*value)));
                each.collect::<Vec<_>>().join(", ")
            });
            let ours = ours.collect::<Vec<_>>().join("; ");
            Some((Some(holds), with_unit(format!("{}: {ours}", spaced(figure.numbers[column].0)), unit)))
        };
        Check { figures: vec![self.figure], words, at_once: false, judge: Rc::new(judge) }
    }
}

type Listed = Vec<(Vec<String>, f64)>;

/// A value at each of some points.
#[derive(Clone)]
pub struct Values {
    figure: &'static Figure,
    words: String,
    unit: &'static str,
    eval: Rc<dyn Fn(&Data) -> Listed>,
}

impl Values {
    /// The same, divided by a multiple of a dimension.
    pub fn per(self, multiple: f64, dim: &'static str) -> Values {
        let (eval, at) = (self.eval, self.figure.dim(dim));
        let words = format!("{} ÷ ({} × {})", self.words, digits(multiple), spaced(dim));
        let divided = move |data: &Data| {
            let key = |keys: &[String]| keys[at].parse::<f64>().ok();
            let all = eval(data).into_iter();
            all.filter_map(|(keys, value)| Some((keys.clone(), value / (multiple * key(&keys)?)))).collect()
        };
        Values { words, unit: "", eval: Rc::new(divided), ..self }
    }

    /// The same, less a multiple of a dimension.
    pub fn less(self, multiple: f64, dim: &'static str) -> Values {
        let (eval, at) = (self.eval, self.figure.dim(dim));
        let words = format!("{} − {} × {}", self.words, digits(multiple), spaced(dim));
        let less = move |data: &Data| {
            let key = |keys: &[String]| keys[at].parse::<f64>().ok();
            let all = eval(data).into_iter();
            all.filter_map(|(keys, value)| Some((keys.clone(), value - multiple * key(&keys)?))).collect()
        };
        Values { words, eval: Rc::new(less), ..self }
    }

    fn check(self, must: String, holds: impl Fn(&Listed) -> bool + 'static) -> Check {
        let Values { figure, words, unit, eval } = self;
        let shown = words.clone();
        let judge = move |data: &Data| {
            let values = eval(data);
            let ours = || format!("{shown}: {}", describe(&values, unit));
            (!values.is_empty()).then(|| (Some(holds(&values)), ours()))
        };
        Check {
            figures: vec![figure],
            words: format!("{words} {must}"),
            at_once: false,
            judge: Rc::new(judge),
        }
    }

    /// From `low` to `high` at every point.
    pub fn within(self, low: f64, high: f64) -> Check {
        let must = with_unit(format!("within {} to {}", digits(low), digits(high)), self.unit);
        self.check(must, move |all| all.iter().all(|(_, value)| (low..=high).contains(value)))
    }

    /// At most so far from a value at every point.
    pub fn about(self, value: f64, tolerance: f64) -> Check {
        let must = with_unit(format!("{} ± {}", digits(value), digits(tolerance)), self.unit);
        self.check(must, move |all| all.iter().all(|(_, ours)| (ours - value).abs() <= tolerance))
    }

    /// A value at every point.
    pub fn is(self, value: f64) -> Check {
        let must = with_unit(format!("= {}", digits(value)), self.unit);
        self.check(must, move |all| all.iter().all(|(_, ours)| *ours == value))
    }

    /// Every value reaches this bound.
    pub fn at_least(self, low: f64) -> Check {
        let must = with_unit(format!("at least {}", digits(low)), self.unit);
        self.check(must, move |all| all.iter().all(|(_, value)| *value >= low))
    }

    /// No value exceeds this bound.
    pub fn at_most(self, high: f64) -> Check {
        let must = with_unit(format!("at most {}", digits(high)), self.unit);
        self.check(must, move |all| all.iter().all(|(_, value)| *value <= high))
    }

    /// Strictly, with every step of a dimension of numbers.
    pub fn rises(self, dim: &'static str) -> Check {
        let at = self.figure.dim(dim);
        self.check(format!("rises with {}", spaced(dim)), move |all| {
            steps(all, at).iter().all(|(before, after)| after > before)
        })
    }

    /// With every step of a dimension of numbers, up to a tolerance for chance.
    pub fn falls(self, dim: &'static str, tolerance: f64) -> Check {
        let at = self.figure.dim(dim);
        self.check(format!("falls with {} (tolerance {})", spaced(dim), digits(tolerance)), move |all| {
            steps(all, at).iter().all(|(before, after)| *after < before + tolerance)
        })
    }

    /// At all points, up to a difference.
    pub fn same(self, tolerance: f64) -> Check {
        let must = with_unit(format!("the same, within {}", digits(tolerance)), self.unit);
        self.check(must, move |all| {
            let (low, high) = range(all);
            high - low <= tolerance
        })
    }

    /// The median over runs of what chance decides, such as the time of an election, is from `low` to `high`: with
    /// 95% confidence, over at least [`MANY`] runs.
    pub fn median_within(self, low: f64, high: f64) -> Check {
        let Values { figure, words, unit, eval } = self;
        let must = match high {
            f64::INFINITY => format!("at least {}", digits(low)),
            high => format!("within {} to {}", digits(low), digits(high)),
        };
        let words = format!("median of {words}");
        let shown = words.clone();
        let judge = move |data: &Data| {
            let grid = data.0.get(figure.id)?;
            let of = |run| eval(&Data([(figure.id, grid.only(run))].into()));
            let mut all: Vec<_> = grid.runs().into_iter().flat_map(of).map(|(_, value)| value).collect();
            all.sort_by(f64::total_cmp);
            let (least, most) = median_interval(&all)?;
            let settled = all.len() >= MANY;
            let holds = match (least >= low && most <= high, most < low || least > high) {
                (true, _) if settled => Some(true),
                (_, true) if settled => Some(false),
                _ => None,
            };
            let value = with_unit(digits(all[(all.len() - 1) / 2]), unit);
            let interval = format!("95%: {} to {}, {} runs", digits(least), digits(most), all.len());
            Some((holds, format!("{shown}: {value} ({interval})")))
        };
        Check {
            figures: vec![figure],
            words: format!("{words} {}", with_unit(must, unit)),
            at_once: true,
            judge: Rc::new(judge),
        }
    }

    /// It was measured; with a dimension that an experiment must have.
    pub fn exists(self) -> Check {
        self.check("is measured".to_owned(), |_| true)
    }
}

/// Neighbours along a dimension of numbers, everything else being equal.
fn steps(all: &Listed, dim: usize) -> Vec<(f64, f64)> {
    let mut sorted: Vec<_> = all
        .iter()
        .map(|(keys, value)| {
            let mut rest = keys.clone();
            let at = rest.remove(dim).parse::<f64>().unwrap_or(f64::NAN);
            (rest, at, *value)
        })
        .collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let pairs = sorted.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    pairs.map(|pair| (pair[0].2, pair[1].2)).collect()
}

fn range(all: &Listed) -> (f64, f64) {
    all.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (_, value)| {
        (low.min(*value), high.max(*value))
    })
}

/// A few values each with what tells it from the others, many as a range.
fn describe(all: &Listed, unit: &str) -> String {
    if all.len() > 6 {
        let (low, high) = range(all);
        let range = with_unit(format!("{} to {}", digits(low), digits(high)), unit);
        return format!("{range} ({} points)", all.len());
    }
    let varies = |dim: &usize| all.iter().any(|(keys, _)| keys[*dim] != all[0].0[*dim]);
    let dims: Vec<_> = (0..all[0].0.len()).filter(varies).collect();
    let one = |(keys, value): &(Vec<String>, f64)| {
        let label: Vec<_> = dims.iter().map(|dim| keys[*dim].as_str()).collect();
        let value = with_unit(digits(*value), unit);
        if label.is_empty() { value } else { format!("{value} at {}", label.join(", ")) }
    };
    all.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn with_unit(text: String, unit: &str) -> String {
    if unit.is_empty() { text } else { format!("{text} {unit}") }
}

fn spaced(name: &str) -> String {
    name.replace('_', " ")
}

type Judge = Rc<dyn Fn(&Data) -> Option<(Option<bool>, String)>>;

/// A condition on measured numbers.
#[derive(Clone)]
pub struct Check {
    pub figures: Vec<&'static Figure>,
    pub words: String,
    /// Judged from all runs together, not from each by itself.
    pub at_once: bool,
    /// Whether it holds (`None`: chance may have decided), and what was measured; `None`: nothing was.
    pub judge: Judge,
}

impl Check {
    /// Holds where both hold; the words are joined by "and".
    pub fn and(self, other: Check) -> Check {
        let Check { mut figures, words, at_once, judge } = self;
        assert_eq!(at_once, other.at_once, "{words}: all runs together, or each by itself");
        figures.extend(
            other
                .figures
                .iter()
                .filter(|more| figures.iter().all(|one| one.id != more.id))
                .copied()
                .collect::<Vec<_>>(),
        );
        let second = other.judge;
        let both = move |data: &Data| {
            let ((one, ours), (other, more)) = (judge(data)?, second(data)?);
            let ours = if ours.contains(&more) { ours } else { format!("{ours}; {more}") };
            let both = match (one, other) {
                (Some(true), Some(true)) => Some(true),
                (Some(false), _) | (_, Some(false)) => Some(false),
                _ => None,
            };
            Some((both, ours))
        };
        Check { figures, words: format!("{words}; and {}", other.words), at_once, judge: Rc::new(both) }
    }
}

/// Something in the repository that shows an argument.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Its path from the root of the repository.
    pub file: &'static str,
    /// The name of a test in it: a function, or a line of the mutation suite.
    pub test: &'static str,
}

/// How a claim is judged.
#[derive(Clone)]
pub enum Kind {
    /// By numbers; the second condition is on what the claim praises, and makes it `better`.
    Measured(Check, Option<Check>),
    /// By an argument that a test shows.
    Argued { ours: String, by: Vec<Shown>, agrees: bool },
    /// The paper leaves it open, or sets it: this is what was taken.
    Choice { ours: String },
    /// Not at all; the reason is in `why`.
    Unjudged,
}

/// The rule of a claim.
#[derive(Clone)]
pub struct Rule {
    pub claim: &'static str,
    pub kind: Kind,
    /// The reason for a difference, or what a reader should know.
    pub why: String,
    /// In what the rule asks less than the register.
    pub weaker: Option<&'static str>,
}

/// A rule on numbers.
pub fn rule(claim: &'static str, check: Check) -> Rule {
    Rule { claim, kind: Kind::Measured(check, None), why: String::new(), weaker: None }
}

impl Rule {
    /// Ours is better if this holds, too.
    pub fn better(mut self, check: Check) -> Rule {
        if let Kind::Measured(_, better) = &mut self.kind {
            *better = Some(check);
        }
        self
    }

    /// What a reader should know.
    pub fn why(mut self, why: &str) -> Rule {
        why.clone_into(&mut self.why);
        self
    }

    /// It asks less than the register, in this.
    pub fn weaker(mut self, what: &'static str) -> Rule {
        self.weaker = Some(what);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid::tests::{VIRTUAL, grid};
    use super::*;

    /// Reads of two systems at two delays; system `c` has no count.
    const ROWS: &str = "a,1,1,2,10\na,2,1,4,10\nb,1,1,1,20\nb,2,1,5,20\nc,1,1,0.5,\n";

    fn ask(check: &Check) -> String {
        let data = Data([(VIRTUAL.id, grid(&VIRTUAL, "", ROWS))].into());
        match (check.judge)(&data) {
            None => format!("{} | nothing", check.words),
            Some((holds, ours)) => {
                format!("{} | {ours} | {}", check.words, if holds == Some(true) { "yes" } else { "no" })
            }
        }
    }

    #[test]
    fn rules_make_their_words_and_those_of_what_was_measured() {
        let of = |system: &str| VIRTUAL.at("system", system).of("read");
        let at = |delay: u32| VIRTUAL.at("delay_ms", delay);
        let table = [
            ask(&of("a").within(2.0, 4.0)),
            ask(&of("a").at_most(3.0)),
            ask(&of("a").at_least(2.0)),
            ask(&of("a").rises("delay_ms")),
            ask(&of("a").falls("delay_ms", 0.1)),
            ask(&of("a").same(2.0)),
            ask(&of("a").per(2.0, "delay_ms").is(1.0)),
            ask(&of("a").less(2.0, "delay_ms").is(0.0)),
            ask(&of("d").exists()),
            ask(&at(2).ratio("read", "b", "a").about(1.2, 0.1)),
            ask(&VIRTUAL.at("system", "b").change("read", "delay_ms", "2", "1").is(5.0)),
            ask(&VIRTUAL.all().difference("read", "a", "b").at_least(0.0)),
            ask(&VIRTUAL.at("system", "b").quotient("read", "count").at_most(1.0)),
            ask(&at(1).order("read", &["c", "b", "a"])),
            ask(&at(2).order("read", &["a", "c"])),
            ask(&at(1).ratio("count", "a", "c").exists()),
            ask(&of("a").at_least(1.0).and(of("b").at_most(4.0))),
            ask(&VIRTUAL.holds("something odd", |data| Some((true, data.0.len().to_string())))),
        ];
        let expected = "\
read (a) within 2 to 4 ms | read (a): 2 ms at 1; 4 ms at 2 | yes
read (a) at most 3 ms | read (a): 2 ms at 1; 4 ms at 2 | no
read (a) at least 2 ms | read (a): 2 ms at 1; 4 ms at 2 | yes
read (a) rises with delay ms | read (a): 2 ms at 1; 4 ms at 2 | yes
read (a) falls with delay ms (tolerance 0.1) | read (a): 2 ms at 1; 4 ms at 2 | no
read (a) the same, within 2 ms | read (a): 2 ms at 1; 4 ms at 2 | yes
read (a) ÷ (2 × delay ms) = 1 | read (a) ÷ (2 × delay ms): 1 at 1; 1 at 2 | yes
read (a) − 2 × delay ms = 0 ms | read (a) − 2 × delay ms: 0 ms at 1; 0 ms at 2 | yes
read (d) is measured | nothing
read, b ÷ a (delay ms 2) 1.2 ± 0.1 | read, b ÷ a (delay ms 2): 1.25 | yes
read, delay ms 2 ÷ 1 (b) = 5 | read, delay ms 2 ÷ 1 (b): 5 | yes
read, a − b at least 0 ms | read, a − b: 1 ms at 1; -1 ms at 2 | no
read ÷ count (b) at most 1 | read ÷ count (b): 0.05 at 1; 0.25 at 2 | yes
read: c < b < a (delay ms 1) | read: c 0.5, b 1, a 2 ms | yes
read: a < c (delay ms 2) | nothing
count, a ÷ c (delay ms 1) is measured | nothing
read (a) at least 1 ms; and read (b) at most 4 ms | read (a): 2 ms at 1; 4 ms at 2; read (b): 1 ms at 1; 5 ms at 2 | no
something odd | 1 | yes";
        assert_eq!(table.join("\n"), expected);
    }
}
