//! Strings: GET, SET and their kin.

use quorate_store::{Command, Condition, Expiry};

use super::*;

pub(super) const SPECS: &[Spec] = &[
    command("append", 3, WRITE_FAST, ONE_KEY, "Appends to a string.", append),
    command("decr", 2, WRITE_FAST, ONE_KEY, "Takes one from an integer.", |args, call| step(args, call, -1)),
    command("decrby", 3, WRITE_FAST, ONE_KEY, "Takes from an integer.", decrement_by),
    command("get", 2, READ_FAST, ONE_KEY, "Returns a string.", get),
    command("getdel", 2, REMOVE_FAST, ONE_KEY, "Returns a string and removes it.", take),
    command("getex", -2, WRITE_FAST, ONE_KEY, "Returns a string and changes its expiry.", get_expiring),
    command("getrange", 4, READ, ONE_KEY, "Returns a part of a string.", get_range),
    command("getset", 3, WRITE_FAST, ONE_KEY, "Sets a string and returns the one before.", get_set),
    command("incr", 2, WRITE_FAST, ONE_KEY, "Adds one to an integer.", |args, call| step(args, call, 1)),
    command("incrby", 3, WRITE_FAST, ONE_KEY, "Adds to an integer.", increment_by),
    command("incrbyfloat", 3, WRITE_FAST, ONE_KEY, "Adds to a number.", increment_float),
    command("mget", -2, READ_FAST, ALL_KEYS, "Returns several strings.", get_many),
    command("mset", -3, WRITE, PAIRS, "Sets several strings at once.", |args, call| {
        set_many(args, call, false)
    }),
    command("msetnx", -3, WRITE, PAIRS, "Sets several strings if none of the keys exists.", |args, call| {
        set_many(args, call, true)
    }),
    command("psetex", 4, WRITE, ONE_KEY, "Sets a string that lives some milliseconds.", |args, call| {
        set_expiring(args, call, Unit::Milliseconds)
    }),
    command("set", -3, WRITE, ONE_KEY, "Sets a string.", set),
    command("setex", 4, WRITE, ONE_KEY, "Sets a string that lives some seconds.", |args, call| {
        set_expiring(args, call, Unit::Seconds)
    }),
    command("setnx", 3, WRITE_FAST, ONE_KEY, "Sets a string if the key does not exist.", set_if_absent),
    command("setrange", 4, WRITE, ONE_KEY, "Overwrites a part of a string.", set_range),
    command("strlen", 2, READ_FAST, ONE_KEY, "Returns the length of a string.", length),
    command("substr", 4, READ, ONE_KEY, "The old name of GETRANGE.", get_range),
];

/// What an expiry is given in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

fn get(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    Ok(Step::Ask(Command::Get { key: call.key(&args, 1)? }, Shape::Plain))
}

fn set(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (mut condition, mut old) = (Condition::Always, false);
    let mut expiry = ExpiryOption::default();
    let mut index = 3;
    while index < args.len() {
        let word = args.get(index);
        match expiry.take(&args, index, "KEEPTTL") {
            Some(taken) => {
                index += taken;
                continue;
            }
            None if is(word, "NX") && condition != Condition::IfPresent => condition = Condition::IfAbsent,
            None if is(word, "XX") && condition != Condition::IfAbsent => condition = Condition::IfPresent,
            None if is(word, "GET") => old = true,
            _ => return Err(SYNTAX.into()),
        }
        index += 1;
    }
    let expiry = match expiry.0 {
        None => Expiry::Never,
        Some(("KEEPTTL", _)) => Expiry::Keep,
        Some(given) => ExpiryOption::read(given, &args, call)?,
    };
    let (key, value) = (call.key(&args, 1)?, args.bytes(2));
    Ok(Step::Ask(Command::Put { key, value, condition, expiry, old }, Shape::Plain))
}

/// The option that speaks of expiry, and where its last word is.
#[derive(Default)]
struct ExpiryOption(Option<(&'static str, usize)>);

impl ExpiryOption {
    /// How many words at an index speak of expiry; `None` if they do not, or otherwise than those before. `alone`
    /// is the option that takes no time.
    fn take(&mut self, args: &Args<'_>, index: usize, alone: &'static str) -> Option<usize> {
        let options = ["EX", "PX", "EXAT", "PXAT", alone];
        let option = options.into_iter().find(|option| is(args.get(index), option))?;
        let words = if option == alone { 1 } else { 2 };
        let fits = index + words <= args.len() && self.0.is_none_or(|(other, _)| other == option);
        fits.then(|| {
            self.0 = Some((option, index + words - 1));
            words
        })
    }

    /// What one that takes a time says.
    fn read((option, index): (&str, usize), args: &Args<'_>, call: &Call<'_, '_>) -> Result<Expiry, Fault> {
        let unit = if option.starts_with('E') { Unit::Seconds } else { Unit::Milliseconds };
        lifetime(args, index, call, unit, option.ends_with("AT"))
    }
}

fn get_expiring(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let mut expiry = ExpiryOption::default();
    let mut index = 2;
    while index < args.len() {
        index += expiry.take(&args, index, "PERSIST").ok_or(SYNTAX)?;
    }
    let key = call.key(&args, 1)?;
    let expiry = match expiry.0 {
        None => return Ok(Step::Ask(Command::Get { key }, Shape::Plain)),
        Some(("PERSIST", _)) => Expiry::Never,
        Some(given) => match ExpiryOption::read(given, &args, call) {
            Ok(expiry) => expiry,
            // As Redis: the time is looked at once there is a string that it is for.
            Err(Fault(text)) => return Ok(Step::Ask(Command::Get { key }, Shape::Refused(text))),
        },
    };
    Ok(Step::Ask(Command::Refresh { key, expiry }, Shape::Plain))
}

/// An expiry that must be positive.
fn lifetime(
    args: &Args<'_>,
    index: usize,
    call: &Call<'_, '_>,
    unit: Unit,
    absolute: bool,
) -> Result<Expiry, Fault> {
    let given = number(args, index)?;
    let millis = match unit {
        Unit::Seconds => given.checked_mul(1000),
        Unit::Milliseconds => Some(given),
    };
    match millis.filter(|millis| *millis > 0) {
        Some(millis) if absolute => Ok(Expiry::At(millis)),
        Some(millis) if call.wall_ms().checked_add(millis).is_some() => Ok(Expiry::In(millis)),
        _ => Err(call.wrong_expiry()),
    }
}

fn set_expiring(args: Args<'_>, call: &mut Call<'_, '_>, unit: Unit) -> Result<Step, Fault> {
    let expiry = lifetime(&args, 2, call, unit, false)?;
    let (key, value) = (call.key(&args, 1)?, args.bytes(3));
    let put = Command::Put { key, value, condition: Condition::Always, expiry, old: false };
    Ok(Step::Ask(put, Shape::Plain))
}

fn set_if_absent(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (key, value) = (call.key(&args, 1)?, args.bytes(2));
    let (condition, expiry) = (Condition::IfAbsent, Expiry::Never);
    Ok(Step::Ask(Command::Put { key, value, condition, expiry, old: false }, Shape::Flag))
}

fn get_set(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (key, value) = (call.key(&args, 1)?, args.bytes(2));
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    Ok(Step::Ask(Command::Put { key, value, condition, expiry, old: true }, Shape::Plain))
}

fn take(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    Ok(Step::Ask(Command::Take { key: call.key(&args, 1)? }, Shape::Plain))
}

fn get_many(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    Ok(Step::Ask(Command::GetMany { keys: call.keys(&args, 1, 1)? }, Shape::Plain))
}

fn set_many(args: Args<'_>, call: &mut Call<'_, '_>, if_none: bool) -> Result<Step, Fault> {
    if args.len().is_multiple_of(2) {
        return Err(call.wrong_arity());
    }
    call.keys(&args, 1, 2)?;
    let shape = if if_none { Shape::Flag } else { Shape::Plain };
    Ok(Step::Ask(Command::PutMany { pairs: pairs(&args, 1), if_none }, shape))
}

fn get_range(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (start, end) = (number(&args, 2)?, number(&args, 3)?);
    Ok(Step::Ask(Command::GetRange { key: call.key(&args, 1)?, start, end }, Shape::Plain))
}

fn set_range(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let offset = u64::try_from(number(&args, 2)?).map_err(|_| "ERR offset is out of range")?;
    let (key, value) = (call.key(&args, 1)?, args.bytes(3));
    Ok(Step::Ask(Command::PutRange { key, offset, value }, Shape::Plain))
}

fn length(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    Ok(Step::Ask(Command::Length { key: call.key(&args, 1)? }, Shape::Plain))
}

fn append(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (key, value) = (call.key(&args, 1)?, args.bytes(2));
    Ok(Step::Ask(Command::Append { key, value }, Shape::Plain))
}

fn step(args: Args<'_>, call: &mut Call<'_, '_>, by: i64) -> Result<Step, Fault> {
    Ok(Step::Ask(Command::Increment { key: call.key(&args, 1)?, by }, Shape::Plain))
}

fn increment_by(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let by = number(&args, 2)?;
    step(args, call, by)
}

fn decrement_by(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let by = number(&args, 2)?.checked_neg().ok_or("ERR decrement would overflow")?;
    step(args, call, by)
}

fn increment_float(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (key, by) = (call.key(&args, 1)?, args.bytes(2));
    Ok(Step::Ask(Command::IncrementFloat { key, by }, Shape::Plain))
}
